"""Held-out pairs and samples that depend on texts and a seed alone, never on the order in which pairs come."""

import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import chain

from data_prep.reading import Pair
from data_prep.report import Report

_NOT_WORD = re.compile(r"[\W_]+")


def text_key(text: str) -> str:
    """What makes two texts the same for a split: letters and digits, without case ("Hello, Tom!" is "hellotom")."""
    return _NOT_WORD.sub("", text).casefold()


def rank(text: str, seed: int) -> int:
    """A uniform 64-bit number, fixed by the text and the seed on every machine."""
    digest = blake2b(text.encode(), digest_size=8, key=str(seed).encode())
    return int.from_bytes(digest.digest(), "big")


def pair_rank(pair: Pair, seed: int) -> int:
    """`rank` of a whole pair, the sentence before included."""
    return rank("\t".join(pair if pair.before else pair[:2]), seed)


class Texts:
    """The texts of held-out pairs, by `text_key`, a set for each side: the sentence before makes a source no other."""

    def __init__(self) -> None:
        self.sources: set[str] = set()
        self.targets: set[str] = set()

    def add(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.sources.add(text_key(pair.source))
            self.targets.add(text_key(pair.target))

    def share(self, pair: Pair) -> bool:
        return text_key(pair.source) in self.sources or text_key(pair.target) in self.targets

    def drop_shared(self, pairs: list[Pair], report: Report, name: str) -> list[Pair]:
        """The pairs that share neither side; the others are counted."""
        free = [pair for pair in pairs if not self.share(pair)] if self.sources else pairs
        if len(free) < len(pairs):
            report.add("split", f"{name}_shares_held_out", len(pairs) - len(free))
        if not free:
            raise nothing_left(name, report)
        return free


def hold_out(pool: list[Pair], train: list[Pair], wanted: int, report: Report) -> tuple[list[Pair], list[Pair]]:
    """The first `wanted` pairs of pool, then train, with sources and targets new to those before; and the free rest.

    ValueError if there are too few for that, or none left to train on.
    """
    held: list[Pair] = []
    rest: list[Pair] = []
    texts = Texts()
    for index, pair in enumerate(chain(pool, train)):
        if len(held) < wanted and not texts.share(pair):
            held.append(pair)
            texts.add([pair])
            if index >= len(pool):
                report.add("split", "beyond_pool")
        else:
            rest.append(pair)
    if len(held) < wanted or not rest:
        raise ValueError(
            f"cannot hold out {wanted:,} pairs (test_size + validation_size): of the {len(pool) + len(train):,} pairs "
            f"that fit, {len(held):,} have texts of their own, and training needs pairs too; ask for fewer, raise "
            f"max_tokens or bring more data\n{report.summary()}"
        )
    return held, texts.drop_shared(rest, report, "train")


def sample(name: str, pairs: list[Pair], size: int | None, seed: int, report: Report) -> list[Pair]:
    """`size` pairs (None: all), lowest rank of the whole pair first: a uniform sample in a fixed random order.

    ValueError if there are fewer.
    """
    if size is not None and size > len(pairs):
        raise ValueError(
            f"{name}_size is {size:,}, but there are only {len(pairs):,} pairs; null takes all\n{report.summary()}"
        )
    chosen = sorted(pairs, key=lambda pair: (pair_rank(pair, seed), pair))[:size]
    if len(chosen) < len(pairs):
        report.add("split", f"{name}_not_sampled", len(pairs) - len(chosen))
    return chosen


def nothing_left(name: str, report: Report, where: str = "") -> ValueError:
    return ValueError(
        f"no {name} pair is left{where and f' of {where}'}; what became of them:\n{report.summary()}\n"
        "Check the path, source_field and target_field, the languages, and whether max_tokens is too small."
    )
