"""Path area, EMIT head, losses and the validation sample over training, from the metrics a run has logged."""

import csv
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import inf, isfinite
from pathlib import Path

from . import style

PANELS = {  # title: metrics, and how each is called
    "path area (share of cells)": {"train/area": "training", "validation/area": "validation"},
    "EMIT decisions that agree with the path": {
        "train/emit_accuracy": "training", "validation/emit_accuracy": "validation",
    },
    "EMIT calibration error": {"validation/emit_calibration": "validation"},
    "loss (nats)": {
        "train/lm_loss": "LM, training", "validation/lm_loss": "LM, validation",
        "train/emit_loss": "EMIT, training", "validation/emit_loss": "EMIT, validation",
    },
    # of sentences that are translated simultaneously
    "BLEU of the validation sample": {"validation/BLEU": "BLEU"},
    "latency of the validation sample (tokens)": {"validation/AL": "AL", "validation/AL_all": "AL_all"},
}  # fmt: skip
Curve = Sequence[tuple[int, float]]  # step and value


def read_curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves in a `metrics.csv`: steps and values of each metric; lines that lack one are passed over.

    Raises:
        ValueError: for a line that is damaged.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            for name, value in row.items():
                if name not in ("step", "epoch") and value:
                    try:
                        point = int(float(row["step"])), float(value)
                    except (ValueError, TypeError) as error:  # a write that was broken off, say
                        raise ValueError(f"{path}: line {reader.line_num} is damaged ({error}); remove it") from error
                    curves.setdefault(name, []).append(point)
    return curves


def joined(parts: Sequence[Mapping[str, Curve]]) -> dict[str, list[tuple[int, float]]]:
    """Curves of a run that was resumed: of steps that were taken twice, what was logged last.

    Args:
        parts: curves of each time it was started, in this order.
    """
    curves: dict[str, list[tuple[int, float]]] = {}
    for part in parts:
        resumed = min((step for points in part.values() for step, _ in points), default=inf)
        curves = {name: [point for point in points if point[0] < resumed] for name, points in curves.items()}
        for name, points in part.items():
            curves.setdefault(name, []).extend(points)
    return curves


def read_run_curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves that a run has logged to CSV, each time it was started; none if it has logged nothing."""
    files = sorted(run.glob("metrics/version_*/metrics.csv"), key=lambda path: int(path.parent.name.split("_")[1]))
    return joined([read_curves(path) for path in files if path.stat().st_size])


def training_figure(curves: Mapping[str, Curve]) -> bytes:
    """`PANELS` as an SVG file; metrics that were not logged are left out, but one of them must have been."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = {
        title: {label: curves[metric] for metric, label in metrics.items() if curves.get(metric)}
        for title, metrics in PANELS.items()
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    last = max(step for lines in panels.values() for points in lines.values() for step, _ in points)
    rows = -(-len(panels) // 2)
    with style.figure_style():
        figure = Figure(figsize=(4.2 * min(2, len(panels)), 2.6 * rows), layout="constrained")
        places = figure.subplots(rows, min(2, len(panels)), squeeze=False).flatten()
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, lines) in zip(places, panels.items(), strict=False):
            for number, (label, points) in enumerate(lines.items()):
                axes.plot(
                    *zip(*sorted(points), strict=True),
                    **style.line(number),
                    linewidth=1.3,
                    marker=style.MARKERS[number] if len(points) < 12 else None,
                    markersize=4,
                    label=label,
                )
            axes.set_title(title, fontsize=9, loc="left")
            axes.set_xlabel("optimiser step", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.set_xlim(0, 1.03 * max(1, last))
            values = [value for points in lines.values() for _, value in points if isfinite(value)]
            if all(value >= 0 for value in values):  # AL may be below 0
                axes.set_ylim(0, 1.08 * max(values, default=0) or None)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3, linewidth=0.5)
            axes.legend(fontsize=8, frameon=False, handlelength=3)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
