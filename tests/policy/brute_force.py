"""Enumeration of every monotone path: the oracle of the dynamic program."""

import itertools


def best_row_exits(heatmap, lam, inner=()):
    """All `y_at` of highest score `λ·Area − Σ L` (`eq:path-score`), and that score. Exact for dyadic numbers.

    No row is left before a token that goes on with a word, `inner`."""
    X, Y = len(heatmap), len(heatmap[0])
    best, winners = None, []
    for exits in itertools.product(range(Y + 1), repeat=X - 1):
        y_at = [*exits, Y]  # EMIT is possible in rows 0..X-1 only: the last row is left at the top
        if y_at != sorted(y_at) or any(height < len(inner) and inner[height] for height in exits):
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


def best_score_from(heatmap, lam, x, y, inner=()):
    """The highest score of a path from state `(x, y)` to the end, by trying every one (`eq:path-score`)."""
    X, Y = len(heatmap), len(heatmap[0])
    if x == X:
        return 0.0
    stays = y < len(inner) and inner[y]
    ways = [lam * y + best_score_from(heatmap, lam, x + 1, y, inner)] if (x < X - 1 and not stays) or y == Y else []
    if y < Y:
        ways.append(best_score_from(heatmap, lam, x, y + 1, inner) - heatmap[x][y])
    return max(ways)


def cell_by_cell(heatmap, lam):
    """What EMIT is worth over WAIT in each cell, and `y_at` of the best path, by `eq:dp-recur` one state at a time."""
    X, Y = len(heatmap), len(heatmap[0])
    best = [[float("-inf")] * (Y + 1) for _ in range(X)]
    worth = [[0.0] * Y for _ in range(X)]
    for x in range(X - 1, -1, -1):
        for y in range(Y, -1, -1):
            wait = lam * y + best[x + 1][y] if x < X - 1 else 0.0 if y == Y else float("-inf")
            emit = best[x][y + 1] - heatmap[x][y] if y < Y else float("-inf")
            best[x][y] = max(wait, emit)
            if x < X - 1 and y < Y:
                worth[x][y] = emit - wait
    y_at, height = [], 0
    for x in range(X):
        while height < Y and (x == X - 1 or worth[x][height] >= 0):
            height += 1
        y_at.append(height)
    return worth, y_at
