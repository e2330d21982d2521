"""Corpora that `data_prep` prepares from raw files: once, whatever the number of processes that want to read them."""

import time
from pathlib import Path

from data_prep.preparation import Sampling, preparation
from data_prep.prepare import finished, prepare, read_split
from data_prep.report import Report
from data_prep.sources import find_files
from data_prep.tokens import token_counter

from ..common.cores import local_rank, usable_cores
from ..common.pair import Pair
from .corpus_settings import CorpusSettings


def prepared_corpus(asked: CorpusSettings, train: bool = True) -> tuple[dict[str, list[Pair]], Report]:
    """The splits of a corpus of `data_prep`, prepared now if they are not yet, and what was left out.

    The first process of a machine prepares them, the others wait and read; where several machines share a disk, one of
    them prepares and the others find its work done.

    Args:
        asked: `corpus` is a file of data_prep/conf/corpus, `root` the folder of its raw files, `prepared` that of what
            is made of them (None for `root`/prepared), `sources` those to use (None for all). A loaded `tokenizer`
            takes what is there, whichever tokenizer it was made with.
        train: without it "train" is not read.

    Raises:
        FileNotFoundError, ValueError: those of `data_prep.prepare`; nothing is prepared, and no tokenizer named.
    """
    tokenizer, root = asked.tokenizer if isinstance(asked.tokenizer, str) else None, Path(asked.root or "")
    plan = preparation(
        asked.corpus,
        asked.cleaning,
        sources=asked.sources,
        root=root,
        output=Path(asked.prepared) if asked.prepared else root / "prepared",
        seed=asked.seed,
        sample=Sampling(
            asked.train_size, asked.validation_size, asked.test_size, asked.max_tokens, asked.train_on_relatives
        ),
    )
    if tokenizer is not None and finished(plan, None) is None:
        for source, files in plan.chosen.items():
            find_files(source, files, plan.root)  # what is missing is said before a tokenizer is looked for on the hub
    counter = token_counter(tokenizer) if tokenizer is not None else None
    manifest = finished(plan, counter)
    if manifest is None and counter is None:
        raise ValueError(
            f"{plan.output} holds no prepared corpus: bring it back, or give the tests a file of their own"
        )
    if manifest is None and local_rank() == 0:
        manifest = prepare(plan, counter, processes=usable_cores(), wait=True)
    while manifest is None:  # rank 0 is at work; where it fails, the launcher ends this process too
        time.sleep(1)
        manifest = finished(plan, counter)
    report = Report()
    for source, counts in manifest["sources"].items():
        for kind in ("faulty", "dropped"):
            for reason, count in counts.get(kind, {}).items():
                report.add(source, reason, count)
        report.add(source, "kept", counts["lines"]["kept"])
    for reason, count in (manifest["duplicates"] | manifest["sampling"]).items():
        report.add("sampling", reason, count)
    splits = ("train", "validation", "test") if train else ("validation", "test")
    return {split: read_split(plan.output, split) for split in splits}, report
