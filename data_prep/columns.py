"""From a block of lines to two Arrow columns of text, and the lines that are no pair.

Arrow reads them all at once; only blocks that hold a faulty line are looked at line by line.
"""

import codecs
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from data_prep.reading import decode_line, split_context
from data_prep.sources import Block, Source


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
    before: pa.Array  # the sentence before each source, empty where there is none
    lines: np.ndarray
    faults: list[Fault]


def columns_of(block: Block, source: Source) -> Columns:
    """The pairs of a block."""
    sides = block.sides
    if len(sides) > 1:  # a tab in a line-aligned file is a space
        sides = tuple(side.replace(b"\t", b" ") for side in sides)
    width = (source.columns or 1) if len(sides) == 1 else 1
    chosen = (source.source, source.target) if len(sides) == 1 else (0, 0)
    faults: dict[int, Fault] = {}
    try:
        cells = [_cells(side, width) for side in sides]
        lines = np.arange(len(cells[0][0]))
    except pa.ArrowInvalid:
        faults = _faults(sides, width)
        rows = [_split(side) for side in sides]
        lines = np.delete(np.arange(len(rows[0])), list(faults))
        cells = [_cells(b"".join(each[line] + b"\n" for line in lines), width) for each in rows]
    texts = [cells[0][chosen[0]], cells[-1][chosen[1]]]
    before = pa.repeat("", len(texts[0]))
    if source.context_separator is not None:
        parts = [split_context(text, source.context_separator) for text in texts[0].to_pylist()]
        before, texts[0] = (pa.array([part[side] for part in parts], pa.string()) for side in (0, 1))
    blank = [pc.utf8_is_space(text).to_numpy(False) | (pc.binary_length(text).to_numpy() == 0) for text in texts]
    empty = blank[0] | blank[1]
    if empty.any():
        for index in np.flatnonzero(empty).tolist():
            one, other = texts[0][index].as_py(), texts[1][index].as_py()
            reason = "one_sided" if one.strip() or other.strip() else "empty_line"
            faults[int(lines[index])] = Fault(int(lines[index]), reason, f"{one}\t{other}")
        filled = pa.array(~empty)
        before, *texts = [text.filter(filled) for text in (before, *texts)]
        lines = lines[~empty]
    return Columns(texts[0], texts[1], before, lines, [faults[line] for line in sorted(faults)])


def _cells(side: bytes, width: int) -> list[pa.Array]:
    """Every column of a text without quotes or escapes; ArrowInvalid where a line is faulty, see `_faults`."""
    if not side:
        return [pa.array([], pa.string())] * width
    if b"\0" in side:
        raise pa.ArrowInvalid("NUL")
    names = [str(column) for column in range(width)]
    if side.startswith(codecs.BOM_UTF8):
        side = codecs.BOM_UTF8 + side  # the reader takes one away, and `read_blocks` has taken the file's
    table = csv.read_csv(
        pa.BufferReader(side),
        csv.ReadOptions(use_threads=False, block_size=len(side), column_names=names),
        csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )
    return [table[name].combine_chunks() for name in names]


def _faults(sides: tuple[bytes, ...], width: int) -> dict[int, Fault]:
    """The faulty lines of a block by index, found one by one; the first reason that holds."""
    faults: dict[int, Fault] = {}
    for index, line in enumerate(zip(*map(_split, sides), strict=True)):
        joined = b"\t".join(line)
        text, reason = decode_line(joined)
        if not reason and len(line) == 1 and line[0].count(b"\t") + 1 != width:
            reason = "wrong_column_count"
        if not reason and "\0" in text:
            reason = "nul_byte"
        if reason:
            faults[index] = Fault(index, reason, text)
    return faults


def _split(side: bytes) -> list[bytes]:
    return side.split(b"\n")[:-1]
