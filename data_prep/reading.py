"""Sentence pairs from files, streaming, with an account of every line that was not a pair.

    .tsv            fields by number from 0 (two columns 0 and 1 by default); a header, an index and quoted fields, as
                    pandas writes them, are told by the file itself (`tsv`)
    .csv            a header, fields by name or by number
    .jsonl          one object a line, fields by name, dotted for nested ones: translation.zh
    .parquet        fields by name, dotted too
    a folder        that `datasets` saved (`save_to_disk`), or that holds files of one of the kinds above

Text files are UTF-8 and may end in .gz, .xz or .zst; `streams.text` says where their lines end. A pattern
(data/train-*.parquet) reads all files it matches, in order of name. Nothing here touches the network.
"""

import csv
import glob
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_prep.columns import Columns, columns_of, columns_of_rows, decode_line
from data_prep.report import Report
from data_prep.sources import Block, Source
from data_prep.tsv import plain_tsv
from duplexmt.common.streams import LONGEST_LINE, Damaged, chunks, text

log = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

_SUFFIX = re.compile(r"\.(?:(tsv|csv|jsonl)(?:\.(?:gz|xz|zst))?|(parquet))\Z", re.IGNORECASE)
_FORMATS = (
    ".tsv, .csv and .jsonl (each also .gz, .xz or .zst), .parquet, a folder saved by datasets.save_to_disk, "
    "or a folder of such files"
)
_MOST_LINES = 1_000  # of a record in a CSV
_HEAD = 100  # objects that tell a file's fields
_BATCH = 5_000  # rows
_SPLIT_NAME = re.compile(r"(?<![a-z])(train|valid|dev|test)(?:ing|ation|set)?(?![a-z])")


_Row = tuple[int, Any, Any, str | None]
"""A line's number and its two fields, or its text and what is wrong with it."""


def read_columns(
    path: PathLike,
    *,
    source_field: int | str = 0,
    target_field: int | str = 1,
    report: Report,
    stage: str = "read",
    context_separator: str | None = None,
    languages: Sequence[str] | None = None,
) -> Iterator[Columns]:
    """Stream pairs from a file, folder or pattern; sides are as in the file, not stripped, never empty.

    With the `languages` of source and target, a TSV's header that names them the other way round is refused.
    With a `context_separator` the source column may hold "sentence before|||source".
    Under `stage`, `report` gets the number of `pairs` and, with the first lines as examples, the lines passed over:
    `empty_line`, `one_sided`, `wrong_column_count`, `invalid_utf8`, `invalid_json`, `missing_field`, `not_text`,
    `nul_byte`, `stray_quotation_mark` (of a CSV: a record with a mark that is closed within a field). Pairs of which
    a side runs over `several_lines` are kept, and counted: it may be such a mark that is closed at a field's end.
    A TSV's column count is the commonest one among its first 100 lines; its `header` is counted, and no pair.

    Raises, before the first pair where it can be known:
        FileNotFoundError: nothing at `path`.
        ValueError: unknown suffix; a field number or name that the format or the file does not have (JSONL: none of
            its first 100 objects); a folder of several splits; while streaming, another encoding than UTF-8, a
            compressed file that is damaged or cut short, and a quotation mark in a CSV that is never closed.
    """
    files = _files(Path(path))
    for file, name in product(files, (source_field, target_field)):
        if _kind(file) == "tsv" and (type(name) is not int or name < 0):
            raise ValueError(f"field {name!r} for {file}: a TSV has no names, give column numbers from 0")
    columns = partial(_columns, fields=(source_field, target_field), separator=context_separator, languages=languages)
    return chain.from_iterable(_reported(file, columns(file), report, stage) for file in files)


def _reported(file: Path, found: Iterator[Columns], report: Report, stage: str) -> Iterator[Columns]:
    pairs = 0
    report.add(stage, "pairs", 0)
    try:
        for columns in found:
            for line, reason, text in columns.faults:
                report.add_example(stage, reason, text, f"{columns.place}:{line}")
            several = pc.or_(*(pc.match_substring(side, "\n") for side in (columns.source, columns.target)))
            if pc.any(several).as_py():
                for (place, pair), is_several in zip(columns.pairs(), several.to_pylist(), strict=True):
                    if is_several:
                        report.add_example(stage, "several_lines", f"{pair.source}\t{pair.target}", place)
            pairs += len(columns.lines)
            report.add(stage, "pairs", len(columns.lines))
            yield columns
    except Damaged as error:
        raise ValueError(f"{error}; this is after {pairs:,} pairs were read") from error
    except (csv.Error, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None):  # of the disk; that of wrong bytes has no number
            raise
        raise ValueError(f"{file}: damaged or cut short ({error}) after {pairs:,} pairs were read") from error


# --- which files, of which kind ---------------------------------------------------------------------------------------


def _kind(path: Path) -> str | None:
    """tsv, csv, jsonl, parquet; "saved" for a folder saved by datasets; None for what is not known."""
    if path.is_dir():
        return "saved" if (path / "state.json").is_file() else None
    found = _SUFFIX.search(path.name)
    return (found[1] or found[2]).lower() if found else None


def _files(path: Path) -> list[Path]:
    matches = [path]
    if not path.exists():
        matches = sorted(Path(match) for match in glob.glob(str(path)))
        if not matches:
            raise FileNotFoundError(f"no corpus at {path}: there is no such file or folder, and nothing matches it")
    elif path.is_dir() and not _kind(path):
        matches = sorted(entry for entry in path.iterdir() if entry.name[0] != "." and _kind(entry))
        named = {entry: found[1] for entry in matches if (found := _SPLIT_NAME.search(entry.name.lower()))}
        splits = {*named.values()}
        is_several = len(matches) > 1 if (path / "dataset_dict.json").is_file() else len(splits) > 1
        if is_several or (splits - {"train"} and len(named) < len(matches)):
            first = next((entry.name for entry in matches if entry not in named), "train*")
            raise ValueError(
                f"{path} holds files of several splits ({', '.join(entry.name for entry in matches)}): give one as "
                f"{path}/{first}; train.py takes a folder of corpora and test files by data=pairs_folder"
            )
        if not matches:
            raise ValueError(f"{path} is a folder without a corpus in it; known formats: {_FORMATS}")
    for file in matches:
        if _kind(file) is None:
            raise ValueError(f"{file}: unknown format; known formats, told by the suffix: {_FORMATS}")
    return matches


# --- one reader a kind ------------------------------------------------------------------------------------------------


def _columns(file: Path, fields: Any, separator: str | None, languages: Sequence[str] | None) -> Iterator[Columns]:
    match _kind(file):
        case "tsv":
            return _tsv_columns(file, fields, separator, languages)
        case "csv":
            rows = _csv_rows(file, *fields)
        case "jsonl":
            rows = _object_rows(file, _jsonl_objects(file), fields)
        case _:
            rows = _object_rows(file, _arrow_objects(file), fields)
    return (columns_of_rows(file.name, batch, separator) for batch in _batches(rows))


def _batches(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Some rows at a time; what comes before damage comes before its error."""
    batch: list[_Row] = []
    try:
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    except Exception:
        yield batch
        raise
    yield batch


def _tsv_columns(
    file: Path, fields: tuple[int, int], separator: str | None, languages: Sequence[str] | None
) -> Iterator[Columns]:
    plain = plain_tsv(chunks([file]), str(file), fields, languages)
    if plain.header:
        yield columns_of_rows(file.name, [(1, plain.header, None, "header")], None)
    source, line = Source("tsv", [], *fields, plain.columns, separator), plain.first
    for number, piece in enumerate(plain.pieces):
        yield columns_of(Block(number, line, piece, file.name, line), source)
        line += piece.count(b"\n")


def _csv_rows(file: Path, source_field: int | str, target_field: int | str) -> Iterator[_Row]:
    # Through the standard library: pandas would turn 2002 into a number and drop "NA", and Arrow tells no stray mark.
    csv.field_size_limit(LONGEST_LINE)
    records = csv.reader((line.decode("utf-8", "surrogateescape") + "\n" for line in _lines(file)), strict=True)
    header = next(records, [])
    for name in (source_field, target_field):
        if name not in (header if isinstance(name, str) else range(len(header))):
            raise ValueError(f"{file} has no column {name!r}; its header is {header}")
    log.warning("%s: line 1 is taken for a header: %s", file, ", ".join(header))
    source, target = (header.index(name) if isinstance(name, str) else name for name in (source_field, target_field))
    cells: list[str] | None = []
    while cells is not None:
        first, stray = records.line_num + 1, ""
        try:
            cells = next(records, None)
        except csv.Error as error:
            stray = str(error)
        last = records.line_num
        if "end of data" in stray or last - first > _MOST_LINES:
            raise Damaged(
                f"{file}: a quotation mark in line {first} makes one record of all up to line {last}: close it, or "
                "double it within a quoted field"
            )
        if stray:
            yield last, f"lines {first} to {last}: {stray}", None, "stray_quotation_mark"
        elif cells is not None:
            text, bad = decode_line(",".join(cells).encode("utf-8", "surrogateescape"))
            if bad or len(cells) != len(header):
                yield last, text, None, bad or "wrong_column_count"
            else:
                yield last, cells[source], cells[target], None


def _jsonl_objects(file: Path) -> Iterator[tuple[str, Any, str | None]]:
    """Each line, the object in it, and what is wrong."""
    for line in _lines(file):
        text, bad = decode_line(line)
        try:
            yield text, None if bad else json.loads(text), bad
        except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
            yield text, None, "invalid_json"


def _arrow_objects(file: Path) -> Iterator[tuple[str, Any, str | None]]:
    """The rows of a Parquet file, or of a folder saved by `datasets`."""
    if file.is_dir():
        import datasets  # a second to import, and only this format needs it

        batches = datasets.load_from_disk(file).with_format("arrow").iter(_BATCH)
    else:
        batches = pq.ParquetFile(file).iter_batches(_BATCH)
    for batch in batches:
        for row in batch.to_pylist():
            yield "", row, None


def _object_rows(file: Path, objects: Iterator[tuple[str, Any, str | None]], fields: tuple[str, str]) -> Iterator[_Row]:
    """Two fields of each object; an error where none of the first ones has both."""
    lacking, has_both = [], False
    for number, (line, row, bad) in enumerate(objects, 1):
        try:
            source, target = (None, None) if bad else (_dig(row, name) for name in fields)
        except LookupError:
            line, bad = line or str(row), "missing_field"
            if not has_both:
                lacking.append(row)
            if len(lacking) == _HEAD:
                break
        has_both |= not bad
        yield (number, line, None, bad) if bad else (number, source, target, None)
    if lacking and not has_both:
        known = _keys(lacking[0])
        unknown = " and ".join(repr(name) for name in fields if name not in known)
        told = f"its fields are {', '.join(known)}" if known else "its lines are no objects with fields"
        raise ValueError(
            f"{file} has no field {unknown}; {told}: give two that it has as source_field and target_field"
        )


def _keys(row: Any) -> list[str]:
    """The fields of a row, with dots for those within another."""
    if not isinstance(row, dict):
        return []
    inner = {name: [f"{name}.{key}" for key in _keys(value)] for name, value in row.items()}
    return [key for name, keys in inner.items() for key in keys or [name]]


def _dig(row: Any, name: str) -> Any:
    """`row[name]`, or of a dotted name `row["translation"]["zh"]`; LookupError where there is no such thing."""
    if not isinstance(row, dict):
        raise LookupError(name)
    if name in row:
        return row[name]
    first = max((key for key in row if str(name).startswith(f"{key}.")), key=len, default=name)
    return _dig(row.get(first), str(name)[len(str(first)) + 1 :])


def _lines(file: Path) -> Iterator[bytes]:
    """Lines without their ending."""
    for piece in text(chunks([file]), str(file)):
        yield from piece[:-1].split(b"\n")
