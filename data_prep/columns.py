"""From a block of lines to two Arrow columns of text, and the lines that are no pair.

The bytes are cut at tabs and newlines all at once; only blocks that hold a faulty line are looked at line by line.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.sources import Block, Source

_TAB, _NEWLINE = 9, 10


@dataclass(frozen=True)
class Fault:
    """A line that is no pair: its index in the block, why, and its text as far as it can be shown."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class Columns:
    """The pairs of a block: texts, and the index of the line of each; and the lines that are no pair.

    Reasons are those of `reading`: empty_line, one_sided, wrong_column_count, invalid_utf8, nul_byte.
    """

    source: pa.Array
    target: pa.Array
    lines: np.ndarray
    faults: list[Fault]


def columns_of(block: Block, source: Source) -> Columns:
    """The pairs of a block. A carriage return ends a line with its newline, and is a space elsewhere."""
    sides = block.sides
    if len(sides) > 1:  # a tab in a line-aligned file is a space
        sides = tuple(side.replace(b"\t", b" ") for side in sides)
    sides = tuple(side.replace(b"\r\n", b"\n").replace(b"\r", b" ") if b"\r" in side else side for side in sides)
    width = (source.columns or 1) if len(sides) == 1 else 1
    total = sides[0].count(b"\n")
    faults = {} if all(_is_sound(side, width) for side in sides) else _faults(sides, width)
    lines = np.arange(total)
    if faults:
        lines = np.delete(lines, list(faults))
        kept = [_split(side) for side in sides]
        sides = tuple(b"".join(each[line] + b"\n" for line in lines) for each in kept)
    cells = [_cells(side) for side in sides]
    if len(cells) == 1:
        texts = [cells[0].take(pa.array(np.arange(c, len(cells[0]), width))) for c in (source.source, source.target)]
    else:
        texts = cells
    filled = [pc.match_substring_regex(text, r"\S").to_numpy(zero_copy_only=False) for text in texts]
    empty = ~(filled[0] & filled[1])
    if empty.any():
        for index in np.flatnonzero(empty):
            one, other = texts[0][index].as_py(), texts[1][index].as_py()
            reason = "one_sided" if (one or other).strip() else "empty_line"
            faults[int(lines[index])] = Fault(int(lines[index]), reason, f"{one}\t{other}")
        full = pa.array(~empty)
        texts, lines = [text.filter(full) for text in texts], lines[~empty]
    return Columns(texts[0], texts[1], lines, [faults[line] for line in sorted(faults)])


def _is_sound(side: bytes, width: int) -> bool:
    """Valid UTF-8 without NUL, and `width` columns in every line."""
    if b"\0" in side:
        return False
    try:
        side.decode()
    except UnicodeDecodeError:
        return False
    if width == 1:
        return True
    raw = np.frombuffer(side, np.uint8)
    separators = raw[(raw == _TAB) | (raw == _NEWLINE)]
    if len(separators) % width:
        return False
    table = separators.reshape(-1, width)
    return bool((table[:, -1] == _NEWLINE).all() and (table[:, :-1] == _TAB).all())


def _faults(sides: tuple[bytes, ...], width: int) -> dict[int, Fault]:
    """The faulty lines of a block by index, found one by one; the first reason that holds."""
    faults: dict[int, Fault] = {}
    for index, line in enumerate(zip(*map(_split, sides), strict=True)):
        joined = b"\t".join(line)
        try:
            text, reason = joined.decode(), ""
        except UnicodeDecodeError:
            text, reason = joined.decode("utf-8", "replace"), "invalid_utf8"
        if not reason and not text.strip():
            reason = "empty_line"
        if not reason and len(line) == 1 and line[0].count(b"\t") + 1 != width:
            reason = "wrong_column_count"
        if not reason and "\0" in text:
            reason = "nul_byte"
        if reason:
            faults[index] = Fault(index, reason, text)
    return faults


def _split(side: bytes) -> list[bytes]:
    return side.split(b"\n")[:-1]


def _cells(side: bytes) -> pa.Array:
    """All cells of sound text, row by row."""
    raw = np.frombuffer(side, np.uint8)
    text = (raw != _TAB) & (raw != _NEWLINE)
    separators = np.flatnonzero(~text)
    ends = np.empty(len(separators) + 1, np.int32)
    ends[0], ends[1:] = 0, separators - np.arange(len(separators))
    return pa.StringArray.from_buffers(len(separators), pa.py_buffer(ends), pa.py_buffer(raw[text]))
