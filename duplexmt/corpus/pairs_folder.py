"""A folder of TSV files, a corpus each, to splits that depend on texts alone: `data=pairs_folder`.

    FOLDER/NAME.….tsv[.gz|.zst]      two columns; NAME is what the file is called elsewhere

`data_prep` cleans the files, once, whatever the number of runs that read them. Test files, named by patterns, are never
a source of pairs; they are read for their texts alone, which no pair of any split shares.

Held-out pairs come from some of the files, a fixed number from each. A keyed hash of the source text (`text_key`)
decides whether a pair may be tested on or validated on, never both, and its rank: of each file's pairs with texts of
their own the lowest ranks are held out. Neither the order of files and lines nor files that are not held out from have
any say in it, nor has a tokenizer. What shares either text with a held-out pair is not trained on.
"""

import heapq
from collections.abc import Iterable
from glob import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep import Report
from data_prep.blocks import read_block
from data_prep.clean_corpus import source_blocks
from data_prep.cleaning import Cleaning
from data_prep.cores import usable_cores
from data_prep.corpus import CountTokens
from data_prep.files import locked
from data_prep.prepare import clean, workers
from data_prep.reading import Pair
from data_prep.sampling import Sampling, without_duplicates
from data_prep.settings import Preparation, preset
from data_prep.sources import Source
from data_prep.splitting import Texts, pair_rank, rank
from data_prep.vectorised import text_keys

from .folder_files import corpus_files, test_texts

BPE_PAIRS = 300_000
"""Training pairs a BPE is trained on at most: the first ones of the sample's random order."""

_COPIED = 0.5  # share of a test file's sources that no corpus holds by chance
_BATCH = 5_000  # pairs in one call of a token counter


def folder_pairs(
    path: str,
    *,
    prepared: str | None,
    cleaning: str,
    sources: list[str] | None,
    exclude: list[str],
    held_out: list[str],
    validation_size: int,
    test_size: int,
    source_field: int | str,
    target_field: int | str,
    source_language: str,
    target_language: str,
    seed: int,
    report: Report,
    context_separator: str | None = None,
) -> dict[str, list[Pair]]:
    """Clean pairs by split: "test" and "validation" in the order of their ranks, "train" in a random order.

    Args:
        path: the folder.
        prepared: folder of what is made of the files; None for `path`/prepared.
        cleaning: preset of the rules: a file of data_prep/conf/cleaning.
        sources: names of the files to use; None for all that are not excluded.
        exclude: patterns of the names of test files, such as `test-*`.
        held_out: names of the files that test and validation pairs are taken from.
        validation_size, test_size: pairs from each of these.
        source_field, target_field: columns, 0 and 1 in either order.
        source_language, target_language: codes such as zh, en.
        seed: of hashes and order.
        report: what was left out, by file and reason.
        context_separator: between the sentence before and the source in the source column; None where there is none.

    Raises:
        FileNotFoundError, ValueError: no such folder, a name or pattern that fits no file, a test file among those to
            train on or a copy of one, too few pairs to hold out, nothing to train on; those of `data_prep.prepare`.
    """
    root = Path(path)
    files, tests = corpus_files(root, sources, exclude)
    if unknown := sorted(set(held_out) - set(files)):
        raise ValueError(
            f"data.held_out={held_out}: there is no {', '.join(unknown)} among {', '.join(files)}; name some of these"
        )
    if not held_out:
        raise ValueError("data.held_out=[]: name the files that test and validation pairs are to be taken from")
    if {source_field, target_field} != {0, 1}:
        raise ValueError(
            f"data.source_field={source_field}, data.target_field={target_field}: files of a folder have two columns, "
            "so these must be 0 and 1"
        )
    columns = int(source_field), int(target_field)
    plan = Preparation(
        name="pairs_folder",
        sources={
            name: Source("tsv", [escape(file.name)], *columns, columns=2, context_separator=context_separator)
            for name, file in files.items()
        },
        root=root,
        output=Path(prepared) if prepared else root / "prepared",
        cleaning=Cleaning(source_language, target_language, **preset("cleaning", cleaning)),
        sample=Sampling(None, validation_size, test_size, None),
        seed=1,  # decides nothing but which dropped pairs are shown: what is cleaned serves every seed
        block_bytes=preset("", "prepare")["block_bytes"],
    )
    plan.output.mkdir(parents=True, exist_ok=True)
    processes = usable_cores()
    with (
        locked(plan.output, wait=True),
        workers(processes) as pool,
    ):  # other runs of the folder wait, and read
        clean(plan, pool, processes)
    blocks = [(name, block) for name in files for block in source_blocks(plan.output / "clean" / name)]
    fields = {"source_field": source_field, "target_field": target_field}
    forbidden = Texts()
    for name, file in tests.items():
        texts = test_texts(file, **fields, cleaning=plan.cleaning, report=report, context_separator=context_separator)
        refuse_copies(name, texts, blocks)
        forbidden.sources |= texts.sources
        forbidden.targets |= texts.targets
    splits = hold_out(
        {name: [block for owner, block in blocks if owner == name] for name in held_out},
        {"test": test_size, "validation": validation_size},
        forbidden,
        seed,
    )
    held = Texts()
    for pairs in splits.values():
        held.add(pairs)
    for name, pairs in splits.items():
        report.add(name, "held_out", len(pairs))
    splits["train"] = training_pairs(blocks, plan.cleaning.duplicates, forbidden, held, seed, report)
    return splits


def refuse_copies(name: str, texts: Texts, blocks: Iterable[tuple[str, Path]]) -> None:
    """Refuse a corpus that holds most sources of a test file: a copy of it under another name.

    Raises:
        ValueError: naming both.
    """
    known = pa.array(sorted(texts.sources), pa.string())
    found: dict[str, set[str]] = {}
    for owner, block in blocks:
        keys = text_keys(_column(block, "source"))
        found.setdefault(owner, set()).update(keys.filter(pc.is_in(keys, known)).to_pylist())
    for owner, shared in found.items():
        if len(shared) > _COPIED * len(known):
            raise ValueError(
                f"{owner} holds {len(shared):,} of the {len(known):,} sources of the test file {name}, and would be "
                f"trained on: take it out of the folder, or leave it out by data.exclude=[…,{owner}]"
            )


def hold_out(
    blocks: dict[str, list[Path]], sizes: dict[str, int], forbidden: Texts, seed: int
) -> dict[str, list[Pair]]:
    """Pairs of each split, `sizes` of them from each file, in order of their ranks.

    Args:
        blocks: the clean blocks of the files to take them from.
        sizes: of "test" and "validation".
        forbidden: texts of test files.
        seed: of the hash.

    Raises:
        ValueError: if a file has too few pairs with texts of their own.
    """
    candidates: list[tuple[int, Pair, str]] = []
    for name, parts in blocks.items():
        numbers: dict[str, int] = {}
        pairs: dict[Pair, str] = {}
        for block in parts:
            columns = [_column(block, side) for side in Pair._fields]
            keys = text_keys(columns[0]).to_pylist()
            pairs.update(zip(map(Pair, *(column.to_pylist() for column in columns)), keys, strict=True))
            numbers |= {key: rank(key, seed) for key in set(keys) - numbers.keys()}
        # Several times what is needed: half are of the other split, and some share a text with those before.
        limit = max(heapq.nsmallest(8 * sum(sizes.values()) + 1000, numbers.values()), default=0)
        candidates += [(numbers[key], pair, name) for pair, key in pairs.items() if numbers[key] <= limit]
    splits: dict[str, list[Pair]] = {name: [] for name in sizes}
    left = {(split, name): size for split, size in sizes.items() for name in blocks}
    taken = Texts()
    for number, pair, name in sorted(candidates):
        split = "test" if rank(str(number), seed) % 2 else "validation"  # a hash of its own: no text changes sides
        if left[split, name] and not taken.share(pair) and not forbidden.share(pair):
            splits[split].append(pair)
            left[split, name] -= 1
            taken.add([pair])
    if lacking := {f"{name} ({split})": count for (split, name), count in left.items() if count}:
        shown = ", ".join(f"{count:,} pairs of {what}" for what, count in lacking.items())
        raise ValueError(
            f"data.test_size={sizes['test']}, data.validation_size={sizes['validation']} from each of "
            f"{', '.join(blocks)}: {shown} are lacking, as held-out pairs need texts of their own; ask for fewer"
        )
    return splits


def training_pairs(
    blocks: list[tuple[str, Path]], duplicates: str, forbidden: Texts, held: Texts, seed: int, report: Report
) -> list[Pair]:
    """All pairs that share no text with a test file or a held-out pair, duplicates once, in a random order."""
    with workers(1) as pool:
        corpus, counts, _ = without_duplicates(blocks, duplicates, seed, pool)
    for reason, count in counts.items():
        report.add("train", reason, count)
    keys = {
        kind: [pa.array(sorted(texts), pa.string()) for texts in (each.sources, each.targets)]
        for kind, each in (("shares_test_file", forbidden), ("shares_held_out", held))
    }
    found: set[Pair] = set()
    for (name, block), mask in zip(corpus.blocks, corpus.masks, strict=True):
        columns = [_column(block, side).filter(pa.array(mask)) for side in Pair._fields]
        own = [text_keys(column) for column in columns[:2]]
        free = np.ones(len(columns[0]), bool)
        for kind, known in keys.items():
            shares = np.zeros(len(free), bool)
            for key, texts in zip(own, known, strict=True):
                shares |= pc.is_in(key, texts).to_numpy(zero_copy_only=False)
            report.add(name, kind, int((shares & free).sum()))
            free &= ~shares
        before = len(found)
        found.update(map(Pair, *(column.filter(pa.array(free)).to_pylist() for column in columns)))
        report.add(name, "kept", len(found) - before)
    if not found:
        raise ValueError(f"no training pair is left; what became of them:\n{report.summary()}")
    return sorted(found, key=lambda pair: (pair_rank(pair, seed), pair))


def draw(
    pairs: list[Pair],
    *,
    max_tokens: int | None,
    count_source: CountTokens,
    count_target: CountTokens,
    train_size: int | None,
    report: Report,
) -> list[Pair]:
    """The first `train_size` pairs (None: all) of at most `max_tokens` tokens on either side.

    In a random order they are a uniform sample of all that fit, and the rest needs no tokens counted.

    Raises:
        ValueError: if there are fewer.
    """
    chosen: list[Pair] = []
    looked_at = 0
    wanted = len(pairs) if train_size is None else train_size
    for start in range(0, len(pairs), _BATCH):
        if len(chosen) >= wanted:
            break
        batch = pairs[start : start + _BATCH]
        looked_at += len(batch)
        if max_tokens is None:
            chosen += batch
            continue
        counted = count_source([pair.source for pair in batch]), count_target([pair.target for pair in batch])
        counts = zip(*counted, strict=True)
        fitting = [pair for pair, sizes in zip(batch, counts, strict=True) if max(sizes) <= max_tokens]
        report.add("train", f"over_{max_tokens}_tokens", len(batch) - len(fitting))
        chosen += fitting
    if not chosen or (train_size is not None and len(chosen) < train_size):
        raise ValueError(
            f"data.train_size={train_size}: only {len(chosen):,} pairs have at most {max_tokens} tokens a side; "
            f"ask for fewer, or raise data.max_tokens\n{report.summary()}"
        )
    if len(pairs) > looked_at or len(chosen) > wanted:
        report.add("train", "not_sampled", len(pairs) - looked_at + max(0, len(chosen) - wanted))
    return chosen[:wanted]


def _column(block: Path, side: str) -> pa.Array:
    column = read_block(block, [side])[side]
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
