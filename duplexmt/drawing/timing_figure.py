"""Figures of tokens written too early or too late (see `duplexmt.analysis.timing`)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import style

SHARES = (("too early %", "#D55E00"), ("in time %", "#BBBBBB"), ("too late %", "#0072B2"))
WIDEST = 8  # source tokens; what is further off is counted there


def share_figure(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write `timing-shares`: for each system and setting one bar of early, timely and late tokens, in percent.

    Args:
        rows: with `system`, `setting` and the three shares, as in the table.
        folder: where to.

    Raises:
        ValueError: for nothing to show.
    """
    drawn = [row for row in rows if row["tokens"]]
    if not drawn:
        raise ValueError("no token was written that could be too early or too late")
    with style.figure_style():
        from matplotlib.figure import Figure  # without pyplot: no windows, no global state

        figure = Figure(figsize=(7, 0.8 + 0.32 * len(drawn)), layout="constrained")
        axes = figure.subplots()
        names = [style.shown(f"{row['system']} {row['setting']}".removesuffix(" —")) for row in drawn]
        left = [0.0] * len(drawn)
        for name, colour in SHARES:
            widths = [row[name] for row in drawn]
            bars = axes.barh(range(len(drawn)), widths, left=left, color=colour, label=name.removesuffix(" %"))
            labels = [f"{width:.0f}" if width >= 4 else "" for width in widths]
            axes.bar_label(bars, labels, label_type="center", fontsize=7, color="black" if "time" in name else "white")
            left = [before + width for before, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(drawn)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("% of the tokens written")
        axes.set_xlim(0, 100)
        figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
        return style.save(figure, folder, "timing-shares")


def lag_figure(lags: Mapping[str, Sequence[int]], folder: Path) -> list[Path]:
    """Write `timing-lags`: how many of each system's tokens are off by how many source tokens.

    Args:
        lags: of each system and setting, a number for each token: negative where too early.
        folder: where to.

    Raises:
        ValueError: for nothing to show.
    """
    drawn = {name: values for name, values in lags.items() if values}
    if not drawn:
        raise ValueError("no token was written that could be too early or too late")
    with style.figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        span = range(-WIDEST, WIDEST + 1)
        for index, (name, values) in enumerate(drawn.items()):
            counts = Counter(max(-WIDEST, min(WIDEST, value)) for value in values)
            axes.plot(
                span,
                [100 * counts[lag] / len(values) for lag in span],
                color=style.COLOURS[index % len(style.COLOURS)],
                linestyle=style.DASHES[index % len(style.DASHES)],
                marker=style.MARKERS[index % len(style.MARKERS)],
                markersize=3,
                linewidth=1,
                label=style.shown(name),
            )
        axes.set_xlabel(f"source tokens too early (−) or too late (+); ±{WIDEST}: or more")
        axes.set_ylabel("% of the tokens written")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
        axes.minorticks_off()
        axes.grid(alpha=0.3, linewidth=0.5)
        figure.legend(loc="outside upper center", fontsize=7, ncols=3, frameon=False)
        return style.save(figure, folder, "timing-lags")
