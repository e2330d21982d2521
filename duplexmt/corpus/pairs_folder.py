"""A folder of TSV files, a corpus each, to splits that depend on texts alone: `data=pairs_folder`.

    FOLDER/NAME.….tsv[.gz|.xz|.zst]      two columns; NAME is what the file is called elsewhere

`data_prep` cleans the files, once, whatever the number of runs that read them. Test files, named by patterns, are never
a source of pairs; they are read for their texts alone, which no pair of any split shares.

Held-out pairs come from some of the files, a fixed number from each, by `data_prep.splitting`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from itertools import chain, compress
from pathlib import Path

from data_prep.clean_corpus import cleaned, read_block, without_duplicates
from data_prep.cleaning import Cleaning, is_in_script, simplify
from data_prep.preparation import Corpus, Sampling, preparation
from data_prep.prepare import clean, workers
from data_prep.reading import read_columns
from data_prep.relatives import Relatives
from data_prep.report import Report
from data_prep.rules import clean_side
from data_prep.sources import Source
from data_prep.splitting import Texts, by_rank, hold_out

from ..common.cores import usable_cores
from ..common.files import locked
from ..common.pair import Pair
from ..common.text import text_key
from .corpus_settings import CorpusSettings
from .repository import located
from .training_pairs import nothing_left, to_train_on

_NAME = re.compile(r"(?P<name>[^.]+)\.(?:.*\.)?tsv(?:\.gz|\.xz|\.zst)?", re.IGNORECASE)
_COPIED = 0.5  # share of a test file's sources that no corpus holds by chance


def folder_pairs(asked: CorpusSettings, report: Report, train: bool = True) -> tuple[dict[str, list[Pair]], list[Pair]]:
    """Clean pairs by split: "test" and "validation" in the order of their ranks, "train" in a random order; and the
    pairs of test files.

    Args:
        asked: `path` is the folder, `prepared` that of what is made of the files (None for `path`/prepared); `sources`
            names the files to use (None for all that are not excluded), `exclude` has patterns of the names of test
            files, such as `test-*`, or held-out pairs of another corpus with which one side is shared;
            `validation_size` and `test_size` count the pairs from each file in `held_out`.
        report: what was left out, by file and reason.
        train: without it there is no "train", and no files are read but those in `held_out` and the test files; the
            other splits are the same.

    Raises:
        FileNotFoundError, ValueError: no such folder, a name or pattern that fits no file, a test file among those to
            train on, a copy of one or one that is read wrongly, too few pairs to hold out, nothing to train on; those
            of `data_prep.prepare`.
    """
    root = located(asked.path or "")
    files, tests = corpus_files(root, asked.sources, asked.exclude or [])
    held_out = asked.held_out or []
    if unknown := sorted(set(held_out) - set(files)):
        raise ValueError(
            f"data.held_out={held_out}: there is no {', '.join(unknown)} among {', '.join(files)}; name some of these"
        )
    if not held_out:
        raise ValueError("data.held_out=[]: name the files that test and validation pairs are to be taken from")
    if {asked.source_field, asked.target_field} != {0, 1}:
        raise ValueError(
            f"data.source_field={asked.source_field}, data.target_field={asked.target_field}: files of a folder have "
            "two columns, so these must be 0 and 1"
        )
    if not train:
        files = {name: files[name] for name in held_out}
    columns = int(asked.source_field), int(asked.target_field)
    sources = {
        name: Source("tsv", [escape(file.name)], *columns, columns=2, context_separator=asked.separator)
        for name, file in files.items()
    }
    plan = preparation(
        Corpus("pairs_folder", asked.source_language, asked.target_language, sources),
        asked.cleaning,
        sources=None,
        root=root,
        output=Path(asked.prepared) if asked.prepared else root / "prepared",
        sample=Sampling(None, asked.validation_size, asked.test_size, None),
        seed=1,  # decides nothing but which dropped pairs are shown: what is cleaned serves every seed
    )
    processes = usable_cores()
    with locked(plan.output, wait=True), workers(processes) as pool:  # other runs of the folder wait, and read
        reports = clean(plan, pool, processes)
    blocks = [(name, block) for name in files for block in cleaned(plan.clean(name))[0]]
    for name, found in reports.items():
        if found.counts["lines"]["read"] and not found.counts["lines"]["kept"]:
            raise nothing_left("clean", found, str(files[name]))
        for reasons in (found.counts.get(kind, {}) for kind in ("faulty", "dropped")):
            for reason, count in reasons.items():
                report.add(name, reason, count)
    tested: list[Pair] = []
    for name, file in tests.items():
        texts = test_pairs(file, asked, plan.cleaning, report)
        check_test_pairs(file, texts, plan.cleaning.languages, report)
        refuse_copies(name, Texts(texts), blocks)
        tested += texts
    forbidden = Texts(tested)
    own = {name: pairs_of([block for owner, block in blocks if owner == name]) for name in held_out}
    sizes = {split: dict.fromkeys(held_out, getattr(asked, f"{split}_size")) for split in ("test", "validation")}
    first = columns.index(0)  # so that a model of the other direction has the same pairs held out
    held = hold_out(by_rank(own, asked.seed, first), sizes, forbidden, asked.seed)
    splits = {name: [each.pair for each in found] for name, found in held.items()}
    for name, pairs in splits.items():
        report.add(name, "held_out", len(pairs))
    if not train:
        return splits, tested
    corpus, duplicates = without_duplicates(blocks, plan.cleaning.duplicates, asked.seed)
    report.merge(duplicates)
    known = {"shares_test_file": forbidden, "shares_held_out": Texts(chain.from_iterable(splits.values()))}
    near = () if asked.train_on_relatives else chain(tested, chain.from_iterable(splits.values()))
    relatives = Relatives(near, plan.cleaning.languages)
    masked = zip(corpus.blocks, corpus.masks, strict=True)
    corpora = ((name, list(compress(pairs_of([block]), mask))) for (name, block), mask in masked)
    return splits | {"train": to_train_on(corpora, known, report, relatives, asked.seed)}, tested


def corpus_files(root: Path, sources: list[str] | None, exclude: list[str]) -> tuple[dict[str, Path], dict[str, Path]]:
    """The files of a folder by name: those to use, and the test files that no pair may come from.

    Raises:
        FileNotFoundError, ValueError: see `folder_pairs`.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"data.path={str(root)!r}: there is no such folder; give one with files NAME.tsv.gz")
    found: dict[str, Path] = {}
    for file in sorted(root.iterdir()):
        if (match := _NAME.fullmatch(file.name)) and file.is_file():
            name = match["name"]
            if name in found:
                raise ValueError(f"{found[name]} and {file} would both be called {name!r}: rename one of them")
            found[name] = file
        elif match and not file.exists():
            raise FileNotFoundError(f"{file} leads to nothing: bring back what it links to, or remove it")
    if not found:
        raise ValueError(f"data.path={str(root)!r} holds no file NAME.tsv, .tsv.gz, .tsv.xz or .tsv.zst")
    for pattern in exclude:
        if not any(_fits(name, pattern) for name in found):
            raise ValueError(
                f"data.exclude={exclude}: {pattern!r} fits no file of {str(root)!r} ({', '.join(found)}): name its "
                "test files, or set data.exclude=[] where it has none"
            )
    tests = {name: file for name, file in found.items() if any(_fits(name, pattern) for pattern in exclude)}
    if asked := sorted(set(sources or []) & set(tests)):
        raise ValueError(
            f"data.sources={sources}: {', '.join(asked)} is a test file (data.exclude={exclude}) and is never trained "
            "on; leave it out"
        )
    if sources == []:
        told = f"name some of {', '.join(name for name in found if name not in tests)}, or null for all of them"
        raise ValueError(f"data.sources=[]: no file is named to train on; {told}")
    if unknown := sorted(set(sources or []) - set(found)):
        raise ValueError(f"data.sources={sources}: there is no {', '.join(unknown)}; the folder has {', '.join(found)}")
    files = {name: file for name, file in found.items() if name not in tests and (sources is None or name in sources)}
    if not files:
        raise ValueError(f"data.path={str(root)!r}: no file is left to train on; data.exclude={exclude} fits all")
    return files, tests


def _fits(name: str, pattern: str) -> bool:
    """Whether a file's name fits a pattern, in capital or small letters."""
    return fnmatchcase(name.casefold(), pattern.casefold())


def test_pairs(file: Path, asked: CorpusSettings, rules: Cleaning, report: Report) -> list[Pair]:
    """The pairs of a test file, whatever cleaning would say of them; where it simplifies, simplified ones, too."""
    found: dict[Pair, None] = {}
    columns = read_columns(file, **asked.reading, report=report, stage=f"{file.name} (test file)")
    for _, pair in chain.from_iterable(each.pairs() for each in columns):
        sides = [clean_side(text, language) for text, language in zip(pair, rules.languages, strict=False)]
        found[Pair(*sides)] = None
        both = zip(sides, rules.simplifies, strict=True)
        found[Pair(*(simplify(text) if simplifies else text for text, simplifies in both))] = None
    return list(found)


def check_test_pairs(file: Path, texts: Sequence[Pair], languages: tuple[str, str], report: Report) -> None:
    """Refuse (ValueError) a test file that is read wrongly and would protect nothing: without pairs, or with neither
    side in its language, as far as scripts tell. Held-out pairs of another corpus may share one side alone."""
    some = texts[:1000]
    in_script = [sum(is_in_script(pair[side], language) for pair in some) for side, language in enumerate(languages)]
    if 2 * max(in_script) <= len(some):
        raise ValueError(
            f"{file}: no side of this test file (data.exclude) is in its language ({languages[0]}, {languages[1]}), so "
            f"it would keep nothing out of training; what was read: {dict(report.counts[f'{file.name} (test file)'])}, "
            f"first {some[0][:2] if some else None}. Give it two columns in the order of the others, or take it out"
        )


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
