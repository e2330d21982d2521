"""The loss heatmap (`eq:grid-loss`), without ever holding cells × vocabulary logits."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def cells_at_once(vocab_size: int) -> int:
    """Cells whose logits may exist at a time: about 2²⁶ numbers, 256 MB in float32 (and as much again for softmax)."""
    return max(1, 2**26 // vocab_size)


def valid_cells(source_lengths: Tensor, target_lengths: Tensor, X: int, Y: int) -> Tensor:
    """The paper's 𝒱: which cells `[B, X, Y]` of a padded batch belong to a pair, given its lengths `[B]`."""
    rows = torch.arange(X, device=source_lengths.device) < source_lengths[:, None]
    columns = torch.arange(Y, device=target_lengths.device) < target_lengths[:, None]
    return rows[:, :, None] & columns[:, None, :]


def loss_heatmap(
    hidden: Tensor, text_logits: Callable[[Tensor], Tensor], labels: Tensor, valid: Tensor, chunk: int
) -> Tensor:
    """`L(x, y) = −log p[x, y](o_{y+1})` at every valid cell (`eq:grid-loss`).

    Logits are computed a chunk of cells at a time, and, where one chunk does not hold all cells, again in the backward
    pass.

    Args:
        hidden: final-normed target states `[B, X, Y, D]`.
        text_logits: maps `[n, D]` to `[n, vocabulary]`.
        labels: the token each column predicts, `o_{y+1}`, `[B, Y]`.
        valid: `[B, X, Y]`, from `valid_cells`.
        chunk: cells whose logits exist at a time.

    Returns:
        `[B, X, Y]` in nats, at least float32; 0 at cells that are not valid.
    """

    def token_loss(states: Tensor, targets: Tensor) -> Tensor:
        logits = text_logits(states)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(logits, targets, reduction="none")

    states, targets = hidden[valid], labels[:, None, :].expand_as(valid)[valid]
    if len(states) <= chunk:
        losses = token_loss(states, targets)
    else:
        pieces = zip(states.split(chunk), targets.split(chunk), strict=True)
        losses = torch.cat([checkpoint(token_loss, *piece, use_reentrant=False) for piece in pieces])
    return losses.new_zeros(valid.shape).masked_scatter(valid, losses)
