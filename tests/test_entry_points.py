"""The three programs as a user runs them: one small training run, what is made of it, and mistakes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from duplexmt.common.files import locked
from duplexmt.drawing.captions import read_cues
from tests.commands import ROOT, begun, environment, run, succeeded
from tests.wandb_file import read_wandb_file

pytestmark = pytest.mark.slow

PEOPLE = {"我": "I", "你": "you", "他": "he", "她": "she", "我们": "we", "他们": "they", "老师": "teachers"}
VERBS = {"看": "see", "吃": "eat", "要": "want"}
THINGS = {"书": "books", "茶": "tea", "苹果": "apples"}
PAIRS = [(f"{p}{v}{t}。", f"{PEOPLE[p]} {VERBS[v]} {THINGS[t]}.") for p in PEOPLE for v in VERBS for t in THINGS]
BAD_LINES = {
    "empty_line": [b"", b"   "],
    "one_sided": ["茶\t".encode(), b"\ttea", "书\t  ".encode()],
    "wrong_column_count": ["茶\ttea\tand more".encode()],
    "invalid_utf8": [b"\xe8\x8c\tbroken", b"\xff\xfe\talso"],
}


def manifest(model):
    return json.loads((model / "duplexmt.json").read_text(encoding="utf-8"))


def small(pairs, *settings):
    """Settings of a training on some pairs that takes seconds."""
    return [
        "data=pairs", f"data.path='{pairs}'", "data.vocab_size=400", "data.validation_size=6", "data.test_size=7",
        "data.batch_size=4", "model.architecture.hidden_size=32", "model.architecture.num_hidden_layers=1",
        "training.sample_size=3", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false", "probes.count=0",
        "data.train_on_relatives=true",  # all of these pairs are alike
        *settings,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run on 63 pairs and some bad lines."""
    folder = tmp_path_factory.mktemp("entry points")
    good = ["\t".join(pair).encode() for pair in PAIRS]
    bad = [line for lines in BAD_LINES.values() for line in lines]
    (folder / "pairs.tsv").write_bytes(b"\n".join([*good[:30], *bad, *good[30:]]) + b"\n")
    settings = [
        "data.licence=CC0",
        "data.batch_size=8",
        "training.warmup_steps=2",
        "trainer.max_epochs=1",
        "probes.count=1",
    ]
    model = ["intermediate_size=48", "num_attention_heads=2", "num_key_value_heads=1"]
    settings += [*(f"model.architecture.{value}" for value in model), "demonstrate=1"]
    done = run("train.py", *small(folder / "pairs.tsv"), *settings, f"hydra.run.dir='{folder / 'run'}'", cold=True)
    return folder / "run", succeeded(done)


# --- from pairs to a model, results and translations -------------------------------------------------------------


def test_training_ends_with_a_model_folder_and_shows_translations(trained):
    folder, done = trained
    assert done.stderr == "", "no library says anything"
    assert (folder / "model" / "model.safetensors").is_file()
    assert not (folder / "model.partial").exists()
    assert (folder.parent / "latest" / "model").samefile(folder / "model")
    info = manifest(folder / "model")
    assert (info["name"], info["data"]["licence"]) == ("pairs", "CC0")
    rule = {"certainty": 0.0, "k_min": 0, "k_max": 0, "words": False, "beam": 1, "lookahead": 0}
    assert info["policy"] == {"lam": 0.01, "theta": 0.5} | rule
    usual = {"epochs": 1, "max_steps": -1, "accumulate_grad_batches": 1, "gradient_clip_val": 1, "whole_batches": 1}
    assert usual.items() <= info["training"].items()
    assert {"validation/lm_loss", "validation/BLEU"} <= set(info["scores"])
    assert "licence: CC0" in (folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "held-out sentences at θ = 0.5" in done.stdout
    shown = [(source, target) for source, target in PAIRS if f"{source}\n" in done.stdout]
    assert len(shown) == 1, "demonstrate=1"
    assert f"reference: {shown[0][1]}" in done.stdout


def test_the_corpus_report_counts_the_bad_lines_by_reason(trained):
    folder, done = trained
    corpus = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    assert corpus["pairs"] == {"train": 50, "validation": 6, "test": 7}
    counts = corpus["report"]["counts"]["train.read"]
    assert {reason: counts[reason] for reason in BAD_LINES} == {
        "empty_line": 2, "one_sided": 3, "wrong_column_count": 1, "invalid_utf8": 2
    }  # fmt: skip
    assert counts["pairs"] == 63
    _rank, place, *_texts = corpus["report"]["examples"]["train.read"]["one_sided"][2]
    assert place == "pairs.tsv:35"
    assert "invalid_utf8" in done.stdout


def test_checkpoints_and_metrics_lie_in_the_folder_of_the_run(trained):
    folder, _ = trained
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    (metrics,) = (folder / "metrics").rglob("metrics.csv")
    assert "validation/lm_loss" in metrics.read_text(encoding="utf-8")
    assert (folder / ".hydra" / "overrides.yaml").is_file()


def test_probes_lie_in_the_folder_of_the_run(trained):
    folder, done = trained
    assert [path.name for path in sorted((folder / "probes").iterdir())] == ["step-000000", "step-000006"]
    assert len(list((folder / "probes" / "step-000006").glob("*.png"))) == 2
    assert "probes: 2 looks took" in done.stdout


EVALUATION = ["policy.theta=[0.3,1.0]", "policy.max_target_tokens=12", "limit=5", "device=cpu", "quality.resamples=100"]


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory):
    """A finished evaluation of that run."""
    folder = tmp_path_factory.mktemp("evaluation")
    model = f"model_folder='{trained[0] / 'model'}'"
    return folder, succeeded(run("evaluate.py", model, *EVALUATION, f"hydra.run.dir='{folder}'", figures=True))


def hypotheses_in(folder):
    return [json.loads(line) for line in (folder / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()]


def rows_in(folder, name="results"):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def test_evaluation_decodes_the_held_out_pairs_and_writes_a_line_a_hypothesis_and_a_row_a_theta(trained, evaluated):
    _, training = trained
    folder, done = evaluated
    lines = hypotheses_in(folder)
    assert [(line["setting"], line["id"]) for line in lines] == [(theta, i) for theta in (0.3, 1.0) for i in range(5)]
    assert {(line["source"], *line["references"]) for line in lines} <= set(PAIRS)
    assert len({line["source"] for line in lines}) == 5
    assert f"{lines[0]['source']}\n" in training.stdout, "the first test pair, shown at the end of training"
    offline = [line for line in lines if line["setting"] == 1.0]
    assert all(set(line["delays"]) <= {len(line["source_tokens"])} for line in offline)
    assert all(line["elapsed"] == sorted(line["elapsed"]) and line["seconds"] > 0 for line in lines)

    rows = rows_in(folder)
    assert [(row["system"], row["setting"], row["sentences"]) for row in rows] == [
        ("grid", "θ=0.3", 5), ("grid", "θ=1", 5)
    ]  # fmt: skip
    assert all((folder / name).is_file() for name in ("results.md", "results.csv", "results.tex", "pareto.pdf"))
    assert " AL_all YAAL YAAL % SWF " in " ".join(done.stdout.split()), "the table"
    # At θ = 1 the whole source is read before the first token.
    assert (rows[1]["YAAL"], rows[1]["YAAL %"], rows[1]["SWF"]) == (None, 0, 0)
    assert rows[0]["YAAL %"] > 0
    assert rows[0]["SWF"] > 0


@pytest.mark.parametrize(
    ("encoding", "settings", "message"),
    [
        ("utf-16", [], "pairs.tsv is not UTF-8 but seems to be UTF-16: convert it by `iconv -f UTF-16 -t UTF-8 "),
        ("gb18030", [], "pairs.tsv is not UTF-8 but seems to be GB18030: convert it by `iconv -f GB18030 -t UTF-8 "),
        ("utf-8", ["trainer.val_check_interval=999", "trainer.devices=2"], "interval=999: an epoch has 6 batches"),
        ("utf-8", ["trainer.val_check_interval=999"], "interval=999: an epoch has 12 batches"),
    ],
)  # fmt: skip
def test_files_and_intervals_that_do_not_fit_are_one_line_and_leave_no_folder(encoding, settings, message, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes("".join(f"{source}\t{target}\r" for source, target in PAIRS).encode(encoding))
    done = run("train.py", *small(path), *settings, f"hydra.run.dir='{tmp_path / 'run'}'")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error: ") == 1
    assert not (tmp_path / "run").exists()


def test_a_killed_evaluation_goes_on_from_its_folder_with_the_settings_it_had(trained, evaluated, tmp_path):
    folder = tmp_path / "killed"
    shutil.copytree(evaluated[0], folder)
    for name in ("results.md", "results.json", "pareto.pdf"):
        (folder / name).unlink()
    lines = (folder / "hypotheses.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "hypotheses.jsonl").write_bytes(b"".join(lines[:7]) + lines[7][:50])
    succeeded(run("evaluate.py", f"resume={folder}"))
    before = hypotheses_in(evaluated[0])
    after = hypotheses_in(folder)
    assert after[:7] == before[:7], "not decoded again"
    varying = ("elapsed", "seconds", "point", "emit_probabilities")
    timeless = [{k: v for k, v in line.items() if k not in varying} for line in before]
    assert [{k: line[k] for k in timeless[0]} for line in after] == timeless
    for one, other in zip(before, after, strict=True):  # decoded among other streams, sums run in another order
        assert one.get("emit_probabilities") == pytest.approx(other.get("emit_probabilities"), abs=1e-5)
    assert [row["BLEU"] for row in rows_in(folder)] == [row["BLEU"] for row in rows_in(evaluated[0])]


def test_rescoring_needs_no_model_and_reports_all_but_what_it_lacks_the_environment_for(evaluated, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(evaluated[0], folder)
    decoding = (folder / "decoding.json").read_text(encoding="utf-8")
    (folder / "decoding.json").write_text(decoding.replace("/model", "/gone"), encoding="utf-8")
    (folder / "results.json").unlink()
    before = (folder / "hypotheses.jsonl").stat().st_mtime_ns
    lacking = ["quality=neural", "quality.environment=no/such"]
    done = run("evaluate.py", f"rescore={folder}", *lacking, "claims=true", "device=cpu")
    assert done.returncode == 2
    assert [line.split(":")[1].split()[0] for line in done.stderr.splitlines() if line] == ["COMET", "BLEURT"]
    assert "run make metrics" in done.stderr
    assert (folder / "hypotheses.jsonl").stat().st_mtime_ns == before
    assert len(rows_in(folder)) == 2
    assert any(row["holds"] == "not checked" for row in rows_in(folder, "claims"))
    assert (folder / ".hydra" / "overrides.yaml").read_bytes() == (
        evaluated[0] / ".hydra" / "overrides.yaml"
    ).read_bytes()  # fmt: skip


def test_a_sweep_that_lacks_a_metric_runs_all_its_jobs_and_is_gathered_and_scored_again_as_it_was_asked_for(
    trained, tmp_path
):
    """One table, one figure, and at W&B one run of all; by joblib, each job in a process of its own."""
    arguments = [argument for argument in EVALUATION if not argument.startswith("policy.theta")]
    arguments += [f"model_folder='{trained[0] / 'model'}'", "quality=neural", "quality.environment=no/such"]
    sweep = [f"hydra.sweep.dir='{tmp_path / 'sweep'}'", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    sweep += ["source_rate=2.5", "logger=wandb"]
    done = run("evaluate.py", "-m", "policy.theta=0.3,1.0", *arguments, *sweep, figures=True)
    assert done.returncode == 2
    assert [line.split(":")[1].split()[0] for line in done.stderr.splitlines()[-2:]] == ["COMET", "BLEURT"]
    assert [(row["system"], row["setting"]) for row in rows_in(tmp_path / "sweep")] == [
        ("grid", "θ=0.3"), ("grid", "θ=1")
    ]  # fmt: skip
    assert (tmp_path / "sweep" / "pareto.png").is_file()
    assert not list(tmp_path.rglob("scored.json"))
    runs = [read_wandb_file(path) for path in sorted((tmp_path / "sweep").rglob("run-*.wandb"))]
    points = {run.name.partition(" ")[0]: [row["setting"] for row in run.rows("pareto_table")] for run in runs}
    assert points == {"0": ["θ=0.3"], "1": ["θ=1"], "all": ["θ=0.3", "θ=1"]}
    assert {(run.project, run.group, run.job_type) for run in runs} == {("duplexmt", "sweep", "evaluate")}
    (tmp_path / "sweep" / "results.md").unlink()
    succeeded(run("evaluate.py", f"rescore={tmp_path / 'sweep'}", "quality=basic", "logger=csv"))
    assert "arriving at 2.5 characters a second" in (tmp_path / "sweep" / "results.md").read_text(encoding="utf-8")


def test_the_theta_for_a_wanted_latency_is_found_recorded_and_used(trained, evaluated, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(trained[0] / "model", model)
    arguments = [f"model_folder='{model}'", *EVALUATION[1:], f"hydra.run.dir='{tmp_path / 'run'}'"]
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    latest, search = tmp_path / "runs" / "latest" / "model", tmp_path / "search"
    latest.symlink_to(model)
    # A test file says nothing of the validation pairs that θ is looked for on.
    files = ["target_al=100", f"data.test_path='{trained[0].parent / 'pairs.tsv'}'"]
    succeeded(run("evaluate.py", *EVALUATION[1:], *files, f"hydra.run.dir='{search}'", cwd=tmp_path))
    recorded = manifest(model)["operating_point"]
    assert recorded["target_al"] == 100
    assert recorded["AL"] <= 100
    assert "validation" in recorded["validation"]
    other = shutil.copytree(trained[0] / "model", tmp_path / "other")
    latest.unlink()
    latest.symlink_to(other)
    succeeded(run("evaluate.py", f"resume={search}", cwd=tmp_path))
    assert "operating_point" not in manifest(other)
    succeeded(run("evaluate.py", *arguments, "policy.theta=recorded"))
    (row,) = rows_in(tmp_path / "run")
    assert row["setting"] == f"θ={recorded['theta']:g}"


def wait_for_a_line(process):
    limit = time.monotonic() + 120
    while "\n" not in process.said(1) and process.is_alive() and time.monotonic() < limit:
        time.sleep(0.01)


def test_on_sigterm_the_captions_have_all_that_was_written(trained, tmp_path):
    folder, _ = trained
    given = [f"model_folder='{folder / 'model'}'", "device=cpu", "pause=0.2", f"captions='{tmp_path / 'a.srt'}'"]
    with begun("translate.py", *given, stdin=None) as process, process.input.open("wb") as stdin:
        stdin.write("我看书。\n".encode())
        stdin.flush()
        wait_for_a_line(process)
        os.kill(process.pid, signal.SIGTERM)
        process.join(120)
        assert process.exitcode == 128 + signal.SIGTERM, process.said(2)
        written = process.said(1).split()
    cues = read_cues((tmp_path / "a.srt").read_text(encoding="utf-8"), "a.srt", " ")
    assert written
    assert " ".join(cue.text for cue in cues).split() == written


def test_translation_answers_before_the_line_has_ended(trained):
    folder, _ = trained
    given = [f"model_folder='{folder / 'model'}'", "events=true", "device=cpu", "pause=0.2"]
    with begun("translate.py", *given, stdin=None) as process, process.input.open("wb") as stdin:
        stdin.write("我".encode())
        stdin.flush()
        wait_for_a_line(process)
        first = json.loads(process.said(1).partition("\n")[0])  # after a pause at the latest
        assert (first["event"], first["line"], first["sentence"], first["characters"]) == ("read", 1, 1, 1)
        stdin.write("看书。".encode())
        stdin.close()
        process.join(120)
        assert process.exitcode == 0, process.said(2)
        assert json.loads(process.said(1).splitlines()[-1])["event"] == "end"


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_standard_stream_is_told_in_one_line(closed):
    given = "" if closed == "<&-" else "text=人"
    command = ["sh", "-c", f'"$0" translate.py {given} {closed}', sys.executable]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard input or output is closed: give text=…")
    assert done.stderr.count("\n") == 1


def test_translation_as_text_gives_a_line_for_every_line_and_writes_no_file(trained, tmp_path):
    folder, _ = trained
    given = [f"model_folder='{folder / 'model'}'", "theta=0.4", "max_target_tokens=5", "device=cpu"]
    done = succeeded(run("translate.py", *given, stdin="我看书。\n \n他吃茶。".encode(), cwd=tmp_path))
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    assert list(tmp_path.iterdir()) == []


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train.py", "policy.lamb=0.1"], "error: policy.lamb: there is no such setting"),
        (["train.py", "data.batch_size=many"], "error: data.batch_size=many: must be a whole number"),
        (["train.py", "-m", "data=pairs", "data.path=/nope", "policy.lam=0.1,1"], "error: data.path=/nope: there is"),
        (["evaluate.py", "-m", "policy.theta=0.3,2", f"model_folder='{ROOT}/models/zh-en'"], "error: policy.theta=2: "),
        (["train.py", "experiment=duplex_results"], "error: experiment=duplex_results gives "),
        (["train.py", "resume=no/such/run"], "error: resume=no/such/run: no run with a checkpoint there"),
        (["evaluate.py", "policy.theta=1.5"], "error: policy.theta=1.5: "),
        (["evaluate.py", "-m", "model_folder=nowhere", "policy.theta=0.3,0.5"], "error: model_folder='nowhere'"),
        (["translate.py", "theta=high"], "error: theta=high: must be a number, or null"),
        (["translate.py", "model_folder=nowhere"], "error: model_folder='nowhere' does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_clear_line_and_leaves_nothing(command, message, tmp_path):
    another = tmp_path / "runs" / "another"
    another.mkdir(parents=True)
    done = run(*command, cwd=tmp_path, cold=command[1] in ("policy.lamb=0.1", "policy.theta=1.5", "theta=high"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
    assert done.stdout == "" or "-m" in command  # a sweep says which job it has begun
    assert [*tmp_path.rglob("*")] == [another.parent, another]


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        (None, "another run is at work"), ("policy.lam=-1", "policy.lam=-1"),
        ("model.emit_hidden=8", "the checkpoint does not fit this model"),
        ("data.test_size=8", "the corpus or the tokenizer is not the one"),
        ("policy.lam=0.5", "policy.lam=0.5: the run is complete, and no step would be trained with it"),
    ],
)  # fmt: skip
def test_a_refused_resume_leaves_the_record_of_the_run_as_it_was(trained, tmp_path, argument, told):
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    kept = (folder / ".hydra", folder / "model")
    before = {path.name: path.read_bytes() for part in kept for path in part.iterdir()}
    with locked(folder, wait=False) if argument is None else nullcontext():
        done = run("train.py", f"resume={folder}", argument or "policy.lam=0.5")
    assert done.returncode == 2
    assert told in done.stderr
    assert {path.name: path.read_bytes() for part in kept for path in part.iterdir()} == before


def test_a_training_and_an_evaluation_do_not_share_a_folder(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    done = run("evaluate.py", f"model_folder={folder / 'model'}", "limit=2", f"hydra.run.dir={folder}")
    assert (done.returncode, "holds a training (checkpoints/last.ckpt)" in done.stderr) == (2, True), done.stderr
    (tmp_path / "evaluated").mkdir()
    (tmp_path / "evaluated" / "decoding.json").write_text("{}", encoding="utf-8")
    done = run("train.py", f"hydra.run.dir={tmp_path / 'evaluated'}")
    assert (done.returncode, "holds an evaluation" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "evaluated" / ".hydra").exists()
    done = run("translate.py", f"model_folder={folder}", "text=我们走。")
    assert f"give {folder / 'model'}, which is the model of that run" in done.stderr


# --- several devices, and going on ---------------------------------------------------------------------------------


def test_two_devices_share_a_model_in_each_job_of_a_sweep_and_a_stopped_run_goes_on_from_its_folder(trained, tmp_path):
    settings = ["training.checkpoint_every_n_steps=1", "training.schedule=constant", "trainer.strategy=fsdp"]
    settings += ["trainer.devices=2", "trainer.max_steps=2", "trainer.log_every_n_steps=1", "demonstrate=0"]
    settings = small(trained[0].parent / "pairs.tsv", *settings)
    begun = succeeded(run("train.py", *settings, "policy.lam=0.1,0.01", "-m", cwd=tmp_path))
    assert begun.stderr == "", "no library says anything, in either process"
    (sweep,) = (tmp_path / "runs").glob("*-sweep-*")  # of both processes
    for job, lam in enumerate((0.1, 0.01)):
        assert manifest(sweep / str(job) / "model")["policy"]["lam"] == lam
        assert (sweep / str(job) / "train_ddp_process_1.log").is_file()
    folder = sweep / "1"
    assert (tmp_path / "runs" / "latest").resolve() == folder
    first = (folder / "metrics" / "version_0" / "metrics.csv").read_text(encoding="utf-8")
    done = succeeded(run("train.py", f"resume={folder}", "trainer.max_steps=4"))
    assert (folder / "metrics" / "version_0" / "metrics.csv").read_text(encoding="utf-8") == first
    again = (folder / "metrics" / "version_1" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    step = again[0].split(",").index("step")
    steps = {int(line.split(",")[step]) for line in again[1:]}
    assert min(steps) == 2  # goes on where it was stopped
    assert {2, 3} <= steps
    info = manifest(folder / "model")
    assert (info["policy"]["lam"], info["training"]["whole_batches"]) == (0.01, 2)
    assert "model folder" in done.stdout


def test_a_process_that_torchrun_starts_beside_the_first_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    done = run("train.py", "policy.lam=-1", cwd=tmp_path)  # told once Hydra has made the folder
    assert (done.returncode, list(tmp_path.iterdir())) == (2, []), done.stderr
    (tmp_path / "checkpoints").mkdir()  # where it is started another training lies
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    done = run("train.py", "policy.lam=-1", cwd=tmp_path)
    assert "holds a training already" not in done.stderr
    assert "lam" in done.stderr


@pytest.mark.parametrize("when", ["preparing", "killed", "training"])
def test_sigterm_ends_both_processes_of_a_run_and_what_was_trained_is_kept(trained, tmp_path, when):
    folder = tmp_path / "run"
    (tmp_path / "earlier").mkdir()
    (tmp_path / "latest").symlink_to("earlier")
    settings = small(
        trained[0].parent / "pairs.tsv", "training.schedule=constant", "trainer.devices=2",
        "trainer.max_epochs=100000", "trainer.check_val_every_n_epoch=100000", "training.checkpoint_every_n_steps=1",
        f"hydra.run.dir='{folder}'",
    )  # fmt: skip
    sign = folder / "checkpoints" / "last.ckpt" if when == "training" else folder / "train_ddp_process_1.log"
    with begun("train.py", *settings) as process:
        limit = time.monotonic() + 120
        while not sign.exists() and process.is_alive() and time.monotonic() < limit:
            time.sleep(0.01)
        # While it prepares to the first process alone, as `kill` would; then to both, as SLURM does.
        number = signal.SIGKILL if when == "killed" else signal.SIGTERM
        (os.killpg if when == "training" else os.kill)(process.pid, number)
        process.join(60)
        errors = process.said(2)
        limit = time.monotonic() + (60 if when == "killed" else 0)  # it could not end the other one
        while (left := _processes_of(tmp_path)) and time.monotonic() < limit:
            time.sleep(0.1)
    assert process.exitcode == (-9 if when == "killed" else 143), errors
    assert not left
    if when != "training":
        assert not (folder / "model").exists()
        assert os.readlink(tmp_path / "latest") == "earlier"
    else:
        step = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
        assert f"SIGTERM: stopped after step {step}" in errors + (folder / "train.log").read_text(encoding="utf-8")


def _processes_of(folder):
    """The command lines in which a folder is named."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if _reads(path, str(folder))]


def _reads(path, text):
    """Whether a file of /proc names something; its process may just have ended."""
    try:
        return text in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


# --- baselines -----------------------------------------------------------------------------------------------------


def test_baselines_are_trained_resumed_and_refused_where_a_grid_is_needed(trained, tmp_path):
    pairs, folder = trained[0].parent / "pairs.tsv", tmp_path / "run"
    settings = small(
        pairs, "training.checkpoint_every_n_steps=1", "trainer.log_every_n_steps=1", "demonstrate=1"
    )  # fmt: skip
    waitk = ["system=waitk", "system.k=multi", "trainer.max_steps=2", f"hydra.run.dir='{folder}'"]
    succeeded(run("train.py", *settings, *waitk))
    done = succeeded(run("train.py", f"resume={folder}", "trainer.max_steps=4"))
    info = manifest(folder / "model")
    assert (info["system"], info["prefix"]["k"]) == ("waitk", "multi")
    assert {"validation/lm_loss", "validation/BLEU", "validation/AL"} <= set(info["scores"])
    assert "held-out sentences by wait-3" in done.stdout
    model = f"model_folder='{folder / 'model'}'"
    succeeded(run("evaluate.py", model, f"hydra.run.dir='{tmp_path / 'evaluation'}'"))
    rows = rows_in(tmp_path / "evaluation")
    assert [(row["system"], row["setting"]) for row in rows] == [("multi-path wait-k", f"k={k}") for k in (1, 3, 5, 7)]
    refused = run("translate.py", model, "text=我看书。")
    assert refused.returncode == 2
    assert "holds a waitk model, no grid: say what to run it as" in refused.stderr.splitlines()[-1]
    unserved = run("serve.py", model, "port=0")
    assert (unserved.returncode, unserved.stdout) == (2, ""), "no address is told of a server that cannot be one"
    assert unserved.stderr.splitlines()[-1] == refused.stderr.splitlines()[-1]
    prompted = tmp_path / "prompted"
    prompt = ["data.source_prefix='我看'", "data.target_prefix='I see'"]
    backbone = [
        f"model.backbone='{folder / 'model'}'",
        "model.architecture=null",
        f"data.tokenizer='{folder / 'model'}'",
    ]
    settings = [one for one in settings if not one.startswith("model.")] + ["system=offline", "trainer.max_steps=0"]
    done = succeeded(run("train.py", *settings, *prompt, *backbone, f"hydra.run.dir='{prompted}'"))
    assert "held-out sentences offline" in done.stdout
    info = manifest(prompted / "model")
    assert info["system"] == "offline"
    assert info["tokens"]["source_prefix"]
