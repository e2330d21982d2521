"""From lines, or rows of two fields, to two Arrow columns of text, and an account of what is no pair.

Arrow reads the lines of a block all at once; only blocks that hold a faulty line are looked at line by line.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from data_prep.sources import Block, Source
from duplexmt.common.pair import Pair


class Fault(NamedTuple):
    """A line that is no pair: its number, why, and its text as far as it can be shown."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class Columns:
    """The pairs of a block or batch with the numbers of their lines, and the lines that are no pair.

    Lines are counted from 1 in the file that `place` names, for people. Reasons are empty_line, one_sided,
    wrong_column_count, invalid_utf8, nul_byte, and those of `reading`.
    """

    place: str
    source: pa.Array
    target: pa.Array
    before: pa.Array  # the sentence before each source, empty where there is none
    lines: np.ndarray
    faults: list[Fault]

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        """Each pair with its place."""
        sides = (side.to_pylist() for side in (self.source, self.target, self.before))
        for line, *pair in zip(self.lines.tolist(), *sides, strict=True):
            yield f"{self.place}:{line}", Pair(*pair)


def columns_of(block: Block, source: Source) -> Columns:
    """The pairs of a block."""
    width, chosen = (source.columns, (source.source, source.target)) if source.columns else (2, (0, 1))
    faults: dict[int, Fault] = {}
    try:
        cells = _cells(block.text, width)
        lines = np.arange(len(cells[0]))
    except pa.ArrowInvalid:
        rows = block.text.split(b"\n")[:-1]
        faults = _faults(rows, width, block.line)
        lines = np.delete(np.arange(len(rows)), list(faults))
        cells = _cells(b"".join(rows[line] + b"\n" for line in lines), width)
    texts = cells[chosen[0]], cells[chosen[1]]
    return _filled(block.place, *texts, lines + block.line, list(faults.values()), source.context_separator)


def columns_of_rows(place: str, rows: Sequence[tuple[int, Any, Any, str | None]], separator: str | None) -> Columns:
    """The pairs among some rows: a line's number and its two fields, or its text in place of the first, and a fault.

    What is fields but no two texts is `not_text`.
    """
    lines, sources, targets, faults = [], [], [], []
    for line, source, target, reason in rows:
        text = source if reason else f"{source}\t{target}"
        if reason := reason or _fault_of(source, target):
            faults.append(Fault(line, reason, text.encode("utf-8", "replace").decode()))
        else:
            lines.append(line)
            sources.append(source)
            targets.append(target)
    texts = pa.array(sources, pa.string()), pa.array(targets, pa.string())
    return _filled(place, *texts, np.array(lines, np.int64), faults, separator)


def _fault_of(source: Any, target: Any) -> str | None:
    if not isinstance(source, str) or not isinstance(target, str):
        return "not_text"
    try:
        f"{source}{target}".encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return "invalid_utf8"
    return "nul_byte" if "\0" in source or "\0" in target else None


def _filled(
    place: str, source: pa.Array, target: pa.Array, lines: np.ndarray, faults: list[Fault], separator: str | None
) -> Columns:
    """Texts, of which the source may have the sentence before it in front: those of which neither side is empty."""
    before = pa.repeat("", len(source))
    if separator is not None:
        parts = [text.rpartition(separator) for text in source.to_pylist()]
        before, source = (pa.array([part[side] for part in parts], pa.string()) for side in (0, 2))
    blank = [
        pc.utf8_is_space(text).to_numpy(False) | (pc.binary_length(text).to_numpy() == 0) for text in (source, target)
    ]
    empty = blank[0] | blank[1]
    if empty.any():
        reasons = np.where(blank[0] & blank[1], "empty_line", "one_sided")
        for index in np.flatnonzero(empty).tolist():
            text = f"{source[index].as_py()}\t{target[index].as_py()}"
            faults.append(Fault(int(lines[index]), str(reasons[index]), text))
        filled = pa.array(~empty)
        before, source, target = (text.filter(filled) for text in (before, source, target))
        lines = lines[~empty]
    return Columns(place, source, target, before, lines, sorted(faults))


def _cells(text: bytes, width: int) -> list[pa.Array]:
    """Every column of a text without quotes or escapes; ArrowInvalid where a line is faulty, see `_faults`."""
    if not text:
        return [pa.array([], pa.string())] * width
    if b"\0" in text:
        raise pa.ArrowInvalid("NUL")
    names = [str(column) for column in range(width)]
    if text.startswith(codecs.BOM_UTF8):
        text = codecs.BOM_UTF8 + text  # the reader takes one away, and `read_blocks` has taken the file's
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(use_threads=False, block_size=len(text), column_names=names),
        csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )
    return [table[name].combine_chunks() for name in names]


def _faults(rows: list[bytes], width: int, first: int) -> dict[int, Fault]:
    """The faulty lines of a block by index, found one by one; the first reason that holds."""
    faults: dict[int, Fault] = {}
    for index, row in enumerate(rows):
        text, reason = decode_line(row)
        if not reason and row.count(b"\t") + 1 != width:
            reason = "wrong_column_count"
        if not reason and "\0" in text:
            reason = "nul_byte"
        if reason:
            faults[index] = Fault(first + index, reason, text)
    return faults


def decode_line(line: bytes) -> tuple[str, str | None]:
    """The line's text and None, or a readable form of it and what is wrong."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), "invalid_utf8"
    return text, None if text.strip() else "empty_line"
