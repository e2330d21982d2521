"""The first half of the way: each source cleaned, block by block, into files of its own.

    OUTPUT/clean/SOURCE/settings.json     what was asked for, and the hashes of the files it is made from
    OUTPUT/clean/SOURCE/00000.arrow       the clean pairs of a block and its report (see `arrow_files`)
    OUTPUT/clean/SOURCE/source.json       written last: the number of blocks, and the sum of their reports

A block's file appears whole or not at all (written aside, flushed, renamed), and what is in it depends on nothing but
the block and the settings. So a run that was killed goes on with the blocks that are missing, and any number of
processes come to the same files. Sources are independent of each other: jobs on several machines may each do some.
"""

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, as_completed, wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from data_prep.arrow_files import block_report, read_block, write_block
from data_prep.cleaning import Cleaning, check_order, clean_context
from data_prep.columns import Columns, columns_of
from data_prep.report import EXAMPLES, Example, Report
from data_prep.sources import Block, Source, find_files, read_blocks
from data_prep.splitting import ranks
from data_prep.vectorised import CleanedColumns, clean_columns, text_keys
from duplexmt.common.files import locked, sha256_of, write_whole

log = logging.getLogger("data_prep")

FORMAT = 5
"""Of the block files: a folder of another format is not gone on with."""


@dataclass(frozen=True)
class CleanTask:
    """All that the cleaning of a source's blocks depends on, and where they go."""

    name: str
    source: Source
    rules: Cleaning
    seed: int
    folder: Path
    block_bytes: int

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.arrow"


def clean_source(task: CleanTask, root: Path, pool: Executor, at_once: int, progress: Callable[[int], None]) -> Report:
    """Clean one source, or what is left to do of it.

    Args:
        task: what to do; its folder may hold blocks of an earlier run.
        root: the folder of the source's files.
        pool: does the blocks, `at_once` of them at a time.
        progress: called with the number of lines of each block that is done.

    Raises:
        FileNotFoundError, ValueError: those of `read_blocks`; a folder made with other settings or from other files;
            another run at work there; sides that are in other languages.
        OSError: the disk is full, …; what is done stays.
    """
    task.folder.mkdir(parents=True, exist_ok=True)
    with locked(task.folder, wait=False):
        settings = check_made(task, input_hashes(task.name, task.source, root))
        if not (task.folder / "settings.json").is_file():
            write_whole(task.folder / "settings.json", json.dumps(settings, ensure_ascii=False, indent=1))
        finished = task.folder / "source.json"
        if finished.is_file():
            report = Report.from_dict(json.loads(finished.read_text(encoding="utf-8"))["report"])
            progress(report.counts["lines"]["read"])
            return report
        blocks = 0
        for lines in _in_parallel(pool, at_once, partial(clean_block, task), _left_to_do(task, root, progress)):
            progress(lines)
        _check_languages(task)
        report = Report({"lines": {"read": 0, "kept": 0}})
        while task.path(blocks).is_file():
            report.merge(block_report(task.path(blocks)))
            blocks += 1
        content = {"blocks": blocks, "report": report.as_dict()}
        write_whole(finished, json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True))
    return report


def source_blocks(folder: Path) -> list[Path]:
    """The block files of a source that is done. ValueError where it is not."""
    finished = folder / "source.json"
    if not finished.is_file():
        raise ValueError(f"{folder} is not finished: clean this source first, or leave it out with sources=[…]")
    count = json.loads(finished.read_text(encoding="utf-8"))["blocks"]
    return [folder / f"{number:05d}.arrow" for number in range(count)]


def input_hashes(name: str, source: Source, root: Path) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of each file of a source."""
    return [
        {"file": path.relative_to(root).as_posix(), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in find_files(name, source, root)
    ]


def check_made(task: CleanTask, inputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """What the blocks of a source depend on. ValueError where those in its folder were made otherwise.

    Args:
        task: what they should be.
        inputs: hashes of the source's files; None: whichever they were made from.
    """
    layout = {name: getattr(task.source, name) for name in ("kind", "source", "target", "columns")}
    if task.source.context_separator is not None:
        layout["context_separator"] = task.source.context_separator
    settings = {
        "format": FORMAT,
        "layout": layout,
        "cleaning": asdict(task.rules),
        "seed": task.seed,
        "block_bytes": task.block_bytes,
    } | ({} if inputs is None else {"inputs": inputs})
    path = task.folder / "settings.json"
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [key for key in settings if before.get(key) != settings[key]]
        if changed:
            raise ValueError(
                f"{task.folder} was made with other {' and '.join(changed)}: give another output folder "
                "(train.py: data.prepared), or remove this"
            )
    return settings


def _check_languages(task: CleanTask) -> None:
    """Refuse sides that are in other languages, as a thousand pairs from all over the first block show."""
    pairs: list[tuple[str, str]] = []
    if task.path(0).is_file():
        table = read_block(task.path(0), ["source", "target"])
        some = table.take(np.linspace(0, len(table) - 1, min(len(table), 1000)).astype(int))
        pairs = list(zip(*(column.to_pylist() for column in some.columns), strict=True))
    check_order(task.name, pairs, *task.rules.languages, ("source", "target"))


def _left_to_do(task: CleanTask, root: Path, progress: Callable[[int], None]) -> Iterator[Block]:
    for block in read_blocks(task.name, task.source, root, task.block_bytes, task.rules.languages):
        if task.path(block.number).is_file():
            progress(block.sides[0].count(b"\n"))
        else:
            yield block


def _in_parallel(pool: Executor, at_once: int, function: Callable, arguments: Iterator[Any]) -> Iterator[Any]:
    """What the function returns for each argument, as it is done, never more than `at_once` calls under way."""
    pending: set[Future] = set()
    try:
        for argument in arguments:
            pending.add(pool.submit(function, argument))
            if len(pending) >= at_once:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        yield from (each.result() for each in as_completed(pending))
    finally:
        for each in pending:
            each.cancel()
        wait(pending)


def clean_block(task: CleanTask, block: Block) -> int:
    """Clean one block and write its file; returns its number of lines."""
    columns = columns_of(block, task.source)
    cleaned = clean_columns(columns.source, columns.target, task.rules)
    numbers = columns.lines + (block.first - block.line)
    report = _report(task, columns, cleaned, block.first - block.line)
    kept = pa.array(cleaned.dropped == 0)
    source, target, before = (column.filter(kept) for column in (cleaned.source, cleaned.target, columns.before))
    sides = [source, target]
    if task.source.context_separator is not None:  # cleaned for itself, without a say in what becomes of the pair
        before = pa.array([clean_context(text, task.rules) for text in before.to_pylist()], pa.string())
        sides.append(before)
    table = {"source": source, "target": target, "before": before, "line": pa.array(numbers[cleaned.dropped == 0])}
    if task.rules.duplicates != "none":
        table["exact"] = _hashes(*sides)
    if task.rules.duplicates == "near":
        table["near"] = _hashes(*map(text_keys, sides))
    write_block(pa.table(table), report, task.path(block.number))
    return report.counts["lines"]["read"]


def _hashes(*sides: pa.Array) -> pa.Array:
    """A 64-bit hash of each pair: among 25 million, two different ones share a hash once in 60,000 corpora."""
    joined = pc.binary_join_element_wise(*sides, "\t").cast(pa.binary()).to_pylist()
    return pa.array(np.fromiter(map(xxh3_64_intdigest, joined), np.uint64, len(joined)))


def _report(task: CleanTask, columns: Columns, cleaned: CleanedColumns, offset: int) -> Report:
    kept = cleaned.dropped == 0
    report = Report({"lines": {"read": len(kept) + len(columns.faults), "kept": int(kept.sum())}})
    order = ranks(task.seed, task.name, columns.lines + offset)

    def place(line: int) -> str:
        return f"{task.name} {columns.place}:{line}"

    def example(index: int, rewritten: bool) -> Example:
        before = f"{columns.source[index].as_py()}\t{columns.target[index].as_py()}"
        after = f"{cleaned.source[index].as_py()}\t{cleaned.target[index].as_py()}" if rewritten else ""
        return Example(int(order[index]), place(int(columns.lines[index])), before, after)

    def add(stage: str, reason: str, mask: np.ndarray) -> None:
        chosen = np.flatnonzero(mask)
        if len(chosen):
            report.add(stage, reason, len(chosen))
            first = chosen[np.argsort(order[chosen], kind="stable")[:EXAMPLES]].tolist()
            report.add_examples(stage, reason, [example(index, stage == "rewritten") for index in first])

    for code, reason in enumerate(cleaned.reasons):
        if code:
            add("dropped", reason, cleaned.dropped == code)
    for rule, mask in cleaned.rewritten.items():
        add("rewritten", rule, mask & kept)
    lines = np.array([fault.line for fault in columns.faults], np.int64)
    for fault, rank in zip(columns.faults, ranks(task.seed, task.name, lines + offset).tolist(), strict=True):
        report.add("faulty", fault.reason)
        report.add_examples("faulty", fault.reason, [Example(rank, place(fault.line), fault.text)])
    return report
