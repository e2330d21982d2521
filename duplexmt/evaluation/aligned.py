"""Anticipation and hallucination of hypotheses: records through the aligner of the metrics environment."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from data_prep import Report, clean_side, read_pairs

from ..metrics.alignment import WordPair, anticipation_rate, hallucination_rate, word_alignments
from ..metrics.units import Unit, split_units, text_unit
from .timed import delays_in_units
from .translation import Record

REFERENCES = "references"  # learnt from alone


def check_learnt(learn_from: str | None) -> None:
    """Refuse, before anything is decoded, to learn from a file that is not there.

    Raises:
        ValueError: for such a file.
    """
    if learn_from not in (None, REFERENCES) and not Path(learn_from).exists():
        raise ValueError(
            f"quality.alignment={learn_from}: there is no such file; give pairs (TSV: source, target) that the aligner "
            f"can learn from, best those that models were trained on, or quality.alignment={REFERENCES}"
        )


def aligned_rates(
    records: Mapping[str, Sequence[Record]],
    source_language: str,
    target_language: str,
    learn_from: str | None,
    environment: str,
) -> tuple[dict[str, dict[str, float | None]], list[str], list[str]]:
    """AR and HR of each point. Texts are cut into words and marks; characters, where a language has no spaces.

    Args:
        records: of each point, all of one test set.
        source_language, target_language: codes.
        learn_from: a file of pairs that the aligner learns from, with the test set's references; `references`: from
            these alone; None: nothing is aligned.
        environment: see `metrics.alignment.word_alignments`.

    Returns:
        Rates by point, notes, and what could not be aligned and why.
    """
    found: dict[str, dict[str, float | None]] = {key: {} for key in records}
    if learn_from is None:
        return found, [], []
    units: tuple[Unit, Unit] = (_unit(source_language), _unit(target_language))
    words = partial(words_of, languages=(source_language, target_language))
    try:
        first = next(iter(records.values()))
        references = [words(record["source"], reference) for record in first for reference in record["references"]]
        learnt = [*references, *(words(*pair) for pair in _pairs(learn_from, source_language))]
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


def _pairs(path: str, source_language: str) -> list[tuple[str, str]]:
    """The pairs of a file, sources cleaned as those of a test set."""
    if path == REFERENCES:
        return []
    return [(clean_side(pair.source, source_language), pair.target) for pair in read_pairs(path, report=Report())]


def _unit(language: str) -> Unit:
    return "piece" if text_unit(language) == "word" else "character"
