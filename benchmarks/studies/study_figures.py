"""Figures of the two studies (`docs/lab/studies.md`), from their results: errors and the loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duplexmt.drawing import style
from duplexmt.drawing.grid_figures import SentenceGrid, path_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 8.0  # points of all text but titles
Line = tuple[Sequence[float], Sequence[float]]
Rows = Sequence[Mapping[str, Any]]
LAYER_LINES = {
    "self_context": "broadcast, alone",
    "cross_context": "Hadamard, alone",
    "context": "layer, alone",
    "states": "states entering it, accumulated",
}
DECAY_LINES = {
    "cross_norm": "the exact context itself",
    "cross": "Hadamard error",
    "random_signs": "… with random signs",
    "premises": "… of one size, keys of one weight",
}


def layer_figure(models: Mapping[str, Rows], folder: Path, name: str = "study-error-layers") -> list[Path]:
    """Relative errors of contexts and states by layer: a column for each model, a row for each stream.

    Args:
        models: rows of `errors_by_layer` by name of the model.
        folder, name: where to.
    """
    streams = [s for s in ("source", "target") if any(row["stream"] == s for rows in models.values() for row in rows)]
    with style.figure_style():
        figure, grid = _panels(len(streams), len(models))
        for panels, stream in zip(grid, streams, strict=True):
            for axes, (model, rows) in zip(panels, models.items(), strict=True):
                own = [row for row in rows if row["stream"] == stream]
                lines = {
                    label: ([row["layer"] for row in own if key in row], [row[key] for row in own if key in row])
                    for key, label in LAYER_LINES.items()
                }
                _draw(axes, lines, f"{model}: {stream} stream", "layer (the last one: output)", markers=True)
                axes.set_ylabel("error over what is exact", fontsize=SIZE)
                axes.set_ylim(bottom=0)
                axes.set_xticks(sorted({row["layer"] for row in own}))
        _legend(figure, grid[0][0])
        return style.save(figure, folder, name)


def decay_figure(models: Mapping[str, Rows], folder: Path, name: str) -> list[Path]:
    """Errors of cross contexts by number of keys, both axes logarithmic, with a line that falls as 1/√n.

    Of each model and stream the deepest layer is shown; a model or stream exact throughout has no panel.

    Args:
        models: rows with `layer`, `stream`, `exact`, `curves` and `fits`, by name of the model.
        folder, name: where to.

    Raises:
        ValueError: where all is exact.
    """
    shown = []
    for model, rows in models.items():
        for stream in ("source", "target"):
            own = [row for row in rows if row["stream"] == stream and not row["exact"]]
            shown += [(model, stream, own[-1])] if own else []
    if not shown:
        raise ValueError("no error to show: every layer is exact")
    with style.figure_style():
        across = min(2, len(shown))
        figure, grid = _panels(-(-len(shown) // across), across)
        places = [axes for row in grid for axes in row]
        for axes in places[len(shown) :]:
            axes.set_axis_off()
        for axes, (model, stream, row) in zip(places, shown, strict=False):
            fit = row["fits"]["cross"]
            n = range(1, len(row["curves"]["cross"]) + 1)
            lines = {label: _positive(n, row["curves"][key]) for key, label in DECAY_LINES.items()}
            ends = [fit["first"], fit["last"]]
            middle = (ends[0] * ends[1]) ** 0.5
            level = fit["size"] * middle ** -fit["exponent"]
            lines["1/√n"] = (ends, [level * (middle / end) ** 0.5 for end in ends])
            exponent, low, high = (-fit[key] for key in ("exponent", "high", "low"))
            title = (
                f"{model}: {stream} stream, layer {row['layer']}\nerror ~ n^{exponent:+.2f} [{low:+.2f}, {high:+.2f}]"
            )
            _draw(axes, lines, title, "cross keys n")
            _logarithmic(axes)
            axes.set_ylabel("norm, root mean square", fontsize=SIZE)
        _legend(figure, places[0])
        return style.save(figure, folder, name)


def training_error_figure(steps: Rows, folder: Path, name: str = "study-error-training") -> list[Path]:
    """How the errors grow while a model is trained.

    Args:
        steps: `step`, `layers` (rows of `errors_by_layer`) and `differences` of each snapshot.
        folder, name: where to.
    """
    x = [row["step"] for row in steps]
    layers = [row["layers"] for row in steps]
    deepest = max(row["layer"] for row in layers[0] if "context" in row)

    def of(key: str, layer: int) -> list[float]:
        return [next(r[key] for r in rows if r["layer"] == layer and r["stream"] == "target") for rows in layers]

    differences = [row["differences"] for row in steps]
    with style.figure_style():
        figure, ((left, middle, right),) = _panels(1, 3)
        errors = {
            "layer, alone": of("context", deepest),
            "Hadamard, alone": of("cross_context", deepest),
            "output states": of("states", deepest + 1),
        }
        _draw(left, {label: (x, y) for label, y in errors.items()}, f"target stream, layer {deepest}", "step", True)
        left.set_ylabel("error over what is exact", fontsize=SIZE)
        _draw(middle, {"KL": (x, [row["kl"] for row in differences])}, "KL(exact, approximate), nats", "step", True)
        agreement = {
            "most probable token": "same_top",
            "EMIT decision": "same_emit",
            "EMIT mask of the path": "same_mask",
        }
        lines = {label: (x, [row[key] for row in differences]) for label, key in agreement.items()}
        _draw(right, lines, "cells that agree", "step", True)
        for axes in (left, middle):
            axes.set_ylim(bottom=0)
        for axes in (left, middle, right):
            _steps(axes, x)
        for axes in (left, right):
            axes.legend(fontsize=SIZE - 1, frameon=False)
        return style.save(figure, folder, name)


def evolution_figure(grids: Sequence[tuple[int, SentenceGrid]], folder: Path, name: str) -> list[Path]:
    """One sentence's heatmap (above) and p(EMIT) (below) with the best path, at steps of training.

    Args:
        grids: step and grid, of one sentence, at most about 32 × 32 cells.
        folder, name: where to.
    """
    first = grids[0][1]
    X, Y = len(first.source), len(first.target)
    highest = max(value for _, grid in grids for row in grid.heatmap for value in row)
    with style.figure_style():
        from matplotlib.figure import Figure

        width, height = max(1.3, 0.13 * X), max(1.3, 0.13 * Y)
        figure = Figure(figsize=((width + 0.15) * len(grids) + 1.6, 2 * height + 1.1), layout="constrained")
        panels = figure.subplots(2, len(grids), squeeze=False)
        kinds = (("heatmap", style.LOSS_COLOURS, highest, "loss in nats"), ("emit", style.EMIT_COLOURS, 1.0, "p(EMIT)"))
        for line, (values, colours, top, label) in zip(panels, kinds, strict=True):
            for number, (axes, (step, grid)) in enumerate(zip(line, grids, strict=True)):
                cells = getattr(grid, values)
                mesh = axes.pcolormesh(
                    [[cells[x][y] for x in range(X)] for y in range(Y)],
                    cmap=colours,
                    vmin=0.0,
                    vmax=top,
                    rasterized=True,
                )
                axes.plot(*path_line(grid.y_at), color="white", linewidth=2.6, clip_on=False)
                axes.plot(*path_line(grid.y_at), color="black", linewidth=1.2, clip_on=False)
                if values == "heatmap":
                    axes.set_title(f"step {step}: area {grid.area:.2f}", fontsize=SIZE)
                    axes.set_xticks([])
                else:
                    names = [style.shown(token) for token in grid.source]
                    axes.set_xticks([x + 0.5 for x in range(X)], ["\n".join(text) for text in names], fontsize=6)
                names = [style.shortened(style.shown(token), 6, 45) for token in grid.target] if number == 0 else []
                axes.set_yticks([y + 0.5 for y in range(Y)] if names else [], names, fontsize=6)
                axes.tick_params(length=0)
            bar = figure.colorbar(mesh, ax=line[-1])
            bar.set_label(label, fontsize=SIZE)
            bar.ax.tick_params(labelsize=SIZE - 1)
        return style.save(figure, folder, name)


LOOP_PANELS = {
    "area": "path area (share of cells)",
    "emit_agreement": "EMIT decisions that agree with the path",
    "calibration_error": "EMIT calibration error",
    "lm_loss": "loss of the cells to be written (nats)",
    "content_not_early": "content words not before their source",
    "emit_rate": "share of cells with p(EMIT) > 0.5",
}


def loop_figure(runs: Mapping[str, Rows], folder: Path, name: str = "study-loop-curves") -> list[Path]:
    """Path and EMIT head over training, a line for each run; measures a corpus has no gold for are left out.

    Args:
        runs: rows with `step` and the measures of `LOOP_PANELS`, by name.
        folder, name: where to.
    """
    panels = {
        k: t for k, t in LOOP_PANELS.items() if any(row.get(k) is not None for rows in runs.values() for row in rows)
    }
    with style.figure_style():
        figure, grid = _panels(-(-len(panels) // 3), 3)
        places = [axes for row in grid for axes in row]
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        steps = sorted({row["step"] for rows in runs.values() for row in rows})
        for axes, (key, title) in zip(places, panels.items(), strict=False):
            lines = {label: ([r["step"] for r in rows], [r[key] for r in rows]) for label, rows in runs.items()}
            _draw(axes, lines, title, "step", True)
            _steps(axes, steps)
        _legend(figure, places[0])
        return style.save(figure, folder, name)


def calibration_figure(
    steps: Sequence[tuple[int, Sequence[Sequence[float]]]], folder: Path, name: str = "study-loop-calibration"
) -> list[Path]:
    """Share of EMIT cells by p(EMIT), and how many cells there are, at steps of training.

    Args:
        steps: step and `calibration_sums` (cells, sum of p(EMIT), EMIT cells of each bin); empty bins are left out.
        folder, name: where to.
    """
    with style.figure_style():
        figure, ((left, right),) = _panels(1, 2)
        curves, shares = {}, {}
        for step, sums in steps:
            filled = [(c, p, e) for c, p, e in sums if c]
            total = sum(c for c, _, _ in filled)
            curves[f"step {step}"] = ([p / c for c, p, _ in filled], [e / c for c, _, e in filled])
            shares[f"step {step}"] = ([p / c for c, p, _ in filled], [c / total for c, _, _ in filled])
        _draw(left, curves, "cells behind the path", "p(EMIT)", True)
        left.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        _draw(right, shares, "share of all cells", "p(EMIT)", True)
        _logarithmic(right, x=False)
        left.legend(fontsize=SIZE - 1, frameon=False)
        return style.save(figure, folder, name)


LAMBDA_PANELS = {
    "quality": {"BLEU": "BLEU at θ", "BLEU_whole": "BLEU, whole source read"},
    "latency": {"AL_all": "AL_all at θ (tokens)", "gold_AL_all": "… of the gold policy"},
    "path": {"area": "path area", "content_not_early": "content words not early", "emit_agreement": "EMIT agreement"},
}


def lambda_figure(rows: Rows, folder: Path, name: str = "study-loop-lambda") -> list[Path]:
    """Quality, latency and path by λ, λ as categories so that 0 has its place.

    Args:
        rows: of each run, with `lam` and the measures of `LAMBDA_PANELS`.
        folder, name: where to.
    """
    with style.figure_style():
        figure, (panels,) = _panels(1, len(LAMBDA_PANELS))
        for axes, (title, measures) in zip(panels, LAMBDA_PANELS.items(), strict=True):
            lines = {
                label: (range(len(rows)), [row[key] for row in rows])
                for key, label in measures.items()
                if all(row.get(key) is not None for row in rows)
            }
            _draw(axes, lines, title, "λ", True)
            axes.set_xticks(range(len(rows)), [f"{row['lam']:g}" for row in rows])
            axes.legend(fontsize=SIZE - 1, frameon=False)
        return style.save(figure, folder, name)


def _panels(rows: int, columns: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * columns, 2.5 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _draw(axes: "Axes", lines: Mapping[str, Line], title: str, x: str, markers: bool = False) -> None:
    """Lines that colour, dashes and markers tell apart; those without points are left out."""
    for number, (label, (xs, ys)) in enumerate(lines.items()):
        if len(xs):
            axes.plot(
                xs,
                ys,
                label=label,
                color=style.COLOURS[number % len(style.COLOURS)],
                linestyle=style.DASHES[number % len(style.DASHES)],
                marker=style.MARKERS[number % len(style.MARKERS)] if markers else None,
                markersize=3.5,
                linewidth=1.2,
            )
    axes.set_title(title, fontsize=SIZE, loc="left")
    axes.set_xlabel(x, fontsize=SIZE)
    axes.tick_params(labelsize=SIZE - 1)
    axes.grid(alpha=0.3, linewidth=0.5)


def _logarithmic(axes: "Axes", x: bool = True) -> None:
    """Numbers as plain text, since `$` is a dollar in our figures; `x`: whether both axes are meant."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    if x:
        axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if x else (1,)))
    for axis in (axes.xaxis, axes.yaxis) if x else (axes.yaxis,):
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(NullFormatter())


def _legend(figure: "Figure", axes: "Axes") -> None:
    """One legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SIZE, frameon=False, handlelength=3)


def _steps(axes: "Axes", steps: Sequence[int]) -> None:
    """Steps of training, 0 included, on a logarithmic axis."""
    least = min((step for step in steps if step), default=1)
    axes.set_xscale("symlog", linthresh=least, linscale=0.5)
    axes.set_xticks(steps, [str(step) for step in steps])
    axes.minorticks_off()


def _positive(n: Sequence[int], values: Sequence[float]) -> Line:
    """What a logarithmic axis can show."""
    kept = [(x, y) for x, y in zip(n, values, strict=True) if y > 1e-12]
    return [x for x, _ in kept], [y for _, y in kept]
