"""Schedules of a prefix model: how many source tokens each target token sees, and where the target begins.

A model is trained for one wait-k schedule, for the whole source, or for all schedules at once: multi-path training
(Elbayad, Besacier and Verbeek, "Efficient Wait-k Models for Simultaneous Machine Translation", 2020) draws a k for each
pair, and the model is then run at any.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from .decoder_options import MULTI_PATH

DELAYS = (1, 3, 5, 7)  # the k a multi-path model is evaluated at, unless others are asked for
SHOWN = 3  # and the one to show translations by


def own_delays(k: int | str | None) -> tuple[int | None, ...]:
    """The k a model trained with `k` is run at unless others are asked for."""
    return DELAYS if k == MULTI_PATH else (k,)  # type: ignore[return-value]


def shown_delay(k: int | str | None) -> int | None:
    """The one k to show translations of such a model by."""
    return SHOWN if k == MULTI_PATH else k  # type: ignore[return-value]


def drawn_delays(keys: Sequence[int], shapes: Sequence[tuple[int, int]], epoch: int, source_prefix: int = 0) -> Tensor:
    """A k for each pair, drawn evenly from 1 to the length of its source text, end token included.

    It is drawn by the pair's tokens and the epoch: a pair has the same k in whatever batch or process it comes, and in
    a resumed run, but another one in the next epoch.

    Args:
        keys: of each pair, by its tokens (`Example.key`).
        shapes: source and target tokens of each pair.
        epoch: number of the pass over the data.
        source_prefix: tokens before the source text.

    Returns:
        `[B]`, int64.
    """
    pairs = zip(keys, shapes, strict=True)
    return torch.tensor([random.Random(f"delay {key} {epoch}").randint(1, X - source_prefix) for key, (X, _) in pairs])


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
