"""Which pairs are held out for test and validation: one rule for every corpus, which knows nothing of a tokenizer.

Every pair has a rank, a number that a hash makes of its source text and the seed (`rank`), or of its place where a
corpus is too large to look at every text (`ranks`). A second hash of the rank says whether the pair may be tested on
or validated on, never both. In order of rank, the first pairs with texts of their own are held out, as many as asked
for. So neither the order of lines and files nor other files have a say in it. What shares either text with a held-out
pair, up to case, spaces and punctuation (`text_key`), is not trained on, nor are near repetitions (`relatives`).
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.relatives import Relatives
from data_prep.vectorised import text_keys
from duplexmt.common.pair import Pair
from duplexmt.common.text import text_key

HELD_OUT = ("test", "validation")
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def rank(text: str, seed: int) -> int:
    """A uniform 64-bit number, fixed by the text and the seed on every machine."""
    digest = blake2b(text.encode(), digest_size=8, key=str(seed).encode())
    return int.from_bytes(digest.digest(), "big")


def ranks(seed: int, source: str, lines: np.ndarray) -> np.ndarray:
    """The ranks (uint64) of lines by their numbers in a source; no two of one source are equal.

    They are the `line`-th outputs of a splitmix64 generator that starts at a hash of seed and name: the same in
    whatever order or process they are computed. The text has no say. So the first n pairs, in order of rank, that pass
    a test of their text, such as a length limit, are a uniform sample of all that would, and nobody has to test these.
    """
    key = blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()
    with np.errstate(over="ignore"):
        state = np.uint64(int.from_bytes(key, "big")) + (lines.astype(np.uint64) + np.uint64(1)) * _STEP
        state = (state ^ (state >> np.uint64(30))) * _MULTIPLIERS[0]
        state = (state ^ (state >> np.uint64(27))) * _MULTIPLIERS[1]
        return state ^ (state >> np.uint64(31))


class Candidate(NamedTuple):
    """A pair with its rank, and where it comes from."""

    rank: int
    corpus: str
    line: int
    source: str
    target: str
    before: str = ""

    @property
    def pair(self) -> Pair:
        return Pair(self.source, self.target, self.before)


class Texts:
    """Texts by `text_key`, a set for each side: the sentence before makes a source no other."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self.sources: set[str] = set()
        self.targets: set[str] = set()
        self.add(pairs)

    def add(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.sources.add(text_key(pair.source))
            self.targets.add(text_key(pair.target))

    def share(self, pair: Pair) -> bool:
        return text_key(pair.source) in self.sources or text_key(pair.target) in self.targets


def by_rank(corpora: Mapping[str, Iterable[Pair]], seed: int, side: int = 0) -> list[Candidate]:
    """All pairs of some corpora in order of the ranks of their source texts, or, with `side` 1, of their targets."""
    candidates = [
        Candidate(rank(text_key(pair[side]), seed), name, 0, *pair) for name, pairs in corpora.items() for pair in pairs
    ]
    return sorted(candidates, key=lambda each: (each.rank, each.pair[side], each.pair, each.corpus))


def hold_out(
    candidates: Iterable[Candidate], sizes: Mapping[str, Mapping[str, int]], forbidden: Texts, seed: int
) -> dict[str, list[Candidate]]:
    """The first candidates for each split that share no text with those before, or with `forbidden` ones.

    Args:
        candidates: in order of rank; no more are taken from it than it takes.
        sizes: of "test" and "validation": how many pairs of each corpus, or, under "", of those not named.

    Raises:
        ValueError: there are too few.
    """
    held: dict[str, list[Candidate]] = {split: [] for split in sizes}
    left = {split: dict(wanted) for split, wanted in sizes.items()}
    taken = Texts()
    for each in candidates:
        if not any(any(wanted.values()) for wanted in left.values()):
            break
        split = HELD_OUT[rank(str(each.rank), seed) % 2 == 0]
        corpus = each.corpus if each.corpus in left.get(split, {}) else ""
        if left.get(split, {}).get(corpus) and not taken.share(each.pair) and not forbidden.share(each.pair):
            held[split].append(each)
            left[split][corpus] -= 1
            taken.add([each.pair])
    lacking = [
        f"{count:,} pairs{corpus and f' of {corpus}'} ({split})"
        for split, wanted in left.items()
        for corpus, count in wanted.items()
        if count
    ]
    if lacking:
        asked = " and ".join(f"{split}_size={sum(wanted.values()):,}" for split, wanted in sizes.items())
        raise ValueError(
            f"cannot hold out {asked}: {', '.join(lacking)} are lacking, as held-out pairs need texts of their own; "
            "ask for fewer, or bring more data"
        )
    return held


def not_to_train_on(
    sources: pa.Array, targets: pa.Array, known: Mapping[str, Texts], relatives: Relatives
) -> dict[str, np.ndarray]:
    """Which of some pairs share a text with the `known` ones, or are `relatives`: a mask for each reason that holds.

    Of several reasons the first one counts.
    """
    keys = text_keys(sources), text_keys(targets)
    free, found = np.ones(len(sources), bool), {}
    for reason, texts in known.items():
        sides = zip(keys, (texts.sources, texts.targets), strict=True)
        one, other = (pc.is_in(own, pa.array(side, pa.string())).to_numpy(False) for own, side in sides)
        found[reason] = free & (one | other)
        free &= ~found[reason]
    if relatives.pairs:
        left = pa.array(free)
        related = free.copy()
        related[free] = relatives.among(sources.filter(left).to_pylist(), targets.filter(left).to_pylist())
        found["relative_of_held_out"] = related
    return {reason: mask for reason, mask in found.items() if mask.any()}
