"""A random order of pairs that needs no pair but the one at hand.

A pair's rank is a 64-bit number made from the seed, the name of its source and the number of its line alone: the
`line`-th output of a splitmix64 generator that starts at a hash of seed and name. So ranks are independent of the text,
uniform, and the same in whatever order, process or run they are computed. The pairs in order of their ranks are a
uniformly random permutation of the corpus, and so are those among them that pass any test of their own text, such as a
length limit: the first n that pass are a uniform sample of n of *all* that would, and nobody has to test the others.
"""

from hashlib import blake2b

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def ranks(seed: int, source: str, lines: np.ndarray) -> np.ndarray:
    """The ranks (uint64) of lines given by their numbers in a source; no two of one source are equal."""
    key = blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    with np.errstate(over="ignore"):
        state = np.uint64(int.from_bytes(key, "big")) + (lines.astype(np.uint64) + np.uint64(1)) * _STEP
        state = (state ^ (state >> np.uint64(30))) * _MULTIPLIERS[0]
        state = (state ^ (state >> np.uint64(27))) * _MULTIPLIERS[1]
        return state ^ (state >> np.uint64(31))
