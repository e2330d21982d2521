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

COLUMNS, WIDTH, ROW, PICTURE, LINE = 3, 13.0, 2.2, 3.6, 0.17  # panels side by side; inches
POINTS, SIZE = 72, 7.5  # an inch; of text
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
    pictures = [picture for run in runs for picture in _pictures_of(run)][:MOST_PICTURES]
    rows, of = next(((rows, run) for run in runs if (rows := run.rows("probes/translations"))), ([], None))
    artifacts = [(run, artifact) for run in runs for artifact in run.artifacts if artifact["type"] != "run_table"]
    if not (curves or points or pictures):
        raise ValueError("these runs have logged neither curves nor probes nor results")
    trained = [run for run in runs if any(run.curve(metric) for metrics in curves.values() for metric in metrics)]
    heights = {
        "runs": _height(runs),
        "points": 3.6 if points else 0.0,
        "pictures": PICTURE * -(-len(pictures) // 2),
        "table": _height(rows[:MOST_ROWS]),
        "curves": 0.6 + ROW * -(-len(curves) // COLUMNS) if curves else 0.0,
        "artifacts": _height(artifacts),
    }
    heights = {part: height for part, height in heights.items() if height}
    with style.figure_style():
        figure = Figure(figsize=(WIDTH, sum(heights.values())))
        parts = figure.subfigures(len(heights), 1, height_ratios=list(heights.values()), squeeze=False)[:, 0]
        for (part, height), where in zip(heights.items(), parts, strict=True):
            if part == "runs":
                _lines(where, height, "runs", [_describe(run) for run in runs])
            elif part == "points":
                _pareto(where.add_axes((0.05, 0.15, 0.6, 0.72)), points)
            elif part == "pictures":
                _pictures(where, height, pictures)
            elif part == "table":
                shown_rows = [_sentence(row) for row in rows[:MOST_ROWS]]
                _lines(where, height, f"probes/translations of {of.name if of else ''}", shown_rows)
            elif part == "curves":
                _curves(where, height, curves, trained)
            else:
                _lines(where, height, "artifacts", [_contents(*entry) for entry in artifacts])
        return style.save(figure, folder, name, formats=("png",))


def _height(lines: Sequence[Any]) -> float:
    """Inches of some lines of text with their title; 0 for none."""
    return 0.5 + LINE * len(lines) if lines else 0.0


def _pictures_of(run: LoggedRun) -> list[tuple[str, Path, str]]:
    """Name, file and caption of each probe's last pictures, heatmaps first."""
    names = {name for line in run.history for name in line if name.startswith("probes/")}
    found = []
    for name in sorted(names, key=lambda name: (name.partition("-")[0], name.endswith("output"))):
        value = run.last(name)
        if value.get("_type") == "image-file":
            found.append((f"{name} of {run.name}", run.file(value), value.get("caption", "")))
    return found


def _describe(run: LoggedRun) -> str:
    return (
        f"{run.name}   project {run.project}, group {run.group or '—'}, {run.job_type}, {len(run.history)} lines logged"
    )


def _sentence(row: Mapping[str, Any]) -> str:
    al = "—" if row["AL"] is None else f"{row['AL']:.2f}"
    return f"{row['probe']}   {row['source']}   θ or k {row['setting']}   {row['translation']}   AL {al}"


def _contents(run: LoggedRun, artifact: Mapping[str, Any]) -> str:
    return f"{artifact['name']} ({artifact['type']}) of {run.name}: {', '.join(sorted(artifact['files']))}"


def _lines(where: Any, height: float, title: str, lines: Sequence[str]) -> None:
    """Lines of text below their title."""
    room = WIDTH * POINTS * 0.94
    where.text(0.03, 1 - 0.25 / height, shortened(shown(title), SIZE + 1.5, room), fontsize=SIZE + 1.5)
    for number, line in enumerate(lines, start=1):
        text = shortened(shown(line), SIZE, room)
        where.text(0.03, 1 - (0.27 + number * LINE) / height, text, fontsize=SIZE)


def _pictures(where: Any, height: float, pictures: Sequence[tuple[str, Path, str]]) -> None:
    from matplotlib.image import imread

    rows, room = -(-len(pictures) // 2), WIDTH * POINTS * 0.45
    for number, (title, path, caption) in enumerate(pictures):
        bottom, left = 1 - (number // 2 + 1) / rows, 0.03 + 0.49 * (number % 2)
        axes = where.add_axes((left, bottom, 0.46, 1 / rows - 0.4 / height), anchor="NW")
        axes.set_axis_off()
        axes.imshow(imread(path), interpolation="antialiased")
        for line, (text, size) in enumerate(((title, SIZE + 1), (caption, SIZE))):
            top = bottom + 1 / rows - (0.16 + 0.15 * line) / height
            where.text(left, top, shortened(shown(text), size, room), fontsize=size)


def _curves(where: Any, height: float, curves: Mapping[str, Sequence[str]], runs: Sequence[LoggedRun]) -> None:
    """A colour for each run; a panel's second metric, such as that of validation, is dashed."""
    from matplotlib.lines import Line2D

    rows = -(-len(curves) // COLUMNS)
    edges = {"left": 0.05, "right": 0.98, "top": 1 - 0.75 / height, "bottom": 0.3 / height, "hspace": 0.45}
    places = where.subplots(rows, COLUMNS, squeeze=False, gridspec_kw=edges).flatten()
    for axes in places[len(curves) :]:
        axes.set_axis_off()
    for axes, (title, metrics) in zip(places, curves.items(), strict=False):
        for number, run in enumerate(runs):
            for dash, metric in enumerate(metrics):
                points = run.curve(metric)
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        color=style.COLOURS[number % len(style.COLOURS)],
                        linestyle=style.DASHES[dash % len(style.DASHES)],
                        linewidth=1.2,
                        marker="." if len(points) < 12 else None,
                    )
        axes.set_title(title, fontsize=SIZE + 1, loc="left")
        axes.tick_params(labelsize=SIZE - 1)
        axes.grid(alpha=0.3, linewidth=0.5)
    lines = [
        Line2D([], [], color=style.COLOURS[number % len(style.COLOURS)], label=shortened(shown(run.name), SIZE, 200))
        for number, run in enumerate(runs)
    ]
    lines.append(Line2D([], [], color="0.4", label="training; AL"))
    lines.append(Line2D([], [], color="0.4", linestyle="--", label="validation; AL_all"))
    where.legend(handles=lines, loc="upper left", bbox_to_anchor=(0.03, 1.0), ncols=4, fontsize=SIZE, frameon=False)


def _pareto(axes: "Axes", rows: Sequence[Mapping[str, Any]]) -> None:
    """Quality against latency, of the table that W&B's chart is made of."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        point = {name: (row[name], (row[f"{name} low"], row[f"{name} high"])) for name in ("AL", "BLEU")}
        curves.setdefault(row["system"], []).append({"setting": row["setting"]} | point)
    draw_curves(axes, curves, "BLEU")
    axes.set_title("pareto", fontsize=SIZE + 1.5, loc="left")
