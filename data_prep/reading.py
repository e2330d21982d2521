"""Sentence pairs from files, streaming, with an account of every line that was not a pair.

    .tsv            fields by number from 0 (two columns 0 and 1 by default); a header, an index and quoted fields, as
                    pandas writes them, are told by the file itself (`tsv`)
    .csv            a header, fields by name or by number
    .jsonl          one object a line, fields by name, dotted for nested ones: translation.zh
    .parquet        fields by name, dotted too, read through `datasets`
    a folder        that `datasets` saved (`save_to_disk`), or that holds files of one of the kinds above

Text files are UTF-8 and may end in .gz, .xz or .zst; `streams.text` says where their lines end. A pattern
(data/train-*.parquet) reads all files it matches, in order of name. Nothing here touches the network.
"""

import csv
import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

from data_prep.report import Report
from data_prep.tsv import plain_tsv
from duplexmt.common.pair import Pair
from duplexmt.common.streams import LONGEST_LINE, Damaged, chunks, text

PathLike = str | os.PathLike[str]

_SUFFIX = re.compile(r"\.(?:(tsv|csv|jsonl)(?:\.(?:gz|xz|zst))?|(parquet))\Z", re.IGNORECASE)
_FORMATS = (
    ".tsv, .csv and .jsonl (each also .gz, .xz or .zst), .parquet, a folder saved by datasets.save_to_disk, "
    "or a folder of such files"
)
_MOST_LINES = 1_000  # of a record in a CSV
_HEAD = 100  # lines that tell a file's columns or fields
_SPLIT_NAME = re.compile(r"(?<![a-z])(train|valid|dev|test)(?:ing|ation|set)?(?![a-z])")


class _Row(NamedTuple):
    """A line's two fields, or, where `bad` gives a reason, its text in `source`."""

    line: int
    source: Any
    target: Any
    bad: str | None = None


def read_pairs(
    path: PathLike,
    *,
    source_field: int | str = 0,
    target_field: int | str = 1,
    report: Report,
    stage: str = "read",
    context_separator: str | None = None,
    languages: Sequence[str] | None = None,
) -> Iterator[Pair]:
    """Stream pairs from a file, folder or pattern; sides are as in the file, not stripped, never empty.

    With the `languages` of source and target, a TSV's header that names them the other way round is refused.
    With a `context_separator` the source column may hold "sentence before|||source".
    Under `stage`, `report` gets the number of `pairs` and, with the first lines as examples, the lines passed over:
    `empty_line`, `one_sided`, `wrong_column_count`, `invalid_utf8`, `invalid_json`, `missing_field`, `not_text`,
    `nul_byte`, `stray_quotation_mark` (lines of a CSV made one by a mark that is closed within a field). Pairs of which
    a side runs over `several_lines` are kept, and counted: it may be such a mark that is closed at a field's end.
    A TSV's column count is the commonest one among its first 100 lines; its `header` is counted, and no pair.

    Raises, before the first pair where it can be known:
        FileNotFoundError: nothing at `path`.
        ValueError: unknown suffix; a field number or name that the format or the file does not have (JSONL: none of
            its first 100 objects); a folder of several splits; while streaming, another encoding than UTF-8, a
            compressed file that is damaged or cut short, and a quotation mark in a CSV that is never closed.
    """
    files = _files(Path(path))
    fields = source_field, target_field
    for file in files:
        _check_fields(file, *fields)
    return chain.from_iterable(_read(file, fields, languages, report, stage, context_separator) for file in files)


def split_context(text: str, context_separator: str | None) -> tuple[str, str]:
    """The sentence before, empty where there is none, and the source."""
    before, _, source = text.rpartition(context_separator) if context_separator else ("", "", text)
    return before, source


def _read(
    file: Path,
    fields: tuple[int | str, int | str],
    languages: Sequence[str] | None,
    report: Report,
    stage: str,
    separator: str | None,
) -> Iterator[Pair]:
    report.file, pairs = file.name, 0
    report.add(stage, "pairs", 0)
    try:
        for line, source, target, bad in _rows(file, *fields, languages):
            report.line = line
            before, alone = ("", source) if bad or not isinstance(source, str) else split_context(source, separator)
            fault = bad or _fault(alone, target)
            if fault is None:
                pairs += 1
                if "\n" in alone or "\n" in target:
                    report.add_example(stage, "several_lines", f"{alone}\t{target}")
                yield Pair(alone, target, before)
            else:
                report.add_example(stage, fault, source if bad else f"{source}\t{target}")
    except Damaged as error:
        raise ValueError(f"{error}; this is after {pairs:,} pairs were read") from error
    except csv.Error as error:
        raise ValueError(f"{file}: damaged or cut short ({error}) after {pairs:,} pairs were read") from error
    finally:
        report.add(stage, "pairs", pairs)


def _fault(source: object, target: object) -> str | None:
    if not isinstance(source, str) or not isinstance(target, str):
        return "not_text"
    if not source or not target or source.isspace() or target.isspace():
        return "one_sided"
    return "nul_byte" if "\0" in source or "\0" in target else None


# --- which files, of which kind ---------------------------------------------------------------------------------------


def _kind(path: Path) -> str | None:
    """tsv, csv, jsonl, parquet; "saved" for a folder saved by datasets; None for what is not known."""
    if path.is_dir():
        return "saved" if (path / "state.json").is_file() else None
    found = _SUFFIX.search(path.name)
    return (found[1] or found[2]).lower() if found else None


def _files(path: Path) -> list[Path]:
    if not path.exists():
        matches = sorted(Path(match) for match in glob.glob(str(path)))
        if not matches:
            raise FileNotFoundError(f"no corpus at {path}: there is no such file or folder, and nothing matches it")
    elif _kind(path) or path.is_file():
        matches = [path]
    elif (path / "dataset_dict.json").is_file():
        matches = sorted(entry for entry in path.iterdir() if entry.is_dir() and _kind(entry))
        if len(matches) != 1:
            names = ", ".join(entry.name for entry in matches)
            raise ValueError(f"{path} holds the splits {names}: give the folder of one, such as {path / 'train'}")
    else:
        matches = sorted(entry for entry in path.iterdir() if entry.is_file() and _kind(entry))
        named = {entry: found[1] for entry in matches if (found := _SPLIT_NAME.search(entry.name.lower()))}
        splits = {*named.values()}
        if len(splits) > 1 or (splits - {"train"} and len(named) < len(matches)):
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


def _check_fields(file: Path, *fields: int | str) -> None:
    kind = _kind(file)
    for name in fields:
        is_number = isinstance(name, int) and not isinstance(name, bool)
        if isinstance(name, int) and name < 0:
            raise ValueError(f"field number {name} is negative; columns count from 0")
        if kind == "tsv" and not is_number:
            raise ValueError(f"field {name!r} for {file}: a TSV has no names, give column numbers from 0")
        if kind not in ("tsv", "csv") and is_number:
            known = _first_fields(file) if kind == "jsonl" else []
            raise ValueError(
                f"field {name!r} for {file}: this format has names, no column numbers; give source_field and "
                "target_field by name, " + (f"two of {', '.join(known)}" if known else "such as translation.zh")
            )


def _first_fields(file: Path) -> list[str]:
    """The fields of a JSONL's first line; none where it is no object."""
    try:
        return _keys(json.loads(next(_lines(file), b"{}")))
    except ValueError:
        return []


# --- one reader a kind ------------------------------------------------------------------------------------------------


def _rows(file: Path, source_field: Any, target_field: Any, languages: Sequence[str] | None) -> Iterator[_Row]:
    match _kind(file):
        case "tsv":
            return _tsv_rows(file, source_field, target_field, languages)
        case "csv":
            return _csv_rows(file, source_field, target_field)
        case "jsonl":
            return _jsonl_rows(file, source_field, target_field)
    return _dataset_rows(file, source_field, target_field)


def _tsv_rows(file: Path, source_field: int, target_field: int, languages: Sequence[str] | None) -> Iterator[_Row]:
    plain = plain_tsv(chunks([file]), str(file), (source_field, target_field), languages)
    if plain.header:
        yield _Row(1, plain.header, None, "header")
    lines = enumerate(_lines_of(plain.pieces), plain.first)
    head = list(islice(lines, _HEAD))
    counts = [line.count(b"\t") + 1 for _, line in head if line.strip()]
    columns = max(source_field + 1, target_field + 1, mode(counts) if counts else 0)
    for number, line in chain(head, lines):
        text, bad = decode_line(line)
        cells = text.split("\t")
        if bad or len(cells) != columns:
            yield _Row(number, text, None, bad or "wrong_column_count")
        else:
            yield _Row(number, cells[source_field], cells[target_field])


def _csv_rows(file: Path, source_field: int | str, target_field: int | str) -> Iterator[_Row]:
    # Through the standard library: pandas, behind datasets, would turn 2002 into a number and drop "NA".
    held: list[str] = []  # lines of the record at hand
    ended = False

    def texts() -> Iterator[str]:
        nonlocal ended
        for line in _lines(file):
            if len(held) > _MOST_LINES:
                raise unclosed()
            held.append(line.decode("utf-8", "surrogateescape") + "\n")
            yield held[-1]
        ended = True

    def unclosed() -> Damaged:
        first, last = records.line_num - len(held) + 1, records.line_num
        return Damaged(
            f"{file}: a quotation mark in line {first} makes one record of all up to line {last}: close it, or "
            "double it within a quoted field"
        )

    csv.field_size_limit(LONGEST_LINE)
    records = csv.reader(texts())
    header = next(records, [])
    for name in (source_field, target_field):
        if name not in (header if isinstance(name, str) else range(len(header))):
            raise ValueError(f"{file} has no column {name!r}; its header is {header}")
    source, target = (header.index(name) if isinstance(name, str) else name for name in (source_field, target_field))
    held.clear()
    for cells in records:
        if ended:  # a record that is closed comes with its last line
            raise unclosed()
        is_stray = len(held) > 1 and not _is_well_formed(held)
        held.clear()
        text, bad = decode_line(",".join(cells).encode("utf-8", "surrogateescape"))
        bad = "stray_quotation_mark" if is_stray else bad
        if bad or len(cells) != len(header):
            yield _Row(records.line_num, text, None, bad or "wrong_column_count")
        else:
            yield _Row(records.line_num, cells[source], cells[target])


def _is_well_formed(lines: list[str]) -> bool:
    """Whether every quotation mark that closes a field of a CSV is its last character."""
    try:
        list(csv.reader(lines, strict=True))
    except csv.Error:
        return False
    return True


def _jsonl_rows(file: Path, source_field: str, target_field: str) -> Iterator[_Row]:
    has_both, without = False, 0
    for number, line in enumerate(_lines(file), 1):
        text, bad = decode_line(line)
        if bad:
            yield _Row(number, text, None, bad)
            continue
        try:
            row = json.loads(text)
            source, target = _dig(row, source_field), _dig(row, target_field)
            if "\\ud" in text or "\\uD" in text:  # perhaps half a surrogate pair, which is no text
                f"{source}{target}".encode()
        except UnicodeEncodeError:
            yield _Row(number, text, None, "invalid_utf8")
        except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
            yield _Row(number, text, None, "invalid_json")
        except LookupError:
            without += 1
            if without == 1:
                first = row
            if without == _HEAD and not has_both:
                break
            yield _Row(number, text, None, "missing_field")
        else:
            has_both = True
            yield _Row(number, source, target)
    if without and not has_both:
        raise _no_field(file, first, source_field, target_field)


def _dataset_rows(file: Path, source_field: str, target_field: str) -> Iterator[_Row]:
    try:
        import datasets  # a second to import, and only these formats need it
    except ImportError as error:
        raise ValueError(f"{file}: this format needs the package datasets: pip install datasets") from error

    if file.is_dir():
        rows = datasets.load_from_disk(file)
    else:
        rows = datasets.load_dataset("parquet", data_files=[str(file)], split="train", streaming=True)
    columns = [
        name if name in (rows.column_names or ()) else name.partition(".")[0] for name in (source_field, target_field)
    ]
    for name in columns:
        if name not in (rows.column_names or ()):
            raise ValueError(f"{file} has no column {name!r}; it has {rows.column_names}")
    number = 0
    for batch in rows.iter(batch_size=1000):
        for cells in zip(*(batch[name] for name in columns), strict=True):
            number += 1
            row = dict(zip(columns, cells, strict=True))
            try:
                yield _Row(number, _dig(row, source_field), _dig(row, target_field))
            except LookupError as error:
                if number == 1 and None not in cells:  # all rows have the same fields
                    raise _no_field(file, row, source_field, target_field) from error
                yield _Row(number, str(row), None, "missing_field")


def _no_field(file: Path, row: Any, *names: str) -> ValueError:
    """The error for a file without such fields, as one of its rows shows."""
    known = _keys(row)
    lacking = " and ".join(repr(name) for name in names if name not in known)
    there = f"its fields are {', '.join(known)}" if known else "its lines are no objects with fields"
    return ValueError(f"{file} has no field {lacking}; {there}: give two that it has as source_field and target_field")


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
    first, _, rest = name.partition(".")
    if not rest or first not in row:
        raise LookupError(name)
    return _dig(row[first], rest)


# --- bytes ------------------------------------------------------------------------------------------------------------


def decode_line(line: bytes) -> tuple[str, str | None]:
    """The line's text and None, or a readable form of it and what is wrong."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), "invalid_utf8"
    return text, None if text.strip() else "empty_line"


def _lines(file: Path) -> Iterator[bytes]:
    """Lines without their ending."""
    return _lines_of(text(chunks([file]), str(file)))


def _lines_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from piece[:-1].split(b"\n")
