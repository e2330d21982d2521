"""One sentence pair's grid as pictures, for a training's probes: the report draws its own, which can be moved through.

Loss heatmap with its best path (`fig:dp-path`), and what each cell would write (`fig:grid-output`). Source from left to
right, target from bottom to top, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from . import style
from .table import terminal_width

MOST_CELLS = 40  # rows or columns that are drawn
CELL = 0.48, 0.24  # inches
LABEL, INSIDE = 16, 7  # columns of a terminal that a label, or the text in a cell, may take


@dataclass(frozen=True)
class SentenceGrid:
    """What a model makes of one sentence pair with X source tokens and Y target tokens, end tokens included.

    Rows are source tokens: row `x` has read tokens `0..x`. Column `y` predicts `target[y]`, the paper's `o_{y+1}`.

    Raises:
        ValueError: where numbers are not finite.
    """

    source: Sequence[str]  # X tokens
    target: Sequence[str]  # Y tokens to be predicted
    heatmap: Sequence[Sequence[float]]  # [X][Y], nats
    emit: Sequence[Sequence[float]]  # [X][Y], p(EMIT)
    top: Sequence[Sequence[str]]  # [X][Y], the most probable token
    y_at: Sequence[int]  # [X], tokens written before each row is left
    lam: float  # λ of the path

    def __post_init__(self) -> None:
        for name in ("heatmap", "emit"):
            if not all(isfinite(value) for row in getattr(self, name) for value in row):
                raise ValueError(f"{name}: all numbers must be finite; the model has diverged, or its file is damaged")

    @property
    def area(self) -> float:
        """Share of the cells that lie below the path."""
        return sum(self.y_at) / (len(self.source) * len(self.target))

    def cut(self, most: int) -> "SentenceGrid":
        """The first rows and columns, at most `most` of each; the path ends where the shown part ends."""
        X, Y = min(most, len(self.source)), min(most, len(self.target))

        def corner(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
            return [row[:Y] for row in rows[:X]]

        parts = corner(self.heatmap), corner(self.emit), corner(self.top)
        heights = [min(height, Y) for height in self.y_at[:X]]
        return SentenceGrid(self.source[:X], self.target[:Y], *parts, heights, self.lam)


def heatmap_figure(grid: SentenceGrid, folder: Path, name: str = "heatmap") -> Path:
    """Write `fig:dp-path` as PNG: darker = higher loss, the staircase is the best path. Returns the file, as does
    `output_figure`; of longer sentences both show the first 40 source and target tokens, and their titles say so.
    """
    highest = max(map(max, grid.heatmap))
    return _figure(grid, folder / f"{name}.png", "loss L(x, y) in nats", "heatmap", style.LOSS_COLOURS, highest)


def output_figure(grid: SentenceGrid, folder: Path, name: str = "grid-output") -> Path:
    """Write `fig:grid-output` as PNG: each cell's most probable token, darker = more probable EMIT."""
    return _figure(grid, folder / f"{name}.png", "p(EMIT)", "emit", style.EMIT_COLOURS, 1.0, with_tokens=True)


def _figure(
    grid: SentenceGrid, path: Path, label: str, field: str, colours: str, high: float, *, with_tokens: bool = False
) -> Path:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    part = grid.cut(MOST_CELLS)
    X, Y, values = len(part.source), len(part.target), getattr(part, field)
    with style.figure_style():
        figure = Figure(figsize=(CELL[0] * X + 2.4, CELL[1] * Y + 1.8), layout="constrained")
        axes: Any = figure.subplots()
        mesh = axes.pcolormesh(list(zip(*values, strict=True)), cmap=colours, vmin=0, vmax=max(high, 1e-9))
        figure.colorbar(mesh, ax=axes, label=label)
        axes.set_xticks([x + 0.5 for x in range(X)], [short(token, LABEL) for token in part.source], rotation=90)
        axes.set_yticks([y + 0.5 for y in range(Y)], [short(token, LABEL) for token in part.target])
        axes.tick_params(labelsize=8, length=0)
        axes.set_xlabel("source token read →")
        axes.set_ylabel("target →")
        for x in range(X if with_tokens else 0):
            for y in range(Y):
                look: Any = {"fontsize": 6.5, "color": style.ink(colormaps[colours](values[x][y])), "clip_on": True}
                axes.text(x + 0.5, y + 0.5, short(part.top[x][y], INSIDE), ha="center", va="center_baseline", **look)
        # EMIT goes up along the left side of a row's cells, WAIT right; white around it, it is seen on any colour.
        for colour, width in (("white", 3.6), ("black", 1.8)):
            way: Any = {"drawstyle": "steps-pre", "solid_joinstyle": "miter", "clip_on": False}
            axes.plot(range(X + 1), [0, *part.y_at], color=colour, linewidth=width, **way)
        cut = f"; first of {len(grid.source)} × {len(grid.target)} tokens" if part != grid else ""
        axes.set_title(f"best path at λ = {grid.lam:g}, area {100 * grid.area:.0f} %{cut}", fontsize=8, loc="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    return path


def short(token: str, columns: int) -> str:
    """A token as it can be drawn (`style.shown`), cut to so many columns of a terminal."""
    text = style.shown(token)
    kept = text[: 2 * columns]
    while terminal_width(kept) > columns - (kept != text):
        kept = kept[:-1]
    return kept if kept == text else kept + "…"
