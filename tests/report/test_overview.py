"""What the report gathers: from a run, a model or an evaluation as far as they go; what is none of them is refused."""

import json
import os
import shutil
import sys

import pytest

from duplexmt.data.tokenizer import stream_tokens
from duplexmt.evaluation.alike import write_likeness
from duplexmt.evaluation.decoding import DECODING, model_digest
from duplexmt.evaluation.results import write_results
from duplexmt.model_folder.manifest import MANIFEST, read_manifest
from duplexmt.report.__main__ import arguments, main, write
from duplexmt.report.overview import gather, read_run_curves, report_folder

from ..helpers import spoken_grid, tiny_prefix, tiny_tokenizer
from ..model_folder.test_artifact import DATA
from ..model_folder.test_artifact import save as save_as_it_is
from ..scripted import evaluated, point

TOKENS = stream_tokens(tiny_tokenizer())
FEW = (0.2, 0.8)
FIELDS = {"source_field": 0, "target_field": 1}
SENTENCES = [("人好", "a cat"), ("我们是人", "the man"), ("我是人", "I am")]


def save(folder, model, **data):
    """A model folder whose data settings say where a pair's texts are; its corpus is gone."""
    return save_as_it_is(folder, model, tokens=TOKENS, data=DATA | FIELDS | data)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with metrics, settings and a grid model."""
    folder = tmp_path_factory.mktemp("runs") / "<img onerror=1>run"
    (folder / "metrics" / "version_0").mkdir(parents=True)
    (folder / "metrics" / "version_0" / "metrics.csv").write_text("epoch,step,train/area\n0,50,0.5\n")
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text("policy: {lam: 0.1, theta: [0.5, 0.7]}\nresume: null\n")
    (folder / ".hydra" / "overrides.yaml").write_text("- policy.lam=0.1\n")
    save(folder / "model", spoken_grid())
    return folder


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory, run):
    """An evaluation of the run's model, with another system beside it."""
    folder = tmp_path_factory.mktemp("evaluations") / "one"
    model = model_digest(run / "model", read_manifest(run / "model"))
    own = {"folder": str(run / "model"), "model": model}
    evaluated(folder, [point(setting=0.3, **own), point(setting=0.7, **own), point("offline", None, model="m2")])
    write_likeness(folder, run / "model", [0.1] * 6, 6)
    scored(folder)
    return folder


def scored(folder):
    settings = {"environment": "", "neural_batch_size": 1, "device": "cpu", "source_rate": 4.0, "resamples": 20}
    write_results([folder], folder, checkpoints={}, **settings)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES), encoding="utf-8")
    return path


def test_a_run_with_its_evaluation_has_everything(run, evaluation):
    report = gather(run, [evaluation], each=1, thetas=FEW, max_target_tokens=4, sentences=[SENTENCES[0]])
    assert report.title == "<img onerror=1>run"
    assert report.notes == []
    names = [table["caption"].partition(":")[0].partition(" ")[0] for table in report.results[0].tables]
    assert names == ["Quality", "Latency", "Sentences", "Systems", "The"], "results, latency, relatives, comparisons, …"
    assert len(report.results[0].figures) == 2
    assert report.curves == {"train/area": [(50, 0.5)]}
    assert {example.group for example in report.examples} == {"best", "worst", "random"}
    assert report.examples_of == "grid θ=0.7 on six sentences, 6 sentences."
    assert set(report.examples[0].written) == {"grid θ=0.3", "grid θ=0.7", "offline"}
    assert report.viewer.sentences[0].label == "given"
    assert len(report.viewer.sentences) == 4
    assert [heading for heading, _ in report.configuration] == ["Settings", "Command line", "Model"]
    assert "theta: [0.5, 0.7]" in report.configuration[0][1]
    assert dict(report.facts)["λ"] == "0.1"


def test_a_file_that_cannot_be_written_is_told_before_the_work(run, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("duplexmt.report.overview.gather", None)
    with pytest.raises(ValueError, match=r"--out=.*file: cannot be written to \(Not a directory\); give another"):
        write(arguments([str(run), "--out", str(tmp_path / "file" / "report.html")]))


def test_the_viewer_decides_as_the_evaluation_did(run, tmp_path):
    """With `policy.k_min` beyond the sentence nothing is written before its end, whatever the model has recorded."""
    own = {"folder": str(run / "model"), "model": model_digest(run / "model", read_manifest(run / "model"))}
    for k_min in (0, 99):
        folder = tmp_path / str(k_min)
        evaluated(folder, [point(setting=0.3, k_min=k_min, max_target_tokens=5, **own)])
        scored(folder)
        ways = [way for sentence in gather(folder, each=1, thetas=(0.0,)).viewer.sentences for way in sentence.ways]
        assert {bool(way.visits[0].written) for way in ways} == {not k_min}
        assert {way.heights[-1] for way in ways if way.stopped != "end_token"} <= {5}
    unlike = {"told length": True, "quantize": "int8"}
    evaluated(tmp_path / "told", [point(setting=0.3, **unlike, **own)])
    notes = gather(tmp_path / "told", each=1, thetas=(0.0,)).notes
    told = "The evaluation told the model each source's length and rounded the weights; the viewer does not"
    assert [note for note in notes if note.startswith(told)]


def test_a_model_by_itself_translates_given_pairs(run, pairs):
    report = gather(run / "model", pairs=pairs, each=1, thetas=FEW, max_target_tokens=4)
    assert report.title == "<img onerror=1>run"  # a model knows the run it lies in
    assert report.examples_of == "grid θ=0.5 on pairs.tsv, 3 sentences, translated for this report."
    assert len(report.examples) == len(report.viewer.sentences) == 3
    assert report.notes == ["No evaluation was given: run python evaluate.py, and add --results FOLDER."]


def test_a_corpus_that_is_not_there_is_told_and_sentences_can_be_given(run):
    report = gather(run, thetas=FEW, max_target_tokens=4)
    assert report.viewer is None
    assert "--sentence SOURCE REFERENCE" in report.no_viewer
    assert any("the corpus of the model cannot be read" in note for note in report.notes)
    assert gather(run, sentences=[SENTENCES[0]], thetas=FEW, max_target_tokens=4).viewer is not None


def test_an_evaluation_finds_its_model_and_does_without(evaluation, run, tmp_path):
    report = gather(evaluation, each=1, thetas=FEW, max_target_tokens=4)
    assert report.viewer is not None
    assert "No run was given: there are no curves of training." in report.notes
    alone = tmp_path / "alone"
    evaluated(alone, [point(setting=0.3), point(setting=0.7)])
    scored(alone)
    report = gather(alone, each=1)
    assert (report.viewer, report.no_viewer) == (None, "it needs a model, and none was given or found.")
    assert len(report.examples) == 3
    assert report.source_language == "zh"


def test_an_evaluation_whose_model_is_damaged_does_without(run, tmp_path):
    model = shutil.copytree(run / "model", tmp_path / "run" / "model")
    own = {"folder": str(model), "model": model_digest(model, read_manifest(model))}
    evaluated(tmp_path / "evaluation", [point(setting=0.3, **own)])
    scored(tmp_path / "evaluation")
    (model / "model.safetensors").unlink()
    report = gather(tmp_path / "evaluation", each=1)
    assert report.viewer is None
    assert len(report.examples) == 3
    assert any("there is no viewer" in note and "model.safetensors" in note for note in report.notes)


def test_systems_of_one_name_are_told_apart_by_their_evaluations(run, tmp_path):
    own = {"folder": str(run / "model"), "model": model_digest(run / "model", read_manifest(run / "model"))}
    models = {"one/0": {"model": "m1"}, "two/0": {"model": "m2"}, "own": own}
    for name, model in models.items():
        evaluated(tmp_path / name, [point(setting=0.3, **model)])
    given = [tmp_path / name for name in ("one", "two", "own")]
    report = gather(run, given, each=1, thetas=FEW, max_target_tokens=4)
    assert report.examples_of == "grid θ=0.3 (own) on six sentences, 6 sentences."
    assert list(report.examples[0].written) == [f"grid θ=0.3 ({name})" for name in models]


def test_an_evaluation_that_goes_on_is_left_alone(run, tmp_path):
    folder = tmp_path / "begun"
    evaluated(folder, [point(setting=0.3)], stop_after=2)
    with open(folder / "hypotheses.jsonl", "a") as file:
        file.write('{"half a line')
    before = (folder / "hypotheses.jsonl").read_bytes()
    report = gather(run, [folder], sentences=[SENTENCES[0]], thetas=FEW, max_target_tokens=4)
    assert report.results[0].notes == [f"begun is not finished: go on with python evaluate.py resume={folder}"]
    assert (folder / "hypotheses.jsonl").read_bytes() == before


def test_damaged_files_are_named(run, evaluation, tmp_path):
    folder = shutil.copytree(evaluation, tmp_path / "damaged")
    whole = {"caption": "x", "rows": [{"a": 1}], "footnotes": []}
    for damage in ({"rows": [{"a": 1}, {"b": 2}]}, {"rows": 5}, {"caption": None}, {"footnotes": None}):
        (folder / "results.json").write_text(json.dumps(whole | damage))
        with pytest.raises(ValueError, match=r"results\.json is damaged .*rescore="):
            gather(run, [folder])
    (folder / DECODING).write_text("{")
    (folder / "results.json").unlink()
    with pytest.raises(ValueError, match=r"decoding\.json is damaged"):
        gather(run, [folder])


@pytest.mark.parametrize(("trained", "shown"), [(2, 2), ("multi", 3)])
def test_systems_without_grid_have_no_viewer_and_the_report_says_so(tmp_path, pairs, trained, shown):
    folder = save(tmp_path / "waitk", tiny_prefix(trained, vocab_size=len(tiny_tokenizer())))
    report = gather(folder, pairs=pairs, each=1, max_target_tokens=4)
    assert report.no_viewer == "a waitk model has no grid and no θ."
    assert report.examples_of.startswith(f"wait-k k={shown} on pairs.tsv")
    assert len(report.examples) == 3


def test_a_model_that_has_diverged_leaves_the_rest_of_the_report(tmp_path):
    model = spoken_grid()
    model.emit_head.bias.data.fill_(float("nan"))
    report = gather(save(tmp_path / "model", model), sentences=[SENTENCES[0]], thetas=FEW, max_target_tokens=4)
    assert report.viewer is None
    assert "all numbers must be finite; the model has diverged" in report.no_viewer
    assert report.facts


def test_given_sources_are_cleaned_as_those_of_training_and_references_stay(tmp_path):
    simplifying = save(tmp_path / "model", spoken_grid(), corpus="pairs_folder", cleaning="strict")
    report = gather(simplifying, sentences=[("我 們&#26159;人", "the &amp; man")], thetas=FEW, max_target_tokens=4)
    assert [(shown.source, shown.reference) for shown in report.viewer.sentences] == [("我们是人", "the &amp; man")]


def test_a_run_that_has_not_finished_shows_its_curves(run, tmp_path):
    folder = tmp_path / "going"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("model"))
    report = gather(folder)
    assert report.curves
    assert "The run has no model yet: it has not finished. Its curves are those so far." in report.notes


def test_a_resumed_run_has_one_curve_from_the_checkpoint_on(tmp_path):
    for version, steps in ((0, (50, 100, 150)), (1, (120, 150, 200))):
        path = tmp_path / "metrics" / f"version_{version}" / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text("epoch,step,train/area\n" + "".join(f"0,{step},0.{version + 1}\n" for step in steps))
        os.utime(path, (9 - version, 9 - version))  # as a copy may have them
    assert read_run_curves(tmp_path) == {"train/area": [(50, 0.1), (100, 0.1), (120, 0.2), (150, 0.2), (200, 0.2)]}


def test_folders_that_are_none_of_the_three_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        report_folder(tmp_path / "none")
    with pytest.raises(ValueError, match=f"neither a run .*nor a model .{MANIFEST}.*nor an evaluation"):
        report_folder(tmp_path)
    (tmp_path / "results.json").touch()  # of evaluate.py rescore=[A,B]
    with pytest.raises(ValueError, match=r"no evaluation there.*of a scoring of other folders, those"):
        gather(run, [tmp_path])
    with pytest.raises(ValueError, match=r"--examples -1: .* give 1 or more"):
        gather(tmp_path / "none", each=-1)  # before it looks at anything
    with pytest.raises(ValueError, match=r"--results .*model: no evaluation there"):
        gather(save(tmp_path / "model", spoken_grid()), [tmp_path / "model"])


def test_the_command_writes_one_file_and_a_failure_leaves_the_old_one(evaluation, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(evaluation, tmp_path / "evaluation")
    content = json.loads((folder / DECODING).read_text())
    for entry in content["points"].values():
        entry["model_folder"] = "gone"
    (folder / DECODING).write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["report", str(folder), "--examples", "1"])
    main()
    out = folder / "report.html"
    assert capsys.readouterr().out.strip() == str(out)
    before = out.read_bytes()
    assert before.startswith(b"<!doctype html>")
    (folder / "results.json").write_text("{")
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr().err
    assert (stopped.value.code, told.count("\n")) == (2, 1)
    assert "results.json is damaged" in told
    assert out.read_bytes() == before
    assert not list(folder.glob("*.partial"))
