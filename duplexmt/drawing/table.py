"""Tables of results: Markdown, CSV and JSON for files, aligned plain text for the terminal.

A table is a list of rows, each a mapping from column to cell with the same columns; the first row's order is the
table's. Cells are text, numbers or None. Texts show floats with two decimals and None as a dash; a column that holds
a float shows its integers so too, while a column of integers (counts) stays as it is. JSON keeps full precision.
All that makes a table raises ValueError for what `check_rows` refuses.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category, east_asian_width

Row = Mapping[str, object]
Cell = str | int | float | None

MISSING = "—"


def to_markdown(rows: Sequence[Row], caption: str = "", footnotes: Sequence[str] = ()) -> str:
    """A Markdown table, numbers to the right, under its caption and above its footnotes (metric signatures, say)."""
    (header, *body), numeric = shown_cells(rows)
    rule = ["---:" if right else "---" for right in numeric]
    lines = ["| " + " | ".join(map(_escape, line)) + " |" for line in (header, rule, *body)]
    blocks = [caption] if caption else []
    blocks.append("\n".join(lines))
    if footnotes:
        blocks.append("\n".join(f"- {note}" for note in footnotes))
    return "\n\n".join(blocks) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """A CSV table: a header, then one line a row, as shown. It has no place for caption and footnotes."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(shown_cells(rows)[0])
    return buffer.getvalue()


def to_json(rows: Sequence[Row], caption: str = "", footnotes: Sequence[str] = ()) -> str:
    """`{"caption", "rows", "footnotes"}`, numbers in full precision and null for None."""
    document = {"caption": caption, "rows": check_rows(rows), "footnotes": list(footnotes)}
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The main table that `to_json` has written, `{"caption", "rows", "footnotes"}`.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        caption, rows, footnotes = read["caption"], check_rows(read["rows"]), read["footnotes"]
        if not (isinstance(footnotes, list) and all(isinstance(text, str) for text in (caption, *footnotes))):
            raise TypeError("caption and footnotes must be text")
        if not all(isinstance(cell, str | int | float | None) for row in rows for cell in row.values()):
            raise TypeError("cells must be text, numbers or null")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): write it again with python evaluate.py rescore=…") from error
    return {"caption": caption, "rows": rows, "footnotes": footnotes}


def write_tables(
    rows: Sequence[Row], folder: Path, name: str, caption: str = "", footnotes: Sequence[str] = ()
) -> None:
    """Write `name.md`, `name.csv` and `name.json` into `folder`, made if need be; nothing where one is refused."""
    contents = {
        "md": to_markdown(rows, caption, footnotes),
        "csv": to_csv(rows),
        "json": to_json(rows, caption, footnotes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in contents.items():
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8", newline="\n")


def summary(rows: Sequence[Row]) -> str:
    """A plain-text table for terminals, without a newline at its end.

    Columns align by terminal cells, of which a Chinese, Japanese or Korean character takes two.
    """
    shown, numeric = shown_cells(rows)
    header, *body = [[" ".join(text.split()) for text in line] for line in shown]
    widths = [max(map(terminal_width, column)) for column in zip(header, *body, strict=True)]
    lines = []
    for line in (header, ["-" * width for width in widths], *body):
        padding = [" " * (width - terminal_width(text)) for text, width in zip(line, widths, strict=True)]
        cells = [pad + text if right else text + pad for text, pad, right in zip(line, padding, numeric, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def check_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows, columns in the order of the first one's.

    Raises:
        ValueError: no rows, no columns, or rows whose columns differ.
    """
    if not rows or not rows[0] or any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError("a table needs a row and a column at least, and the same columns in all rows")
    return [{column: row[column] for column in rows[0]} for row in rows]


def shown_cells(rows: Sequence[Row]) -> tuple[list[list[str]], list[bool]]:
    """Header and rows as text; and of each column whether it holds numbers only, which stand to the right."""
    table = check_rows(rows)
    columns = list(table[0])
    numeric = [not any(isinstance(row[column], str | bool) for row in table) for column in columns]
    with_decimals = {column for column in columns if any(isinstance(row[column], float) for row in table)}
    return [columns] + [[_show(row[column], column in with_decimals) for column in columns] for row in table], numeric


def _show(cell: Cell, decimals: bool) -> str:
    if cell is None:
        return MISSING
    if decimals and not isinstance(cell, str | bool):
        return f"{cell:z.2f}"  # z: never "-0.00"
    return str(cell)


def terminal_width(text: str) -> int:
    """Cells of a terminal that a text takes: two for a wide character, none for a combining or invisible one."""
    return sum(
        0 if category(character) in ("Mn", "Me", "Cf") else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )


def _escape(text: str) -> str:
    """Text that stays inside one Markdown cell."""
    return " ".join(text.split()).replace("|", "\\|")
