"""Near repetitions: which pairs are so alike that a model trained on the one knows much of the other.

The likeness of two pairs is the largest Jaccard index (bigrams that both have, of those that one has) of the bigrams of
their sources, or of their targets, each read in two ways. A language written without spaces is read character by
character: letters and digits alone, or all as it stands. Any other is read word by word: a word is what stands between
spaces, punctuation taken out (don't is dont), or what stands between signs that are no letters (don t). Case counts
nowhere. A text of one character, or word, has no bigram and is like no other; equal ones are `splitting.Texts`' matter.

`Relatives` finds, among any number of pairs, those with a likeness of `RELATED` to one of a few thousand: exactly, in
one pass, a few thousand pairs in memory at a time. If two sets are so alike, they share one of the rarest bigrams of
the first (as many as it could lack, and one more). So only those are looked up, and nearly all pairs have none that
matters; sizes and numbers of shared bigrams rule out most others; the few that are left are compared as defined.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import compress, pairwise

import numpy as np

from duplexmt.common.pair import Pair
from duplexmt.common.text import LETTERS, NOT_LETTERS, UNPARTED

RELATED = 0.5
"""The likeness from which on two pairs are relatives."""

_AT_ONCE = 4096  # pairs
_CODE = np.uint64(42)  # bits of the number of a bigram, behind that of its text
_PAIRS = 1 << 22  # of a number's other bits
_CODES = (np.uint64(1) << _CODE) - np.uint64(1)
_BITS = 21  # of the slots that a bigram may fall into
_SLOT = _CODE - np.uint64(_BITS)
_ROUNDED = 1e-6
_LETTER, _SPACE = 1, 2
_BASE = 0x9E3779B97F4A7C15
_ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def bigrams(text: str, language: str, way: int) -> set[tuple[str, str]]:
    """The bigrams of a text: with `way` 0 of letters alone, or words between spaces; with 1 of the others."""
    folded = text.casefold().replace("\n", " ")
    if language in UNPARTED:
        return set(pairwise(folded if way else NOT_LETTERS.sub("", folded)))
    words = LETTERS.findall(folded) if way else [NOT_LETTERS.sub("", token) for token in folded.split()]
    return set(pairwise(word for word in words if word))


def jaccard(one: set, other: set) -> float:
    """Share of what both sets have in what one of them has; 0 for empty ones."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


class Relatives:
    """Of some pairs, such as held-out ones, to be found among others: of a likeness of `least`, above 0."""

    def __init__(self, pairs: Iterable[Pair], languages: tuple[str, str], least: float = RELATED) -> None:
        self.pairs, self.languages, self.least = list(pairs), languages, least
        assert len(self.pairs) < _PAIRS
        texts = list(zip(*(pair[:2] for pair in self.pairs), strict=True)) or [(), ()]
        self._indices = [
            [_Index(found, len(self.pairs), least) for found in _numbers(side, language)]
            for side, language in zip(texts, languages, strict=True)
        ]

    def among(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """Which of some pairs are relatives, a Boolean for each."""
        found = np.zeros(len(sources), bool)
        for number, _, _ in self.alike(sources, targets):
            found[number] = True
        return found

    def others(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Those of some pairs that are no relatives."""
        related = self.among([pair.source for pair in pairs], [pair.target for pair in pairs])
        return list(compress(pairs, ~related))

    def alike(self, sources: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[int, int, float]]:
        """Numbers of a pair among those given and of one of the relative's own, with the likeness of a side."""
        if not self.pairs:
            return
        for start in range(0, len(sources), _AT_ONCE):
            for side, texts in enumerate((sources, targets)):
                part = texts[start : start + _AT_ONCE]
                language = self.languages[side]
                for way, keys in enumerate(_numbers(part, language)):
                    sets = cache(partial(bigrams, language=language, way=way))
                    for number, known in self._indices[side][way].alike(keys, len(part)):
                        value = jaccard(sets(part[number]), sets(self.pairs[known][side]))
                        if value >= self.least:
                            yield start + number, known, value


class _Index:
    """The bigrams of some texts, and the rarest of them, one of which any text shares that is alike."""

    def __init__(self, keys: np.ndarray, texts: int, least: float) -> None:
        rows = (keys >> _CODE).astype(np.int64)
        self.codes, self.least = keys & _CODES, least
        self.sizes = np.bincount(rows, minlength=texts)
        self.starts = np.cumsum(self.sizes) - self.sizes
        looked_up = self.sizes - np.ceil(least * self.sizes - _ROUNDED).astype(np.int64) + 1
        self.others = self.sizes - looked_up
        _, which, frequency = np.unique(self.codes, return_inverse=True, return_counts=True)
        order = np.lexsort((self.codes, frequency[which], rows))
        kept = order[np.arange(len(rows)) - self.starts[rows] < looked_up[rows]]
        kept = kept[np.argsort(self.codes[kept], kind="stable")]
        self.owners = rows[kept]
        self.rare, first, self.counts = np.unique(self.codes[kept], return_index=True, return_counts=True)
        self.first = first
        self.slots = np.zeros(1 << _BITS, bool)
        self.slots[self.rare >> _SLOT] = True

    def alike(self, keys: np.ndarray, texts: int) -> list[tuple[int, int]]:
        """Numbers of given texts, and of own ones whose bigrams' Jaccard index is as large as asked for."""
        rows, codes = (keys >> _CODE).astype(np.int64), keys & _CODES
        hits = np.flatnonzero(self.slots[codes >> _SLOT])
        if not len(hits):
            return []
        places = np.minimum(np.searchsorted(self.rare, codes[hits]), len(self.rare) - 1)
        known = self.rare[places] == codes[hits]
        hits, places = rows[hits[known]], places[known]
        row = np.repeat(hits, self.counts[places])
        owner = self.owners[_ranges(self.first[places], self.counts[places])]
        sizes = np.bincount(rows, minlength=texts)

        def enough(shared: np.ndarray, row: np.ndarray, owner: np.ndarray) -> np.ndarray:
            """Whether so many of those looked up can do."""
            together = (sizes[row] + self.sizes[owner]) * (self.least / (1 + self.least))
            return shared + self.others[owner] >= together - _ROUNDED

        likely = enough(np.bincount(hits, minlength=texts)[row], row, owner)
        pairs, shared = np.unique(row[likely] * len(self.sizes) + owner[likely], return_counts=True)
        row, owner = np.divmod(pairs, len(self.sizes))
        likely = enough(shared, row, owner)
        row, owner = row[likely], owner[likely]
        size = self.sizes[owner]
        asked = self.codes[_ranges(self.starts[owner], size)] | np.repeat(row.astype(np.uint64) << _CODE, size)
        places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        number = np.repeat(np.arange(len(row)), size)
        shared = np.bincount(number, weights=keys[places] == asked, minlength=len(row))
        likely = shared >= self.least * (sizes[row] + size - shared) - _ROUNDED
        return list(zip(row[likely].tolist(), owner[likely].tolist(), strict=True))


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers of all of some ranges, one after the other."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)


def _numbers(texts: Sequence[str], language: str) -> list[np.ndarray]:
    """The `bigrams` of some texts in each way, as numbers that ascend: of the text, and of the bigram."""
    joined = "\n".join(texts)
    if joined.count("\n") != len(texts) - 1:
        joined = "\n".join(text.replace("\n", " ") for text in texts)
    signs = np.frombuffer(joined.casefold().encode("utf-32-le", "surrogatepass"), np.uint32)
    rows = np.cumsum(signs == ord("\n"))
    kinds = _kinds()[signs]
    letters = np.flatnonzero(kinds == _LETTER)
    if language in UNPARTED:
        units = [(signs[at].astype(np.uint64), rows[at]) for at in (letters, np.flatnonzero(signs != ord("\n")))]
        return [_in_twos(each << np.uint64(21), each, row) for each, row in units]
    # The hash of a word is that of a number in a base of its own, whose digits are the letters.
    upwards, downwards = (_powers(base, len(letters) + 1) for base in (_BASE, pow(_BASE, -1, 1 << 64)))
    sums = np.append(np.uint64(0), np.cumsum(signs[letters] * upwards[:-1], dtype=np.uint64))
    spaces = np.cumsum(kinds == _SPACE)[letters]
    found = []
    for breaks in (np.diff(spaces, prepend=-1) != 0, np.diff(letters, prepend=-2) != 1):
        starts = np.flatnonzero(breaks)
        ends = np.append(starts[1:], len(letters))
        words = (sums[ends] - sums[starts]) * downwards[starts]
        found.append(_in_twos(words * _ODD[1], words * _ODD[2], rows[letters[starts]]))
    return found


def _in_twos(first: np.ndarray, second: np.ndarray, rows: np.ndarray) -> np.ndarray:
    same = rows[1:] == rows[:-1]
    codes = ((first[:-1] + second[1:])[same] * _ODD[0]) >> (np.uint64(64) - _CODE)
    keys = np.sort(rows[:-1][same].astype(np.uint64) << _CODE | codes)
    return keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]


def _powers(base: int, count: int) -> np.ndarray:
    """The first powers of a number, modulo 2⁶⁴."""
    return np.cumprod(np.append(np.uint64(1), np.full(count - 1, base, np.uint64)), dtype=np.uint64)


@cache
def _kinds() -> np.ndarray:
    """Of each character: a letter (or digit), a space, or neither."""
    signs = "".join(map(chr, range(0x110000)))
    kinds = np.zeros(len(signs), np.uint8)
    for kind, found in ((_LETTER, NOT_LETTERS.sub("", signs)), (_SPACE, "".join(filter(str.isspace, signs)))):
        kinds[np.frombuffer(found.encode("utf-32-le", "surrogatepass"), np.uint32)] = kind
    return kinds
