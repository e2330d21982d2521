"""The built-in corpus: Chinese-English sentence pairs, made once by a synchronous grammar.

The English of a sentence is a function of its Chinese, so a model can in principle reach BLEU 100 on it.

`builtin.tsv.xz` has a pair a line: its source words; its target words, of which marks and 's are some; of each target
word the numbers of the source words that jointly determine it; and whether it is a content word.

Its pairs are held out as they are: all repeat a few patterns, so nothing would be left without near repetitions
(`data_prep.relatives`).
"""

import lzma
import random
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..common.pair import Pair

FILE = Path(__file__).with_name("builtin.tsv.xz")
ORDERED = 1  # the seed that takes the pairs as the file has them
CASE_STUDY = Pair("站在那边的男人曾是棒球手。", "The man standing there was a baseball player.")  # the paper's


class BuiltinPair(NamedTuple):
    """A pair of which the source words are known; a punctuation mark is a word."""

    source_words: list[str]
    target: str

    @property
    def source(self) -> str:
        """The source text, without spaces."""
        return "".join(self.source_words)


def parsed(line: str) -> BuiltinPair:
    """A pair from a line of the file."""
    source, target, *_ = line.split("\t")
    return BuiltinPair(source.split(" "), re.sub(r" (?=(?:,|\.|\?|'s)(?: |$))", "", target))


@cache
def _lines() -> list[str]:
    with lzma.open(FILE, "rt", encoding="utf-8", newline="\n") as lines:
        return lines.read().splitlines()


def builtin_corpus(train: int, validation: int, test: int, seed: int) -> dict[str, list[BuiltinPair]]:
    """Splits "train", "validation", "test" of these sizes, disjoint by source and by target, without the case study.

    A seed decides the order of the pairs. Test comes first, then validation: a larger training split leaves the other
    two as they were.

    Raises:
        ValueError: a size is negative, or their sum is more than there are pairs.
    """
    for key, size in (("train", train), ("validation", validation), ("test", test)):
        if size < 0:
            raise ValueError(f"{key} is {size}; a split's size must not be negative: use 0 for an empty split")
    lines, count = _lines(), train + validation + test
    if count > len(lines):
        raise ValueError(
            f"train + validation + test is {count:,}; the built-in corpus has {len(lines):,} pairs: ask for fewer"
        )
    drawn = lines if seed == ORDERED else random.Random(seed).sample(lines, len(lines))
    pairs = [*map(parsed, drawn[:count])]
    return {"train": pairs[test + validation :], "validation": pairs[test : test + validation], "test": pairs[:test]}
