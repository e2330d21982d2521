"""Files that appear whole or not at all, and folders that one run works in at a time."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes | Callable[[Any], None]) -> None:
    """Write a file aside, flush it to disk and give it its name, so that no reader ever sees a part of it.

    Args:
        path: of the file; its folder is there.
        content: text, for UTF-8; bytes; or what writes to a binary stream.

    Raises:
        OSError: the disk is full, …; nothing is left behind.
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with open(aside, "wb") as stream:
            if callable(content):
                content(stream)
            else:
                stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # the system names no file where a disk is full
        raise


def check_there(setting: str, names: Iterable[str]) -> None:
    """Refuse (ValueError) names of files that are not there."""
    for name in names:
        if not Path(name).is_file():
            raise ValueError(f"{setting}={name}: there is no such file")


def check_writable(setting: str, folder: Path) -> None:
    """Refuse (ValueError) a folder in which nothing can be written, whether it is there or has to be made."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if there.is_dir() else errno.ENOTDIR)
        raise ValueError(f"{setting}={folder}: cannot be written to ({why}); give another folder")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_held: set[int] = set()  # descriptors of locked folders


def _let_go() -> None:
    for descriptor in _held:
        os.close(descriptor)


os.register_at_fork(after_in_child=_let_go)  # a fork would hold on to what its parent has locked


@contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Hold a folder, which is made if need be, by a lock that leaves no file and ends with the process.

    Raises:
        ValueError: another process holds it, and we are not to wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(
            f"another run is at work in {folder}: wait for its end, or give another output folder"
        ) from None
    _held.add(descriptor)
    try:
        yield
    finally:
        _held.remove(descriptor)
        os.close(descriptor)
