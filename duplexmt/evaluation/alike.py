"""Scores of test sentences apart by how like they are to what a model was trained on: `likeness.json`, `relatives`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.relatives import RELATED

from ..common.files import write_whole
from ..corpus.overlap import LEAST
from .scores import Scores
from .translation import Record

LIKENESS = "likeness.json"
BANDS = {  # name of each: whether a likeness is in it
    f"< {RELATED:g}": lambda value: value < RELATED,
    f"< {LEAST:g}": lambda value: value < LEAST,
    f"{LEAST:g} to {RELATED:g}": lambda value: LEAST <= value < RELATED,
    f"≥ {RELATED:g}": lambda value: value >= RELATED,
}
SHOWN = list(BANDS)[:2]
MEASURED = ("sentences", "BLEU", "AL")


def read_likeness(folder: Path, sentences: int) -> dict[str, list[float] | None]:
    """For each model folder of an evaluation how like each test sentence is to its training pairs; None where these
    could not all be read. Others were not looked at.

    Raises:
        ValueError: the file is damaged, or of another number of sentences.
    """
    if not (folder / LIKENESS).is_file():
        return {}
    try:
        known = json.loads((folder / LIKENESS).read_text(encoding="utf-8"))
        if any(values is not None and len(values) != sentences for values in known.values()):
            raise ValueError("of another test set")
        return known
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{folder / LIKENESS} is damaged ({error}): remove it, and resume the evaluation") from error


def write_likeness(folder: Path, model_folder: Path, likeness: Sequence[float] | None, sentences: int) -> None:
    """Add those of a model."""
    rounded = likeness and [round(value, 4) for value in likeness]
    write_whole(folder / LIKENESS, json.dumps(read_likeness(folder, sentences) | {str(model_folder): rounded}) + "\n")


def scored_apart(
    records: Sequence[Record], likeness: Sequence[float] | None, scored: Callable[[list[Record]], Mapping[str, Any]]
) -> dict[str, Any]:
    """What is measured of the sentences in each band, by column, such as `BLEU < 0.5`; None where nothing is known.

    Args:
        records: in the order of the test set.
        likeness: of each sentence to the model's training pairs; None where that is not known.
        scored: the columns of some records.
    """
    columns: dict[str, Any] = {}
    for band, inside in BANDS.items():
        chosen = [record for record, value in zip(records, likeness or [], strict=False) if inside(value)]
        found = scored(chosen) if chosen else {}
        columns |= {f"{name} {band}": found.get(name) for name in MEASURED}
        if likeness is not None:
            columns[f"sentences {band}"] = len(chosen)
    return columns


def relatives_rows(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """The table `relatives`; empty where nothing is known of any model."""
    names = [f"{name} {band}" for band in BANDS for name in MEASURED]
    columns = [*MEASURED, *names]
    if not any(entry.row.get(name) is not None for entry in scores for name in names):
        return []
    return [
        {"system": entry.system, "setting": entry.setting} | {name: entry.row.get(name) for name in columns}
        for entry in scores
    ]


def shown(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns for a terminal: all sentences, and those without relatives."""
    names = [f"{name} {band}" for band in SHOWN for name in MEASURED]
    return [{name: row[name] for name in ("system", "setting", *MEASURED, *names)} for row in rows]
