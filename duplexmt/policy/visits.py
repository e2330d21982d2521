"""Where a policy writes: the share of thresholds θ at which it would emit each token in each row.

The paper's language model loss is a mean over all cells of the EMIT mask (`eq:lm-loss`), whether a translation ever
comes to pass there or not: the row in which the whole source is read has one cell in X, though under most thresholds a
large part of the words is written in it, and cells ahead of the best path have none. Weighted by these shares the loss
is that of the reference along the model's own paths, mean over θ: what decoding runs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# Thresholds as decoding uses them, evenly from early to late, and 1: the whole source is read first.
THETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@torch.no_grad()
def visit_shares(
    p_emit: Tensor, source_lengths: Tensor, target_lengths: Tensor, thetas: Sequence[float] = THETAS
) -> Tensor:
    """Share of the thresholds at which a cell's token is written in its row, when EMIT follows from `p(EMIT) > θ`.

    As in decoding: the last row emits whatever its p(EMIT) is, and the end token is written there.

    Args:
        p_emit: probability of EMIT `[B, X, Y]`; padding is not read.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        thetas: at least one.

    Returns:
        `[B, X, Y]` in float32: each valid column sums to 1; 0 in padding.
    """
    B, X, Y = p_emit.shape
    device = p_emit.device
    levels = torch.tensor(thetas, dtype=p_emit.dtype, device=device)
    rows, last = torch.arange(X, device=device), source_lengths - 1
    emits = p_emit > levels[:, None, None, None]  # [θ, B, X, Y]
    emits |= (rows == last[:, None])[:, :, None]
    emits &= (rows <= last[:, None])[:, :, None]
    # First row of at least x that emits token y; past the last one X, where nothing is looked up.
    following = torch.where(emits, rows[:, None], X).flip(2).cummin(2).values.flip(2)
    row = torch.zeros(len(levels), B, 1, dtype=torch.int64, device=device)
    written = torch.empty(len(levels), B, Y, dtype=torch.int64, device=device)
    for y in range(Y):
        row = following[..., y].gather(2, row)
        written[..., y] = row.squeeze(2)
    columns = torch.arange(Y, device=device)
    written = torch.where(columns == target_lengths[:, None] - 1, last[:, None], written)
    counts = torch.zeros(B, X, Y, device=device)
    counts.scatter_add_(1, written.transpose(0, 1), counts.new_ones(B, len(levels), Y))
    return counts / len(levels) * (columns < target_lengths[:, None])[:, None]
