"""Bytes of corpus files in the order they stand, decompressed on the way: nothing is ever unpacked to disk.

    chunks(paths)                  one file, or the parts of one that was cut up: plain, .gz or .zst
    tar_member(paths, name)        one file out of a tar, which may be compressed and cut into parts
    zip_member(path, name)         one file out of a zip

Damage is a ValueError that names the file: bytes after it cannot be trusted.
"""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import zstandard
from isal import igzip_lib, isal_zlib

_CHUNK = 1 << 20  # bytes
_GZIP = 31  # window bits of zlib: a gzip header, and its checksum is verified; isal is zlib, twice as fast


class Damaged(ValueError):
    """A file that cannot be read to its end."""


def chunks(paths: Sequence[Path]) -> Iterator[bytes]:
    """The bytes of a file, or of its parts one after the other, decompressed as the first one's name says.

    Raises:
        Damaged: cut short, or with wrong bytes, or a web page in place of a compressed file.
    """
    suffixes = {suffix.lower() for suffix in paths[0].suffixes}
    raw = _raw(paths)
    try:
        if ".gz" in suffixes or ".tgz" in suffixes:
            yield from _gunzip(raw)
        elif ".zst" in suffixes:
            yield from _unzstd(raw)
        else:
            yield from raw
    except (EOFError, igzip_lib.IsalError, zstandard.ZstdError) as error:  # type: ignore[misc]  # as isal's stubs say
        raise Damaged(f"{_names(paths)}: {_diagnosis(paths[0])} ({error}); fetch it again") from error


def _raw(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with open(path, "rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk


def _gunzip(raw: Iterable[bytes]) -> Iterator[bytes]:
    """Member by member: a gzip file may be several ones, written one after the other."""
    member, started = isal_zlib.decompressobj(_GZIP), False
    for data in raw:
        while data:
            if not started and not data.strip(b"\0"):
                break  # padding after the last member
            started = True
            while data and not member.eof:
                yield member.decompress(data, 8 * _CHUNK)
                data = member.unconsumed_tail
            if member.eof:
                data, member, started = member.unused_data, isal_zlib.decompressobj(_GZIP), False
    if started:
        raise EOFError("the gzip stream has no end")


def _unzstd(raw: Iterable[bytes]) -> Iterator[bytes]:
    """Frame by frame: zstandard's own reader takes a file that is cut short for one that ended."""
    frame, started = zstandard.ZstdDecompressor().decompressobj(), False
    for data in raw:
        while data:
            yield frame.decompress(data)
            started, data = not frame.eof, frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
    if started:
        raise EOFError("the last zstd frame has no end")


def tar_member(paths: Sequence[Path], name: str) -> Iterator[bytes]:
    """The bytes of the first file in a tar whose path ends in `name`. Its parts are read in the order given.

    Raises:
        ValueError: damaged or cut short, or there is no such file in it.
    """
    found = []
    try:
        with tarfile.open(fileobj=_Stream(chunks(paths)), mode="r|", bufsize=_CHUNK) as tar:
            for entry in tar:
                if entry.isfile() and f"/{entry.name}".endswith(f"/{name}"):
                    file, left = tar.extractfile(entry), entry.size
                    assert file is not None
                    while left:
                        data = file.read(min(_CHUNK, left))
                        if not data:
                            raise tarfile.ReadError("unexpected end of data")
                        left -= len(data)
                        yield data
                    return
                found.append(entry.name)
    except tarfile.TarError as error:
        raise ValueError(f"{_names(paths)}: {_diagnosis(paths[0])} ({error}); fetch it again") from error
    raise ValueError(f"{_names(paths)}: no file {name} in it; it holds {', '.join(found) or 'nothing'}")


def zip_names(path: Path) -> list[str]:
    """The files in a zip. ValueError where it is none, or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: {_diagnosis(path)} ({error}); fetch it again") from error


def zip_member(path: Path, name: str) -> Iterator[bytes]:
    """The bytes of one file in a zip. ValueError where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: {name} in it is damaged ({error}); fetch it again") from error


def is_web_page(head: bytes) -> bool:
    """Whether a file that starts like this is HTML, such as a server's error page saved under a corpus's name."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower().startswith((b"<!doctype html", b"<html"))


def _diagnosis(path: Path) -> str:
    with open(path, "rb") as stream:
        page = is_web_page(stream.read(200))
    return "a web page, not a corpus" if page else "damaged or cut short"


def _names(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} … {paths[-1].name}"


class _Stream(io.RawIOBase):
    """A file to read from, made of chunks."""

    def __init__(self, data: Iterator[bytes]) -> None:
        self.data, self.rest = data, memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert size >= 0
        parts = []
        while size:
            if not self.rest:
                self.rest = memoryview(next(self.data, b""))
                if not self.rest:
                    break
            parts.append(self.rest[:size])
            self.rest = self.rest[size:]
            size -= len(parts[-1])
        return b"".join(parts)
