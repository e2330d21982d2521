"""Text from a pipe as it arrives: not by lines, with a sign where nothing came for a while."""

import os
import select
from codecs import BOM_UTF8, getincrementaldecoder, register_error
from collections.abc import Callable, Iterable, Iterator
from threading import TIMEOUT_MAX

from ..common.encoding import has_mark, is_utf8, not_utf8, seems

CHUNK = 65_536


def arriving(descriptor: int, pause: float, warn: Callable[[int, str], None]) -> Iterator[str | None]:
    """Characters read from a file descriptor, as soon as they are there.

    Args:
        descriptor: of a pipe, a terminal or a file.
        pause: seconds without a byte after which None is yielded, once, until more arrives.
        warn: see `decoded`.
    """
    return decoded(_received(descriptor, pause), warn)


def decoded(
    received: Iterable[bytes | None], warn: Callable[[int, str], None], name: str | None = None
) -> Iterator[str | None]:
    """Text of UTF-8 bytes as they arrive, each line end (\\n, \\r\\n, \\r) as \\n, without byte-order mark; None stays.

    Args:
        received: bytes, cut anywhere.
        warn: is told the line, from 1, and what is wrong with its bytes. Bytes that are not UTF-8 are left out.
        name: of a file that a pipe cannot stand for, as its ending counts.

    Raises:
        ValueError: where the first bytes are for the most part no UTF-8, naming the encoding that they seem to be in.
    """
    lines = 0

    def leave_out(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        line = lines + error.object[: error.start].count(b"\n") + 1
        warn(line, f"not UTF-8 ({error.reason}): {error.object[error.start : error.end].hex(' ')} left out")
        return "", error.end

    register_error("duplexmt.leave_out", leave_out)
    decoder = getincrementaldecoder("utf-8")("duplexmt.leave_out")
    returned = False  # the bytes before ended in \r
    is_first = True
    for part in received:
        if part is None:
            yield None
            continue
        if is_first:
            part, is_first = part.removeprefix(BOM_UTF8), False
            check_encoding(part, name)
        rest = part.removeprefix(b"\n") if returned else part
        returned = part.endswith(b"\r")
        text = decoder.decode(rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        lines += text.count("\n")
        if text:
            yield text
    decoder.decode(b"", final=True)  # tells of a character cut off


def check_encoding(part: bytes, name: str | None = None) -> None:
    """Refuse bytes most of which are no UTF-8, or that begin with the mark of another encoding; some may be damaged."""
    text = part.decode("utf-8", "replace")
    wrong = text.count("\ufffd") + text.count("\0")
    if not is_utf8(part) and (has_mark(part) or (wrong > 3 and 4 * wrong > len(text))):
        if name is not None:
            raise not_utf8(name, seems(part))
        seeming = seems(part) or "ENCODING"
        raise ValueError(
            f"the text is not UTF-8 but seems to be in {seeming}: pass it on by `iconv -f {seeming} -t UTF-8 FILE | …`"
        )


def _received(descriptor: int, pause: float) -> Iterator[bytes | None]:
    silent = True  # nothing to let go yet
    while True:
        # Waits where nothing is to be let go, too: another process may have made reading return at once.
        if not select.select([descriptor], [], [], None if silent else min(pause, TIMEOUT_MAX))[0]:
            silent = True
            yield None
        elif part := os.read(descriptor, CHUNK):
            silent = False
            yield part
        else:
            return
