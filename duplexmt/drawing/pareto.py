"""Quality against latency, a curve for each system (`fig:al-bleurt`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHARACTERS = 80  # of a legend fit below a panel
LATENCIES = {
    "AL": "AL (model tokens)",
    "YAAL": "YAAL (model tokens)",
    "SWF": "SWF (% of tokens written before the source ends)",
    "AL c/w": "AL (characters or words)",
    "YAAL c/w": "YAAL (characters or words)",
    "SWF c/w": "SWF (% of words written before the source ends)",
}
BESIDE = [(x, y) for y in (-9, 3, -16, 10, -23, 17) for x in (4, -4)]  # places of a name around its point, in points


def pareto_figure(
    curves: Mapping[str, Sequence[Mapping[str, Any]]], metrics: Sequence[str], folder: Path
) -> list[Path]:
    """Write `pareto.pdf`, `.svg` and `.png`: one panel for each quality metric, 95 % intervals as error bars.

    Args:
        curves: each system's points, at least one; of each, its `setting` and, for AL and metrics, `(value, interval)`
            with `interval` `(low, high)` or None.
    """
    with style.figure_style():
        return style.save(_panels(curves, metrics), folder, "pareto")


def latencies_figure(curves: Mapping[str, Sequence[Mapping[str, Any]]], metric: str, folder: Path) -> list[Path]:
    """Write `latencies.pdf`, `.svg` and `.png`: one quality metric against AL, YAAL and SWF (more of it is earlier: its
    axis runs from right to left), in model tokens above, in the field's units below. A point without a latency is left
    out of its panel; arguments as of `pareto_figure`."""
    names = [name for name in LATENCIES if any(name in point for points in curves.values() for point in points)]
    with style.figure_style():
        figure = _panels(curves, [metric] * len(names), names, columns=3)
        return style.save(figure, folder, "latencies")


def _panels(
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    metrics: Sequence[str],
    latencies: Sequence[str] | None = None,
    columns: int = 2,
) -> "Figure":
    from matplotlib.figure import Figure  # without pyplot: no windows, no global state

    columns = min(columns, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(metrics) :]:
        axes.set_axis_off()
    for axes, metric, latency in zip(panels, metrics, latencies or ["AL"] * len(metrics), strict=False):
        draw_curves(axes, curves, metric, latency)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:  # below the panels: over them it would hide points
        widest = max(map(len, handles))
        fitting = max(1, CHARACTERS * columns // (widest + 8))
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=fitting, fontsize=8)
    separate_names(figure)
    return figure


def separate_names(figure: "Figure") -> None:
    """Move names of settings that would cover others to a free place around their points, if there is one.

    The figure must be complete: its layout tells where names lie.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()  # asked for by each text, else, which takes longer than all else
    for axes in figure.axes:
        taken: list[Any] = []
        for text in axes.texts:
            for place in [*BESIDE, BESIDE[0]]:
                text.xyann = place  # type: ignore[attr-defined]
                text.set_horizontalalignment("left" if place[0] > 0 else "right")
                if not any(text.get_window_extent(renderer).overlaps(box) for box in taken):
                    break
            taken.append(text.get_window_extent(renderer))


def draw_curves(
    axes: "Axes", curves: Mapping[str, Sequence[Mapping[str, Any]]], metric: str, latency: str = "AL"
) -> None:
    """Draw one panel: a line for each system, its settings written beside the points."""
    for index, (system, unsorted) in enumerate(curves.items()):
        points = sorted(
            (point for point in unsorted if point.get(metric) is not None and point.get(latency) is not None),
            key=lambda point: point[latency][0],
        )
        if not points:
            continue
        x, y = ([point[name][0] for point in points] for name in (latency, metric))
        axes.errorbar(
            x, y, xerr=_errors(points, latency), yerr=_errors(points, metric), **style.line(index),
            marker=style.MARKERS[index % len(style.MARKERS)], markersize=5, linewidth=1.2, elinewidth=0.7, capsize=2,
            label=style.shown(system),
        )  # fmt: skip
        for place, settings in _named(points, x, y).items():
            text = style.shown(", ".join(sorted(settings)))
            axes.annotate(text, place, xytext=BESIDE[0], textcoords="offset points", fontsize=7)
    axes.set_xlabel(LATENCIES[latency])
    if latency.startswith("SWF"):
        axes.invert_xaxis()
    axes.set_ylabel(metric)
    axes.grid(alpha=0.3, linewidth=0.5)


def _named(
    points: Sequence[Mapping[str, Any]], x: Sequence[float], y: Sequence[float]
) -> dict[tuple[float, float], list[str]]:
    """Settings by place; those that come to the very same, as shown in tables, are named together."""
    places: dict[tuple[float, float], list[str]] = {}
    for point, left, height in zip(points, x, y, strict=True):
        if point["setting"] != "—":
            near = [(a, b) for a, b in places if abs(a - left) < 0.02 and abs(b - height) < 0.02]
            places.setdefault(near[0] if near else (left, height), []).append(point["setting"])
    return places


def _errors(points: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    """Distances of each value from the ends of its interval, for `errorbar`."""
    ends = [(value, *(bounds or (value, value))) for value, bounds in (point[name] for point in points)]
    return [[max(0.0, value - low) for value, low, _ in ends], [max(0.0, high - value) for value, _, high in ends]]
