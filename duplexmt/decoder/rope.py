"""Anchored rotary positions of the two streams (Sections III-C and V-G, `eq:rope-anchor`)."""

from typing import Any

import torch
from torch import Tensor


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


def rotate(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate states by the backbone's cosines and sines.

    Args:
        states: `[..., heads, E]`.
        cos, signed_sin: broadcastable to `[..., 1, E]`; sines as `signed` gives them.
    """
    cos, signed_sin = cos.to(states.dtype), signed_sin.to(states.dtype)
    if states.requires_grad and not torch.compiler.is_compiling():
        return _Rotation.apply(states, cos, signed_sin)
    return _turned(states, cos, signed_sin)


class _Rotation(torch.autograd.Function):
    """Its gradient takes the three passes of the rotation itself, where autograd takes five; angles have none."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, signed_sin)
        return _turned(states, cos, signed_sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, signed_sin = ctx.saved_tensors
        return _turned(gradients[0], cos, signed_sin, -1), None, None


def _turned(states: Tensor, cos: Tensor, sin: Tensor, way: int = 1) -> Tensor:
    """`x[e]·cos[e] + x[e']·sin[e]`, with `e'` the same place in the other half, of the same angles; back by −1."""
    return torch.addcmul(states * cos, states.roll(states.shape[-1] // 2, -1), sin, value=way)


def signed(sin: Tensor) -> Tensor:
    """Sines with the sign of the half they are multiplied with in a rotation: the first half's negated."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)
