"""The second half of the way: from cleaned blocks to splits of exact sizes, tokenising only what is looked at.

Pairs come in the order of their ranks (`ranking`). Of those that pass the length limit the first ones are held out, for
test and validation (`splitting`); the others are the training pairs, where they share no text with those. It is a
uniform sample of all pairs that would pass, though only as many are tokenised as it takes: the ranks know nothing of
the texts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.blocks import block_pairs, read_block
from data_prep.corpus import CountTokens
from data_prep.duplicates import repeated
from data_prep.ranking import ranks
from data_prep.reading import Pair
from data_prep.report import EXAMPLES, Example, Report
from data_prep.shards import SPLIT_SCHEMA
from data_prep.splitting import HELD_OUT, Candidate, Texts, hold_out
from data_prep.vectorised import text_keys

_AT_ONCE = 400_000  # pairs in memory
_BATCH = 2000  # pairs in one call of a token counter
_RANKS = 1 << 64


@dataclass
class Sampling:
    """Sizes of the splits, and what a pair must be like to be in one.

    `train_size` None takes all pairs. `shares` asks for a fixed mixture: how much of each split comes from each source,
    in any unit; None draws from all pairs alike. `max_tokens` holds for either side; None is no limit.

    Raises:
        ValueError: a size or share below 0, no training pairs, shares without a size.
    """

    train_size: int | None
    validation_size: int
    test_size: int
    max_tokens: int | None
    shares: dict[str, float] | None = None

    def __post_init__(self) -> None:
        for name, least in (("train_size", 1), ("validation_size", 0), ("test_size", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"sample.{name}={value}: must be at least {least}")
        if self.shares is not None:
            if self.train_size is None:
                raise ValueError("sample.shares needs a sample.train_size: shares of all pairs are what they are")
            if not self.shares or min(self.shares.values()) < 0 or not sum(self.shares.values()):
                raise ValueError(f"sample.shares={self.shares}: shares are numbers of at least 0, not all 0")

    def sizes(self, split: str, sources: Sequence[str]) -> dict[str, int]:
        """Pairs of a split from each source, or under "" from all of them together."""
        size = getattr(self, f"{split}_size")
        if self.shares is None:
            return {"": size}
        unknown = sorted(set(self.shares) - set(sources))
        if unknown:
            raise ValueError(f"sample.shares names {', '.join(unknown)}; the sources are {', '.join(sources)}")
        exact = {name: size * share / sum(self.shares.values()) for name, share in self.shares.items()}
        counts = {name: int(value) for name, value in exact.items()}
        by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
        for name in by_remainder[: size - sum(counts.values())]:
            counts[name] += 1
        return counts


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
    blocks: list[tuple[str, Path]], duplicates: str, seed: int, pool: Executor
) -> tuple[CleanedCorpus, Report]:
    """A corpus without duplicates ("none", "exact", "near"), and how many there were of either kind."""
    paths = [path for _, path in blocks]
    sizes = [block_pairs(path) for path in paths]
    report = Report({"duplicates": {}})
    before = CleanedCorpus(blocks, [np.ones(size, bool) for size in sizes], seed)
    exact = repeated(paths, sizes, "exact", pool) if duplicates != "none" else []
    near = repeated(paths, sizes, "near", pool) if duplicates == "near" else []
    for name, found in (("duplicate", exact), ("near_duplicate", near)):
        found = [each & mask for each, mask in zip(found, before.masks, strict=False)]
        if count := int(sum(each.sum() for each in found)):
            report.add("duplicates", name, count)
            first = next(_in_rounds(CleanedCorpus(blocks, found, seed), _in_process, 200))[:EXAMPLES]
            examples = [Example(c.rank, f"{c.corpus}:{c.line + 1}", f"{c.source}\t{c.target}") for c in first]
            report.add_examples("duplicates", name, examples)
            before = CleanedCorpus(blocks, [mask & ~each for mask, each in zip(before.masks, found, strict=True)], seed)
    return before, report


def in_random_order(corpus: CleanedCorpus, pool: Executor, expected: int) -> Iterator[Candidate]:
    """All pairs in order of their ranks; `expected` is how many the caller thinks to need."""
    for candidates in _in_rounds(corpus, pool.map, expected):
        yield from candidates


def _in_rounds(corpus: CleanedCorpus, map_blocks: Callable, expected: int) -> Iterator[list[Candidate]]:
    """The pairs of one interval of ranks after the other; every round reads the ranks of all blocks again."""
    total, low = corpus.pairs, 0
    expected = min(max(expected, 1000), _AT_ONCE)
    step = min(_RANKS, max(1, _RANKS * expected // max(total, 1)))
    while low < _RANKS:
        high = min(low + step, _RANKS)
        arguments = [
            (name, path, mask, corpus.seed, low, high)
            for (name, path), mask in zip(corpus.blocks, corpus.masks, strict=True)
            if mask.any()
        ]
        candidates = [each for block in map_blocks(_candidates, arguments) for each in block]
        yield sorted(candidates, key=attrgetter("rank"))  # the order of the corpus decides between equal ones
        low = high


def _in_process(function: Callable, arguments: list) -> list:
    return [function(each) for each in arguments]


def _candidates(task: tuple[str, Path, np.ndarray, int, int, int]) -> list[Candidate]:
    """The pairs of a block with `low <= rank < high`, in order."""
    name, path, mask, seed, low, high = task
    chosen = np.flatnonzero(mask)
    lines = read_block(path, ["line"])["line"].to_numpy()[chosen]
    order = ranks(seed, name, lines)
    inside = np.flatnonzero((order >= np.uint64(low)) & (order <= np.uint64(high - 1)))
    if not len(inside):
        return []
    inside = inside[np.argsort(order[inside])]
    texts = read_block(path, Pair._fields).take(pa.array(chosen[inside]))
    columns = order[inside].tolist(), lines[inside].tolist(), *(texts[side].to_pylist() for side in Pair._fields)
    return [Candidate(rank, name, *rest) for rank, *rest in zip(*columns, strict=True)]


@dataclass
class Sample:
    """The pairs of each split in order of their ranks, and what became of those looked at on the way."""

    splits: dict[str, list[Candidate]]
    counts: Counter[str]

    @property
    def held_out(self) -> list[Candidate]:
        """All pairs but those to train on."""
        return [pair for split in HELD_OUT for pair in self.splits[split]]


def draw(
    corpus: CleanedCorpus, wanted: Sampling, count_tokens: CountTokens | None, sources: Sequence[str], pool: Executor
) -> Sample:
    """Draw the splits; with `train_size` None only those held out.

    Held-out pairs have texts of their own, up to case, spaces and punctuation, and no training pair has one of theirs.

    Raises:
        ValueError: fewer pairs than asked for.
    """
    sizes = {split: wanted.sizes(split, sources) for split in HELD_OUT}
    expected = 4 * sum(sum(each.values()) for each in sizes.values()) + 2 * (wanted.train_size or 0)

    def fitting(counts: Counter[str]) -> Iterator[Candidate]:
        candidates = in_random_order(corpus, pool, expected)
        while batch := list(islice(candidates, _BATCH)):
            for pair, fit in zip(batch, fits(batch, count_tokens, wanted.max_tokens), strict=True):
                counts["looked_at"] += 1
                if fit:
                    yield pair
                else:
                    counts["too_long"] += 1

    splits = hold_out(fitting(Counter()), sizes, Texts(), corpus.seed)
    sample = Sample(splits, Counter(looked_at=0, too_long=0, shares_held_out=0))
    if wanted.train_size is None:
        return sample
    known, held = Texts(pair.pair for pair in sample.held_out), {(pair.corpus, pair.line) for pair in sample.held_out}
    left = wanted.sizes("train", sources)
    train = sample.splits["train"] = []
    for pair in fitting(sample.counts):
        if not any(left.values()):
            break
        stratum = pair.corpus if wanted.shares else ""
        if (pair.corpus, pair.line) in held or not left.get(stratum):
            continue
        if known.share(pair.pair):
            sample.counts["shares_held_out"] += 1
        else:
            train.append(pair)
            left[stratum] -= 1
    if lacking := {name or "all": count for name, count in left.items() if count}:
        raise ValueError(
            f"too few pairs: of all {corpus.pairs:,} clean ones {sample.counts['too_long']:,} have over "
            f"{wanted.max_tokens} tokens, {sample.counts['shares_held_out']:,} a text of a held-out pair; still "
            f"wanted: {lacking}; ask for fewer, or raise sample.max_tokens"
        )
    return sample


def fits(pairs: Sequence[Candidate], count_tokens: CountTokens | None, max_tokens: int | None) -> list[bool]:
    """Which pairs have at most `max_tokens` tokens on either side."""
    if max_tokens is None or count_tokens is None:
        return [True] * len(pairs)
    sources = count_tokens([pair.source for pair in pairs])
    targets = count_tokens([pair.target for pair in pairs])
    return [max(sizes) <= max_tokens for sizes in zip(sources, targets, strict=True)]


def as_table(pairs: Sequence[Candidate]) -> pa.Table:
    """Pairs as they are written (`SPLIT_SCHEMA`)."""
    columns = {name: [getattr(pair, name) for pair in pairs] for name in SPLIT_SCHEMA.names}
    return pa.table(columns, schema=SPLIT_SCHEMA)


@dataclass(frozen=True)
class HeldOut:
    """What training pairs must not be, and must not share a text with: lines by source, and keys of either side."""

    lines: dict[str, list[int]]
    keys: tuple[pa.Array, pa.Array]


def kept_apart(held_out: Sequence[Candidate]) -> HeldOut:
    """Lines and keys of the held-out pairs."""
    lines: dict[str, list[int]] = {}
    for pair in held_out:
        lines.setdefault(pair.corpus, []).append(pair.line)
    texts = Texts(pair.pair for pair in held_out)
    return HeldOut(lines, (pa.array(sorted(texts.sources), pa.string()), pa.array(sorted(texts.targets), pa.string())))


def everything_else(
    blocks: Sequence[tuple[str, Path]],
    masks: Sequence[np.ndarray],
    held: HeldOut,
    max_tokens: int | None,
    count_tokens: CountTokens | None,
) -> Iterator[tuple[pa.Table, Counter[str]]]:
    """All pairs that fit and share no text with the held-out ones, block by block; and how many others there were."""
    for (name, path), mask in zip(blocks, masks, strict=True):
        table = read_block(path, [*Pair._fields, "line"])
        if name in held.lines:
            mask = mask & ~np.isin(table["line"].to_numpy(), held.lines[name])
        table = _of_mask(table, mask)
        counts = Counter(looked_at=len(table))
        if max_tokens is not None and count_tokens is not None:
            sizes = [np.array(count_tokens(table[side].to_pylist()), np.int64) for side in ("source", "target")]
            fit = np.maximum(*sizes) <= max_tokens
            counts["too_long"] = int((~fit).sum())
            table = _of_mask(table, fit)
        if held.lines:
            texts = [table[side].combine_chunks() for side in ("source", "target")]
            of_source, of_target = (
                pc.is_in(text_keys(text), known).to_numpy(False) for text, known in zip(texts, held.keys, strict=True)
            )
            counts["shares_held_out"] = int((of_source | of_target).sum())
            table = _of_mask(table, ~(of_source | of_target))
        yield table.append_column("corpus", pa.repeat(name, len(table))).select(SPLIT_SCHEMA.names), counts


def _of_mask(table: pa.Table, mask: np.ndarray) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask)).combine_chunks()
