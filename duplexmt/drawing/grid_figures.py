"""One sentence pair's grid as figures: loss heatmap with its best path (`fig:dp-path`), and what each cell would write
(`fig:grid-output`). Source from left to right, target from bottom to top, as in the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import style
from .style import shortened, shown, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 72  # an inch
LABEL_SIZE, CELL_SIZE = 8.0, 6.5  # points
MOST_LABEL = 70.0  # points of a tick label's length
MOST_CELLS = 40  # rows or columns whose text is shown
LEAST_INCHES = 1.8  # of the grid's side, so that the axes can be named
MOST_INCHES = 11.0  # of a heatmap's side


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


def heatmap_figure(
    grid: SentenceGrid, folder: Path, name: str = "heatmap", formats: Sequence[str] = style.FORMATS
) -> list[Path]:
    """Write `fig:dp-path` as SVG and PNG: darker = higher loss, the staircase is the best path.

    A sentence of any length is shown as a whole; where tokens stand too close, only some are labelled.
    """
    with style.figure_style():
        X, Y = len(grid.source), len(grid.target)
        width, height = min(0.42 if X <= 16 else 0.32, MOST_INCHES / X), min(0.26, MOST_INCHES / Y)
        axes, bar = _canvas(grid, width, height)
        _colour(axes, bar, "loss L(x, y) in nats", grid.heatmap, style.LOSS_COLOURS, max(map(max, grid.heatmap)))
        _path(axes, grid)
        title = f"best path at λ = {grid.lam:g}, {100 * grid.area:.0f} % of the cells below it"
        axes.set_title(title, fontsize=LABEL_SIZE, loc="left")
        return style.save(axes.figure, folder, name, formats=formats)


def output_figure(
    grid: SentenceGrid, folder: Path, name: str = "grid-output", formats: Sequence[str] = style.FORMATS
) -> list[Path]:
    """Write `fig:grid-output` as SVG and PNG: each cell's most probable token, darker = more probable EMIT.

    Of longer sentences the first 40 source and target tokens are shown, and the title says so.
    """
    from matplotlib import colormaps

    with style.figure_style():
        part = grid.cut(MOST_CELLS)
        X, Y = len(part.source), len(part.target)
        texts = [[shown(token) for token in row] for row in part.top]
        widths = sorted(text_width(text, CELL_SIZE) for row in texts for text in row)
        usual = widths[int(0.95 * (len(widths) - 1))]  # a few long tokens are shortened
        width = min(max(usual + 5, 20), 44 if X <= 20 else 34)
        axes, bar = _canvas(part, width / POINTS, 0.22)
        _colour(axes, bar, "p(EMIT)", part.emit, style.EMIT_COLOURS, 1.0)
        colours = colormaps[style.EMIT_COLOURS]
        for x in range(X):
            for y in range(Y):
                text, ink = shortened(texts[x][y], CELL_SIZE, width - 3), style.ink(colours(part.emit[x][y]))
                centred: Any = {"ha": "center", "va": "center_baseline", "clip_on": True}
                axes.text(x + 0.5, y + 0.5, text, fontsize=CELL_SIZE, color=ink, **centred)
        _path(axes, part)
        if (len(grid.source), len(grid.target)) != (X, Y):
            title = f"the first {X} of {len(grid.source)} source and {Y} of {len(grid.target)} target tokens"
            axes.set_title(title, fontsize=LABEL_SIZE, loc="left")
        return style.save(axes.figure, folder, name, formats=formats)


def _canvas(grid: SentenceGrid, width: float, height: float) -> "tuple[Any, Axes]":
    """Axes for cells of `width` × `height` inches in a figure of their own, tokens along them, and a colour bar's."""
    from matplotlib.figure import Figure

    X, Y = len(grid.source), len(grid.target)
    width, height = max(width, LEAST_INCHES / X), max(height, LEAST_INCHES / Y)
    (texts, rotation), source_room = _source_labels(grid.source, width * POINTS)
    every = ceil(LABEL_SIZE * 1.25 / (height * POINTS))
    target = [
        shortened(shown(token), LABEL_SIZE, MOST_LABEL) if y % every == 0 else "" for y, token in enumerate(grid.target)
    ]
    target_room = max(text_width(text, LABEL_SIZE) for text in target)
    left, below, right, above = target_room / POINTS + 0.4, source_room / POINTS + 0.3, 0.85, 0.35
    size = (left + width * X + right, below + height * Y + above)
    figure = Figure(figsize=size)
    axes = figure.add_axes((left / size[0], below / size[1], width * X / size[0], height * Y / size[1]))
    bar = figure.add_axes(((left + width * X + 0.12) / size[0], below / size[1], 0.14 / size[0], height * Y / size[1]))
    axes.set_xlim(0, X)
    axes.set_ylim(0, Y)
    axes.set_xticks([x + 0.5 for x in range(X) if texts[x]], [text for text in texts if text], rotation=rotation)
    axes.set_yticks([y + 0.5 for y in range(Y) if target[y]], [text for text in target if text])
    axes.tick_params(labelsize=LABEL_SIZE, length=0, pad=3)
    for label in axes.get_xticklabels():
        label.set_linespacing(1.0)
    axes.set_xlabel("source token read →", fontsize=LABEL_SIZE)
    axes.set_ylabel("target token to predict →", fontsize=LABEL_SIZE)
    return axes, bar


def _source_labels(tokens: Sequence[str], cell: float) -> tuple[tuple[list[str], float], float]:
    """Labels along the source, their rotation, and how many points they take downwards.

    Side by side where they fit into `cell` points; else Chinese is written downwards, and other text turned; where even
    that is too close, some are left out.
    """
    texts = [shown(token) for token in tokens]
    if all(text_width(text, LABEL_SIZE) <= cell - 2 for text in texts):
        return (texts, 0.0), LABEL_SIZE * 1.4
    line = LABEL_SIZE * 1.5
    every = ceil(line / cell)
    texts = [shortened(text, LABEL_SIZE, MOST_LABEL) if x % every == 0 else "" for x, text in enumerate(texts)]
    if style.goes_downwards(texts):
        return (["\n".join(text) for text in texts], 0.0), max(map(len, texts)) * LABEL_SIZE * 1.25
    return (texts, 90.0), max(text_width(text, LABEL_SIZE) for text in texts)


def _colour(axes: Any, bar: "Axes", label: str, values: Sequence[Sequence[float]], colours: str, high: float) -> None:
    """Fill the cells with values from 0 to `high`, and draw the colour bar."""
    X, Y = len(values), len(values[0])
    small = max(X, Y) <= MOST_CELLS  # a vector for each of thousands of cells would make megabytes
    edges: Any = {"edgecolors": "white", "linewidth": 0.4} if small else {"edgecolors": "none", "linewidth": 0}
    places = range(X + 1), range(Y + 1), list(zip(*values, strict=True))
    mesh = axes.pcolormesh(*places, cmap=colours, vmin=0, vmax=max(high, 1e-9), rasterized=not small, **edges)
    axes.figure.colorbar(mesh, cax=bar).set_label(label, fontsize=LABEL_SIZE)
    bar.tick_params(labelsize=LABEL_SIZE - 1, length=2, width=0.6)


def _path(axes: "Axes", grid: SentenceGrid) -> None:
    """The staircase: EMIT goes up along the left side of a row's cells, WAIT right; seen on any colour."""
    from matplotlib.patheffects import Normal, Stroke

    axes.plot(
        range(len(grid.y_at) + 1),
        [0, *grid.y_at],
        drawstyle="steps-pre",
        color="black",
        linewidth=1.8,
        solid_joinstyle="miter",
        clip_on=False,
        zorder=5,
        path_effects=[Stroke(linewidth=3.6, foreground="white"), Normal()],
    )
