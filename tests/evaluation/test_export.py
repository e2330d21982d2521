"""The logs that SimulEval and OmniSTEval read: what they make of them is what our tables say."""

import csv
import json
import subprocess

import pytest

from duplexmt.evaluation.export import export
from duplexmt.evaluation.results import score, write_results
from duplexmt.evaluation.translation import translate_pairs

from ..helpers import METRICS_PYTHON, as_pairs, needs_metrics_environment, tiny_tokenizer
from ..scripted import Scripted, evaluated, point, records
from .test_results import OPTIONS, POINTS

NAMES = {"AL": "AL", "LAAL": "LAAL", "YAAL": "YAAL", "AP": "AP", "DAL": "DAL"}
SWF = "Simultaneous Words Fraction (%)"


def run(folder, command, point):
    """Run a command that an evaluation names; what it has written into a table, by its own names."""
    name, *arguments = command.replace("POINT", point).split()
    into = ["--output_folder", "scored"] if name == "omnisteval" else []
    done = subprocess.run(
        [METRICS_PYTHON.parent / name, *arguments, *into], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    if name == "simuleval":
        *_, names, values = done.stdout.splitlines()
        return dict(zip(names.split(), values.split()[1:], strict=True))
    with open(folder / "scored" / "scores.tsv", encoding="utf-8") as lines:
        return {row["metric"]: row["value"] for row in csv.DictReader(lines, delimiter="\t")}


def check_simuleval(theirs, ours):
    """Their three decimals against a row of ours."""
    expected = {name: ours[f"{name} c/w"] for name in ("AL", "LAAL", "AP", "DAL")} | {"BLEU": ours["BLEU"]}
    expected["StartOffset"] = ours["FRL c/w"]
    assert {name: float(value) for name, value in theirs.items()} == pytest.approx(expected, abs=6e-4)


def check(theirs, ours):
    """Their four decimals against a row of ours."""
    expected = {f"{name} (CU)": ours[f"{name} c/w"] for name in NAMES} | {SWF: ours["SWF c/w"]}
    expected |= {f"{name} (CA)": ours[f"{name}_CA c/w"] for name in ("AL", "LAAL", "YAAL")}
    expected |= {"BLEU": ours["BLEU"], "chrF": ours["chrF"]}
    expected = {name: float("nan") if value is None else value for name, value in expected.items()}
    assert {name: float(theirs[name]) for name in expected} == pytest.approx(expected, abs=6e-5, nan_ok=True)


@needs_metrics_environment
@pytest.mark.slow
def test_simuleval_and_omnisteval_report_what_the_tables_say_of_each_point(tmp_path):
    evaluated(tmp_path, POINTS)
    scores, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS | {"source_rate": 0.2}, logs=True)
    simuleval, omnisteval = (line.partition(" by ")[2] for line in shown.splitlines() if line.startswith("What is c/w"))
    names = {("grid", 0.5): "01-grid-0.5", ("grid", 0.9): "02-grid-0.9", ("offline", None): "03-offline"}
    assert sorted(path.parent.name for path in (tmp_path / "logs").glob("*/*.log")) == sorted(names.values())
    for entry in scores:
        name = names[entry.point.system, entry.point.setting]
        check(run(tmp_path, omnisteval, name), entry.row)
        check_simuleval(run(tmp_path, simuleval, name), entry.row)
        written_early = entry.point.system == "grid"
        assert (entry.row["YAAL c/w"] is not None) == (entry.row["YAAL_CA c/w"] is not None) == written_early


@needs_metrics_environment
@pytest.mark.slow
def test_characters_are_counted_where_the_target_has_no_spaces(tmp_path):
    pairs = [("a cat", "人好"), ("the man sat", "我们是人"), ("a man", "我是人")]
    script = [("人好", [1, 1, 1, 5], "end_token"), ("我们人是人", [2, 3, 5, 8, 11], "end_token"), ("", [], "end_token")]
    found = translate_pairs(Scripted(tiny_tokenizer(), script), as_pairs(pairs), tiny_tokenizer())
    simuleval, omnisteval = export({"p": point()}, {"p": found}, "en", "zh", 4.0, tmp_path / "files")
    assert "--char_level --bleu_tokenizer zh" in omnisteval
    row = score(found, "en", "zh", source_rate=4.0).row
    check(run(tmp_path, omnisteval, "01-grid-0.5"), row)
    check_simuleval(run(tmp_path, simuleval, "01-grid-0.5"), row)


def test_a_line_has_a_delay_and_a_time_for_each_word_and_an_export_leaves_no_old_files(tmp_path):
    (tmp_path / "logs" / "09-old").mkdir(parents=True)
    (tmp_path / "logs" / "09-old" / "instances.log").touch()
    (tmp_path / "logs" / "02-offline").mkdir()  # of one that was killed
    points = {"a": point("waitk", 3), "b": point("offline", None)}
    export(points, {"a": records(), "b": records()}, "zh", "en", 2.0, tmp_path / "logs")
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["01-waitk-3", "02-offline", "references.txt"]
    lines = (tmp_path / "logs" / "01-waitk-3" / "instances.log").read_text(encoding="utf-8").splitlines()
    first, empty = map(json.loads, lines)
    # "a" after 人 and half a second, "cat" after 人好 and 2.5 seconds, at two characters a second.
    assert (first["prediction"], first["delays"], first["elapsed"]) == ("a cat", [1, 2], [2, 7])
    assert (first["source"], first["source_length"], first["reference"]) == (["人好"], 2, "a cat")
    assert (empty["prediction"], empty["delays"], empty["elapsed"]) == ("", [], [])
    assert (tmp_path / "logs" / "references.txt").read_text(encoding="utf-8") == "a cat\nthe man\n"


def test_points_of_several_models_or_rules_are_told_apart_by_their_folders(tmp_path):
    models = [point("grid", 0.5, f"runs/{name}/model", name) for name in ("ours", "paper")]
    points = dict(enumerate([*models, point("grid", 0.5, "runs/ours/model", k_min=3), point("offline", None)]))
    export(points, dict.fromkeys(points, records()), "zh", "en", 2.0, tmp_path)
    names = sorted(path.parent.name for path in tmp_path.glob("*/*.log"))
    assert names == ["01-grid-0.5-ours", "02-grid-0.5-paper", "03-grid-0.5-k_min_3-ours", "04-offline"]


def test_nothing_is_exported_unless_asked_for(tmp_path):
    evaluated(tmp_path, POINTS[:1])
    for logs in (False, True, False):
        _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS, logs=logs)
        assert ("simuleval" in shown) is logs
        assert {path.name for path in tmp_path.glob("logs/*")} == {*["01-grid-0.5", "references.txt"] * logs}
