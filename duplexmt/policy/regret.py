"""What a decision is worth: the path score that EMIT gains over WAIT at a cell, if all goes best from there on.

The paper trains its EMIT head on the side of the best path a cell lies on (`eq:emit-mask`), each cell alike: a WAIT
that would have saved 0.01 nats counts as much as one that would have saved 5, and cells off the path are labelled by
where they lie, not by what is best there. The difference of the two scores says both: its sign is the better decision
at this very cell, and its size what the other one costs. Weighted by it, the head's p(EMIT) = 1/2 is where EMIT and
WAIT are worth the same *on average* over what the model cannot tell apart.
"""

import torch
from torch import Tensor

from .recurrence import running_best


@torch.no_grad()
def emit_advantages(
    heatmap: Tensor, source_lengths: Tensor, target_lengths: Tensor, lam: float, inner: Tensor | None = None
) -> Tensor:
    """`Q(EMIT) − Q(WAIT)` at each cell: the best scores `λ·Area − Σ L` (`eq:path-score`) of a path from there on.

    With `C_x[y] = Σ_{k < y} L(x, k)` the score of a path is a sum over the heights at which it leaves its rows: leaving
    row x at height y adds `λ·y − C_x[y] + C_{x+1}[y]`. With what is best from row x + 1 on, of heights of at least y,
    that makes `leave[x][y]`; what is best from row x on is its maximum over all heights of at least y. This is
    `eq:dp-recur` run backwards. EMIT is worth the best of leaving later over leaving here.

    Args:
        heatmap: `[B, X, Y]`, finite at the valid cells of each pair.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        lam: λ, at least 0.
        inner: tokens that go on with a word `[B, Y]`, before which no path leaves a row; None: there are none.

    Returns:
        `[B, X, Y]` in the heatmap's dtype; 0 in a pair's last row, where nothing is left to wait for, in padding, and
        where there is no choice, as a word is to be finished.
    """
    precise = torch.float32 if heatmap.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    rows = torch.arange(heatmap.shape[1], device=heatmap.device)[:, None, None]
    heights, top = torch.arange(heatmap.shape[2] + 1, device=heatmap.device), target_lengths[:, None]
    spent = torch.nn.functional.pad(heatmap.to(precise), (1, 0)).cumsum(-1).transpose(0, 1)  # C: [X, B, Y + 1]
    inside = (rows < source_lengths[:, None] - 1) & (heights <= top)
    if inner is not None:
        inside = inside & ~torch.nn.functional.pad(inner & (heights[:-1] < top), (0, 1))
    end = torch.zeros_like(spent[0]).masked_fill(heights != top, float("-inf"))  # the last row is left at the top
    gains = torch.where(inside, lam * heights + spent.roll(-1, 0) - spent, end)
    best = running_best(gains.flip(0, 2)).flip(0, 2)
    leave = gains + torch.nn.functional.pad(best[1:], (0, 0, 0, 0, 0, 1))
    choice = inside[..., :-1] & (heights[:-1] < top)
    return torch.where(choice, best[..., 1:] - leave[..., :-1], 0.0).transpose(0, 1).to(heatmap.dtype)
