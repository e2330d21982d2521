"""What a finished evaluation shows: tables, comparisons, figure, claims; and what it refuses to put together."""

import json
import logging
import re

import pytest

from duplexmt.evaluation.decoding import TestSet
from duplexmt.evaluation.results import SCORED, evaluations_in, write_results

from ..metrics.test_neural import STAND_IN, stand_in
from ..scripted import TEST, evaluated, point

POINTS = [
    point("grid", 0.5, folder="none/grid/model"), point("grid", 0.9, folder="none/grid/model"),
    point("offline", None, folder="none/offline/model"),
]  # fmt: skip
OPTIONS = {
    "checkpoints": {"COMET": None, "BLEURT": None}, "environment": "none", "neural_batch_size": 8, "device": "cpu",
    "source_rate": 4.0, "resamples": 200,
}  # fmt: skip


def rows_of(folder, name="results"):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def verdicts(folder):
    return {row["claim"]: row["holds"] for row in rows_of(folder, "claims")}


def test_one_evaluation_becomes_tables_in_four_forms_comparisons_and_a_figure(tmp_path, figure, caplog):
    evaluated(tmp_path, POINTS)
    with caplog.at_level(logging.INFO):
        scores, shown, troubles = write_results([tmp_path], tmp_path, **OPTIONS)
    assert "scoring 18 translations" in caplog.messages, "which may take a while"
    assert troubles == []
    assert [(entry.system, entry.setting) for entry in scores] == [
        ("offline", "—"), ("grid", "θ=0.5"), ("grid", "θ=0.9")
    ]  # fmt: skip
    for name in ("results", "latency", "comparisons"):
        for suffix in ("md", "csv", "json"):
            assert (tmp_path / f"{name}.{suffix}").stat().st_size > 0
    assert "\\multirow{2}{*}{grid} & $\\theta=0.5$" in (tmp_path / "results.tex").read_text(encoding="utf-8")
    assert {(row["system"], row["against"]) for row in rows_of(tmp_path, "comparisons")} == {("grid", "offline")}
    assert (tmp_path / "pareto.pdf").is_file()
    assert (tmp_path / "latencies.png").is_file()
    assert "BLEU nrefs:1" in shown
    assert "six sentences, 6 sentences" in (tmp_path / "results.md").read_text(encoding="utf-8")
    assert not (tmp_path / "claims.md").exists()


def test_the_terminal_shows_the_columns_that_fit_and_the_files_all(tmp_path):
    evaluated(tmp_path, POINTS)
    _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS)
    caption, header, *_ = shown.splitlines()
    assert caption == "six sentences, 6 sentences"
    assert header.split("  ")[0] == "system"
    assert len(header) <= 100
    columns = [" ".join(name.split()) for name in header.split("  ") if name]
    for name in ("YAAL", "YAAL %", "SWF"):
        assert name in columns
    assert {"RTF", "AP", "sentences", "empty"} <= set(rows_of(tmp_path)[0]) - set(columns)


def test_each_curve_s_number_is_in_a_table_and_on_the_terminal(tmp_path):
    points = [*POINTS, *(point("local_agreement", theta, folder="none/offline/model") for theta in (0.4, 0.8))]
    evaluated(tmp_path, points)
    _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS)
    rows = rows_of(tmp_path, "curves")
    assert {row["system"] for row in rows} == {"grid", "local agreement"}
    assert "Mean quality of each curve's upper envelope" in shown
    evaluated(tmp_path / "one", POINTS[:1])
    write_results([tmp_path / "one"], tmp_path, **OPTIONS)
    assert not (tmp_path / "curves.json").exists()


def test_scoring_again_gives_the_same_and_touches_no_hypothesis(tmp_path):
    evaluated(tmp_path, POINTS)
    before = (tmp_path / "hypotheses.jsonl").stat()
    write_results([tmp_path], tmp_path, **OPTIONS)
    first = (tmp_path / "results.json").read_bytes()
    write_results([tmp_path], tmp_path, **OPTIONS)
    assert (tmp_path / "results.json").read_bytes() == first
    after = (tmp_path / "hypotheses.jsonl").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_evaluations_of_one_test_set_are_gathered_into_one_table(tmp_path):
    for number, entry in enumerate(POINTS):
        evaluated(tmp_path / "sweep" / str(number), [entry])
    folders = evaluations_in([tmp_path / "sweep"])
    assert [folder.name for folder in folders] == ["0", "1", "2"]
    write_results(folders, tmp_path / "sweep", **OPTIONS)
    assert [(row["system"], row["setting"]) for row in rows_of(tmp_path / "sweep")] == [
        ("offline", "—"), ("grid", "θ=0.5"), ("grid", "θ=0.9")
    ]  # fmt: skip
    evaluated(tmp_path / "whole", POINTS)
    write_results([tmp_path / "whole"], tmp_path / "whole", **OPTIONS)
    assert rows_of(tmp_path / "sweep") == rows_of(tmp_path / "whole")


def test_evaluations_of_different_test_sets_are_refused(tmp_path, monkeypatch):
    evaluated(tmp_path / "a", POINTS[:1])
    other = TestSet("the same in another order", TEST.sources[::-1], TEST.references[::-1], "zh", "en")
    monkeypatch.setattr("tests.scripted.TEST", other)
    evaluated(tmp_path / "b", POINTS[:1])
    with pytest.raises(ValueError, match=r"on one test set, got several .*the same in another order"):
        write_results([tmp_path / "a", tmp_path / "b"], tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match=r"rescore=.*/c: no evaluation there"):
        evaluations_in([tmp_path / "a", tmp_path / "c"])


def test_an_evaluation_that_still_decodes_is_refused_before_anything_is_written(tmp_path):
    evaluated(tmp_path / "run", POINTS[:1], stop_after=3)
    with open(tmp_path / "run" / "hypotheses.jsonl", "a", encoding="utf-8") as file:
        file.write('{"half a line')
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ValueError, match=r"is not finished: go on with python evaluate\.py resume="):
        write_results([tmp_path / "run"], tmp_path / "run", **OPTIONS)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_what_no_name_tells_apart_is_refused_with_the_evaluations_it_is_in(tmp_path):
    for name in "abc":  # alignment heads were looked for between a and c
        evaluated(tmp_path / name, [point("alignatt", 2 if name != "b" else 4, model=f"m{name}", heads="found")])
    told = r"AlignAtt f=2 of runs/one/model was decoded twice, .*\(\S+/a, \S+/c\): score one of these"
    with pytest.raises(ValueError, match=told):
        write_results([tmp_path / name for name in "abc"], tmp_path, **OPTIONS)


def test_how_like_other_sentences_are_to_training_is_refused(tmp_path):
    evaluated(tmp_path, POINTS[:1])
    for content, why in (('{"none/grid/model": [0.1, 0.9]}', "of another test set"), ("[]", ".*'values'")):
        (tmp_path / "likeness.json").write_text(content)
        with pytest.raises(ValueError, match=rf"likeness\.json is damaged \({why}\): remove it, and resume"):
            write_results([tmp_path], tmp_path, **OPTIONS)


def test_systems_whose_sources_are_other_tokens_are_not_compared_at_equal_latency(tmp_path):
    decoding = evaluated(tmp_path, [*POINTS, point("local_agreement", 2, folder="none/offline/model")])
    for record in decoding.records[POINTS[2].digest].values():  # offline: a token more in each source
        record["source_tokens"] = [*record["source_tokens"], "more"]
        record["source_token_ends"] = [*record["source_token_ends"], len(record["source"])]
    decoding.finish()
    _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS)
    pairs = {(row["system"], row["against"]) for row in rows_of(tmp_path, "comparisons")}
    assert pairs == {("grid", "local agreement n=2")}
    assert "there is no comparison at equal AL between them" in shown


def test_several_models_of_a_system_are_shown_by_their_names(tmp_path):
    points = [point("grid", 0.5, f"none/run{n}/model", f"m{n}", name=f"{n} epochs") for n in (1, 3)]
    evaluated(tmp_path, points)
    write_results([tmp_path], tmp_path, **OPTIONS, over_seeds=True)
    assert [row["system"] for row in rows_of(tmp_path)] == ["grid (1 epochs)", "grid (3 epochs)"]


def test_claims_are_checked_beside_what_was_found(tmp_path):
    evaluated(tmp_path, POINTS)
    _, shown, _ = write_results([tmp_path], tmp_path, **OPTIONS, claims=True)
    found = verdicts(tmp_path)
    assert found["BLEU rises with θ at every step"] == "yes", "at 0.9 words are written that are left out at 0.5"
    assert found["at the FRL of wait-3 the grid has the higher BLEU"] == "not checked"
    assert "Claims of Section VI-B" in shown
    evaluated(tmp_path / "level", [point("grid", theta, folder="none/grid/model") for theta in (0.5, 0.95, 1.0)])
    write_results([tmp_path / "level"], tmp_path / "level", **OPTIONS, claims=True)
    found = verdicts(tmp_path / "level")
    assert found["BLEU rises with θ at every step"] == "no", "at 0.95 and 1 the same words are written"


def test_claims_are_of_wait_k_run_as_it_was_trained(tmp_path):
    untrained = {"trained as": "offline"}
    waits = [
        point("waitk", 3, "none/offline/model", **untrained),
        point("waitk", 3, "none/wait5/model", **{"trained as": "waitk", "trained k": 5}),
        point("waitk", 3, "none/multi/model", **{"trained as": "waitk", "trained k": "multi"}),
    ]
    evaluated(tmp_path / "a", [*POINTS, *waits])
    write_results([tmp_path / "a"], tmp_path / "a", **OPTIONS, claims=True)
    claim = "at the FRL of wait-3 the grid has the higher BLEU"
    assert verdicts(tmp_path / "a")[claim] == "not checked"
    own = point("waitk", 3, "none/wait3/model", **{"trained as": "waitk", "trained k": 3})
    decoding = evaluated(tmp_path / "b", [*POINTS, *waits, own])
    write_results([tmp_path / "b"], tmp_path / "b", **OPTIONS, claims=True)
    assert verdicts(tmp_path / "b")[claim] == "no", "it leaves out no word"
    for record in decoding.records[own.digest].values():
        record["text"] = re.sub(r"\S", "x", record["text"])
    decoding.finish()
    write_results([tmp_path / "b"], tmp_path / "b", **OPTIONS, claims=True)
    assert verdicts(tmp_path / "b")[claim] == "yes", "it writes no right word"


def test_what_an_earlier_scoring_showed_and_this_one_does_not_is_gone(tmp_path, figure):
    evaluated(tmp_path / "both", POINTS)
    into = tmp_path / "shown"
    write_results([tmp_path / "both"], into, **OPTIONS, claims=True)
    assert (into / "comparisons.json").is_file()
    evaluated(tmp_path / "one", POINTS[:1])
    (into / SCORED).touch()
    write_results([tmp_path / "one"], into, **OPTIONS)
    assert not list(into.glob("comparisons.*")) + list(into.glob("claims.*")) + list(into.glob(SCORED))
    assert (into / "pareto.svg").is_file()


@pytest.fixture
def environment(tmp_path):
    return stand_in(tmp_path, STAND_IN)


def test_neural_metrics_stand_first_with_their_checkpoint_beside_them(tmp_path, environment):
    evaluated(tmp_path / "run", POINTS)
    options = OPTIONS | {"checkpoints": {"COMET": "some/comet", "BLEURT": None}, "environment": str(environment)}
    write_results([tmp_path / "run"], tmp_path / "run", **options)
    assert list(rows_of(tmp_path / "run")[0])[2:5] == ["COMET", "COMET ±", "BLEU"]
    assert "COMET some/comet (stand-in 1), × 100" in (tmp_path / "run" / "results.md").read_text(encoding="utf-8")
    assert [row["metric"] for row in rows_of(tmp_path / "run", "comparisons")] == ["COMET", "BLEU", "chrF"]
    # Gathered elsewhere, nothing is scored twice.
    asked = (environment / "asked").read_text()
    write_results([tmp_path / "run"], tmp_path / "elsewhere", **options)
    assert (environment / "asked").read_text() == asked


def test_what_cannot_be_scored_is_told_and_everything_else_is_reported(tmp_path, environment, caplog):
    evaluated(tmp_path / "run", POINTS)
    (environment / "orders").write_text("no checkpoint")
    options = OPTIONS | {"checkpoints": {"COMET": "some/comet", "BLEURT": "b"}, "environment": str(environment)}
    with caplog.at_level(logging.INFO):
        _, shown, troubles = write_results([tmp_path / "run"], tmp_path / "run", **options)
    assert len(troubles) == 2
    assert "COMET: checkpoint 'some/comet' could not be loaded" in troubles[0]
    assert "COMET some/comet: not scored" in shown
    assert list(rows_of(tmp_path / "run")[0])[2:4] == ["BLEU", "BLEU ±"]
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").touch()  # no program
    _, _, troubles = write_results([tmp_path / "run"], tmp_path / "run", **options)
    assert all(trouble.startswith(f"quality.environment={environment}: ") for trouble in troubles)
