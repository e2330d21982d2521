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


def split_context(text: str, context_separator: str | None) -> tuple[str, str]:
    """The sentence before, empty where there is none, and the source ("sentence before|||source")."""
    before, _, source = text.rpartition(context_separator) if context_separator else ("", "", text)
    return before, source


def join_context(before: str, source: str, context_separator: str | None) -> str:
    """The text that `split_context` splits so; without a sentence before, the source alone."""
    return f"{before}{context_separator}{source}" if before else source


def source_key(source: str, context_separator: str | None) -> str:
    """`text_key` of a source without the sentence before it, which makes it no other."""
    return text_key(split_context(source, context_separator)[1])


class Texts:
    """The texts of held-out pairs, by `source_key` and `text_key`, a set for each side."""

    def __init__(self, context_separator: str | None = None) -> None:
        self.context_separator = context_separator
        self.sources: set[str] = set()
        self.targets: set[str] = set()

    def add(self, pairs: Iterable[Pair]) -> None:
        for source, target in pairs:
            self.sources.add(source_key(source, self.context_separator))
            self.targets.add(text_key(target))

    def share(self, pair: Pair) -> bool:
        return source_key(pair[0], self.context_separator) in self.sources or text_key(pair[1]) in self.targets

    def drop_shared(self, pairs: list[Pair], report: Report, name: str) -> list[Pair]:
        """The pairs that share neither side; the others are counted."""
        free = [pair for pair in pairs if not self.share(pair)] if self.sources else pairs
        if len(free) < len(pairs):
            report.add("split", f"{name}_shares_held_out", len(pairs) - len(free))
        if not free:
            raise nothing_left(name, report)
        return free


def hold_out(
    pool: list[Pair], train: list[Pair], wanted: int, report: Report, context_separator: str | None = None
) -> tuple[list[Pair], list[Pair]]:
    """The first `wanted` pairs of pool, then train, with sources and targets new to those before; and the free rest.

    ValueError if there are too few for that, or none left to train on.
    """
    held: list[Pair] = []
    rest: list[Pair] = []
    texts = Texts(context_separator)
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
    chosen = sorted(pairs, key=lambda pair: (rank("\t".join(pair), seed), pair))[:size]
    if len(chosen) < len(pairs):
        report.add("split", f"{name}_not_sampled", len(pairs) - len(chosen))
    return chosen


def nothing_left(name: str, report: Report, where: str = "") -> ValueError:
    return ValueError(
        f"no {name} pair is left{where and f' of {where}'}; what became of them:\n{report.summary()}\n"
        "Check the path, source_field and target_field, the languages, and whether max_tokens is too small."
    )
