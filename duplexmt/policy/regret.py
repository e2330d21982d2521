"""What a decision is worth: the path score that EMIT gains over WAIT at a cell, if all goes best from there on.

The paper trains its EMIT head on the side of the best path a cell lies on (`eq:emit-mask`), each cell alike: a WAIT
that would have saved 0.01 nats counts as much as one that would have saved 5, and cells off the path are labelled by
where they lie, not by what is best there. The difference of the two scores says both: its sign is the better decision
at this very cell, and its size what the other one costs. Weighted by it, the head's p(EMIT) = 1/2 is where EMIT and
WAIT are worth the same *on average* over what the model cannot tell apart.
"""

import torch
from torch import Tensor


@torch.no_grad()
def emit_advantages(heatmap: Tensor, source_lengths: Tensor, target_lengths: Tensor, lam: float) -> Tensor:
    """`Q(EMIT) − Q(WAIT)` at each cell: the best scores `λ·Area − Σ L` (`eq:path-score`) of a path from there on.

    With `V(x, y)` the best score from state `(x, y)` to the end, `Q(EMIT) = V(x, y + 1) − L(x, y)` and
    `Q(WAIT) = V(x + 1, y) + λ·y`: `eq:dp-recur` run backwards. One row is a running maximum: with `T[y] = Σ_{k ≥ y}
    L(x, k)` the best of all heights `y' ≥ y` at which row `x` may be left is `max (Q(WAIT)[y'] + T[y']) − T[y]`.

    Args:
        heatmap: `[B, X, Y]`, finite at the valid cells of each pair.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        lam: λ, as `knobs.check_lam` allows it.

    Returns:
        `[B, X, Y]` in the heatmap's dtype; 0 in a pair's last row, where nothing is left to wait for, and in padding.
    """
    _, X, Y = heatmap.shape
    precise = torch.float32 if heatmap.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    heights = torch.arange(Y + 1, device=heatmap.device)
    columns = heights[:-1] < target_lengths[:, None]
    beyond = heights > target_lengths[:, None]
    spent = torch.where(columns[:, None], heatmap.to(precise), 0.0)
    rest = torch.nn.functional.pad(spent.flip(-1).cumsum(-1).flip(-1), (0, 1))  # T: [B, X, Y + 1]
    below = torch.zeros_like(rest[:, 0])  # V(x + 1, ·)
    earned = torch.where(beyond, float("-inf"), lam * heights)
    following = torch.empty(2, *rest.shape, dtype=precise, device=heatmap.device)  # Q(WAIT), and V where x is not last
    inside = (source_lengths[:, None] > torch.arange(1, X + 1, device=heatmap.device))[:, :, None]
    for x in range(X - 1, -1, -1):
        wait = torch.add(below, earned, out=following[0, :, x])
        best = (wait + rest[:, x]).flip(-1).cummax(-1).values.flip(-1) - rest[:, x]
        following[1, :, x] = best
        below = torch.where(inside[:, x], best, -rest[:, x])  # past a pair's last row nothing reads it
    wait, best = following
    worth = best[..., 1:] - spent - wait[..., :-1]
    return torch.where(inside & columns[:, None], worth, 0.0).to(heatmap.dtype)
