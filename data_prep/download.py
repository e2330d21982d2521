"""Files of a corpus from the network: continued where they were cut off, checked, tried again.

A file is FILE.part until it is whole. What is there already, with the hash it should have, is not fetched again.
"""

import logging
from email.utils import formatdate
from itertools import chain, repeat
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get

from data_prep.sources import Source, find_files
from duplexmt.common.files import sha256_of
from duplexmt.common.streams import is_web_page

log = logging.getLogger("data_prep")


def download(sources: dict[str, Source], root: Path) -> None:
    """Fetch what is missing of the sources, by name, into a folder, and say at the end what has to be done by hand.

    Raises:
        OSError: no network, or a server that does not answer; what has come stays, and the next run goes on with it.
        ValueError: a file of another hash than it should have; files that have to be fetched by hand.
    """
    by_hand = []
    for name, source in sources.items():
        for url, digest in zip(source.urls, chain(source.sha256, repeat(None)), strict=False):
            path = root / Path(urlsplit(url).path).name
            if path.is_file() and digest in (None, sha256_of(path)):
                log.info("%s: %s is there", name, path.name)
            else:
                fetch(url, path, digest)
        if not source.urls:
            try:
                find_files(name, source, root)
            except FileNotFoundError:
                by_hand.append(f"{name}: {source.by_hand} (folder {root})")
    if by_hand:
        raise ValueError("to be fetched by hand: " + "; ".join(by_hand))


def fetch(url: str, path: Path, sha256: str | None = None) -> None:
    """Fetch one file, in several tries if need be, each going on where the last one stopped.

    What has been replaced on the server since is fetched from its beginning.

    Raises:
        OSError, ValueError: as for `download`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _fetch_rest(url, part)
    except Exception as error:  # of any kind of those the library has for a network
        if isinstance(error, HfHubHTTPError) and (code := error.response.status_code) < 500:
            raise OSError(f"{url}: the server says {code}; is the address still right?") from error
        raise OSError(
            f"{url}: no connection ({error}); {part.stat().st_size:,} bytes are kept in {part.name} and the next run "
            f"goes on from there. Without a network, put the file at {path}"
        ) from error
    fault = None
    if is_web_page(part):
        fault = f"a web page came instead of the file; fetch it by hand and put it at {path}"
    elif sha256 not in (None, sha256_of(part)):
        fault = f"what came ({part.stat().st_size:,} bytes) has not the SHA-256 it should have; it was removed"
    if fault:
        part.unlink()
        raise ValueError(f"{url}: {fault}")
    part.replace(path)


def _fetch_rest(url: str, part: Path) -> None:
    """Add to `part` what is missing."""
    with open(part, "ab") as stream:
        have = stream.tell()
        since = {"If-Unmodified-Since": formatdate(part.stat().st_mtime, usegmt=True)} if have else None
        try:
            http_get(url, stream, resume_size=have, headers=since, displayed_filename=part.stem)
        except HfHubHTTPError as error:
            if not have or error.response.status_code not in (412, 416):
                raise
            stream.truncate(0)  # it is another file now, or this was all of it
            http_get(url, stream, displayed_filename=part.stem)
