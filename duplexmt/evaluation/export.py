"""Hypotheses as SimulEval 1.1.4 logs and OmniSTEval 0.1.10 reads them, in the units of the columns marked `c/w`."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..metrics.latency import computation_aware_delays, in_units
from ..metrics.quality import bleu_tokenizer
from ..metrics.units import text_unit
from .decoding import TOLD_LENGTH, Point
from .scores import differing_options, run_of
from .translation import Record

LOG, REFERENCES = "instances.log", "references.txt"


def export(
    points: Mapping[str, Point],
    records: Mapping[str, Sequence[Record]],
    source_language: str,
    target_language: str,
    source_rate: float,
    folder: Path,
) -> list[str]:
    """Write a folder for each point, as SimulEval leaves one behind, and the first references, a line each.

    A line of `instances.log` has `prediction`, `delays` (units of source read before each unit of target), `elapsed`
    (the same with computing time, the source arriving at `source_rate`) and `source_length`. Both tools call source
    units milliseconds: only warnings depend on that. Where the target is counted in characters, both count the spaces
    of a reference, too; we count none.

    Args:
        source_rate: units of the source a second.
        folder: where to; points of an earlier export go.

    Returns:
        The commands that score a point, SimulEval's and OmniSTEval's, to be run beside the folder.
    """
    source_unit, target_unit = text_unit(source_language), text_unit(target_language)
    clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, (key, point) in enumerate(points.items(), start=1):
        setting = [] if point.setting is None else [f"{point.setting:g}"]
        told = ["told-lengths"] if point.options.get(TOLD_LENGTH) else []
        models = {other.model_folder for other in points.values() if other.system == point.system}
        model = [run_of(point.model_folder, models)] if len(models) > 1 else []
        options = differing_options(point, [*points.values()])
        name = re.sub(r"[^\w.-]", "_", "-".join([f"{number:02d}", point.system, *setting, *options, *told, *model]))
        timed = in_units(records[key], source_unit, target_unit, source_rate)
        lines = [
            {
                "index": index,
                "source": [record["source"]],
                "source_length": length,
                "prediction": _one_line(record["text"]),
                "prediction_length": len(delays),
                "reference": _one_line(record["references"][0]),
                "delays": delays,
                "elapsed": computation_aware_delays(delays, elapsed, rate),
            }
            for index, (record, (delays, elapsed, length, _, rate)) in enumerate(
                zip(records[key], zip(*timed, strict=True), strict=True)
            )
        ]
        (folder / name).mkdir(exist_ok=True)
        _write(folder / name / LOG, [json.dumps(line, ensure_ascii=False) for line in lines])
        _write(folder / name / "config.yaml", ["source_type: text", "target_type: text"])
        _write(folder / REFERENCES, [line["reference"] for line in lines])
    level, tokenizer = "word" if target_unit == "word" else "char", bleu_tokenizer(target_language)
    return [
        f"simuleval --score-only --output {folder.name}/POINT --eval-latency-unit {level} --sacrebleu-tokenizer "
        f"{tokenizer} --latency-metrics AL LAAL AP DAL StartOffset",
        f"omnisteval shortform --{level}_level --bleu_tokenizer {tokenizer} --ref_sentences_file "
        f"{folder.name}/{REFERENCES} --hypothesis_file {folder.name}/POINT/{LOG}",
    ]


def clear(folder: Path) -> None:
    """Remove what an earlier export has left."""
    for old in folder.glob(f"*/{LOG}"):
        shutil.rmtree(old.parent)
    (folder / REFERENCES).unlink(missing_ok=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _write(path: Path, lines: Sequence[object]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
