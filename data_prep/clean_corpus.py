"""The first half of the way: each source cleaned, block by block, into files of its own.

    OUTPUT/clean/SOURCE/settings.json     what was asked for, and the hashes of the files it is made from
    OUTPUT/clean/SOURCE/00000.arrow       the clean pairs of a block, in Arrow's own format: reading it costs nothing
    OUTPUT/clean/SOURCE/source.json       written last: the number of blocks, what became of their lines, and examples

A block's file appears whole or not at all (written aside, flushed, renamed), and what is in it depends on nothing but
the block and the settings. So a run that was killed begins the source it was at again and keeps those before it, and
any number of processes come to the same files. Sources are independent of each other: jobs on several machines may each
do some.

Of all blocks together duplicates are left out. Two pairs are exact duplicates if both texts are equal, and near
duplicates if both are up to case, spaces and punctuation (`text_key`). The first one in the order of sources and lines
stays. Hashes are compared instead of texts, a share of all hash values at a time, so that memory does not grow with the
corpus.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm
from xxhash import xxh3_64_intdigest

from data_prep.cleaning import check_order, clean_context
from data_prep.columns import Columns, columns_of
from data_prep.preparation import Preparation
from data_prep.report import EXAMPLES, Example, Report
from data_prep.sources import Block, find_files, read_blocks
from data_prep.splitting import ranks
from data_prep.vectorised import CleanedColumns, clean_columns, text_keys
from duplexmt.common.files import locked, sha256_of, write_whole

FORMAT = 5
"""Of the block files: a folder of another format is not gone on with."""

_HASHES = 4_000_000  # of a share


def clean_source(plan: Preparation, name: str, pool: Executor, at_once: int) -> Report:
    """Clean one source, unless an earlier run has done it: in the pool, so many blocks at once.

    Raises:
        FileNotFoundError, ValueError: those of `read_blocks`; a folder made with other settings or from other files;
            another run at work there; sides that are in other languages.
        OSError: the disk is full, …; what is done stays.
    """
    source, folder = plan.chosen[name], plan.clean(name)
    with locked(folder, wait=False):
        settings, path = _settings(plan, name), folder / "settings.json"
        if (folder / "source.json").is_file():  # else nothing in the folder is used
            check_same(folder, read_json(path), settings)
            return cleaned(folder)[1]
        write_whole(path, json.dumps(settings, ensure_ascii=False, indent=1))
        report, blocks = Report({"lines": {"read": 0, "kept": 0}}), 0
        found = read_blocks(name, source, plan.root, plan.block_bytes, plan.cleaning.languages)
        done = _in_parallel(pool, at_once, partial(clean_block, plan, name), found)
        for of_block in tqdm(done, name, unit=" blocks", disable=None):
            report.merge(of_block)
            blocks += 1
            if blocks == 1:
                _check_languages(plan, name)
        content = {"blocks": blocks, "report": vars(report)}
        write_whole(folder / "source.json", json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True))
    return report


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.arrow"


def cleaned(folder: Path) -> tuple[list[Path], Report]:
    """The block files of a source that is done, and how many lines met which fate."""
    content = read_json(folder / "source.json")
    return [_path(folder, number) for number in range(content["blocks"])], Report(content["report"]["counts"])


def _settings(plan: Preparation, name: str) -> dict[str, Any]:
    """What the blocks of a source depend on: its files, too, by name, size and SHA-256."""
    source = plan.chosen[name]
    layout = {each: getattr(source, each) for each in ("kind", "source", "target", "columns")}
    if source.context_separator is not None:
        layout["context_separator"] = source.context_separator
    inputs = [
        {"file": path.relative_to(plan.root).as_posix(), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in find_files(name, source, plan.root)
    ]
    return {
        "format": FORMAT,
        "layout": layout,
        "cleaning": asdict(plan.cleaning),
        "seed": plan.seed,
        "block_bytes": plan.block_bytes,
        "inputs": inputs,
    }


def check_same(folder: Path, before: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse a folder that was made with other settings. ValueError, naming those."""
    if changed := [key for key in settings if before.get(key) != settings[key]]:
        raise ValueError(
            f"{folder} was made with other {' and '.join(changed)}: give another output folder (train.py: "
            "data.prepared), or remove this one (cleaned sources beside splits are used again)"
        )


def _check_languages(plan: Preparation, name: str) -> None:
    """Refuse sides that are in other languages, as a thousand pairs from all over the first block show."""
    pairs: list[tuple[str, str]] = []
    if (path := _path(plan.clean(name), 0)).is_file():
        table = read_block(path, ["source", "target"])
        some = table.take(np.linspace(0, len(table) - 1, min(len(table), 1000)).astype(int))
        pairs = list(zip(*(column.to_pylist() for column in some.columns), strict=True))
    check_order(name, pairs, *plan.cleaning.languages, ("source", "target"))


def _in_parallel(pool: Executor, at_once: int, function: Callable, arguments: Iterator[Any]) -> Iterator[Any]:
    """What the function returns for each argument, never more than `at_once` calls ahead."""
    pending: deque[Future] = deque()
    for argument in arguments:
        if len(pending) == at_once:
            yield pending.popleft().result()
        pending.append(pool.submit(function, argument))
    while pending:
        yield pending.popleft().result()


def clean_block(plan: Preparation, name: str, block: Block) -> Report:
    """Clean one block and write its file; returns what became of its lines."""
    source, rules, offset = plan.chosen[name], plan.cleaning, block.first - block.line
    columns = columns_of(block, source)
    cleaned = clean_columns(columns.source, columns.target, rules)
    report = _report(name, columns, cleaned, lambda lines: ranks(plan.seed, name, lines + offset))
    kept = pa.array(cleaned.dropped == 0)
    sides = {"source": cleaned.source.filter(kept), "target": cleaned.target.filter(kept)}
    before = columns.before.filter(kept)
    if source.context_separator is not None:  # cleaned for itself, without a say in what becomes of the pair
        before = pa.array([clean_context(text, rules) for text in before.to_pylist()], pa.string())
        sides["before"] = before
    table = sides | {"before": before, "line": pa.array(columns.lines + offset).filter(kept)}
    if rules.duplicates != "none":
        table["exact"] = _hashes(*sides.values())
    if rules.duplicates == "near":
        table["near"] = _hashes(*map(text_keys, sides.values()))
    write_block(pa.table(table), _path(plan.clean(name), block.number))
    return report


def _hashes(*sides: pa.Array) -> pa.Array:
    """A 64-bit hash of each pair: among 25 million, two different ones share a hash once in 60,000 corpora."""
    joined = pc.binary_join_element_wise(*sides, "\t").cast(pa.binary()).to_pylist()
    return pa.array(np.fromiter(map(xxh3_64_intdigest, joined), np.uint64, len(joined)))


def _report(
    name: str, columns: Columns, cleaned: CleanedColumns, ranks_of: Callable[[np.ndarray], np.ndarray]
) -> Report:
    kept, order = cleaned.dropped == 0, ranks_of(columns.lines)
    report = Report({"lines": {"read": len(kept) + len(columns.faults), "kept": int(kept.sum())}})

    def example(index: int, stage: str) -> Example:
        sides = (columns.source, columns.target), (cleaned.source, cleaned.target)
        before, after = ("\t".join(side[index].as_py() for side in both) for both in sides)
        place = f"{name} {columns.place}:{columns.lines[index]}"
        return Example(int(order[index]), place, before, after if stage == "rewritten" else "")

    masks = [("dropped", reason, cleaned.dropped == code) for code, reason in enumerate(cleaned.reasons) if code]
    masks += [("rewritten", rule, mask & kept) for rule, mask in cleaned.rewritten.items()]
    for stage, reason, mask in masks:
        chosen = np.flatnonzero(mask)
        if len(chosen):
            first = chosen[np.argsort(order[chosen], kind="stable")[:EXAMPLES]].tolist()
            report.add(stage, reason, len(chosen), [example(index, stage) for index in first])
    lines = np.array([fault.line for fault in columns.faults], np.int64)
    for (line, reason, text), rank in zip(columns.faults, ranks_of(lines).tolist(), strict=True):
        report.add("faulty", reason, 1, [Example(rank, f"{name} {columns.place}:{line}", text)])
    return report


# --- the files of blocks ----------------------------------------------------------------------------------------------


def write_block(table: pa.Table, path: Path) -> None:
    """The pairs of a block, whole or not at all."""

    def write(stream: Any) -> None:
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)

    write_whole(path, write)


def read_block(path: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a block; pages of the others are not touched."""
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all().select(list(columns)).combine_chunks()
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise damaged(path, error) from error


def read_json(path: Path) -> Any:
    """One of the files that say what was made, and how. ValueError where it is damaged or gone."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, FileNotFoundError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> ValueError:
    """The error for a file of ours, with the way out."""
    return ValueError(f"{path} is damaged ({error}): remove {path.parent}, and it is made again")


# --- all blocks as one corpus -----------------------------------------------------------------------------------------


@dataclass
class CleanedCorpus:
    """Block files of cleaned sources, in order, and masks of the pairs in them that take part."""

    blocks: list[tuple[str, Path]]
    masks: list[np.ndarray]
    seed: int

    @property
    def pairs(self) -> int:
        return int(sum(mask.sum() for mask in self.masks))


def without_duplicates(
    blocks: list[tuple[str, Path]], duplicates: str, seed: int, map_shares: Callable = map
) -> tuple[CleanedCorpus, Report]:
    """A corpus without duplicates ("none", "exact", "near"), and how many there were of either kind."""
    paths, report = [path for _, path in blocks], Report({"duplicates": {}})
    corpus = CleanedCorpus(blocks, [np.ones(len(read_block(path, ["line"])), bool) for path in paths], seed)
    kinds = {"none": {}, "exact": {"duplicate": "exact"}, "near": {"duplicate": "exact", "near_duplicate": "near"}}
    for name, column in kinds[duplicates].items():
        before, masks = corpus.pairs, repeated(paths, [len(mask) for mask in corpus.masks], column, map_shares)
        corpus.masks = [mask & ~each for mask, each in zip(corpus.masks, masks, strict=True)]
        if found := before - corpus.pairs:
            report.add("duplicates", name, found)
    return corpus, report


def repeated(blocks: Sequence[Path], sizes: Sequence[int], column: str, map_shares: Callable = map) -> list[np.ndarray]:
    """For each block file, of so many pairs, a mask of those whose hash in `column` an earlier pair has."""
    starts = list(accumulate(sizes, initial=0))
    mask, shares = np.zeros(starts[-1], bool), starts[-1] // _HASHES + 2
    for found in map_shares(partial(_repeated_in, blocks, column, shares), range(shares)):
        mask[found] = True
    return [mask[start:end] for start, end in pairwise(starts)]


def _repeated_in(blocks: Sequence[Path], column: str, shares: int, share: int) -> np.ndarray:
    """Positions, in all blocks together, of the repeated pairs whose hashes fall into a share."""
    hashes, positions, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for path in blocks:
        block = read_block(path, [column])[column].to_numpy()
        chosen = np.flatnonzero(block % np.uint64(shares) == share)
        hashes.append(block[chosen])
        positions.append(chosen + start)
        start += len(block)
    _, first = np.unique(np.concatenate(hashes), return_index=True)
    return np.delete(np.concatenate(positions), first)
