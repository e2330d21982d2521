"""Simultaneous translations of one sentence as figures.

What is written at which source token (`tab:infer-process`), and the read/write staircases of several systems.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from . import style
from .style import shortened, shown, text_width
from .table import to_markdown

Steps = Sequence[tuple[str, str]]  # each source token's text, and what was written before the next was read
SIZE, LINE, GAP = 8.0, 11.0, 8.0  # points: font, line, between columns
WIDEST = 84.0  # points of a column; more is wrapped
MOST_WIDTH = 900.0  # points of a table; more columns go below
POINTS = 72  # an inch
MOST_LABELS = 40  # source tokens named along an axis
HEAD = "θ"  # of the column of settings


def emission_markdown(rows: Mapping[str, Steps]) -> str:
    """`tab:infer-process` of one sentence in Markdown: a row for each θ, a column for each source token, numbered."""
    reads = all_read(rows)
    columns = [f"{number} {escape(shown(read), quote=False)}" for number, read in enumerate(reads, start=1)]
    table = []
    for name, steps in rows.items():
        written = [escape(shown(text), quote=False) if text else "" for _, text in steps]
        table.append({HEAD: name} | dict.fromkeys(columns, "") | dict(zip(columns, written, strict=False)))
    return to_markdown(table)


def emission_figure(rows: Mapping[str, Steps], folder: Path) -> list[Path]:
    """Write `tab:infer-process` as SVG and PNG. Columns that do not fit side by side go on below.

    Args:
        rows: the steps at each θ, of one sentence.
        folder: where to.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    reads = all_read(rows)
    texts = [
        [wrapped(shown(steps[x][1]), WIDEST) if x < len(steps) and steps[x][1] else [] for x in range(len(reads))]
        for steps in rows.values()
    ]
    heads = [shortened(shown(read), SIZE, WIDEST) for read in reads]
    widths = [
        max(14.0, *(text_width(line, SIZE) for line in [heads[x], *(line for row in texts for line in row[x])])) + GAP
        for x in range(len(reads))
    ]
    names = [shortened(shown(setting), SIZE, WIDEST) for setting in rows]
    first = max(text_width(text, SIZE) for text in [HEAD, *names]) + 2 * GAP
    blocks = _blocks(widths, MOST_WIDTH - first)

    heights = [[max(1, *(len(row[x]) for x in block)) * LINE + 5 for row in texts] for block in blocks]
    width = first + max(sum(widths[x] for x in block) for block in blocks) + GAP
    height = sum(LINE + 8 + sum(rows_of) + LINE for rows_of in heights)
    with style.figure_style():
        figure = Figure(figsize=(width / POINTS, height / POINTS))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        top = LINE / 2
        for block, rows_of in zip(blocks, heights, strict=True):
            lefts = [first + sum(widths[x] for x in block[:number]) for number in range(len(block))]
            right = lefts[-1] + widths[block[-1]]
            axes.plot([GAP / 2, right], [top, top], color="black", linewidth=1)
            axes.text(GAP, top + LINE, HEAD, fontsize=SIZE, va="baseline")
            for x, left in zip(block, lefts, strict=True):
                axes.text(left, top + LINE, heads[x], fontsize=SIZE, va="baseline")
            top += LINE + 6
            axes.plot([GAP / 2, right], [top, top], color="black", linewidth=0.5)
            for row, setting, tall in zip(texts, names, rows_of, strict=True):
                axes.text(GAP, top + LINE, setting, fontsize=SIZE, va="baseline")
                for x, left in zip(block, lefts, strict=True):
                    if row[x]:
                        corner = (left - GAP / 2 + 1, top + 2)
                        shade = Rectangle(corner, widths[x] - 2, tall - 3, facecolor="0.9", edgecolor="none", zorder=0)
                        axes.add_patch(shade)
                    for number, line in enumerate(row[x], start=1):
                        axes.text(left, top + number * LINE, line, fontsize=SIZE, va="baseline")
                top += tall
            axes.plot([GAP / 2, right], [top + 2, top + 2], color="black", linewidth=1)
            top += LINE
        return style.save(figure, folder, "emission")


def staircase_figure(source: Sequence[str], delays: Mapping[str, Sequence[int]], folder: Path) -> list[Path]:
    """Write the read/write staircases of several systems on one sentence as SVG and PNG.

    Systems that read and write in the very same order share a line.

    Args:
        source: its S source tokens, without end token.
        delays: each system's source tokens read before each target token, never falling, at most S.
        folder: where to.

    Raises:
        ValueError: for no source, no system, or delays that are none of this sentence's.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if not source or not delays:
        raise ValueError("a staircase needs a source and at least one system")
    S = len(source)
    for system, reads in delays.items():
        if any(a > b for a, b in pairwise([0, *reads, S])):
            raise ValueError(
                f"{system}: delays must never fall, and lie between 0 and the {S} source tokens: {list(reads)}"
            )
    ways: dict[tuple[int, ...], list[str]] = {}
    for system, reads in delays.items():
        ways.setdefault(tuple(reads), []).append(shortened(shown(system), SIZE, 2 * WIDEST))
    highest = max(1, *map(len, ways))
    with style.figure_style():
        width, height = min(11.0, max(4.6, 0.36 * S + 3.0)), min(8.0, max(3.2, 0.26 * highest))
        named = 1.6 * SIZE / POINTS * len(delays) + 0.3  # inches of the legend
        figure = Figure(figsize=(width, max(height, named)), layout="constrained")
        axes = figure.subplots()
        for number, (reads, systems) in enumerate(ways.items()):
            # Where systems go the same way their lines stay visible side by side.
            shift = 0.05 * (number - (len(ways) - 1) / 2)
            axes.plot(
                [read + shift for read in (0, *reads, S)],
                [written - shift for written in (*range(len(reads) + 1), len(reads))],
                **style.line(number), drawstyle="steps-post", linewidth=1.6, solid_joinstyle="miter",
                label="\n".join(systems),
            )  # fmt: skip
        every = -(-S // MOST_LABELS)
        axes.set_xticks(range(0, S + 1, every), [])
        labelled = range(0, S, every)
        texts = [shortened(shown(source[x]), SIZE, 40) for x in labelled]
        down = style.goes_downwards(texts)
        axes.set_xticks([x + 0.5 for x in labelled], ["\n".join(text) if down else text for text in texts], minor=True)
        axes.tick_params(axis="x", which="minor", length=0, labelsize=SIZE, rotation=0 if down else 90)
        axes.tick_params(axis="y", labelsize=SIZE)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(-0.2, S + 0.3)
        axes.set_ylim(-0.3, highest + 0.5)
        axes.set_xlabel("source tokens read →", fontsize=SIZE)
        axes.set_ylabel("target tokens written →", fontsize=SIZE)
        axes.grid(alpha=0.3, linewidth=0.5)
        figure.legend(loc="outside right upper", fontsize=SIZE, frameon=False, handlelength=3.5)
        return style.save(figure, folder, "staircase")


def all_read(rows: Mapping[str, Steps]) -> list[str]:
    """The source tokens of one sentence's rows; a translation that was cut off may have read fewer."""
    return max(([read for read, _ in steps] for steps in rows.values()), key=len)


def wrapped(text: str, width: float) -> list[str]:
    """Lines of at most `width` points, Chinese broken anywhere; a word that is longer than a line is shortened."""
    lines: list[str] = []
    # Words, or single characters of scripts without spaces, each with the space before it.
    for piece in re.findall(r"\s*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)", text):
        if lines and text_width(lines[-1] + piece, SIZE) <= width:
            lines[-1] += piece
        else:
            lines.append(shortened(piece.strip(), SIZE, width))
    return lines


def _blocks(widths: Sequence[float], room: float) -> list[list[int]]:
    """Columns side by side as far as they fit."""
    blocks: list[list[int]] = [[]]
    for x, width in enumerate(widths):
        if blocks[-1] and sum(widths[i] for i in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(x)
    return blocks
