"""The paper's schematics, drawn by code: the grid, its four kinds of attention, and the cache's two steps.

Source from left to right, target from bottom to top. Blue is the source stream I, orange the target stream O; letters
say the same without colour.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X, Y = 5, 4  # size of the grids drawn
I_COLOUR, O_COLOUR = "#4FA3DC", "#FFD27A"
PALE, GREY, DARK = "#F7F7F7", "#BDBDBD", "#303030"  # each of another lightness
DIGITS = "₀₁₂₃₄₅₆₇₈₉"
Cell = tuple[int, int]


def schematics(out: Path) -> list[Path]:
    """Write all of them as SVG and PNG."""
    drawings: dict[str, Callable[[], Figure]] = {
        "grid": grid_representation,
        "attention-source": source_attention,
        "attention-target": target_attention,
        "cache": cache_update,
    }
    paths = []
    for name, draw in drawings.items():
        with style.figure_style():
            paths += style.save(draw(), out, name)
    return paths


def grid_representation() -> "Figure":
    """`fig:grid-repr`: every cell holds a state of both streams."""
    figure, (axes,) = _figure(1, width=5.6)
    _cells(axes, {})
    for x in range(X):
        for y in range(Y):
            _half(axes, (x, y), I_COLOUR, f"I[{x},{y}]", upper=True)
            _half(axes, (x, y), O_COLOUR, f"O[{x},{y}]", upper=False)
    axes.set_title("cell (x, y): x + 1 source tokens read, y target tokens written", fontsize=9, loc="left")
    return figure


def source_attention() -> "Figure":
    """`fig:attn-types-i`: what the source stream attends to."""
    figure, (left, right) = _figure(2)
    at = (3, 2)
    _cells(left, {(x, 0): (I_COLOUR, "I") for x in range(at[0] + 1)} | {at: (I_COLOUR, "I")})
    _arrows(left, [((x, 0), (at[0], 0)) for x in range(at[0])], bend=-0.35)
    for y in range(1, Y):
        _copy(left, (at[0], y - 1), (at[0], y))
    left.set_title("I→I: along x′ ≤ x, once at y = 0, the same for all y", fontsize=9, loc="left")
    _cells(right, {(at[0], y): (O_COLOUR, "O") for y in range(at[1])})
    _both(right, at)
    _arrows(right, [((at[0], y), at) for y in range(at[1])], bend=-0.25)
    right.set_title("I←O: over y′ ≤ y, the cell's own O too", fontsize=9, loc="left")
    return figure


def target_attention() -> "Figure":
    """`fig:attn-types-o`: what the target stream attends to."""
    figure, (left, right) = _figure(2)
    at = (3, 2)
    _cells(left, {(0, y): (O_COLOUR, "O") for y in range(at[1] + 1)} | {at: (O_COLOUR, "O")})
    _arrows(left, [((0, y), (0, at[1])) for y in range(at[1])], bend=-0.25)
    for x in range(1, X):
        _copy(left, (x - 1, at[1]), (x, at[1]))
    left.set_title("O→O: along y′ ≤ y, once at x = 0, the same for all x", fontsize=9, loc="left")
    _cells(right, {(x, at[1]): (I_COLOUR, "I") for x in range(at[0])})
    _both(right, at)
    _arrows(right, [((x, at[1]), at) for x in range(at[0])], bend=0.35, height=0.25)
    right.set_title("O←I: over x′ ≤ x, the cell's own I too", fontsize=9, loc="left")
    return figure


def cache_update() -> "Figure":
    """`fig:kvcache-update`, corrected: either step computes the new line for both streams."""
    figure, (left, right) = _figure(2)
    cached = {(x, y): (GREY, "") for x in range(3) for y in range(2)}
    kept = {(x, 0): (GREY, "K, V: I") for x in range(1, 3)} | {(0, 1): (GREY, "K, V: O"), (0, 0): (GREY, "K, V: I, O")}
    for axes, new, title in (
        (left, [(x, 2) for x in range(3)], "EMIT: y + 1 for both streams, at all rows read"),
        (right, [(3, y) for y in range(2)], "WAIT: x + 1 for both streams, at all columns written"),
    ):
        _cells(axes, cached | kept)
        for cell in new:
            _both(axes, cell)
        axes.set_title(title, fontsize=9, loc="left")
    figure.supxlabel(
        "grey: cached; keys and values of column 0 (I) and row 0 (O), and of each line the running sums of its softmax",
        fontsize=8,
    )
    return figure


def _figure(panels: int, width: float = 9.2) -> "tuple[Figure, list[Axes]]":
    """Empty grids side by side, with tokens along the axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.6 if panels == 1 else 3.4), layout="constrained")
    all_axes = list(figure.subplots(1, panels, squeeze=False).flatten())
    for axes in all_axes:
        axes.set_xlim(0, X)
        axes.set_ylim(0, Y)
        axes.set_aspect(0.85)
        axes.set_xticks([x + 0.5 for x in range(X)], [f"i{DIGITS[x]}" for x in range(X)])
        axes.set_yticks([y + 0.5 for y in range(Y)], [f"o{DIGITS[y]}" for y in range(Y)])
        axes.tick_params(length=0, labelsize=9)
        axes.set_xlabel("source x →", fontsize=8)
        axes.set_ylabel("target y →", fontsize=8)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure, all_axes


def _cells(axes: "Axes", filled: dict[Cell, tuple[str, str]]) -> None:
    """All cells, some of them with a colour and a letter."""
    from matplotlib.patches import Rectangle

    for x in range(X):
        for y in range(Y):
            colour, text = filled.get((x, y), (PALE, ""))
            corner = (x + 0.06, y + 0.06)
            axes.add_patch(Rectangle(corner, 0.88, 0.88, facecolor=colour, edgecolor="0.6", linewidth=0.6))
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8, zorder=4)


def _both(axes: "Axes", cell: Cell) -> None:
    """A cell with the states of both streams."""
    _half(axes, cell, I_COLOUR, "I", upper=True)
    _half(axes, cell, O_COLOUR, "O", upper=False)


def _half(axes: "Axes", cell: Cell, colour: str, text: str, *, upper: bool) -> None:
    """One stream's half of a cell."""
    from matplotlib.patches import Rectangle

    x, y = cell
    bottom = y + (0.5 if upper else 0.06)
    axes.add_patch(Rectangle((x + 0.06, bottom), 0.88, 0.44, facecolor=colour, edgecolor="0.4", linewidth=0.6))
    axes.text(x + 0.5, bottom + 0.21, text, ha="center", va="center", fontsize=8)


def _arrows(axes: "Axes", pairs: Iterable[tuple[Cell, Cell]], bend: float, height: float = 0.72) -> None:
    """From keys to the query that attends to them, in bows; along a row at that `height` of the cells."""
    for (a, b), (c, d) in pairs:
        start = (a + 0.5, b + height) if b == d else (a + 0.36, b + 0.5)
        end = (c + 0.36, d + height) if b == d else (c + 0.36, d + 0.62)
        _arrow(axes, start, end, connectionstyle=f"arc3,rad={bend}", mutation_scale=9)


def _copy(axes: "Axes", start: Cell, end: Cell) -> None:
    """A dashed arrow, upwards or to the right: the same result again."""
    (a, b), (c, d) = start, end
    places = ((a + 0.5, b + 0.78), (c + 0.5, d + 0.22)) if a == c else ((a + 0.8, b + 0.5), (c + 0.2, d + 0.5))
    _arrow(axes, *places, mutation_scale=8, linestyle=(0, (2, 1.5)))


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float], **look: Any) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", color=DARK, zorder=3, **look))
