"""A LaTeX table laid out as the paper's `tab:duplex-results`."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from .table import Cell, Row, check_rows

HIGHER, LOWER = "higher", "lower"  # is better
SYMBOLS = {HIGHER: r"$\uparrow$", LOWER: r"$\downarrow$"}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}
MATHS = {
    "θ": r"\theta", "λ": r"\lambda", "ρ": r"\rho", "δ": r"\delta", "←": r"\leftarrow", "→": r"\rightarrow"
}  # fmt: skip


def to_latex(rows: Sequence[Row], better: Mapping[str, str], *, caption: str, label: str) -> str:
    """A `table` for booktabs and multirow: systems, their settings, and columns with the best value in bold.

    Args:
        rows: with the columns `system` and `setting`; rows of one system stand together.
        better: the other columns to show, in order, and which value of each is best: `HIGHER` or `LOWER`.

    Raises:
        ValueError: what `table.check_rows` refuses.
    """
    table = check_rows(rows)
    best = {}
    for column, which in better.items():
        values = [value for row in table if isinstance(value := row[column], int | float)]
        best[column] = (max(values) if which == HIGHER else min(values)) if values else None
    heads = [f"\\textbf{{{escape(column)}}}{SYMBOLS[which]}" for column, which in better.items()]
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        f"  \\caption{{{escape(caption)}}}",
        f"  \\label{{{label}}}",
        f"  \\begin{{tabular}}{{ll{'c' * len(better)}}}",
        r"    \toprule",
        r"    \textbf{System} & \textbf{Param} & " + " & ".join(heads) + r" \\",
    ]
    for system, group in groupby(table, key=lambda row: row["system"]):
        members = list(group)
        name = escape(str(system))
        lines.append(r"    \midrule")
        for index, row in enumerate(members):
            first = name if len(members) == 1 else f"\\multirow{{{len(members)}}}{{*}}{{{name}}}"
            setting = "---" if row["setting"] in (None, "—") else escape(str(row["setting"]), maths=True)
            cells = [_cell(row[column], best[column]) for column in better]
            lines.append("    " + " & ".join([first if index == 0 else "", setting, *cells]) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def escape(text: str, maths: bool = False) -> str:
    """Text for LaTeX; Greek letters and arrows in maths mode, with `maths` all of it (`θ=0.5`)."""
    if maths:
        return "$" + "".join(MATHS.get(c, SPECIAL.get(c, c)) for c in text) + "$"
    escaped = "".join(SPECIAL.get(character, character) for character in text)
    return re.sub(f"[{''.join(MATHS)}]", lambda found: f"${MATHS[found.group()]}$", escaped)


def _cell(value: Cell, best: Cell) -> str:
    if not isinstance(value, int | float):
        return "---" if value is None else escape(str(value))
    shown = f"{value:z.2f}"
    return f"\\textbf{{{shown}}}" if value == best else shown
