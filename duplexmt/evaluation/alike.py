"""Scores of test sentences apart by how like they are to what a model was trained on: `likeness.json`, `relatives`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.relatives import RELATED

from ..common.files import write_whole
from ..corpus.overlap import LEAST
from ..metrics.latency import mean_of_known
from ..metrics.quality import Statistics
from .scores import Scores

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
    likeness: Sequence[float] | None, bleu: Statistics, lags: Sequence[float | None]
) -> dict[str, float | None]:
    """What is measured of the sentences in each band, by column, such as `BLEU < 0.5`; None where nothing is known.

    Args:
        likeness: of each sentence to the model's training pairs; None where that is not known.
        bleu, lags: the statistics of all sentences, and the AL of each.
    """
    columns: dict[str, float | None] = {}
    for band, inside in BANDS.items():
        chosen = [index for index, value in enumerate(likeness or []) if inside(value)]
        measured = (
            None if likeness is None else len(chosen),
            Statistics(bleu.metric, bleu.table[chosen]).score() if chosen else None,
            mean_of_known([lags[index] for index in chosen]),
        )
        columns |= {f"{name} {band}": value for name, value in zip(MEASURED, measured, strict=True)}
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
