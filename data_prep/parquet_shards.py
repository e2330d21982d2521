"""The splits as they are written: Parquet shards, each made by itself and so by any process."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from duplexmt.common.files import sha256_of, write_whole

SHARD_PAIRS = 500_000
"""In a shard of all pairs of a corpus at least, but for the last one: it ends with a block."""

SPLIT_SCHEMA = pa.schema(dict.fromkeys(("source", "target", "before", "corpus"), pa.string()) | {"line": pa.int64()})
"""Of the shards: both texts and the sentence before, the name of the pair's source, and its line there, from 0."""

Made = tuple[dict[str, Any], Counter[str], Counter[str]]
"""A shard's name, number of pairs and hash; its pairs by source; what became of others on the way."""


def write_shard(
    folder: Path, split: str, number: int, count: int, tables: Iterable[tuple[pa.Table, Counter[str]]]
) -> Made:
    """One of the shards of a split, named as the hub names them: tables, each with counts of what was left out of it.

    By lz4: a third larger than by zstd, and read and written twice as fast.
    """
    path = folder / f"{split}-{number:05d}-of-{count:05d}.parquet"
    sources: Counter[str] = Counter()
    left_out: Counter[str] = Counter()

    def write(stream: Any) -> None:
        options = {"compression": "lz4", "use_dictionary": ["corpus"], "write_statistics": False}
        with pq.ParquetWriter(stream, SPLIT_SCHEMA, **options, write_page_checksum=True) as writer:
            for table, counts in tables:
                writer.write_table(table)
                sources.update({each["values"]: each["counts"] for each in table["corpus"].value_counts().to_pylist()})
                left_out.update(counts)

    write_whole(path, write)
    return {"file": path.name, "pairs": sources.total(), "sha256": sha256_of(path)}, sources, left_out


def of_a_shard(sizes: Sequence[int]) -> list[slice]:
    """Which of consecutive blocks of so many pairs make up a shard; at least one shard, which may be of none."""
    cuts, pairs = [0], 0
    for number, size in enumerate(sizes, 1):
        pairs += size
        if pairs >= SHARD_PAIRS or number == len(sizes):
            cuts.append(number)
            pairs = 0
    return [slice(*cut) for cut in pairwise(cuts)] or [slice(0, 0)]


def summary(made: Iterable[Made]) -> dict[str, Any]:
    """What the manifest says of a split."""
    shards, sources, _ = zip(*made, strict=True)
    return {
        "pairs": sum(shard["pairs"] for shard in shards),
        "by_source": dict(sorted(sum(sources, Counter()).items())),
        "shards": list(shards),
    }
