"""The files of a folder of corpora: which to use, and which are test files (`pairs_folder`)."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from data_prep import Report, clean_side, read_pairs
from data_prep.cleaning import Cleaning, simplify
from data_prep.reading import Pair
from data_prep.splitting import Texts

_NAME = re.compile(r"(?P<name>[^.]+)\.(?:.*\.)?tsv(?:\.gz|\.zst)?")


def corpus_files(
    root: Path, sources: list[str] | None, exclude: Sequence[str]
) -> tuple[dict[str, Path], dict[str, Path]]:
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
    if not found:
        raise ValueError(f"data.path={str(root)!r} holds no file NAME.tsv, .tsv.gz or .tsv.zst")
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in found):
            raise ValueError(
                f"data.exclude={list(exclude)}: {pattern!r} fits no file of {str(root)!r} ({', '.join(found)}): name "
                "its test files, or set data.exclude=[] where it has none"
            )
    tests = {name: file for name, file in found.items() if any(fnmatchcase(name, pattern) for pattern in exclude)}
    if asked := sorted(set(sources or []) & set(tests)):
        raise ValueError(
            f"data.sources={sources}: {', '.join(asked)} is a test file (data.exclude={list(exclude)}) and is never "
            "trained on; leave it out"
        )
    if unknown := sorted(set(sources or []) - set(found)):
        raise ValueError(f"data.sources={sources}: there is no {', '.join(unknown)}; the folder has {', '.join(found)}")
    files = {name: file for name, file in found.items() if name not in tests and (sources is None or name in sources)}
    if not files:
        raise ValueError(f"data.path={str(root)!r}: no file is left to train on; data.exclude={list(exclude)} fits all")
    return files, tests


def test_texts(
    file: Path,
    *,
    source_field: int | str,
    target_field: int | str,
    cleaning: Cleaning,
    report: Report,
    context_separator: str | None,
) -> Texts:
    """The texts of a test file, whatever cleaning would say of its pairs; where it simplifies, simplified ones, too."""
    texts = Texts()
    fields = {"source_field": source_field, "target_field": target_field, "context_separator": context_separator}
    of_source, of_target = cleaning.simplifies
    pairs = read_pairs(str(file), **fields, report=report, stage=f"{file.name} (test file)")  # type: ignore[arg-type]
    for pair in pairs:
        source = clean_side(pair.source, cleaning.source_language)
        target = clean_side(pair.target, cleaning.target_language)
        texts.add([Pair(source, target)])
        texts.add([Pair(simplify(source) if of_source else source, simplify(target) if of_target else target)])
    return texts


test_texts.__test__ = False  # type: ignore[attr-defined]  # no test, whatever pytest thinks
