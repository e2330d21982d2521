"""What W&B runs hold, drawn as one picture: curves, the Pareto of quality and latency, probes, translations, artifacts.

This is no picture of W&B's own pages: it shows the data behind their panels, in our own drawing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import style
from .pareto import draw_curves
from .style import shortened, shown
from .wandb_file import LoggedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS, WIDTH, ROW = 3, 13.0, 2.3  # panels side by side; inches
SIZE = 7.5
MOST_ROWS, MOST_PICTURES = 12, 4


def dashboard_figure(
    runs: Sequence[LoggedRun], panels: Mapping[str, Sequence[str]], folder: Path, name: str = "dashboard"
) -> list[Path]:
    """Write the picture as PNG.

    Args:
        runs: of training and evaluation.
        panels: title of each panel of curves, and its metrics; those nobody has logged are left out.
        folder, name: where to.

    Raises:
        ValueError: where no run has logged anything of it.
    """
    from matplotlib.figure import Figure

    curves = {title: metrics for title, metrics in panels.items() if any(run.curve(m) for run in runs for m in metrics)}
    points = [row for run in runs for row in run.rows("pareto_table")]
    pictures = [
        (key.removeprefix("probes/"), run.file(value), value.get("caption", ""))
        for run in runs
        for key in sorted({key for line in run.history for key in line if key.startswith("probes/")})
        if (value := run.last(key)) and value.get("_type") == "image-file"
    ][:MOST_PICTURES]
    rows = next((rows for run in runs if (rows := run.rows("probes/translations"))), [])
    artifacts = [(run, artifact) for run in runs for artifact in run.artifacts if artifact["type"] != "run_table"]
    if not (curves or points or pictures):
        raise ValueError("these runs have logged neither curves nor probes nor results")
    heights = {
        "head": 0.25 + 0.17 * len(runs),
        "points": 3.6 if points else 0.0,
        "pictures": 3.4 * -(-len(pictures) // 2),
        "table": 0.45 + 0.19 * min(len(rows), MOST_ROWS) if rows else 0.0,
        "curves": ROW * -(-len(curves) // COLUMNS),
        "artifacts": 0.4 + 0.17 * len(artifacts) if artifacts else 0.0,
    }
    heights = {part: height for part, height in heights.items() if height}
    with style.figure_style():
        figure = Figure(figsize=(WIDTH, sum(heights.values()) + 0.2 * len(heights)), layout="constrained")
        parts = figure.subfigures(len(heights), 1, height_ratios=list(heights.values()), squeeze=False)[:, 0]
        for part, where in zip(heights, parts, strict=True):
            if part == "head":
                _lines(where, "runs", [_describe(run) for run in runs])
            elif part == "points":
                _pareto(where.subplots(), points)
            elif part == "pictures":
                _pictures(where, pictures)
            elif part == "table":
                _lines(where, "probes/translations", [_sentence(row) for row in rows[:MOST_ROWS]])
            elif part == "curves":
                _curves(where, curves, runs)
            else:
                _lines(where, "artifacts", [_contents(*entry) for entry in artifacts])
        return style.save(figure, folder, name, formats=("png",))


def _describe(run: LoggedRun) -> str:
    return (
        f"{run.name}   project {run.project}, group {run.group or '—'}, {run.job_type}, {len(run.history)} lines logged"
    )


def _sentence(row: Mapping[str, Any]) -> str:
    al = "—" if row["AL"] is None else f"{row['AL']:.2f}"
    return f"{row['probe']}   {row['source']}   θ or k {row['setting']}   {row['translation']}   AL {al}"


def _contents(run: LoggedRun, artifact: Mapping[str, Any]) -> str:
    return f"{artifact['name']} ({artifact['type']}) of {run.name}: {', '.join(sorted(artifact['files']))}"


def _lines(where: Any, title: str, lines: Sequence[str]) -> None:
    """Lines of text."""
    axes = where.subplots()
    axes.set_axis_off()
    axes.set_title(title, fontsize=SIZE + 1.5, loc="left")
    for number, line in enumerate(lines):
        text = shortened(shown(line), SIZE, WIDTH * 72 - 30)
        axes.text(0, 1 - (number + 0.5) / len(lines), text, fontsize=SIZE, va="center", transform=axes.transAxes)


def _pictures(where: Any, pictures: Sequence[tuple[str, Path, str]]) -> None:
    from matplotlib.image import imread

    places = where.subplots(-(-len(pictures) // 2), 2, squeeze=False).flatten()
    for axes in places:
        axes.set_axis_off()
    for axes, (title, path, caption) in zip(places, pictures, strict=False):
        axes.imshow(imread(path), interpolation="antialiased")
        axes.set_title(shortened(shown(f"{title}   {caption}"), SIZE, WIDTH * 36 - 20), fontsize=SIZE, loc="left")


def _curves(where: Any, curves: Mapping[str, Sequence[str]], runs: Sequence[LoggedRun]) -> None:
    places = where.subplots(-(-len(curves) // COLUMNS), COLUMNS, squeeze=False).flatten()
    for axes in places[len(curves) :]:
        axes.set_axis_off()
    trained = [run for run in runs if any(run.curve(metric) for metrics in curves.values() for metric in metrics)]
    for axes, (title, metrics) in zip(places, curves.items(), strict=False):
        for number, run in enumerate(trained):
            for dash, metric in enumerate(metrics):
                points = run.curve(metric)
                if points:
                    kind = metric.partition("/")[0] if len({m.partition("/")[0] for m in metrics}) > 1 else metric
                    label = kind if len(trained) == 1 else f"{shown(run.name)}, {kind}"
                    _line(axes, points, number + (dash if len(trained) == 1 else 0), dash, label)
        axes.set_title(title, fontsize=SIZE + 1, loc="left")
        axes.tick_params(labelsize=SIZE - 1)
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.legend(fontsize=SIZE - 1, frameon=False, handlelength=3)


def _line(axes: "Axes", points: Sequence[tuple[float, float]], colour: int, dash: int, label: str) -> None:
    axes.plot(
        *zip(*points, strict=True),
        color=style.COLOURS[colour % len(style.COLOURS)],
        linestyle=style.DASHES[dash % len(style.DASHES)],
        linewidth=1.2,
        marker="." if len(points) < 12 else None,
        label=label,
    )


def _pareto(axes: "Axes", rows: Sequence[Mapping[str, Any]]) -> None:
    """Quality against latency, of the table that W&B's chart is made of."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        point = {name: (row[name], (row[f"{name} low"], row[f"{name} high"])) for name in ("AL", "BLEU")}
        curves.setdefault(row["system"], []).append({"setting": row["setting"]} | point)
    draw_curves(axes, curves, "BLEU")
    axes.set_title("pareto", fontsize=SIZE + 1.5, loc="left")
