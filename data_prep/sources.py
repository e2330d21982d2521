"""The published formats of parallel corpora, as blocks of lines.

    kind      what                                               used by
    tsv       columns, the same number in every line             ParaCrawl, News Commentary, Wiki Titles, WikiMatrix
    tar       two line-aligned files in one archive              UN Parallel Corpus
    paired    line-aligned files, in folders or zips             CCMT (CWMT)

A block is a few megabytes of whole lines. Where a block begins and ends follows from the text alone, so that blocks
can be shared out to any number of processes, done again or left out, and always hold the same pairs.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.streams import chunks, is_web_page, tar_member, zip_member, zip_names

LONGEST_LINE = 128 << 20
"""Bytes; what goes on longer without a newline is no text, and must not fill the memory."""

KINDS = ("tsv", "tar", "paired")


@dataclass(frozen=True)
class Source:
    """One corpus: its files, relative to a folder, and how pairs stand in them.

    `source` and `target` are column numbers from 0 (tsv), names of files in the archive (tar), or how names of files
    end, before a suffix .txt: "zh" for x.zh, x_zh.txt (paired; several with commas).

    Raises:
        ValueError: an unknown kind, or columns that do not fit it.
    """

    kind: str
    files: list[str]  # names or patterns; of tar the parts in the order of their names
    source: Any
    target: Any
    columns: int | None = None  # of a tsv
    context_separator: str | None = None  # between the sentence before and the source, in the source column
    urls: list[str] = field(default_factory=list)  # where the files are to be had, in the order of `files`
    sizes: list[int] = field(default_factory=list)  # bytes, in the order of `urls`, where known
    sha256: list[str] = field(default_factory=list)
    by_hand: str = ""  # what to do where a file is not free to download

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: a source is one of {', '.join(KINDS)}")
        if self.kind == "tsv":
            if not self.columns or not all(
                isinstance(column, int) and 0 <= column < self.columns for column in (self.source, self.target)
            ):
                raise ValueError(
                    f"source={self.source!r}, target={self.target!r}, columns={self.columns}: a tsv needs the number "
                    "of its columns, and two of them counted from 0"
                )
        elif self.columns is not None:
            raise ValueError(f"columns={self.columns}: a source of kind {self.kind!r} has no columns")


@dataclass(frozen=True)
class Block:
    """Whole lines, without byte-order mark, in UTF-8 if they are text at all.

    `first` is the number of its first line in the source, counted from 0 over all its files. `sides` is one text of
    `columns` columns, or two of the same number of lines; `place` says where it stands, for people.
    """

    number: int
    first: int
    sides: tuple[bytes, ...]
    place: str
    line: int  # its first line in that file, from 1


def find_files(name: str, source: Source, root: Path) -> list[Path]:
    """The files of a source in the folder `root`, in order.

    Raises:
        FileNotFoundError: a name or pattern without a file.
        ValueError: a part missing in the middle of a file that was cut up.
    """
    found: list[Path] = []
    for pattern in source.files:
        matches = sorted(path for path in root.glob(pattern) if path.is_file() and not path.name.endswith(".part"))
        if not matches:
            raise FileNotFoundError(
                f"{name}: no file {root / pattern}; get it with `python -m data_prep step=download root={root}`, "
                "or leave this source out by naming the others in sources=[…]"
            )
        found += matches
    if source.kind == "tar":
        numbers = [int(path.suffix[1:]) for path in found if path.suffix[1:].isdigit()]
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers)) if numbers else []
        if missing:
            lost = found[0].with_suffix(f".{missing[0]:0{len(found[0].suffix) - 1}d}")
            raise ValueError(f"{name}: part {lost.name} is missing in {lost.parent}, and the archive cannot do without")
    return found


def read_blocks(name: str, source: Source, root: Path, block_bytes: int) -> Iterator[Block]:
    """All blocks of a source, of at most `block_bytes` bytes a side where a line is no longer than that.

    Raises:
        FileNotFoundError, ValueError: those of `find_files`; damage; a web page; a line that never ends; two sides of
            different length; a file without its other side.
    """
    number = first = 0
    for place, streams in _files(name, source, root):
        readers = [_Lines(stream, place, block_bytes) for stream in streams]
        line = 1
        while True:
            lines, text = readers[0].block()
            sides = [text]
            for reader in readers[1:]:
                count, text = reader.lines(lines)
                if count != lines or (not lines and not reader.at_end()):
                    raise ValueError(_misaligned(name, place, readers))
                sides.append(text)
            if not lines:
                break
            yield Block(number, first, tuple(sides), place, line)
            number, first, line = number + 1, first + lines, line + lines


def _misaligned(name: str, place: str, readers: Sequence["_Lines"]) -> str:
    totals = " and ".join(f"{reader.count():,}" for reader in readers)
    return (
        f"{name}: the sides of {place} have {totals} lines: which translates which is lost; fetch them again, or leave "
        "this source out"
    )


def _files(name: str, source: Source, root: Path) -> Iterator[tuple[str, list[Iterator[bytes]]]]:
    """For each file, or pair of files: its name for people, and the bytes of its sides."""
    paths = find_files(name, source, root)
    if source.kind == "tsv":
        for path in paths:
            yield path.name, [chunks([path])]
    elif source.kind == "tar":
        yield paths[0].name, [tar_member(paths, member) for member in (source.source, source.target)]
    else:
        yield from _paired(name, source, root, paths)


def _paired(name: str, source: Source, root: Path, paths: list[Path]) -> Iterator[tuple[str, list[Iterator[bytes]]]]:
    sides = [_side_pattern(side) for side in (source.source, source.target)]
    entries: list[tuple[str, Path, str | None]] = []
    for path in paths:
        base = path.relative_to(root).as_posix()
        members = [(f"{base}:{each}", path, each) for each in zip_names(path)] if path.suffix == ".zip" else None
        entries += members if members is not None else [(base, path, None)]
    pairs: dict[str, list[tuple[Path, str | None] | None]] = {}
    for label, path, member in sorted(entries):
        for index, side in enumerate(sides):
            if match := side.fullmatch(label):
                both = pairs.setdefault(match["before"] + "*" + match["after"], [None, None])
                if both[index] is not None:
                    raise ValueError(f"{name}: two files for one side of {match['before']}; keep one of them")
                both[index] = path, member
    if not pairs:
        raise ValueError(
            f"{name}: no file in {', '.join(map(str, paths))} is named as one side, such as x.zh or x_en.txt"
        )
    for label, both in pairs.items():
        if None in both:
            lost = (source.source, source.target)[both.index(None)]
            raise ValueError(f"{name}: {label} has no side {lost!r}; fetch it again, or take its other side away")
        yield label, [_utf8(zip_member(*each) if each[1] else chunks([each[0]])) for each in both]  # type: ignore


def _side_pattern(side: Any) -> re.Pattern[str]:
    """x.zh, x_zh.txt, x-zh.txt.gz, …"""
    codes = "|".join(re.escape(code.strip()) for code in str(side).split(","))
    return re.compile(rf"(?P<before>.*?)[._-](?:{codes})(?P<after>(?:\.txt)?(?:\.gz|\.zst)?)", re.IGNORECASE)


def _utf8(stream: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8 as it is, GB18030 as UTF-8: the one that the first megabyte is valid in.

    Bytes that are invalid in GB18030 stay in the line as they are, so that it is found invalid later.
    """
    head = next(stream, b"")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        decoder = codecs.getincrementaldecoder("gb18030")("surrogateescape")
        try:
            codecs.getincrementaldecoder("gb18030")().decode(head)
        except UnicodeDecodeError:
            pass  # neither: its bad lines will be counted as such
        else:
            yield decoder.decode(head).encode("utf-8", "surrogateescape")
            for chunk in stream:
                yield decoder.decode(chunk).encode("utf-8", "surrogateescape")
            yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")
            return
    yield head
    yield from stream


class _Lines:
    """Whole lines from a stream of bytes, a block at a time. A last line without its end gets one."""

    def __init__(self, stream: Iterator[bytes], place: str, block_bytes: int) -> None:
        self.stream, self.place, self.block_bytes = stream, place, block_bytes
        self.rest, self.ended, self.taken = b"", False, 0
        self._fill(1 << 10)
        self.rest = self.rest.removeprefix(codecs.BOM_UTF8)
        if is_web_page(self.rest):
            raise ValueError(f"{place} is a web page, not a corpus; fetch it again")

    def block(self) -> tuple[int, bytes]:
        """The lines that end within the next `block_bytes` bytes, at least one, and their number; 0 at the end."""
        self._fill(self.block_bytes)
        end, searched = self.rest.rfind(b"\n", 0, self.block_bytes) + 1, self.block_bytes
        while not end and len(self.rest) >= searched:  # one long line
            end = self.rest.find(b"\n", searched) + 1
            searched = max(searched, len(self.rest))
            if not end:
                self._fill(searched + self.block_bytes)
                if self.ended and len(self.rest) == searched:
                    break
        return self._take(end)

    def lines(self, count: int) -> tuple[int, bytes]:
        """The next `count` lines, or those there are, and their number."""
        parts, found = [], 0
        while found < count and not self.at_end():
            self._fill(self.block_bytes)
            end = self.rest.rfind(b"\n", 0, self.block_bytes) + 1
            inside = self.rest.count(b"\n", 0, end)
            if not end or found + inside > count:
                end = _end_of_line(self.rest, count - found) if end else 0
            taken, text = self._take(end) if end else self.block()
            found += taken
            parts.append(text)
        return found, b"".join(parts)

    def at_end(self) -> bool:
        self._fill(1)
        return not self.rest

    def count(self) -> int:
        """All lines of the stream, those still to come included."""
        while self.block()[0]:
            pass
        return self.taken

    def _take(self, end: int) -> tuple[int, bytes]:
        text, self.rest = self.rest[:end], self.rest[end:]
        lines = text.count(b"\n")
        self.taken += lines
        return lines, text

    def _fill(self, size: int) -> None:
        """Have at least `size` bytes at hand, or all there are."""
        if len(self.rest) >= size or self.ended:
            return
        if size > LONGEST_LINE + self.block_bytes:
            raise ValueError(
                f"{self.place}: a line of over {len(self.rest):,} bytes after line {self.taken:,}: no text has such"
            )
        parts, have = [self.rest], len(self.rest)
        while have < size and not self.ended:
            chunk = next(self.stream, None)
            if chunk is None:
                self.ended = True
            else:
                parts.append(chunk)
                have += len(chunk)
        self.rest = b"".join(parts)
        if self.ended and self.rest and not self.rest.endswith(b"\n"):
            self.rest += b"\n"


def _end_of_line(text: bytes, count: int) -> int:
    """The position after the `count`-th line."""
    end = 0
    for _ in range(count):
        end = text.index(b"\n", end) + 1
    return end
