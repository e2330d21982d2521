"""The best monotone path through a heatmap (`eq:dp-recur`, `eq:path-score`) and its EMIT mask (`eq:emit-mask`)."""

import torch
from torch import Tensor


@torch.no_grad()
def path_of(worth: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Row exits of the path with the highest score `R(π) = λ·Area(π) − Σ_EMIT L(x, y)` (`eq:path-score`): it emits
    where EMIT is worth 0 or more, so of all best paths it is the one with the largest `y_at` in every row.

    Args:
        worth: of EMIT over WAIT in each cell `[B, X, Y]` (`regret.emit_advantages`).
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.

    Returns:
        `y_at [B, X]`, int64: target tokens written before row `x` is left; the target length in a pair's last row, and
        0 in rows past it.
    """
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
