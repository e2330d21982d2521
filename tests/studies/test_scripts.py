"""Both studies from end to end, on tiny models."""

import importlib
import json
import shutil

import pytest

from benchmarks import error_study, loop_study
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder.artifact import write_manifest
from tests.helpers import SENTENCES, spoken_grid, tiny_backbone, tiny_grid, tiny_tokenizer
from tests.model_folder.test_artifact import save

TOKENS = stream_tokens(tiny_tokenizer())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("\n".join("\t".join(pair) for pair in SENTENCES), encoding="utf-8")
    return str(file)


def tiny_run(folder, seed=1, lam=0.1, steps=(0, 5), attention="approximate"):
    """A run folder with snapshots and a model, each of other weights."""
    names = {f"snapshots/{step:06d}": step for step in steps} | {"model": 99}
    for name, change in names.items():
        grid = tiny_grid(
            tiny_backbone(vocab_size=len(tiny_tokenizer()), layers=2, seed=seed + change),
            seed=seed,
            attention=attention,
        )
        saved = save(folder / name, grid, tokens=TOKENS)
        manifest = saved / "duplexmt.json"
        info = json.loads(manifest.read_text(encoding="utf-8"))
        info["data"] |= {"source_field": 0, "target_field": 1}
        info["policy"]["lam"] = lam
        write_manifest(saved, info)
    return folder


def call(script, monkeypatch, capsys, *arguments):
    """The JSON object of a script's last line, and its files."""
    monkeypatch.setattr("sys.argv", ["study", *map(str, arguments)])
    script.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_the_error_study_runs_on_any_model_folder(tmp_path, pairs, monkeypatch, capsys):
    run, out = tiny_run(tmp_path / "run"), tmp_path / "out"
    found = call(
        error_study, monkeypatch, capsys, run / "model", "--pairs", pairs, "--quick", "--limit", 2, "--length", 32,
        "--every", 16, "--decode", 1, "--snapshots", run / "snapshots", "--out", out,
    )  # fmt: skip
    assert list(found["models"]) == ["random weights", "run"]
    for result in found["models"].values():
        assert result["bound_violations"] == 0
        assert set(result["exponents_documents"]) == {"target 1"}  # of two layers the first is exact
        exponent, low, high = result["exponents_sentences"]["target 1"]
        assert low <= exponent <= high
    assert set(found["models"]["run"]["BLEU"]) == {"approximate", "exact"}
    report = json.loads((out / "error-study.json").read_text(encoding="utf-8"))
    assert [row["step"] for row in report["over_training"]] == [0, 5]
    names = ("layers", "decay-documents", "decay-sentences", "training")
    assert {path.name for path in out.glob("*.*g")} == {f"study-error-{n}.{k}" for n in names for k in ("svg", "png")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", 24], "from 8 to 24 keys spans less than two octaves"),
        (["--length", 32, "--sentence-length", 60], "--sentence-length=60: 0 of 12 sentences are that long"),
        (["--length", 32, "--snapshots", "nowhere"], "--snapshots nowhere: holds none"),
    ],
)
def test_what_the_error_study_cannot_do_is_said_in_one_sentence(
    arguments, message, tmp_path, pairs, monkeypatch, capsys
):
    run = tiny_run(tmp_path / "run", steps=())
    quick = ["--pairs", pairs, "--quick", "--limit", 1, "--decode", 0, "--out", tmp_path]
    with pytest.raises(SystemExit, match="2"):
        call(error_study, monkeypatch, capsys, run / "model", *quick, *arguments)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_loop_study_measures_runs_and_their_snapshots_once(tmp_path, pairs, monkeypatch, capsys):
    runs = [tiny_run(tmp_path / f"run{n}", seed=n, lam=lam, steps=(0,)) for n, lam in ((1, 0.05), (2, 0.3))]
    out = tmp_path / "out"
    wanted = [*runs, "--pairs", pairs, "--limit", 2, "--probes", 1, "--out", out]
    found = call(loop_study, monkeypatch, capsys, *wanted)
    assert [row["lam"] for row in found["runs"]] == [0.05, 0.3]
    assert all(row["gold_AL_all"] is None and 0 < row["area"] <= 1 for row in found["runs"])
    steps = json.loads((out / "loop-study.json").read_text(encoding="utf-8"))["run1"]["steps"]
    assert [step["step"] for step in steps] == [0, 1]
    assert steps[0]["area"] != steps[1]["area"]
    names = ("curves", "lambda", "calibration", "evolution-1")
    assert {path.name for path in out.glob("*.*g")} == {f"study-loop-{n}.{k}" for n in names for k in ("svg", "png")}
    assert "| 0.05 |" in (out / "loop-study.md").read_text(encoding="utf-8")

    monkeypatch.setattr(loop_study, "decoded", None)  # nothing is measured again
    assert call(loop_study, monkeypatch, capsys, *wanted) == found


def test_runs_are_compared_at_a_step_of_training_finished_or_not(tmp_path, pairs, monkeypatch, capsys):
    run = tiny_run(tmp_path / "run", steps=(0, 5))
    shutil.rmtree(run / "model")
    monkeypatch.setattr(loop_study, "draw", lambda *_: None)
    wanted = [run, "--pairs", pairs, "--limit", 1, "--probes", 0, "--out", tmp_path]
    call(loop_study, monkeypatch, capsys, *wanted, "--step", 0)
    measured = json.loads((run / "loop-study-0.json").read_text(encoding="utf-8"))
    assert [step["step"] for step in measured["steps"]] == [0]
    with pytest.raises(SystemExit, match="2"):
        call(loop_study, monkeypatch, capsys, *wanted, "--step", 7)
    assert "holds no model of step 7" in capsys.readouterr().err


def test_runs_that_differ_in_their_attention_are_no_sweep(tmp_path, pairs, monkeypatch, capsys):
    runs = [tiny_run(tmp_path / kind, steps=(), attention=kind) for kind in ("exact", "approximate")]
    with pytest.raises(SystemExit, match="2"):
        call(loop_study, monkeypatch, capsys, *runs, "--pairs", pairs, "--limit", 2, "--out", tmp_path)
    assert "approximate and exact attention: a sweep over λ changes λ alone" in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        call(loop_study, monkeypatch, capsys, tmp_path)
    assert "holds no model: give folders of finished runs, or --train" in capsys.readouterr().err


def test_only_what_is_missing_is_trained_and_what_was_stopped_goes_on(tmp_path, monkeypatch):
    save(tmp_path / "lam-0.0" / "model", spoken_grid(), tokens=TOKENS)
    (tmp_path / "lam-0.1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "lam-0.1" / "checkpoints" / "last.ckpt").touch()
    monkeypatch.setattr("sys.argv", ["study", "--train", "--lam", "0", "0.1", "1", "--setting", "data.train_size=6000"])
    commands = []

    class Done:
        def __init__(self, command, **_):
            commands.append(command[2:])

        __enter__, __exit__, wait = lambda self: self, lambda *_: None, lambda self: 0

    monkeypatch.setattr(loop_study.subprocess, "Popen", Done)
    folders = loop_study.train_missing(tmp_path, loop_study.parse())
    assert [folder.name for folder in folders] == ["lam-0.0", "lam-0.1", "lam-1.0"]
    assert commands == [
        [f"resume={tmp_path / 'lam-0.1'}"],
        ["experiment=loop_lambda", "policy.lam=1", f"hydra.run.dir={tmp_path / 'lam-1.0'}", "data.train_size=6000"],
    ]


def test_a_training_that_fails_is_named(tmp_path, monkeypatch, capfd):
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(loop_study, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="2"):
        call(loop_study, monkeypatch, capfd, "--train", "--runs", tmp_path, "--lam", 0.1)
    assert "the training of λ = 0.1 ended with status 3" in capfd.readouterr().err


def test_the_error_study_keeps_what_it_has_measured_before_something_fails(tmp_path, pairs, monkeypatch, capsys):
    run, out = tiny_run(tmp_path / "run", steps=()), tmp_path / "out"
    monkeypatch.setattr(error_study, "study", lambda *_: {"trained_with": "approximate"})
    with pytest.raises(SystemExit, match="2"):
        call(
            error_study, monkeypatch, capsys, run / "model", tmp_path / "nowhere", "--pairs", pairs, "--decode", 0,
            "--out", out,
        )  # fmt: skip
    assert "nowhere' does not exist" in capsys.readouterr().err
    assert set(json.loads((out / "error-study.json").read_text(encoding="utf-8"))["models"]) == {
        "random weights",
        "run",
    }


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("decode_latency", ["--device", "cuda"], "--device cuda: PyTorch sees no GPU on this machine"),
        ("decode_latency", ["--device", "cpu", "--compile"], "--compile: steps are compiled on CUDA only"),
        ("decode_latency", ["--device", "cpu", "--layers", "0"], "--layers 0: must be at least 1"),
        ("gold_alignment", ["nowhere"], "error: model_folder='nowhere' does not exist"),
        ("path_loss", ["nowhere", "--theta", "0.5", "7"], "--theta 7: a threshold is between 0 and 1"),
    ],
)
def test_what_a_benchmark_cannot_do_is_said_in_one_sentence(script, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"benchmarks.{script}").main()
    assert message in capsys.readouterr().err
