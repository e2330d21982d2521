"""Files of a corpus from the network: continued where they were cut off, checked, tried again.

A file is FILE.part until it is whole. What is there already, of the size and hash it should have, is not fetched again.
"""

import logging
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from itertools import chain, repeat
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from data_prep.sources import Source, find_files
from duplexmt.common.files import sha256_of
from duplexmt.common.streams import is_web_page

log = logging.getLogger("data_prep")

TRIES = 5
TIMEOUT = 60.0  # seconds without a byte
_CHUNK = 1 << 20  # bytes


def download(sources: dict[str, Source], root: Path, pause: float = 2.0) -> None:
    """Fetch what is missing of the sources, and say at the end what has to be done by hand.

    Args:
        sources: by name.
        root: the folder they go to.
        pause: seconds before a second try, doubled before each further one.

    Raises:
        OSError: no network, or a server that does not answer; what has come stays, and the next run goes on with it.
        ValueError: a file of another size or hash than it should have; files that have to be fetched by hand.
    """
    by_hand = []
    for name, source in sources.items():
        known = (chain(values, repeat(None)) for values in (source.sizes, source.sha256))
        for url, size, digest in zip(source.urls, *known, strict=False):
            path = root / Path(urlsplit(url).path).name
            if path.is_file() and _is_right(path, size, digest):
                log.info("%s: %s is there", name, path.name)
            else:
                fetch(url, path, size=size, sha256=digest, pause=pause)
        if not source.urls:
            try:
                find_files(name, source, root)
            except FileNotFoundError:
                by_hand.append(f"{name}: {source.by_hand} (folder {root})")
    if by_hand:
        raise ValueError("to be fetched by hand: " + "; ".join(by_hand))


def fetch(url: str, path: Path, *, size: int | None = None, sha256: str | None = None, pause: float = 2.0) -> None:
    """Fetch one file, in several tries if need be, each going on where the last one stopped.

    Raises:
        OSError, ValueError: as for `download`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    reason = None
    for attempt in range(TRIES):
        if attempt:
            log.info("%s: %s; trying again", path.name, reason)
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            expected = _fetch_rest(url, part)
            break
        except (OSError, HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429):
                raise OSError(
                    f"{url}: the server says {error.code} {error.reason}; is the address still right?"
                ) from error
            reason = error
    else:
        have = part.stat().st_size if part.is_file() else 0
        raise OSError(
            f"{url}: no connection after {TRIES} tries ({reason}); {have:,} bytes are kept in {part.name} and the next "
            f"run goes on from there. Without a network, put the file at {path}"
        ) from reason
    have = part.stat().st_size
    if is_web_page(part):
        _remove(part)
        raise ValueError(f"{url}: a web page came instead of the file; fetch it by hand and put it at {path}")
    if (expected is not None and have != expected) or not _is_right(part, size, sha256):
        _remove(part)
        raise ValueError(
            f"{url}: what came ({have:,} bytes) has not the size or SHA-256 it should have; it was removed"
        )
    part.replace(path)
    _version_of(part).unlink(missing_ok=True)


def _version_of(part: Path) -> Path:
    """Where is kept which version of a file the server has begun to send."""
    return part.with_name(f"{part.name}.version")


def _remove(part: Path) -> None:
    """What has come is of no use."""
    for path in (part, _version_of(part)):
        path.unlink(missing_ok=True)


def _fetch_rest(url: str, part: Path) -> int | None:
    """Add to `part` what is missing; returns the size of the whole file, where the server says it.

    What has been replaced on the server since is sent from its beginning (`If-Range`).
    """
    have = part.stat().st_size if part.is_file() else 0
    kept = _version_of(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and kept.is_file():
        headers["If-Range"] = kept.read_text(encoding="utf-8")
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        whole = (error.headers.get("Content-Range") or "").rpartition("/")[2]
        if whole in ("", "*", str(have)):
            return have  # nothing is left to send
        _remove(part)
        raise OSError(f"the file has {whole} bytes now, and {have:,} were there") from error
    with response:
        continued = response.status == 206
        version = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if version and not version.startswith("W/"):
            kept.write_text(version, encoding="utf-8")
        elif not continued:
            kept.unlink(missing_ok=True)
        have = have if continued else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=None)
        with open(part, "ab" if continued else "wb") as stream, bar:
            while chunk := response.read(_CHUNK):
                stream.write(chunk)
                bar.update(len(chunk))
    if total is not None and part.stat().st_size < total:
        raise OSError(f"the connection ended after {part.stat().st_size:,} of {total:,} bytes")
    return total


def _is_right(path: Path, size: int | None, sha256: str | None) -> bool:
    if size is not None and path.stat().st_size != size:
        return False
    return sha256 is None or sha256_of(path) == sha256
