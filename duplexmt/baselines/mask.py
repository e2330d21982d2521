"""Who sees whom in a prefix language model: the source is causal, the target sees the source that has been read.

A model is trained for one wait-k schedule, for the whole source, or for all schedules at once: multi-path training
(Elbayad, Besacier and Verbeek, "Efficient Wait-k Models for Simultaneous Machine Translation", 2020) draws a k for each
pair, and the model is then run at any.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

MULTI_PATH = "multi"  # the k of a model trained at all of them
DELAYS = (1, 3, 5, 7)  # the k it is evaluated at, unless others are asked for
SHOWN = 3  # and the one to show translations by


def check_k(k: Any, setting: str = "system.k") -> int:
    """Return `k` if it is a whole number of at least 1, else raise `ValueError`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"{setting}={k!r}: wait-k writes once k source tokens are read: k must be a whole number ≥ 1")
    return k


def check_trained_k(k: Any) -> int | str:
    """Return the k a model is to be trained with: that of one schedule, or `multi`; else raise `ValueError`."""
    return MULTI_PATH if k == MULTI_PATH else check_k(k)


def own_delays(k: int | str | None) -> tuple[int | None, ...]:
    """The k a model trained with `k` is run at unless others are asked for."""
    return DELAYS if k == MULTI_PATH else (k,)  # type: ignore[return-value]


def shown_delay(k: int | str | None) -> int | None:
    """The one k to show translations of such a model by."""
    return SHOWN if k == MULTI_PATH else k  # type: ignore[return-value]


def drawn_delays(
    keys: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    epoch: int,
    source_prefix: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """A k for each pair, drawn evenly from 1 to the length of its source text, end token included.

    It is drawn by the pair's tokens and the epoch: a pair has the same k in whatever batch or process it comes, and in
    a resumed run, but another one in the next epoch.

    Args:
        keys: of each pair, by its tokens (`Example.key`).
        shapes: source and target tokens of each pair.
        epoch: number of the pass over the data.
        source_prefix: tokens before the source text.
        device: of what is returned.

    Returns:
        `[B]`, int64.
    """
    pairs = zip(keys, shapes, strict=True)
    drawn = [random.Random(f"delay {key} {epoch}").randint(1, X - source_prefix) for key, (X, _) in pairs]
    return torch.tensor(drawn, device=device)


def visible_source(
    k: int | Tensor | None, source_lengths: Tensor, Y: int, source_prefix: int = 0, target_prefix: int = 0
) -> Tensor:
    """Source tokens read when target token `y + 1` is predicted: `min(k + y, length)`, the end token counted.

    Args:
        k: text tokens read before the first is written, for all pairs or for each `[B]`; None for the whole source
            (offline).
        source_lengths: tokens of each source, prefix and end token included, `[B]`.
        Y: target positions, seed token first.
        source_prefix: tokens before the text that may always be seen.
        target_prefix: forced target tokens after the seed; no source is read for them.

    Returns:
        `[B, Y]`, int64.
    """
    lengths = source_lengths[:, None].expand(-1, Y)
    if k is None:
        return lengths
    written = (torch.arange(Y, device=source_lengths.device) - target_prefix).clamp(min=0)
    first = source_prefix + (k[:, None] if isinstance(k, Tensor) else k)
    return torch.minimum(first + written, lengths)


def prefix_mask(visible: Tensor, X: int) -> Tensor:
    """Attention mask over `[source ; target]`, true where a query (row) sees a key (column).

    A source token sees itself and the source before it. A target token sees itself, the target before it, and the
    first `visible` source tokens. No source state depends on the target or on source to come: reading on changes no
    state that is there already, and one pass over the sequence trains every prefix.

    Args:
        visible: `[B, Y]`, from `visible_source`.
        X: source tokens of the batch, padding included.

    Returns:
        `[B, X + Y, X + Y]`, boolean.
    """
    B, Y = visible.shape
    place = torch.arange(X + Y, device=visible.device)
    source_seen = torch.cat((visible.new_full((B, X), X), visible), dim=1)  # by query
    return (place <= place[:, None]) & ((place >= X) | (place < source_seen[..., None]))
