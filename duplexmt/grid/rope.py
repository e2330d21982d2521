"""Anchored rotary positions of the two streams (Section III-B and `eq:rope-anchor`)."""

import torch
from torch import Tensor

VISIBLE_LENGTH = "visible_length"  # the naive alternative that the paper rejects: x_vis + y, which moves at every read


def check_anchor(anchor: str | int, naive: bool = False) -> str | int:
    """Return `anchor` if it is `source_length` or a position ≥ 0 (or `visible_length`, where that is possible).

    Raises:
        ValueError: for anything else.
    """
    if anchor == "source_length" or (isinstance(anchor, int) and not isinstance(anchor, bool) and anchor >= 0):
        return anchor
    if anchor == VISIBLE_LENGTH and naive:
        return anchor
    raise ValueError(
        f"model.anchor={anchor!r}: must be 'source_length' or a position of at least 0, such as 0 or 128"
        + (f" (or {VISIBLE_LENGTH!r}, an ablation)" if naive else "")
    )


def target_positions(anchor: str | int, source_lengths: Tensor, y: Tensor) -> Tensor:
    """Positions of target tokens, `pos_O(y) = anchor + y` (`eq:rope-anchor`).

    Args:
        anchor: `source_length` (the paper's `X_total`, one per pair) or a constant.
        source_lengths: tokens of the source of each token's pair, end token included, `[T]`.
        y: column of each token, `[T]`.

    Returns:
        `[T]`, int64.
    """
    return y + (source_lengths if anchor == "source_length" else int(anchor))


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `states [..., heads, E]` by the backbone's `cos`, `sin`, broadcastable to `[..., 1, E]`."""
    first, second = states.chunk(2, dim=-1)
    return states * cos.to(states.dtype) + torch.cat((-second, first), dim=-1) * sin.to(states.dtype)


def turn(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """`rotate` in fewer passes, by the sines of `signed`."""
    return torch.addcmul(
        states * cos.to(states.dtype), states.roll(states.shape[-1] // 2, -1), signed_sin.to(states.dtype)
    )


def signed(sin: Tensor) -> Tensor:
    """The sines with the sign that the rotation gives the half they are multiplied with, once for many `turn`s."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)
