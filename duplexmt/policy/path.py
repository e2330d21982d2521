"""The best monotone path through a heatmap (`eq:dp-recur`, `eq:path-score`) and its EMIT mask (`eq:emit-mask`)."""

import torch
from torch import Tensor

from .recurrence import running_best
from .regret import emit_advantages


@torch.no_grad()
def best_path(
    heatmap: Tensor, source_lengths: Tensor, target_lengths: Tensor, lam: float, inner: Tensor | None = None
) -> Tensor:
    """Row exits of the path with the highest score `R(π) = λ·Area(π) − Σ_EMIT L(x, y)` (`eq:path-score`).

    A WAIT at height `y` earns `λ·y`, so a larger λ emits earlier. Ties go to the earlier EMIT: among all best paths the
    one returned has the largest `y_at` in every row.

    Args:
        heatmap: `[B, X, Y]`, finite at the valid cells of each pair.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        lam: λ, as `knobs.check_lam` allows it.
        inner: tokens that go on with a word `[B, Y]`, written in the row in which it begins; None: there are none.

    Returns:
        `y_at [B, X]`, int64: target tokens written before row `x` is left; the target length in a pair's last row, and
        0 in rows past it.
    """
    worth = emit_advantages(heatmap, source_lengths, target_lengths, lam, inner)
    return path_of(worth, source_lengths, target_lengths)


@torch.no_grad()
def path_of(worth: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """The same from what EMIT is worth in each cell (`regret.emit_advantages`): it emits where that is 0 or more.

    By row x token y is written if in one of the rows up to x it gains, and all tokens before it were written by then.
    """
    rows = torch.arange(worth.shape[1], device=worth.device)
    columns = torch.arange(worth.shape[2], device=worth.device)
    left = rows - source_lengths[:, None]  # −1 in a pair's last row
    gains = worth.masked_fill((left == -1)[:, :, None], float("inf"))
    written = running_best(gains.permute(2, 0, 1), "min").permute(1, 2, 0) >= 0
    return (written & (columns < target_lengths[:, None, None]) & (left < 0)[:, :, None]).sum(-1)


def emit_mask(y_at: Tensor, Y: int) -> Tensor:
    """`M[x][y] = 1[y < y_at[x]]` (`eq:emit-mask`): row exits `[B, X]` → `[B, X, Y]` booleans, EMIT where true.

    It labels every cell, off-path ones too: behind the path EMIT, ahead of it WAIT.
    """
    return torch.arange(Y, device=y_at.device) < y_at.unsqueeze(-1)


def path_rows(y_at: Tensor, Y: int) -> Tensor:
    """Row in which each target token is written, `[B, X]` → `[B, Y]`; `X` for tokens past a pair's length."""
    return (y_at.unsqueeze(-1) <= torch.arange(Y, device=y_at.device)).long().cumprod(1).sum(1)
