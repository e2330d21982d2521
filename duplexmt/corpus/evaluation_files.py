"""Test files: whole and in order, sources cleaned as a model's training cleaned them."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from data_prep.cleaning import Cleaning, check_order, simplify
from data_prep.preparation import preset
from data_prep.reading import read_columns
from data_prep.report import Report
from data_prep.rules import clean_side

from ..common.pair import Pair
from ..common.text import check_language


def simplifies_sources(data: Mapping[str, Any]) -> bool:
    """Whether cleaning simplified training sources, as the settings of a corpus in a model folder say."""
    if data.get("corpus") not in ("pairs_folder", "wmt21_zhen"):  # cleaned by other rules than the paper's, if asked
        return False
    languages = data["source_language"], data["target_language"]
    return Cleaning(*languages, **preset("cleaning", data.get("cleaning", "paper"))).simplifies[0]


def clean_source(text: str, data: Mapping[str, Any]) -> str:
    """A sentence as somebody gives it, cleaned as a model's training cleaned its own; see `simplifies_sources`."""
    clean = clean_side(text, data["source_language"])
    return simplify(clean) if simplifies_sources(data) else clean


def read_evaluation_file(
    path: str, data: Mapping[str, Any], separator: str | None = None, simplified: bool = False
) -> tuple[list[Pair], Report]:
    """The pairs of a test set, whole and in order: sources are cleaned as in training, references left as they are.

    `data` has the fields and languages of both sides, as a corpus's settings have them. With `simplified`, which
    `simplifies_sources` tells of a model, traditional characters of sources, too. Lines that are no pair (empty,
    one-sided, not UTF-8, …) are left out and reported. `separator`: see `reading.read_columns`.

    Raises:
        ValueError: for a missing file, an unknown format, encoding or language, swapped columns, or a file without any
            pair.
    """
    languages = data["source_language"], check_language(data["target_language"])
    fields = {name: data[name] for name in ("source_field", "target_field")}
    how: dict[str, Any] = fields | {"context_separator": separator, "languages": languages}
    report = Report()
    pairs: list[Pair] = []
    columns = read_columns(path, **how, report=report, stage="evaluation.read")
    for place, raw in chain.from_iterable(each.pairs() for each in columns):
        texts = [clean_side(text, languages[0]) for text in (raw.source, raw.before)]
        source, before = map(simplify, texts) if simplified else texts
        if source and raw.target.strip():
            pairs.append(Pair(source, raw.target.strip(), before))
        else:  # nothing but invisible characters
            report.add_example("evaluation.clean", "empty_side", f"{raw.source}\t{raw.target}", place)
    if not pairs:
        raise ValueError(
            f"{path} has no sentence pairs (source_field={data['source_field']}, target_field={data['target_field']}); "
            f"what became of its lines:\n{report.summary()}"
        )
    check_order(path, pairs, *languages)
    return pairs, report
