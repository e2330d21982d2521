"""Who sees whom in a prefix language model: the source is causal, the target sees the source that has been read."""

from typing import Any

import torch
from torch import Tensor


def check_k(k: Any, setting: str = "system.k") -> int:
    """Return `k` if it is a whole number of at least 1, else raise `ValueError`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"{setting}={k!r}: wait-k writes once k source tokens are read: k must be a whole number ≥ 1")
    return k


def visible_source(
    k: int | None, source_lengths: Tensor, Y: int, source_prefix: int = 0, target_prefix: int = 0
) -> Tensor:
    """Source tokens read when target token `y + 1` is predicted: `min(k + y, length)`, the end token counted.

    Args:
        k: text tokens read before the first is written; None for the whole source (offline).
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
    return torch.minimum(source_prefix + k + written, lengths)


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
