"""Enumeration of every monotone path: the oracle of the dynamic program."""

import itertools


def best_row_exits(heatmap, lam):
    """All `y_at` of highest score `λ·Area − Σ L` (`eq:path-score`), and that score. Exact for dyadic numbers."""
    X, Y = len(heatmap), len(heatmap[0])
    best, winners = None, []
    for exits in itertools.product(range(Y + 1), repeat=X - 1):
        y_at = [*exits, Y]  # EMIT is possible in rows 0..X-1 only: the last row is left at the top
        if y_at != sorted(y_at):
            continue
        score, height = 0.0, 0
        for x, exit_height in enumerate(y_at):
            score -= sum(heatmap[x][height:exit_height])
            score += lam * exit_height
            height = exit_height
        if best is None or score > best:
            best, winners = score, [y_at]
        elif score == best:
            winners.append(y_at)
    return best, winners


def best_score_from(heatmap, lam, x, y):
    """The highest score of a path from state `(x, y)` to the end, by trying every one (`eq:path-score`)."""
    X, Y = len(heatmap), len(heatmap[0])
    if x == X:
        return 0.0
    ways = [lam * y + best_score_from(heatmap, lam, x + 1, y)] if x < X - 1 or y == Y else []
    if y < Y:
        ways.append(best_score_from(heatmap, lam, x, y + 1) - heatmap[x][y])
    return max(ways)
