"""Bytes of corpus files in the order they stand, decompressed on the way: nothing is ever unpacked to disk.

    chunks(paths)                  one file, or the parts of one that was cut up: plain, .gz, .xz or .zst
    tar_member(paths, name)        one file out of a tar, which may be compressed and cut into parts
    zip_member(path, name)         one file out of a zip
    text(data, name)               such bytes as lines, whatever ends them

Damage is a ValueError that names the file: bytes after it cannot be trusted.
"""

import codecs
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from isal import igzip, igzip_lib

from .encoding import check_utf8

LONGEST_LINE = 128 << 20
"""Bytes; what goes on longer without a newline is no text, and must not fill the memory."""

_CHUNK = 1 << 20  # bytes
_ENDS = re.compile(rb"\r+\n")


class Damaged(ValueError):
    """A file that cannot be read to its end."""


def chunks(paths: Sequence[Path]) -> Iterator[bytes]:
    """The bytes of a file, or of its parts one after the other, decompressed as the first one's name says.

    Raises:
        Damaged: cut short, or with wrong bytes, or a web page or text in place of a compressed file.
    """
    suffixes = {suffix.lower() for suffix in paths[0].suffixes}
    file: Any = as_file(chunk for path in paths for chunk in _chunks_of(path))
    if suffixes & {".gz", ".tgz"}:
        file = igzip.IGzipFile(fileobj=file)  # twice as fast as zlib
    elif ".xz" in suffixes:
        file = as_file(_from_xz(file))
    elif ".zst" in suffixes:
        file = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    try:
        yield from _read(file)
    except (EOFError, OSError, lzma.LZMAError, igzip_lib.IsalError) as error:  # type: ignore[misc]  # isal's stubs
        if getattr(error, "errno", None):  # of the disk; that of wrong bytes has no number
            raise
        raise Damaged(f"{_names(paths)}: {_diagnosis(paths[0], error)}") from error


def _from_xz(file: Any) -> Iterator[bytes]:
    """All streams of an .xz, with zeros between: `lzma.LZMAFile` takes a damaged one behind the first for no stream."""
    stream, data = lzma.LZMADecompressor(), b""
    while data or (data := file.read(_CHUNK)):
        yield stream.decompress(data, _CHUNK)
        while not (stream.eof or stream.needs_input):
            yield stream.decompress(b"", _CHUNK)
        data = stream.unused_data
        if stream.eof:
            while not (data := data.lstrip(b"\0")) and (data := file.read(_CHUNK)):
                pass
            if not data:
                return
            stream = lzma.LZMADecompressor()
    raise EOFError("ends within a stream")


def _chunks_of(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        yield from _read(stream)


def _read(file: Any) -> Iterator[bytes]:
    return iter(partial(file.read, _CHUNK), b"")


def text(data: Iterator[bytes], name: str, alone: bytes = b"\n") -> Iterator[bytes]:
    r"""Bytes of a text file in pieces of whole lines, each line with one newline behind it, and no byte-order mark.

    A line ends at \n, \r\n and \r, and nowhere else: not at U+2028, U+0085, \v or \f.

    Args:
        data: the file's bytes, cut anywhere.
        name: of the file, for people.
        alone: what a \r without \n becomes where the first megabyte has \n: such a file may hold a stray one.

    Raises:
        ValueError: it is in another encoding than UTF-8.
        Damaged: a line that never ends, which would fill the memory.
    """
    file = as_file(data)
    head = file.read(_CHUNK)
    check_utf8(head, name)
    if b"\n" not in head:
        alone = b"\n"
    if 0 < len(head) < _CHUNK and not head.endswith(b"\n"):  # a small file is one piece
        head += b"\n"
    rest: list[bytes] = []  # of a line that has not ended
    returned = b""  # perhaps half of a line end
    for part in chain([head.removeprefix(codecs.BOM_UTF8)], _read(file)):
        part = returned + part
        piece = part.rstrip(b"\r")
        returned = part[len(piece) :]
        if b"\r" in piece:
            piece = _with_newlines(piece, alone)
        if end := piece.rfind(b"\n") + 1:
            yield b"".join([*rest, piece[:end]])
            rest = []
        rest.append(piece[end:])
        if (size := sum(map(len, rest))) > LONGEST_LINE:
            raise Damaged(f"{name}: a line of over {size:,} bytes: no text has such")
    if last := b"".join(rest):
        yield last + b"\n"


def _with_newlines(piece: bytes, alone: bytes) -> bytes:
    r"""The same with \n for \r\n, and `alone` for \r without \n."""
    if piece.count(b"\r\n") == piece.count(b"\r"):  # as in nearly all files; five times as fast as replacing them
        return piece.translate(None, b"\r")
    return _ENDS.sub(b"\n", piece).replace(b"\r", alone)


def tar_member(paths: Sequence[Path], name: str) -> Iterator[bytes]:
    """The bytes of the first file in a tar whose path ends in `name`. Its parts are read in the order given.

    Raises:
        ValueError: damaged or cut short, or there is no such file in it.
    """
    found = []
    try:
        with tarfile.open(fileobj=as_file(chunks(paths)), mode="r|", bufsize=_CHUNK) as tar:
            for entry in tar:
                if entry.isfile() and f"/{entry.name}".endswith(f"/{name}"):
                    yield from _read(tar.extractfile(entry))
                    return
                found.append(entry.name)
    except tarfile.TarError as error:
        raise ValueError(f"{_names(paths)}: {_diagnosis(paths[0], error)}") from error
    raise ValueError(f"{_names(paths)}: no file {name} in it; it holds {', '.join(found) or 'nothing'}")


def zip_names(path: Path) -> list[str]:
    """The files in a zip. ValueError where it is none, or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: {_diagnosis(path, error)}") from error


def zip_member(path: Path, name: str) -> Iterator[bytes]:
    """The bytes of one file in a zip. ValueError where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
            yield from _read(stream)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: {name} in it is damaged ({error}); fetch it again") from error


def is_web_page(head: bytes) -> bool:
    """Whether a file that starts so is HTML, such as a server's error page saved under a corpus's name."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower().startswith((b"<!doctype html", b"<html"))


def _diagnosis(path: Path, error: Exception) -> str:
    with open(path, "rb") as stream:
        head = stream.read(4096)
    if is_web_page(head):
        return f"a web page, not a corpus ({error}); fetch it again"
    if head and b"\0" not in head:
        return f"text, not compressed as its name says ({error}); rename it"
    return f"damaged or cut short ({error}); fetch it again"


def _names(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1].name}"


def as_file(data: Iterator[bytes]) -> io.BufferedReader:
    """A file to read chunks of bytes from."""
    return io.BufferedReader(_Chunks(data), _CHUNK)


class _Chunks(io.RawIOBase):
    def __init__(self, data: Iterator[bytes]) -> None:
        self.data, self.rest = filter(None, data), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or memoryview(next(self.data, b""))
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size
