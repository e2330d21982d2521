"""Evaluations in W&B, read back from their offline runs and the dashboard's layout."""

import json
import re

import pytest

from duplexmt.evaluation.results import write_results
from duplexmt.tracking.artifacts import log_evaluation, pareto_rows
from duplexmt.tracking.dashboard import CHART_FIELDS, CHART_FILE, CHART_STRINGS, CURVES, workspace

from ..evaluation.test_results import OPTIONS, POINTS
from ..scripted import evaluated
from ..wandb_runs import finished_run


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """The folder of an evaluation, its scores, and what its offline run holds."""
    folder = tmp_path_factory.mktemp("evaluation")
    evaluated(folder, POINTS)
    scores, _, _ = write_results([folder], folder, **OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        logger = {"offline": True, "project": "test", "artifacts": True}
        names = {"name": "evaluation", "group": "theta-sweep", "settings": {"split": "test"}}
        log_evaluation(scores, folder, "six sentences", logger=logger, **names)
    return folder, scores, finished_run(folder)


def test_an_evaluation_is_a_run_of_its_own_in_the_sweeps_group(evaluation):
    _, _, run = evaluation
    assert (run.project, run.group, run.job_type, run.name) == ("test", "theta-sweep", "evaluate", "evaluation")
    assert run.config["split"] == "test"
    assert run.finished


def test_every_system_and_setting_is_a_line_of_history_and_a_point_of_the_chart(evaluation):
    _, scores, run = evaluation
    logged = [line for line in run.history if "results/BLEU" in line]
    for line, entry in zip(logged, scores, strict=True):
        for name in ("BLEU", "chrF", "AL", "AL_all", "AP", "FRL"):
            assert line[f"results/{name}"] == pytest.approx(entry.row[name])
    assert [line.get("results/theta") for line in logged] == [None, 0.5, 0.9]
    rows = run.rows("pareto_table")
    assert [(row["system"], row["setting"]) for row in rows] == [(e.system, e.setting) for e in scores]
    assert all(row["BLEU low"] <= row["BLEU"] <= row["BLEU high"] for row in rows)
    assert rows == pareto_rows(scores)
    chart = run.config["_wandb"]["visualize"]["pareto"]["panel_config"]
    assert chart["fieldSettings"] == {"x": "AL", "y": "BLEU"}
    assert "pareto_table" in json.dumps(chart["userQuery"])


def test_tables_figure_and_files_are_there_too(evaluation):
    folder, scores, run = evaluation
    assert [row["setting"] for row in run.rows("results/table")] == [entry.setting for entry in scores]
    assert run.rows("results/latency")
    assert run.file(run.last("results/pareto")).read_bytes() == (folder / "pareto.png").read_bytes()
    (artifact,) = [artifact for artifact in run.artifacts if artifact["type"] == "results"]
    assert artifact["name"] == "results-six-sentences"
    assert {"hypotheses.jsonl", "results.json", "pareto.pdf"} <= set(artifact["files"])
    assert set(artifact["files"].values()) == {str(folder / name) for name in artifact["files"]}


def test_without_an_account_the_error_says_how_to_log_it_later(evaluation, tmp_path, monkeypatch):
    import wandb

    def refuses(**_):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", refuses)
    logger = {"offline": False, "project": "test", "artifacts": True}
    with pytest.raises(
        ValueError, match=r"No API key configured.*rescore=\S+ logger=wandb logger.offline=true logs it here"
    ):
        log_evaluation(evaluation[1], tmp_path, "x", logger=logger, name="x", group=None, settings={})


def test_the_chart_asks_for_columns_that_are_logged_and_the_layout_for_the_chart(evaluation):
    _, _, run = evaluation
    chart = CHART_FILE.read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{field:(\w+)\}", chart)) == set(CHART_FIELDS)
    assert set(re.findall(r"\$\{string:(\w+)\}", chart)) == set(CHART_STRINGS)
    assert set(CHART_FIELDS.values()) <= run.rows("pareto_table")[0].keys()
    shown = json.dumps(workspace("me", "duplexmt")._to_model().model_dump(mode="json", by_alias=True))
    for name in ("me/duplexmt-pareto", "pareto_table", "probes/1-heatmap", "probes/2-grid-output", "results/table"):
        assert name in shown
    for metrics in CURVES.values():
        assert all(metric in shown for metric in metrics)
