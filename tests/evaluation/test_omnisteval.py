"""The files that OmniSTEval reads: what it makes of them is what our tables say."""

import csv
import json
import subprocess

import pytest

from duplexmt.evaluation.omnisteval import export
from duplexmt.evaluation.results import write_results
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs

from ..helpers import METRICS_PYTHON, as_pairs, needs_metrics_environment, tiny_tokenizer
from ..scripted import Scripted, evaluated, point, records
from .test_results import OPTIONS, POINTS

NAMES = {"AL": "AL", "LAAL": "LAAL", "YAAL": "YAAL", "AP": "AP", "DAL": "DAL"}
SWF = "Simultaneous Words Fraction (%)"


def omnisteval(folder, command, file):
    """Run the command an evaluation names; what OmniSTEval reports, by its own names."""
    command = command.replace("FILE", file).split()
    command[0] = str(METRICS_PYTHON.parent / command[0])
    done = subprocess.run(
        [*command, "--output_folder", "scored"], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    with open(folder / "scored" / "scores.tsv", encoding="utf-8") as lines:
        return {row["metric"]: row["value"] for row in csv.DictReader(lines, delimiter="\t")}


def check(theirs, ours):
    """Their four decimals against a row of ours."""
    expected = {f"{name} (CU)": ours[f"{name} c/w"] for name in NAMES} | {SWF: ours["SWF c/w"]}
    expected |= {f"{name} (CA)": ours[f"{name}_CA c/w"] for name in ("AL", "LAAL", "YAAL")}
    expected |= {"BLEU": ours["BLEU"], "chrF": ours["chrF"]}
    expected = {name: float("nan") if value is None else value for name, value in expected.items()}
    assert {name: float(theirs[name]) for name in expected} == pytest.approx(expected, abs=6e-5, nan_ok=True)


@needs_metrics_environment
@pytest.mark.slow
def test_omnisteval_reports_what_the_tables_say_of_each_point(tmp_path):
    evaluated(tmp_path, POINTS)
    scores, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS | {"source_rate": 0.2}, omnisteval=True)
    (command,) = (line.partition(": ")[2] for line in shown.splitlines() if line.startswith("OmniSTEval"))
    files = {("grid", 0.5): "01-grid-0.5", ("grid", 0.9): "02-grid-0.9", ("offline", None): "03-offline"}
    assert sorted(path.stem for path in (tmp_path / "omnisteval").glob("*.jsonl")) == sorted(files.values())
    for entry in scores:
        check(omnisteval(tmp_path, command, files[entry.point.system, entry.point.setting]), entry.row)
        written_early = entry.point.system == "grid"
        assert (entry.row["YAAL c/w"] is not None) == (entry.row["YAAL_CA c/w"] is not None) == written_early


@needs_metrics_environment
@pytest.mark.slow
def test_omnisteval_counts_characters_where_the_target_has_no_spaces(tmp_path):
    pairs = [("a cat", "人好"), ("the man sat", "我们是人"), ("a man", "我是人")]
    script = [("人好", [1, 1, 1, 5], "end_token"), ("我们人是人", [2, 3, 5, 8, 11], "end_token"), ("", [], "end_token")]
    found = translate_pairs(Scripted(tiny_tokenizer(), script), as_pairs(pairs), tiny_tokenizer())
    command = export({"p": point()}, {"p": found}, "en", "zh", 4.0, tmp_path / "files")
    assert "--char_level --bleu_tokenizer zh" in command
    check(omnisteval(tmp_path, command, "01-grid-0.5"), score(found, "en", "zh", source_rate=4.0).row)


def test_a_line_has_a_delay_and_a_time_for_each_word_and_an_export_leaves_no_old_files(tmp_path):
    (tmp_path / "omnisteval").mkdir()
    (tmp_path / "omnisteval" / "09-old.jsonl").touch()
    points = {"a": point("waitk", 3), "b": point("offline", None)}
    export(points, {"a": records(), "b": records()}, "zh", "en", 2.0, tmp_path / "omnisteval")
    names = sorted(path.name for path in (tmp_path / "omnisteval").iterdir())
    assert names == ["01-waitk-3.jsonl", "02-offline.jsonl", "references.txt"]
    lines = (tmp_path / "omnisteval" / "01-waitk-3.jsonl").read_text(encoding="utf-8").splitlines()
    first, empty = map(json.loads, lines)
    # "a" after 人 and half a second, "cat" after 人好 and 2.5 seconds, at two characters a second.
    assert (first["prediction"], first["delays"], first["elapsed"]) == ("a cat", [1, 2], [2, 7])
    assert (first["source"], first["source_length"], first["reference"]) == (["人好"], 2, "a cat")
    assert (empty["prediction"], empty["delays"], empty["elapsed"]) == ("", [], [])
    assert (tmp_path / "omnisteval" / "references.txt").read_text(encoding="utf-8") == "a cat\nthe man\n"


def test_nothing_is_exported_unless_asked_for(tmp_path):
    evaluated(tmp_path, POINTS[:1])
    _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS)
    assert "omnisteval" not in shown
    assert not (tmp_path / "omnisteval").exists()
