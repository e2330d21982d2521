"""Which pairs of a cleaned corpus repeat an earlier one, in bounded memory.

Two pairs are exact duplicates if both texts are equal, and near duplicates if both are up to case, spaces and
punctuation (`splitting.text_key`). The first one in the order of sources and lines stays. Hashes are compared instead
of texts, a share of all hash values at a time, so that memory does not grow with the corpus.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from data_prep.blocks import block_pairs, read_block

_AT_ONCE = 4_000_000  # hashes in memory


def repeated(blocks: Sequence[Path], column: str) -> list[np.ndarray]:
    """For each block file, in order, a mask of the pairs whose hash in `column` an earlier pair has."""
    sizes = [block_pairs(path) for path in blocks]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    mask = np.zeros(starts[-1], bool)
    shares = int(starts[-1] // _AT_ONCE) + 1
    for share in range(shares):
        hashes, positions = [], []
        for start, values in zip(starts[:-1], _columns(blocks, column), strict=True):
            chosen = np.flatnonzero(values % np.uint64(shares) == share) if shares > 1 else np.arange(len(values))
            hashes.append(values[chosen])
            positions.append(chosen + start)
        if not hashes:
            break
        together, places = np.concatenate(hashes), np.concatenate(positions)
        order = np.argsort(together)
        together, places = together[order], places[order]
        equal = together[1:] == together[:-1]  # to the one before
        alike = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
        together, places = together[alike], places[alike]
        order = np.lexsort((places, together))  # of equal ones the first in place stays
        together, places = together[order], places[order]
        mask[places[1:][together[1:] == together[:-1]]] = True
    return [mask[start:end] for start, end in pairwise(starts)]


def _columns(blocks: Sequence[Path], column: str) -> Iterator[np.ndarray]:
    for path in blocks:
        yield read_block(path, [column])[column].to_numpy()
