"""Draws the figures of docs/results.md from the tables in docs/lab/tables: python docs/results.py"""

import csv
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent
OFFLINE = 32.2  # BLEU of the base of all of them, on Tatoeba, with the whole source read
SYSTEMS = {  # name in the tables: name, colour, marker
    "grid": ("grid (θ = 0.3 to 0.9)", "#AA3377", "v"),
    "multi-path wait-k": ("wait-k", "#0072B2", "s"),
    "multi-path confidence k_max 4": ("confidence, k_max = 4", "#009E73", "D"),
    "multi-path confidence k_max 8": ("confidence, k_max = 8", "#E69F00", "o"),
}
PARTS = [("#AA3377", "-"), ("#AA3377", "--"), ("#AA3377", ":"), ("#0072B2", "-"), ("#777777", "-")]


def rows(name: str) -> list[dict[str, str]]:
    with (DOCS / "lab" / "tables" / f"{name}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def quality(axes: Axes, table: str, latency: str, label: str) -> None:
    """BLEU of each system, with 95 % intervals, against a column of a table."""
    found = rows(table)
    for system, (name, colour, marker) in SYSTEMS.items():
        points = sorted((float(row[latency]), float(row["BLEU"]), float(row["BLEU ±"])) for row in found
                        if row["system"] == system)  # fmt: skip
        x, y, half = zip(*points, strict=True)
        axes.errorbar(x, y, yerr=half, color=colour, marker=marker, capsize=3, elinewidth=0.8, label=name)
    axes.set(xlabel=label, ylabel="BLEU")


def cost(axes: Axes) -> None:
    """Time of a training step by length, in wait-k steps."""
    found = rows("step-cost")
    for name, colour in (("all rows", "#777777"), ("four rows", "#AA3377")):
        for column, dashes in ((name, "-"), (f"{name}, Qwen's vocabulary", "--")):
            points = [(float(row["tokens"]), float(row[column])) for row in found if row[column]]
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, marker="o", label=column)
    axes.axhline(1, color="#0072B2", label="wait-k")
    axes.set(xlabel="tokens of source and of target", ylabel="time of a step, in wait-k steps", yscale="log")
    axes.set(yticks=(1, 2, 5, 10, 20, 30), yticklabels=(1, 2, 5, 10, 20, 30))


def parts(axes: Axes) -> None:
    """Loss of the references along the path, at the latency of wait-k."""
    for row, (colour, dashes) in zip(rows("parts-losses"), PARTS, strict=True):
        points = [(name, float(value)) for name, value in row.items() if name != "system" and value]
        places, losses = [list(row)[1:].index(name) for name, _ in points], [loss for _, loss in points]
        axes.plot(places, losses, color=colour, linestyle=dashes, marker="o", label=row["system"])
        axes.set_xticks(range(4), list(row)[1:])
    axes.set(xlabel="at the latency of", ylabel="loss, nats a token")


def main(out: Path) -> list[Path]:
    """Write the figures, as PNG files."""
    first, second, third = Figure(figsize=(7, 4.2)), Figure(figsize=(14, 3.8)), Figure(figsize=(11, 4))
    panel = first.subplots()
    panel.axhline(OFFLINE, color="black", linestyle=":", label=f"offline, their base ({OFFLINE})")
    quality(panel, "back-tatoeba-scores", "AL", "average lagging, AL (source tokens behind)")
    captions, documentation, yaal, swf = second.subplots(1, 4)
    quality(captions, "back-captions-scores", "AL", "captions: AL")
    quality(documentation, "back-documentation-scores", "AL", "long documentation: AL")
    quality(yaal, "back-tatoeba-scores", "YAAL", "Tatoeba: YAAL (of what came before the end)")
    quality(swf, "back-tatoeba-scores", "SWF", "Tatoeba: SWF (% written before the end)")
    swf.invert_xaxis()  # later to the right, as in the others
    left, right = third.subplots(1, 2)
    cost(left)
    parts(right)
    for axes in (panel, captions, left, right):
        axes.legend(fontsize=8)
    paths = []
    for name, figure in (("box-tatoeba", first), ("results-latencies", second), ("results-cost", third)):
        for axes in figure.axes:
            axes.grid(alpha=0.3)
        figure.set_layout_engine("constrained")
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


if __name__ == "__main__":
    print(*main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "figures"), sep="\n")
