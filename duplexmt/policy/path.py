"""The best monotone path through a heatmap (`eq:dp-recur`, `eq:path-score`) and its EMIT mask (`eq:emit-mask`)."""

import torch
from torch import Tensor


@torch.no_grad()
def best_path(heatmap: Tensor, source_lengths: Tensor, target_lengths: Tensor, lam: float) -> Tensor:
    """Row exits of the path with the highest score `R(π) = λ·Area(π) − Σ_EMIT L(x, y)` (`eq:path-score`).

    A WAIT at height `y` earns `λ·y`, so a larger λ emits earlier. One row of the recurrence `eq:dp-recur` is a prefix
    sum and a running maximum: entering row `x` at height `k` with score `e[k]`, the path reaches height `y` with
    `max_{k ≤ y} (e[k] + C[k]) − C[y]`, where `C[y] = Σ_{k < y} L(x, k)`. Ties go to the earlier EMIT: among all best
    paths the one returned has the largest `y_at` in every row.

    Args:
        heatmap: `[B, X, Y]`, finite at the valid cells of each pair.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        lam: λ, as `knobs.check_lam` allows it.

    Returns:
        `y_at [B, X]`, int64: target tokens written before row `x` is left; the target length in a pair's last row, and
        0 in rows past it.
    """
    B, X, Y = heatmap.shape
    heights = torch.arange(Y + 1, device=heatmap.device)
    precise = torch.float32 if heatmap.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    spent = torch.nn.functional.pad(heatmap.to(precise), (1, 0)).cumsum(-1)  # C: [B, X, Y + 1]
    entry = torch.full((B, Y + 1), float("-inf"), dtype=precise, device=heatmap.device)
    entry[:, 0] = 0.0  # dp[0][0]
    entered_at = torch.empty(B, X, Y + 1, dtype=torch.int64, device=heatmap.device)
    for x in range(X):
        score = entry + spent[:, x]
        best = score.cummax(-1).values
        # The last k that attains the running maximum: cummax leaves the index of equal values open.
        entered_at[:, x] = torch.where(score == best, heights, 0).cummax(-1).values
        entry = best - spent[:, x] + lam * heights  # WAIT into row x + 1

    y_at = torch.zeros(B, X, dtype=torch.int64, device=heatmap.device)
    height = target_lengths.to(torch.int64)
    for x in range(X - 1, -1, -1):
        inside = x < source_lengths
        y_at[:, x] = torch.where(inside, height, 0)
        height = torch.where(inside, entered_at[:, x].gather(-1, height[:, None]).squeeze(-1), height)
    return y_at


def emit_mask(y_at: Tensor, Y: int) -> Tensor:
    """`M[x][y] = 1[y < y_at[x]]` (`eq:emit-mask`): row exits `[B, X]` → `[B, X, Y]` booleans, EMIT where true.

    It labels every cell, off-path ones too: behind the path EMIT, ahead of it WAIT.
    """
    return torch.arange(Y, device=y_at.device) < y_at.unsqueeze(-1)


def path_rows(y_at: Tensor, Y: int) -> Tensor:
    """Row in which each target token is written, `[B, X]` → `[B, Y]`; `X` for tokens past a pair's length."""
    return (y_at.unsqueeze(-1) <= torch.arange(Y, device=y_at.device)).long().cumprod(1).sum(1)
