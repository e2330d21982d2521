"""Anticipation and hallucination of hypotheses: records through the aligner of the metrics environment."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..common.pair import Pair
from ..corpus.evaluation_files import read_evaluation_file, simplifies_sources
from ..metrics.alignment import WordPair, anticipation_rate, hallucination_rate, word_alignments
from ..metrics.latency import delays_in_units
from ..metrics.units import Unit, split_units, text_unit
from .translation import Record

REFERENCES = "references"  # learnt from alone


def check_learnt(learn_from: str | None) -> None:
    """Refuse, before anything is decoded, to learn from a file that is not there.

    Raises:
        ValueError: for such a file.
    """
    if learn_from not in (None, REFERENCES) and not Path(learn_from).exists():
        raise ValueError(
            f"quality.alignment={learn_from}: there is no such file; give pairs that the aligner can learn from, best "
            f"those that models were trained on, or quality.alignment={REFERENCES}"
        )


def aligned_rates(
    records: Mapping[str, Sequence[Record]],
    source_language: str,
    target_language: str,
    learn_from: str | None,
    environment: str,
    trained_on: Sequence[Mapping[str, Any]] = (),
) -> tuple[dict[str, dict[str, float | None]], list[str], list[str]]:
    """AR and HR of each point. Texts are cut into words and marks; characters, where a language has no spaces.

    Args:
        records: of each point, all of one test set.
        learn_from: a file of pairs that the aligner learns from, with the test set's references; `references`: from
            these alone; None: nothing is aligned.
        environment: see `metrics.alignment.word_alignments`.
        trained_on: see `learnt_pairs`.

    Returns:
        Rates by point, notes, and what could not be aligned and why.
    """
    found: dict[str, dict[str, float | None]] = {key: {} for key in records}
    if learn_from is None:
        return found, [], []
    languages = source_language, target_language
    units: tuple[Unit, Unit] = (_unit(source_language), _unit(target_language))
    words = partial(words_of, languages=languages)
    try:
        first = next(iter(records.values()))
        references = [words(record["source"], reference) for record in first for reference in record["references"]]
        further = [] if learn_from == REFERENCES else learnt_pairs(learn_from, languages, trained_on)
        learnt = [*references, *(words(pair.source, pair.target) for pair in further)]
        hypotheses = [words(record["source"], record["text"]) for lines in records.values() for record in lines]
        alignments, aligner = word_alignments(learnt, [*hypotheses, *references], environment)
    except (ValueError, OSError) as error:
        return found, ["AR, HR: not aligned"], [f"quality.alignment={learn_from}: {error}"]
    rest = iter(alignments)
    for key, lines in records.items():
        own = [next(rest) for _ in lines]
        delays = [delays_in_units(record, *units) for record in lines]
        found[key] = {"AR": anticipation_rate(delays, own), "HR": hallucination_rate(own)}
    note = (
        f"AR: words written before the source word they belong to was read, HR: words that belong to none, both in % "
        f"({aligner}, learnt from {len(learnt)} pairs; of the references {hallucination_rate(list(rest)):.1f} % belong "
        "to none)"
    )
    return found, [note], []


def words_of(source: str, target: str, languages: tuple[str, str]) -> WordPair:
    """A pair as the aligner takes it: words and marks in lower case, characters where a language has no spaces."""
    cut = [split_units(text, _unit(code)) for text, code in zip((source, target), languages, strict=True)]
    return WordPair(*([word.lower() for word in words] for words in cut))  # cut first: "İ".lower() is two characters


def learnt_pairs(file: str, languages: tuple[str, str], trained_on: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """The pairs of a file that the aligner learns from, read and cleaned as a test set of these models is.

    Args:
        file: best the one that models were trained on.
        trained_on: data settings that model folders record: columns or fields are those of the first, sources may
            hold the sentence before if one model reads that. Without any, source and target are columns 0 and 1.

    Raises:
        ValueError: what `read_evaluation_file` refuses.
    """
    first: Mapping[str, Any] = next(iter(trained_on), {})
    data = {"source_field": first.get("source_field", 0), "target_field": first.get("target_field", 1)}
    data |= {"source_language": languages[0], "target_language": languages[1]}
    separators = [own["context_separator"] for own in trained_on if own.get("context_tokens")]
    try:
        pairs, _ = read_evaluation_file(
            file, data, separators[0] if separators else None, any(map(simplifies_sources, trained_on))
        )
    except ValueError as error:
        raise ValueError(
            f"{error} (the aligner reads fields {data['source_field']} and {data['target_field']}, as the models' "
            "training did: give a file that is laid out so)"
        ) from error
    return pairs


def _unit(language: str) -> Unit:
    return "piece" if text_unit(language) == "word" else "character"
