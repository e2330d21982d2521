"""A folder of TSV files, a corpus each, to splits that depend on texts alone: `data=pairs_folder`.

    FOLDER/NAME.….tsv[.gz|.zst]      two columns; NAME is what the file is called elsewhere

`data_prep` cleans the files, once, whatever the number of runs that read them. Test files, named by patterns, are never
a source of pairs; they are read for their texts alone, which no pair of any split shares.

Held-out pairs come from some of the files, a fixed number from each, by `data_prep.splitting`.
"""

from collections.abc import Iterable, Iterator
from glob import escape
from itertools import chain, compress
from pathlib import Path

from data_prep import Report
from data_prep.blocks import read_block
from data_prep.clean_corpus import source_blocks
from data_prep.cleaning import Cleaning
from data_prep.cores import usable_cores
from data_prep.files import locked
from data_prep.prepare import clean, workers
from data_prep.reading import Pair
from data_prep.sampling import Sampling, without_duplicates
from data_prep.settings import Preparation, preset
from data_prep.sources import Source
from data_prep.splitting import Texts, by_rank, hold_out, in_random_order, nothing_left, text_key, unshared

from .folder_files import corpus_files, test_texts

_COPIED = 0.5  # share of a test file's sources that no corpus holds by chance


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
    own = {name: pairs_of([block for owner, block in blocks if owner == name]) for name in held_out}
    sizes = {"test": dict.fromkeys(held_out, test_size), "validation": dict.fromkeys(held_out, validation_size)}
    held = hold_out(by_rank(own, seed), sizes, forbidden, seed)
    splits = {name: [each.pair for each in found] for name, found in held.items()}
    for name, pairs in splits.items():
        report.add(name, "held_out", len(pairs))
    with workers(1) as pool:
        corpus, duplicates = without_duplicates(blocks, plan.cleaning.duplicates, seed, pool)
    report.merge(duplicates)
    known = {"shares_test_file": forbidden, "shares_held_out": Texts(chain.from_iterable(splits.values()))}
    free: list[Pair] = []
    for (name, block), mask in zip(corpus.blocks, corpus.masks, strict=True):
        free += unshared(name, compress(pairs_of([block]), mask), known, report)
    if not free:
        raise nothing_left("train", report)
    return splits | {"train": in_random_order(free, seed)}


def pairs_of(blocks: Iterable[Path]) -> Iterator[Pair]:
    """The pairs of some blocks, in order."""
    for block in blocks:
        table = read_block(block, Pair._fields)
        yield from map(Pair, *(table[side].to_pylist() for side in Pair._fields))


def refuse_copies(name: str, texts: Texts, blocks: Iterable[tuple[str, Path]]) -> None:
    """Refuse a corpus that holds most sources of a test file: a copy of it under another name.

    Raises:
        ValueError: naming both.
    """
    found: dict[str, set[str]] = {}
    for owner, block in blocks:
        keys = {text_key(source) for source in read_block(block, ["source"])["source"].to_pylist()}
        found.setdefault(owner, set()).update(keys & texts.sources)
    for owner, shared in found.items():
        if len(shared) > _COPIED * len(texts.sources):
            raise ValueError(
                f"{owner} holds {len(shared):,} of the {len(texts.sources):,} sources of the test file {name}, and "
                f"would be trained on: take it out of the folder, or leave it out by data.exclude=[…,{owner}]"
            )
