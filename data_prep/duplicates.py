"""Which pairs of a cleaned corpus repeat an earlier one, in bounded memory.

Two pairs are exact duplicates if both texts are equal, and near duplicates if both are up to case, spaces and
punctuation (`text_key`). The first one in the order of sources and lines stays. Hashes are compared instead
of texts, a share of all hash values at a time, so that memory does not grow with the corpus.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from data_prep.arrow_files import read_block

_AT_ONCE = 4_000_000  # hashes of a share
_TABLE_BITS = 20  # first bits of a hash


def repeated(blocks: Sequence[Path], sizes: Sequence[int], column: str, map_shares: Callable) -> list[np.ndarray]:
    """For each block file, in order, a mask of the pairs whose hash in `column` an earlier pair has.

    Args:
        blocks: the files.
        sizes: how many pairs each has.
        column: of hashes.
        map_shares: `map`, or that of an executor.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    mask = np.zeros(starts[-1], bool)
    shares = int(starts[-1] // _AT_ONCE) + 2
    for found in map_shares(partial(_repeated_in, blocks, column, shares), range(shares)):
        mask[found] = True
    return [mask[start:end] for start, end in pairwise(starts)]


def _repeated_in(blocks: Sequence[Path], column: str, shares: int, share: int) -> np.ndarray:
    """Positions, in all blocks together, of the repeated pairs whose hashes fall into a share."""

    def hashes(path: Path) -> np.ndarray:
        return read_block(path, [column])[column].to_numpy()

    def of_share(values: np.ndarray) -> np.ndarray:
        return values % np.uint64(shares) == share

    ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *(h[of_share(h)] for h in map(hashes, blocks))]))
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    alike = np.zeros(1 << _TABLE_BITS, bool)  # of hashes by their first bits: nearly all others are passed over
    alike[several >> np.uint64(64 - _TABLE_BITS)] = True
    positions, start = [np.empty(0, np.int64)], 0
    values = [np.empty(0, np.uint64)]
    for path in blocks:
        block = hashes(path)
        chosen = np.flatnonzero(alike[block >> np.uint64(64 - _TABLE_BITS)])
        chosen = chosen[of_share(block[chosen])]
        values.append(block[chosen])
        positions.append(chosen + start)
        start += len(block)
    together, places = np.concatenate(values), np.concatenate(positions)
    order = np.argsort(together, kind="stable")  # of equal ones the first in place stays first
    together, places = together[order], places[order]
    return places[1:][together[1:] == together[:-1]]
