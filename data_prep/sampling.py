"""The second half of the way: from cleaned blocks to splits of exact sizes, tokenising only what is looked at.

Pairs come in the order of their `ranks`. Of those that pass the length limit the first ones are held out, for test and
validation (`splitting`); the others are the training pairs, where they share no text with those. It is a uniform sample
of all pairs that would pass, though only as many are tokenised as it takes: the ranks know nothing of the texts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa

from data_prep.arrow_files import read_block
from data_prep.duplicates import repeated
from data_prep.parquet_shards import SPLIT_SCHEMA, Made, write_shard
from data_prep.relatives import Relatives
from data_prep.report import EXAMPLES, Example, Report
from data_prep.splitting import HELD_OUT, Candidate, Texts, hold_out, not_to_train_on, ranks
from data_prep.tokens import CountTokens, fits
from duplexmt.common.pair import Pair

_AT_ONCE = 400_000  # pairs in memory
_BATCH = 2000  # pairs in one call of a token counter
_RANKS = 1 << 64


@dataclass
class Sampling:
    """Sizes of the splits, and how many tokens either side of a pair may have.

    `train_size` None takes all pairs, `max_tokens` None is no limit. `train_on_relatives` keeps training pairs that are
    relatives of held-out ones (`relatives`), as splits did before December 2026.

    Raises:
        ValueError: a size below 0, no training pairs, no tokens.
    """

    train_size: int | None
    validation_size: int
    test_size: int
    max_tokens: int | None
    train_on_relatives: bool = False

    def __post_init__(self) -> None:
        for name, least in (("train_size", 1), ("validation_size", 0), ("test_size", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"sample.{name}={value}: must be at least {least}")


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
    sizes = [len(read_block(path, ["line"])) for path in paths]
    corpus = CleanedCorpus(blocks, [np.ones(size, bool) for size in sizes], seed)
    kinds = {"none": {}, "exact": {"duplicate": "exact"}, "near": {"duplicate": "exact", "near_duplicate": "near"}}
    for name, column in kinds[duplicates].items():
        masks = repeated(paths, sizes, column, map_shares)
        found = CleanedCorpus(blocks, [mask & each for mask, each in zip(corpus.masks, masks, strict=True)], seed)
        if found.pairs:
            report.add("duplicates", name, found.pairs)
            first = islice(in_random_order(found, map, 200), EXAMPLES)
            examples = [Example(c.rank, f"{c.corpus}:{c.line + 1}", f"{c.source}\t{c.target}") for c in first]
            report.add_examples("duplicates", name, examples)
            corpus.masks = [mask & ~each for mask, each in zip(corpus.masks, found.masks, strict=True)]
    return corpus, report


def in_random_order(corpus: CleanedCorpus, map_blocks: Callable, expected: int) -> Iterator[Candidate]:
    """All pairs in order of their ranks, those of an interval of ranks at a time: each reads all ranks again.

    Args:
        corpus: the pairs.
        map_blocks: `map`, or that of an executor.
        expected: how many the caller thinks to need.
    """
    low = 0
    step = min(_RANKS, _RANKS * min(max(expected, 1000), _AT_ONCE) // max(corpus.pairs, 1))
    while low < _RANKS:
        high = min(low + step, _RANKS)
        arguments = [
            (name, path, mask, corpus.seed, low, high)
            for (name, path), mask in zip(corpus.blocks, corpus.masks, strict=True)
            if mask.any()
        ]
        candidates = chain.from_iterable(map_blocks(_candidates, arguments))
        yield from sorted(candidates, key=attrgetter("rank"))  # the order of the corpus decides between equal ones
        low = high


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

    def relatives(self, wanted: Sampling, languages: tuple[str, str]) -> Relatives:
        """Of the held-out pairs; of none where they may be trained on."""
        return Relatives(() if wanted.train_on_relatives else (each.pair for each in self.held_out), languages)


def draw(
    corpus: CleanedCorpus,
    wanted: Sampling,
    count_tokens: CountTokens | None,
    pool: Executor,
    languages: tuple[str, str],
) -> Sample:
    """Draw the splits; with `train_size` None only those held out.

    Held-out pairs have texts of their own, up to case, spaces and punctuation; no training pair has one of theirs or is
    a relative.

    Raises:
        ValueError: fewer pairs than asked for.
    """
    sizes = {"test": {"": wanted.test_size}, "validation": {"": wanted.validation_size}}
    expected = 4 * (wanted.test_size + wanted.validation_size) + 2 * (wanted.train_size or 0)

    def fitting(counts: Counter[str], known: Texts, relatives: Relatives) -> Iterator[tuple[Candidate, str | None]]:
        """Candidates that are short enough, and why one is not to be trained on."""
        candidates = in_random_order(corpus, pool.map, expected)
        while batch := list(islice(candidates, _BATCH)):
            table = as_table(batch)
            masks = not_to_train_on(*_sides(table), {"shares_held_out": known}, relatives).items()
            fit = fits(batch, wanted.max_tokens, count_tokens, count_tokens)
            for number, (pair, is_short) in enumerate(zip(batch, fit, strict=True)):
                counts["looked_at"] += 1
                if is_short:
                    yield pair, next((reason for reason, mask in masks if mask[number]), None)
                else:
                    counts["too_long"] += 1

    free = fitting(Counter(), Texts(), Relatives((), languages))
    splits = hold_out((pair for pair, _ in free), sizes, Texts(), corpus.seed)
    sample = Sample(splits, Counter(looked_at=0, too_long=0, shares_held_out=0, relative_of_held_out=0))
    if wanted.train_size is None:
        return sample
    known, held = Texts(pair.pair for pair in sample.held_out), set(sample.held_out)
    train = sample.splits["train"] = []
    for pair, reason in fitting(sample.counts, known, sample.relatives(wanted, languages)):
        if len(train) == wanted.train_size:
            break
        if pair in held:
            continue
        if reason:
            sample.counts[reason] += 1
        else:
            train.append(pair)
    if len(train) < wanted.train_size:
        raise ValueError(
            f"too few pairs: of all {corpus.pairs:,} clean ones {sample.counts['too_long']:,} have over "
            f"{wanted.max_tokens} tokens, {sample.counts['shares_held_out']:,} a text of a held-out pair, "
            f"{sample.counts['relative_of_held_out']:,} are nearly one (sample.train_on_relatives=true keeps these); "
            f"{wanted.train_size - len(train):,} are lacking; ask for fewer, or raise sample.max_tokens"
        )
    return sample


def as_table(pairs: Sequence[Candidate]) -> pa.Table:
    """Pairs as they are written (`SPLIT_SCHEMA`)."""
    columns = {name: [getattr(pair, name) for pair in pairs] for name in SPLIT_SCHEMA.names}
    return pa.table(columns, schema=SPLIT_SCHEMA)


def write_the_rest(
    path: Path,
    blocks: Sequence[tuple[str, Path]],
    masks: Sequence[np.ndarray],
    held: Texts,
    relatives: Relatives,
    max_tokens: int | None,
    count_tokens: CountTokens | None,
) -> Made:
    """A shard of all pairs that fit, share no text with the held-out ones and are no relatives."""

    def tables() -> Iterator[tuple[pa.Table, Counter[str]]]:
        for (name, block), mask in zip(blocks, masks, strict=True):
            table = _of_mask(read_block(block, [*Pair._fields, "line"]), mask)
            counts, free = Counter(looked_at=len(table)), np.ones(len(table), bool)
            if max_tokens is not None and count_tokens is not None:
                sizes = [np.array(count_tokens(side.to_pylist()), np.int64) for side in _sides(table)]
                fit = np.maximum(*sizes) <= max_tokens
                counts["too_long"] = int((~fit).sum())
                table, free = _of_mask(table, fit), free[fit]
            for reason, found in not_to_train_on(*_sides(table), {"shares_held_out": held}, relatives).items():
                counts[reason] = int(found.sum())
                free &= ~found
            table = _of_mask(table, free)
            yield table.append_column("corpus", pa.repeat(name, len(table))).select(SPLIT_SCHEMA.names), counts

    return write_shard(path, tables())


def _of_mask(table: pa.Table, mask: np.ndarray) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask)).combine_chunks()


def _sides(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    one, other = (table[side].combine_chunks() for side in ("source", "target"))
    return one, other
