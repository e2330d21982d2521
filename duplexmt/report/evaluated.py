"""Evaluations as the report reads them: tables, figure, hypotheses, and the model they were made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drawing.table import read_json
from ..evaluation.decoding import DECODING, Decoding, Point, model_digest
from ..evaluation.results import evaluations_in
from ..evaluation.scores import name_points
from ..evaluation.translation import Record
from ..model_folder.manifest import read_manifest
from .page import Figure, Results

TABLES = {  # file: what is put before its caption
    "results": "Quality and latency: ",
    "latency": "Latency in model tokens and in the units of the languages: ",
    "relatives": "",
    "comparisons": "",
    "latencies": "",
    "curves": "",
    "claims": "",
}
FIGURES = {  # file: its caption
    "pareto": "Quality against latency (fig:al-bleurt).",
    "latencies": "Quality against AL, YAAL and SWF, in model tokens and in the units of the languages.",
}


@dataclass
class Evaluated:
    """Hypotheses of one point."""

    point: Point
    name: str
    folder: str  # of the evaluation, resolved
    records: list[Record]
    test: Mapping[str, Any]


def holds_evaluations(folder: Path) -> bool:
    """Whether a folder is an evaluation, or holds some."""
    return (folder / DECODING).is_file() or any(folder.glob(f"*/{DECODING}"))


def read_evaluation(folder: Path) -> tuple[Results, list[Evaluated]]:
    """Tables, figure and hypotheses of an evaluation, or of a sweep of them.

    Raises:
        ValueError: for a folder without evaluation, or damaged files.
    """
    parts = evaluations_in([folder], "--results ")
    tables: list[dict[str, Any]] = []
    for file, what in TABLES.items():
        if (path := folder / f"{file}.json").is_file():
            table, told = read_json(path), {note for earlier in tables for note in earlier["footnotes"]}
            footnotes = [note for note in table["footnotes"] if note not in told]
            tables.append(table | {"caption": what + table["caption"] or file, "footnotes": footnotes})
    alt = "Quality against latency, with 95 % intervals; the numbers are in the tables below."
    drawn = {folder / f"{name}.svg": caption for name, caption in FIGURES.items()}
    figures = [Figure(path.read_bytes(), alt, caption) for path, caption in drawn.items() if path.is_file()]
    notes, evaluated = [], []
    for part in parts:
        decoding = Decoding.read(part)
        if not decoding.complete:
            notes.append(f"{part.resolve().name} is not finished: go on with python evaluate.py resume={part}")
            continue
        names = name_points(list(decoding.points.values()))
        for (key, point), name in zip(decoding.points.items(), names, strict=True):
            label = " ".join(name).removesuffix(" —")
            evaluated.append(Evaluated(point, label, str(part.resolve()), decoding.sorted(key), decoding.test))
    if not tables and not notes:
        notes.append(f"{folder.resolve().name} has no tables: python evaluate.py rescore={folder} writes them.")
    return Results(folder.resolve().name, tables, figures, notes), evaluated


def model_of(evaluated: Sequence[Evaluated], notes: list[str]) -> Path | None:
    """The model an evaluation was made with, if its folder is still whole and the same; a grid before others."""
    why = ""
    for entry in sorted(evaluated, key=lambda entry: entry.point.system != "grid"):
        folder = Path(entry.point.model_folder)
        try:
            if model_digest(folder, read_manifest(folder)) == entry.point.model:
                return folder
        except ValueError as error:  # all but the viewer can be shown
            why = f" ({error})"
    if evaluated:
        notes.append(f"The model of the evaluation is no longer there, or another one by now: there is no viewer{why}.")
    return None


def point_for_examples(evaluated: Sequence[Evaluated], model: str | None, notes: list[str]) -> Evaluated | None:
    """The point to take examples from: this model's, of the grid if there is one, in the middle of its settings."""
    own = [entry for entry in evaluated if entry.point.model == model]
    if model is not None and evaluated and not own:
        notes.append("The evaluation holds no translations of this model: its examples are another model's.")
    candidates = own or evaluated
    candidates = [entry for entry in candidates if entry.point.system == "grid"] or candidates
    candidates = sorted((e for e in candidates if e.records), key=lambda entry: entry.point.setting or 0)
    return candidates[len(candidates) // 2] if candidates else None
