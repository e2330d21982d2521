"""What has been cleaned, block by block, as one corpus without duplicates.

A block's file is in Arrow's own format, as it is in memory, so that reading one costs nothing: each is written once and
read a few times, a column here and a few rows there.

Two pairs are exact duplicates if both texts are equal, and near duplicates if both are up to case, spaces and
punctuation (`text_key`). The first one in the order of sources and lines stays. Hashes are compared instead of texts, a
share of all hash values at a time, so that memory does not grow with the corpus.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data_prep.report import Report
from duplexmt.common.files import write_whole

_HASHES = 4_000_000  # of a share


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
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged ({error}): remove {path.parent}, and it is made again") from error


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
