"""The published formats of parallel corpora, as blocks of lines.

    kind      what                                               used by
    tsv       columns, the same number in every line             ParaCrawl, News Commentary, Wiki Titles, WikiMatrix
    tar       two line-aligned files in one archive              UN Parallel Corpus
    paired    line-aligned files, in folders or zips             CCMT (CWMT)

A block is a few megabytes of whole lines. Where a block begins and ends follows from the text alone, so that blocks
can be shared out to any number of processes, done again or left out, and always hold the same pairs.
"""

import codecs
import glob
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from data_prep.tsv import plain_tsv
from duplexmt.common.encoding import decodes, is_utf8, seems
from duplexmt.common.streams import as_file, chunks, is_web_page, tar_member, text, zip_member, zip_names

_Side = tuple[str, Iterator[bytes]]  # name of a file, for people, and its bytes
KINDS = ("tsv", "tar", "paired")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".rar", ".7z")  # that are not looked into


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
    """Whole lines, without byte-order mark or carriage returns, in UTF-8 if they are text at all.

    `first` is the number of its first line in the source, counted from 0 over all its files. Line-aligned files have
    become two columns; `place` says where it stands, for people.
    """

    number: int
    first: int
    text: bytes
    place: str
    line: int  # its first line in that file, from 1


def find_files(name: str, source: Source, root: Path) -> list[Path]:
    """The files of a source in the folder `root`, in order.

    Raises:
        FileNotFoundError: a name or pattern without a file.
    """
    found: list[Path] = []
    for pattern in source.files:
        paths = map(Path, glob.glob(f"{glob.escape(str(root))}/{pattern}", recursive=True))  # into linked folders, too
        matches = sorted(path for path in paths if not path.is_dir())
        if broken := [path for path in matches if not path.exists()]:
            raise FileNotFoundError(f"{name}: {broken[0]} links to nothing: mend the link, or take it away")
        if not matches:
            raise FileNotFoundError(
                f"{name}: no file {root / pattern}; get it (docs/reference/data.md says how), or leave this source out "
                "by naming the others in sources=[…]"
            )
        found += [path for path in matches if path not in found]
    return found


def read_blocks(
    name: str, source: Source, root: Path, block_bytes: int, languages: Sequence[str] | None = None
) -> Iterator[Block]:
    """All blocks of a source, of at most `block_bytes` bytes a side where a line is no longer than that.

    Lines end as `streams.text` says. Of two line-aligned sides a carriage return alone, in a file that has newlines
    also, ends a line where both have as many of them in that line; else it is a space. For that of a TSV see `tsv`.

    Raises:
        FileNotFoundError, ValueError: those of `find_files`, `text` and `plain_tsv`; damage; a web page; two sides of
            different length; a file without its other side.
    """
    number = first = 0
    for place, streams in _files(name, source, root):
        line = 1
        if source.kind == "tsv":
            ((path, data),) = streams
            plain = plain_tsv(_no_web_page(data, path), path, (source.source, source.target), languages)
            files, line = [as_file(plain.pieces)], plain.first
        else:
            files = [as_file(text(_no_web_page(data, path), path, alone=b"\r")) for path, data in streams]
        blocks, others = _whole_lines(files[0], block_bytes), files[1:]
        for block in blocks:
            sides = (block, *(b"".join(islice(other, block.count(b"\n"))) for other in others))
            if len({side.count(b"\n") for side in sides}) > 1:
                break
            joined = block if len(sides) == 1 else _joined(sides)
            yield Block(number, first, joined, place, line)
            lines = joined.count(b"\n")
            number, first, line = number + 1, first + lines, line + lines
        else:
            if not any(other.read(1) for other in others):
                continue
        raise ValueError(
            f"{name}: the sides of {place} have different numbers of lines: which translates which is lost; fetch them "
            "again, or leave this source out"
        )


def _joined(sides: tuple[bytes, ...]) -> bytes:
    """Line-aligned sides as lines of two columns, in which tabs and stray carriage returns are spaces."""
    has_returns = any(b"\r" in side for side in sides)
    lines: list[bytes] = []
    for row in zip(*(side.replace(b"\t", b" ").split(b"\n")[:-1] for side in sides), strict=True):
        if has_returns and len({line.count(b"\r") for line in row}) == 1:
            lines += map(b"\t".join, zip(*(line.split(b"\r") for line in row), strict=True))
        else:
            lines.append(b"\t".join(row).replace(b"\r", b" "))
    return b"".join(line + b"\n" for line in lines)


def _no_web_page(data: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same; ValueError for what is no text file but HTML."""
    head = next(data, b"")
    if is_web_page(head):
        raise ValueError(f"{name} is a web page, not a corpus; fetch it again")
    return chain([head], data)


def _whole_lines(file: io.BufferedReader, block_bytes: int) -> Iterator[bytes]:
    """Of what is left each time, the lines that end within `block_bytes` bytes, at least one."""
    rest = b""
    while block := rest + file.read(block_bytes - len(rest)):
        end = block.rfind(b"\n") + 1
        if not end:  # one long line
            block += file.readline()
            end = len(block)
        yield block[:end]
        rest = block[end:]


def _files(name: str, source: Source, root: Path) -> Iterator[tuple[str, list[_Side]]]:
    """For each file, or pair of files: its name for people, and its sides."""
    paths = find_files(name, source, root)
    if source.kind == "tsv":
        for path in paths:
            yield path.name, [(str(path), chunks([path]))]
    elif source.kind == "tar":
        members = (source.source, source.target)
        yield paths[0].name, [(f"{paths[0]}:{member}", tar_member(paths, member)) for member in members]
    else:
        yield from _paired(name, source, root, paths)


def _paired(name: str, source: Source, root: Path, paths: list[Path]) -> Iterator[tuple[str, list[_Side]]]:
    sides = [_side_pattern(side) for side in (source.source, source.target)]
    entries: list[tuple[str, Path, str | None]] = []
    for path in paths:
        base = path.relative_to(root).as_posix()
        if path.suffix.lower() == ".zip":
            entries += [(f"{base}:{each}", path, each) for each in zip_names(path)]
        elif path.name.lower().endswith(ARCHIVES):
            raise ValueError(f"{name}: {base} is an archive, which is not looked into: unpack it, and take it away")
        else:
            entries.append((base, path, None))
    loose = {label for label, _, member in entries if member is None}
    for label, path, member in entries:
        if member is not None and (path.relative_to(root).parent / member).as_posix() in loose:
            raise ValueError(f"{name}: {label} is unpacked beside it, and would count twice: keep one of them")
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
        yield label, [_side(*each) for each in both if each]


def _side(path: Path, member: str | None) -> _Side:
    """A file, or one in a zip, as UTF-8 where it is that or GB18030."""
    data = chunks([path]) if member is None else zip_member(path, member)
    return f"{path}:{member}" if member else str(path), _utf8(data)


def _side_pattern(side: Any) -> re.Pattern[str]:
    """x.zh, x_zh.txt, x-zh.txt.gz, …"""
    codes = "|".join(re.escape(code.strip()) for code in str(side).split(","))
    return re.compile(rf"(?P<before>.*?)[._-](?:{codes})(?P<after>(?:\.txt)?(?:\.gz|\.xz|\.zst)?)", re.IGNORECASE)


def _utf8(stream: Iterator[bytes]) -> Iterator[bytes]:
    """GB18030 as UTF-8, if the first megabyte is valid in it, not valid UTF-8, and not more like another encoding.

    Bytes that are invalid in GB18030 stay in the line as they are, so that it is found invalid later.
    """
    head = next(stream, b"")
    stream = chain([head], stream)
    if decodes(head, "utf-8") or not decodes(head, "gb18030"):
        return stream  # if it is neither, `text` says so, or its bad lines will be counted as such
    if not is_utf8(head) and seems(head) not in ("GB18030", None):
        return stream
    texts = codecs.iterdecode(stream, "gb18030", "surrogateescape")
    return (text.encode("utf-8", "surrogateescape") for text in texts)
