"""Hypotheses as OmniSTEval 0.1.10 reads them (`omnisteval shortform`), in the units of the columns marked `c/w`."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..metrics.latency import computation_aware_delays
from ..metrics.quality import bleu_tokenizer
from ..metrics.units import text_unit
from .decoding import TOLD, Point
from .timed import in_units
from .translation import Record

REFERENCES = "references.txt"


def export(
    points: Mapping[str, Point],
    records: Mapping[str, Sequence[Record]],
    source_language: str,
    target_language: str,
    source_rate: float,
    folder: Path,
) -> str:
    """Write a JSONL file for each point, and the first references, a line each.

    A line has `prediction`, `delays` (units of source read before each unit of target), `elapsed` (the same with
    computing time, the source arriving at `source_rate`) and `source_length`; the names are SimulEval's. OmniSTEval
    calls source units milliseconds: only its warnings depend on that. Where the target is counted in characters, it
    counts the spaces of a reference, too; we count none.

    Args:
        points, records: of each point.
        source_language, target_language: codes.
        source_rate: units of the source a second.
        folder: where to; JSONL files of an earlier export go.

    Returns:
        The command that scores them, to be run beside the folder.
    """
    source_unit, target_unit = text_unit(source_language), text_unit(target_language)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    for number, (key, point) in enumerate(points.items(), start=1):
        setting = "" if point.setting is None else f"-{point.setting:g}"
        told = "-told-lengths" if point.options.get(TOLD) else ""
        name = re.sub(r"[^\w.-]", "_", f"{number:02d}-{point.system}{setting}{told}.jsonl")
        timed = in_units(records[key], source_unit, target_unit, source_rate)
        lines = [
            {
                "index": index,
                "source": [record["source"]],
                "source_length": length,
                "prediction": _one_line(record["text"]),
                "reference": _one_line(record["references"][0]),
                "delays": delays,
                "elapsed": computation_aware_delays(delays, elapsed, rate),
            }
            for index, (record, (delays, elapsed, length, _, rate)) in enumerate(
                zip(records[key], zip(*timed, strict=True), strict=True)
            )
        ]
        _write(folder / name, [json.dumps(line, ensure_ascii=False) for line in lines])
        _write(folder / REFERENCES, [line["reference"] for line in lines])
    level = "--word_level" if target_unit == "word" else "--char_level"
    return (
        f"omnisteval shortform {level} --bleu_tokenizer {bleu_tokenizer(target_language)} "
        f"--ref_sentences_file {folder.name}/{REFERENCES} --hypothesis_file {folder.name}/FILE.jsonl"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _write(path: Path, lines: Sequence[object]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
