"""The second half of the way: from cleaned blocks to splits of exact sizes, tokenising only what is looked at.

Pairs come in the order of their `ranks`. Of those that pass the length limit the first ones are held out, for test and
validation (`splitting`); the others are the training pairs, where they share no text with those. It is a uniform sample
of all pairs that would pass, though only as many are tokenised as it takes: the ranks know nothing of the texts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.clean_corpus import CleanedCorpus, read_block
from data_prep.preparation import Preparation
from data_prep.relatives import Relatives
from data_prep.splitting import HELD_OUT, Candidate, Texts, hold_out, not_to_train_on, ranks
from data_prep.tokens import CountTokens, fits
from duplexmt.common.files import sha256_of, write_whole
from duplexmt.common.pair import Pair

_BATCH = 2000  # pairs in one call of a token counter
_AT_ONCE = 400_000  # pairs in memory
_RANKS = 1 << 64

SPLIT_SCHEMA = pa.schema(dict.fromkeys(("source", "target", "before", "corpus"), pa.string()) | {"line": pa.int64()})
"""Of the shards: both texts and the sentence before, the name of the pair's source, and its line there, from 0."""


@dataclass
class Sample:
    """The pairs of each split in order of their ranks, and what became of those looked at on the way."""

    splits: dict[str, list[Candidate]]
    counts: Counter[str]

    @property
    def held_out(self) -> list[Candidate]:
        """All pairs but those to train on."""
        return [pair for split in HELD_OUT for pair in self.splits[split]]

    def relatives(self, plan: Preparation) -> Relatives:
        """Of the held-out pairs; of none where they may be trained on."""
        held_out = () if plan.sample.train_on_relatives else (each.pair for each in self.held_out)
        return Relatives(held_out, plan.cleaning.languages)


def draw(corpus: CleanedCorpus, plan: Preparation, count_tokens: CountTokens | None, pool: Executor) -> Sample:
    """Draw the splits; with `train_size` None only those held out.

    Held-out pairs have texts of their own, up to case, spaces and punctuation; no training pair has one of theirs or is
    a relative.

    Raises:
        ValueError: fewer pairs than asked for.
    """
    wanted = plan.sample
    expected = 4 * (wanted.test_size + wanted.validation_size) + 2 * (wanted.train_size or 0)

    def fitting(counts: Counter[str], known: Texts, relatives: Relatives) -> Iterator[tuple[Candidate, str | None]]:
        """Candidates that are short enough, and why one is not to be trained on."""
        candidates = in_random_order(corpus, pool.map, expected)
        while batch := list(islice(candidates, _BATCH)):
            masks = not_to_train_on(*_sides(as_table(batch)), {"shares_held_out": known}, relatives).items()
            fit = fits(batch, wanted.max_tokens, count_tokens, count_tokens)
            for number, (pair, is_short) in enumerate(zip(batch, fit, strict=True)):
                counts["looked_at"] += 1
                if is_short:
                    yield pair, next((reason for reason, mask in masks if mask[number]), None)
                else:
                    counts["too_long"] += 1

    sizes = {"test": {"": wanted.test_size}, "validation": {"": wanted.validation_size}}
    seen = Counter[str]()
    free = fitting(seen, Texts(), Relatives((), plan.cleaning.languages))
    try:
        splits = hold_out((pair for pair, _ in free), sizes, Texts(), corpus.seed)
    except ValueError as error:
        if not seen["too_long"]:
            raise
        raise ValueError(
            f"{error}, or raise sample.max_tokens={wanted.max_tokens}: {seen['too_long']:,} of {seen['looked_at']:,} "
            "pairs have more"
        ) from None
    sample = Sample(splits, Counter(looked_at=0, too_long=0, shares_held_out=0, relative_of_held_out=0))
    if wanted.train_size is None:
        return sample
    known, held = Texts(pair.pair for pair in sample.held_out), set(sample.held_out)
    train = sample.splits["train"] = []
    for pair, reason in fitting(sample.counts, known, sample.relatives(plan)):
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


def in_random_order(corpus: CleanedCorpus, map_blocks: Callable, expected: int) -> Iterator[Candidate]:
    """All pairs in order of their ranks, those of an interval of ranks at a time: each reads all ranks again.

    `expected` is how many the caller thinks to need.
    """
    step = min(_RANKS, _RANKS * min(max(expected, 1000), _AT_ONCE) // max(corpus.pairs, 1))
    for low in range(0, _RANKS, step):
        arguments = [
            (name, path, mask, corpus.seed, low, min(low + step, _RANKS) - 1)
            for (name, path), mask in zip(corpus.blocks, corpus.masks, strict=True)
            if mask.any()
        ]
        candidates = chain.from_iterable(map_blocks(_candidates, arguments))
        yield from sorted(candidates, key=attrgetter("rank"))  # the order of the corpus decides between equal ones


def _candidates(task: tuple[str, Path, np.ndarray, int, int, int]) -> list[Candidate]:
    """The pairs of a block with `low <= rank <= high`, in order."""
    name, path, mask, seed, low, high = task
    chosen = np.flatnonzero(mask)
    lines = read_block(path, ["line"])["line"].to_numpy()[chosen]
    order = ranks(seed, name, lines)
    inside = np.flatnonzero((order >= np.uint64(low)) & (order <= np.uint64(high)))
    if not len(inside):
        return []
    inside = inside[np.argsort(order[inside])]
    texts = read_block(path, Pair._fields).take(pa.array(chosen[inside]))
    columns = order[inside].tolist(), lines[inside].tolist(), *(texts[side].to_pylist() for side in Pair._fields)
    return [Candidate(rank, name, *rest) for rank, *rest in zip(*columns, strict=True)]


def write_splits(
    folder: Path,
    corpus: CleanedCorpus,
    sample: Sample,
    plan: Preparation,
    count_tokens: CountTokens | None,
    pool: Executor,
) -> dict[str, dict[str, Any]]:
    """Write the splits; where all pairs are to be trained on, count in `sample` what became of them.

    Returns:
        For each split its number of pairs, and its shards: one, or of all pairs one for each block.
    """
    shards = {
        name: [write_shard(folder / f"{name}-00000-of-00001.parquet", as_table(pairs))]
        for name, pairs in sample.splits.items()
    }
    if plan.sample.train_size is None:
        known, relatives = Texts(each.pair for each in sample.held_out), sample.relatives(plan)
        rest = partial(_write_the_rest, known, relatives, plan.sample.max_tokens, count_tokens)
        names = [f"train-{number:05d}-of-{len(corpus.blocks):05d}.parquet" for number in range(len(corpus.blocks))]
        map_shards = pool.map if count_tokens is None else map  # a tokenizer has threads of its own
        shards["train"] = []
        for shard, counts in map_shards(rest, [folder / name for name in names], corpus.blocks, corpus.masks):
            shards["train"].append(shard)
            sample.counts.update(counts)
        sample.counts.subtract(dict.fromkeys(("looked_at", "shares_held_out"), len(sample.held_out)))  # they themselves
    return {
        name: {"pairs": sum(shard["pairs"] for shard in shards[name]), "shards": shards[name]}
        for name in ("train", "validation", "test")
    }


def _write_the_rest(
    known: Texts,
    relatives: Relatives,
    max_tokens: int | None,
    count_tokens: CountTokens | None,
    path: Path,
    block: tuple[str, Path],
    mask: np.ndarray,
) -> tuple[dict[str, Any], Counter[str]]:
    """A training shard: the pairs of a block that fit, share no text with held-out ones and are no relatives."""
    table = read_block(block[1], [*Pair._fields, "line"]).filter(pa.array(mask))
    counts, free = Counter(looked_at=len(table)), np.ones(len(table), bool)
    if max_tokens is not None and count_tokens is not None:
        sizes = [np.array(count_tokens(side.to_pylist()), np.int64) for side in _sides(table)]
        fit = np.maximum(*sizes) <= max_tokens
        counts["too_long"] = int((~fit).sum())
        table, free = table.filter(pa.array(fit)), free[fit]
    for reason, found in not_to_train_on(*_sides(table), {"shares_held_out": known}, relatives).items():
        counts[reason] = int(found.sum())
        free &= ~found
    table = table.filter(pa.array(free)).combine_chunks()
    table = table.append_column("corpus", pa.repeat(block[0], len(table))).select(SPLIT_SCHEMA.names)
    return write_shard(path, table), counts


def as_table(pairs: Sequence[Candidate]) -> pa.Table:
    """Pairs as they are written (`SPLIT_SCHEMA`)."""
    columns = {name: [getattr(pair, name) for pair in pairs] for name in SPLIT_SCHEMA.names}
    return pa.table(columns, schema=SPLIT_SCHEMA)


def _sides(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    one, other = (table[side].combine_chunks() for side in ("source", "target"))
    return one, other


def write_shard(path: Path, table: pa.Table) -> dict[str, Any]:
    """One of the shards of a split, named as the hub names them; returns what the manifest says of it.

    By lz4: a third larger than by zstd, and read and written twice as fast.
    """
    how = {"compression": "lz4", "use_dictionary": ["corpus"], "write_statistics": False, "write_page_checksum": True}
    write_whole(path, lambda stream: pq.write_table(table, stream, **how))
    return {"file": path.name, "pairs": len(table), "sha256": sha256_of(path)}
