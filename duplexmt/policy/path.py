"""The best monotone path through a heatmap (`eq:dp-recur`, `eq:path-score`) and its EMIT mask (`eq:emit-mask`)."""

import torch
from torch import Tensor

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
        lam: λ, at least 0.
        inner: tokens that go on with a word `[B, Y]`, written in the row in which it begins; None: there are none.

    Returns:
        `y_at [B, X]`, int64: target tokens written before row `x` is left; the target length in a pair's last row, and
        0 in rows past it.
    """
    worth = emit_advantages(heatmap, source_lengths, target_lengths, lam, inner)
    return path_of(worth, source_lengths, target_lengths)


@torch.no_grad()
def path_of(worth: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """The same from what EMIT is worth in each cell (`regret.emit_advantages`): it emits where that is 0 or more."""
    left = torch.arange(worth.shape[1], device=worth.device) - source_lengths[:, None]  # −1 in a pair's last row
    exits = row_exits((worth >= 0) | (left == -1)[:, :, None])
    return torch.minimum(exits, target_lengths[:, None]).masked_fill(left >= 0, 0)


def row_exits(emits: Tensor) -> Tensor:
    """Tokens written before each row is left by a path that writes in the cells `emits` `[…, X, Y]`: `[…, X]`, int64.

    A row leads from the height at which it is entered to the next one at which it waits. These ways are put together
    by twice as many rows at a time, so that a device has few launches however many rows there are.
    """
    X, Y = emits.shape[-2:]
    waits = torch.arange(1, Y + 1, device=emits.device).masked_fill(emits.flip(-1), 0)  # in tokens left to be written
    leads = torch.nn.functional.pad(waits, (1, 0)).cummax(-1).values  # of as many before, 0 … Y
    rows = 1  # that each of `leads` has put together
    while rows < X:
        further = leads[..., rows:, :].gather(-1, leads[..., :-rows, :])
        leads, rows = torch.cat((leads[..., :rows, :], further), -2), 2 * rows
    return Y - leads[..., -1]


def emit_mask(y_at: Tensor, Y: int) -> Tensor:
    """`M[x][y] = 1[y < y_at[x]]` (`eq:emit-mask`): row exits `[B, X]` → `[B, X, Y]` booleans, EMIT where true.

    It labels every cell, off-path ones too: behind the path EMIT, ahead of it WAIT.
    """
    return torch.arange(Y, device=y_at.device) < y_at.unsqueeze(-1)


def path_rows(y_at: Tensor, Y: int) -> Tensor:
    """Row in which each target token is written, `[B, X]` → `[B, Y]`; `X` for tokens past a pair's length."""
    return (y_at.unsqueeze(-1) <= torch.arange(Y, device=y_at.device)).long().cumprod(1).sum(1)
