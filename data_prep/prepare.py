"""The whole way: sources → clean blocks → splits and a manifest.

OUTPUT/clean/SOURCE/…               see `clean_corpus`
OUTPUT/splits/train-00000-of-00001.parquet, validation-…, test-…
                                    columns source, target, before (the sentence before, or empty), corpus (its name),
                                    line (its number there, from 0)
OUTPUT/splits/manifest.json         inputs and their hashes, counts of every rule, versions, settings
"""

import json
import logging
import os
import platform
import shutil
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.clean_corpus import check_same, clean_source, cleaned, damaged, read_json, without_duplicates
from data_prep.preparation import Preparation
from data_prep.report import Report
from data_prep.sampling import draw, write_splits
from data_prep.tokens import TokenCounter
from duplexmt.common.files import locked, write_whole
from duplexmt.common.pair import Pair

log = logging.getLogger("data_prep")

WATCH = 0.5  # seconds between two looks of a worker at its parent


def prepare(plan: Preparation, counter: TokenCounter | None, *, processes: int, wait: bool = False) -> dict[str, Any]:
    """Clean all sources and draw the splits, or what is left to do of that; returns the manifest.

    Args:
        counter: of tokens; may be None where `plan.sample.max_tokens` is.
        processes: that work at a time; the result is the same for any number.
        wait: for another run in the same folder to end (and read what it made), rather than refuse to start.

    Raises:
        FileNotFoundError, ValueError: those of `clean_source` and `draw`; a folder with splits of another preparation.
        OSError: the disk is full, …; what is done stays, and the same command goes on with it.
    """
    if plan.sample.max_tokens is not None and counter is None:
        raise ValueError(f"sample.max_tokens={plan.sample.max_tokens} needs a tokenizer to count with")
    with locked(plan.output, wait), workers(processes) as pool:
        clean(plan, pool, processes)
        return _sample(plan, counter, pool)


def clean(plan: Preparation, pool: Executor, processes: int) -> dict[str, Report]:
    """Clean all sources; the report of each, see `clean_source`."""
    reports = {}
    for name in plan.chosen:
        reports[name] = clean_source(plan, name, pool, 2 * processes)
        lines = reports[name].counts["lines"]
        log.info("%s: %s of %s lines kept", name, f"{lines['kept']:,}", f"{lines['read']:,}")
    return reports


def _sample(plan: Preparation, counter: TokenCounter | None, pool: Executor) -> dict[str, Any]:
    """Draw the splits from clean sources, and write them with their manifest."""
    sources = {name: cleaned(plan.clean(name)) for name in plan.chosen}
    inputs = {name: read_json(plan.clean(name) / "settings.json")["inputs"] for name in plan.chosen}
    if manifest := finished(plan, counter, inputs=inputs):
        return manifest
    blocks = [(name, path) for name, (paths, _) in sources.items() for path in paths]
    corpus, report = without_duplicates(blocks, plan.cleaning.duplicates, plan.seed, pool.map)
    count = counter.count if counter else None
    drawn = draw(corpus, plan, count, pool)
    aside = plan.output / ".splits.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    splits = write_splits(aside, corpus, drawn, plan, count, pool)
    manifest = {
        "settings": {"tokenizer": None} | _settings(plan, counter) | {"inputs": inputs},
        "versions": {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
        | {name: version(name) for name in ("pyarrow", "numpy", "xxhash", "tokenizers", "opencc")},
        "sources": {name: found.counts for name, (_, found) in sources.items()},
        "duplicates": dict(report.counts["duplicates"]),
        "pairs_to_sample_from": corpus.pairs,
        "sampling": drawn.counts,
        "splits": splits,
    }
    if not splits["train"]["pairs"]:
        raise ValueError(f"no training pair is left; what became of them: {manifest['sources']}, {drawn.counts}")
    write_whole(aside / "manifest.json", json.dumps(manifest, ensure_ascii=False, indent=1))
    shutil.rmtree(plan.output / "splits", ignore_errors=True)  # shards without a manifest
    os.replace(aside, plan.output / "splits")
    return manifest


def finished(plan: Preparation, counter: TokenCounter | None, **others: Any) -> dict[str, Any] | None:
    """The manifest if `plan` has been carried out, else None; the sources' files are not looked at and may be gone.

    Without a counter, whichever tokenizer counted. `others` are settings to compare beside those of the plan.

    Raises:
        ValueError: the folder holds splits of another preparation.
    """
    if not (plan.output / "splits" / "manifest.json").is_file():
        return None
    manifest = read_manifest(plan.output)
    check_same(plan.output / "splits", manifest["settings"], _settings(plan, counter) | others)
    return manifest


def read_manifest(output: Path) -> dict[str, Any]:
    """The manifest of a finished preparation. ValueError where it is gone or damaged."""
    return read_json(output / "splits" / "manifest.json")


def read_split(output: Path, name: str) -> list[Pair]:
    """The pairs of a split of a finished preparation, in order.

    A shard's hash is not computed again, as that takes a tenth of the time of reading: the checksums of its pages tell
    what has changed within it, and its number of pairs whether it is another one.

    Raises:
        FileNotFoundError, ValueError: a shard is gone, or damaged.
    """
    pairs: list[Pair] = []
    for shard in read_manifest(output)["splits"][name]["shards"]:
        path = output / "splits" / shard["file"]
        try:
            table = pq.read_table(path, columns=list(Pair._fields), page_checksum_verification=True)
            if table.num_rows != shard["pairs"]:
                raise pa.ArrowInvalid(f"{table.num_rows:,} pairs, where {shard['pairs']:,} were written")
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise damaged(path, error) from error
        pairs += map(Pair, *(table[side].to_pylist() for side in Pair._fields))
    return pairs


@contextmanager
def workers(processes: int) -> Iterator[Executor]:
    """Processes to share work out to; with one, a thread of this one does it.

    They are forks of this one where it has no threads yet that could hold a lock, as a fork need not import anything.
    """
    if processes < 1:
        raise ValueError(f"processes={processes}: must be at least 1")
    if processes == 1:
        with ThreadPoolExecutor(1) as here:
            yield here
        return
    method = "fork" if threading.active_count() == 1 and "torch" not in sys.modules else "spawn"
    context = get_context(method)
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(os.getpid(),)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            raise OSError(
                f"one of {processes} processes was killed (is there memory for so many?): the same command goes on "
                "from here; python -m data_prep takes fewer with processes=…"
            ) from error


def _begin(parent: int) -> None:
    """What a worker does first: it takes one thread, and ends once its parent has, however that was killed, and by
    Ctrl-C without a traceback."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _settings(plan: Preparation, counter: TokenCounter | None) -> dict[str, Any]:
    """All that the splits depend on but for the files they are made from."""
    return {
        "corpus": plan.corpus.name,
        "sources": list(plan.chosen),
        "seed": plan.seed,
        "cleaning": asdict(plan.cleaning),
        "sample": asdict(plan.sample),
        "block_bytes": plan.block_bytes,
    } | ({"tokenizer": {"name": counter.name, "sha256": counter.sha256}} if counter else {})
