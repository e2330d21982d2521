"""The chain base → fine-tunings → evaluation: what is skipped, resumed or started, whatever was killed before."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import experiment

from .test_config import checked, leaves

ROOT = Path(__file__).parents[1]


NAMES = ["grid", "grid-past_paper", "grid-after_waitk", "wait1", "wait3", "wait5", "wait7", "waitmulti", "offline"]


def touched(file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def chain(out, **options):
    asked = experiment.parsed(["--data", "/corpora", "--size", "mini"])
    for name, value in options.items():
        setattr(asked, name, value)
    return experiment.stages(out, asked)


def test_stages_are_the_base_the_papers_systems_and_what_is_made_of_them(tmp_path):
    base, systems, after = chain(tmp_path)
    assert [stage.name for stage in base] == ["base"]
    assert [stage.name for stage in systems] == NAMES
    assert [stage.name for stage in after] == ["evaluation", "timing"]


def arguments_of(stage):
    """Its settings without what Hydra takes for itself, unquoted as its grammar does."""
    return [each for each in stage.fresh[1:] if not each.startswith("hydra.")]


@pytest.mark.parametrize("size", ["mini", "small", "medium"])
def test_every_command_is_one_that_train_and_evaluate_accept(tmp_path, size):
    tmp_path /= "it's [mine], a=b"  # a folder that Hydra's grammar could misread
    (base,), systems, (evaluation, _) = chain(tmp_path, size=size, limit=7, extra=["training.seed=2"])
    assert checked("train", *arguments_of(base)).system.name == "offline"
    for stage, (name, k) in zip(
        systems,
        [*[("grid", None)] * 3, *(("waitk", k) for k in (1, 3, 5, 7, "multi")), ("offline", None)],
        strict=True,
    ):
        cfg = checked("train", *arguments_of(stage))
        assert (cfg.system.name, cfg.system.k) == (name, k)
        first = "waitmulti" if stage.name == "grid-after_waitk" else "base"
        assert cfg.model.backbone == cfg.data.tokenizer == str(tmp_path / first / "model")
        assert (cfg.data.path, cfg.training.seed) == ("/corpora", 2)
    cfg = checked("evaluate", *arguments_of(evaluation))
    assert cfg.model_folders == [str(stage.folder / "model") for stage in systems]
    assert (cfg.agreement, cfg.limit, cfg.claims, cfg.quality.comet) == ([2, 3, 4], 7, True, None)


@pytest.mark.parametrize(("size", "pairs"), [("mini", 60_000), ("small", None), ("medium", None)])
def test_without_a_folder_the_pairs_are_those_of_the_repository(tmp_path, size, pairs):
    (base,), systems, _ = chain(tmp_path, size=size, data=None)
    assert checked("train", *arguments_of(base)).data.train_size == pairs
    for stage in (base, *systems):
        data = checked("train", *arguments_of(stage)).data
        assert (data.path, data.held_out, data.test_size) == ("repository:data", ["tatoeba", "3am-captions"], 4000)


def test_a_variant_is_a_grid_trained_alike_but_for_its_settings_and_evaluated_beside_it(tmp_path):
    _, systems, (evaluation, _) = chain(tmp_path, variant=[["io_off", "model.input_attends_output=false"]])
    grid, variant, *others = systems
    assert (variant.name, variant.folder) == ("grid-io_off", tmp_path / "grid-io_off")
    assert [stage.name for stage in others] == NAMES[1:]
    one, other = (checked("train", *arguments_of(stage)) for stage in (grid, variant))
    assert one.model.input_attends_output
    assert not other.model.input_attends_output
    other.model.input_attends_output = True
    assert one == other
    assert str(variant.folder / "model") in checked("evaluate", *arguments_of(evaluation)).model_folders


def test_the_grid_past_the_paper_is_trained_as_the_papers_but_for_what_its_file_says(tmp_path):
    _, (paper, past, *_), _ = chain(tmp_path, size="medium")
    paper, past = (dict(leaves(asdict(checked("train", *arguments_of(stage))))) for stage in (paper, past))
    assert {name for name in paper if paper[name] != past[name]} == {
        "model.attention", "model.input_attends_output", "model.emit_hidden", "policy.lam",
        "training.lm_cells", "training.emit_loss", "training.emit_learning_rate", "training.rows",
    }  # fmt: skip


def test_a_policy_after_wait_k_is_trained_as_the_grid_past_the_paper_for_fewer_steps_at_other_rates(tmp_path):
    _, (_, past, after, *_), _ = chain(tmp_path, size="medium")
    past, after = (dict(leaves(asdict(checked("train", *arguments_of(stage))))) for stage in (past, after))
    assert {name for name in past if past[name] != after[name]} == {
        "name", "model.backbone", "data.tokenizer", "training.learning_rate", "training.warmup_steps",
        "training.emit_learning_rate", "trainer.max_steps",
    }  # fmt: skip
    assert after["training.learning_rate"] == past["training.learning_rate"] / 5


def test_several_seeds_train_each_system_from_one_base_and_are_evaluated_as_one(tmp_path):
    _, once, _ = chain(tmp_path)
    (base,), systems, (evaluation, _) = chain(tmp_path, seeds=[1, 2, 3])
    assert [stage.name for stage in systems[:9]] == [stage.name for stage in once]  # a run of one seed is gone on with
    assert [stage.name for stage in systems[9:11]] == ["grid-seed2", "grid-past_paper-seed2"]
    assert len({stage.folder for stage in systems}) == len(systems) == 27
    assert [stage.after for stage in systems if stage.after] == ["waitmulti", "waitmulti-seed2", "waitmulti-seed3"]
    assert f"model.backbone='{tmp_path / 'waitmulti-seed3' / 'model'}'" in systems[20].fresh
    first, *_ = found = [checked("train", *arguments_of(stage)) for stage in systems[::9]]
    assert [cfg.training.seed for cfg in found] == [1, 2, 3]
    for cfg in found:
        cfg.training.seed = 1
        assert cfg == first
    assert not any(argument.startswith("training.seed") for argument in base.fresh)
    cfg = checked("evaluate", *arguments_of(evaluation))
    assert cfg.over_seeds
    assert cfg.model_folders == [str(stage.folder / "model") for stage in systems]
    assert evaluation.folder != chain(tmp_path)[2][0].folder  # that of one seed stays what it is
    for seeds, own in (([1], ""), ([2], "-seeds-2"), ([1, 2], "-seeds-1-2"), ([1, 2, 3], "-seeds-1-2-3")):
        names = [stage.folder.name for stage in chain(tmp_path, seeds=seeds)[2]]
        assert names == [f"evaluation{own}", f"timing{own}"]
    _, (another, *_), (evaluation, timing) = chain(tmp_path, seeds=[4])
    assert another.name == "grid-seed4"
    assert str(another.folder / "model") in timing.fresh
    assert not checked("evaluate", *arguments_of(evaluation)).over_seeds


def test_only_the_systems_asked_for_are_trained_and_evaluated_in_a_folder_of_their_own(tmp_path):
    options = {"variant": [["io_off", "model.input_attends_output=false"]]}
    _, systems, (evaluation, timing) = chain(tmp_path, systems=["offline", "grid-io_off", "wait3"], **options)
    assert [stage.name for stage in systems] == ["grid-io_off", "wait3", "offline"]
    models = [str(stage.folder / "model") for stage in systems]
    assert checked("evaluate", *arguments_of(evaluation)).model_folders == models
    assert models[0] in timing.fresh
    without = "grid-grid-past_paper-grid-after_waitk-wait1-wait5-wait7-waitmulti"
    assert evaluation.folder.name == f"evaluation-with-io_off-without-{without}"
    assert chain(tmp_path, **options)[2][0].folder.name == "evaluation-with-io_off"
    assert chain(tmp_path)[2][0].folder.name == "evaluation"


def test_without_an_offline_or_multi_path_model_there_is_no_local_agreement(tmp_path):
    some = [2, 3, 4]
    for systems, agreements in ((["grid", "wait3"], []), (["grid", "offline"], some), (["grid", "waitmulti"], some)):
        _, _, (evaluation, _) = chain(tmp_path, systems=systems)
        assert checked("evaluate", *arguments_of(evaluation)).agreement == agreements


def test_other_sentences_and_metrics_are_evaluated_in_a_folder_of_their_own(tmp_path):
    for options, own in (({"limit": 100}, "-limit-100"), ({"quality": "neural"}, "-quality-neural")):
        assert [stage.folder.name for stage in chain(tmp_path, **options)[2]] == [f"evaluation{own}", f"timing{own}"]


def test_a_stage_that_was_begun_with_other_settings_is_refused_and_one_without_any_noted_goes_on(tmp_path):
    _, (grid, *_), _ = chain(tmp_path, extra=["training.learning_rate=1e-3"])
    _, (other, *_), _ = chain(tmp_path, extra=["training.learning_rate=1e-4"])
    _, (fewer, *_), _ = chain(tmp_path)
    touched(grid.folder / grid.complete)
    other.refuse_other_settings()  # nothing is noted
    grid.record.write_text(json.dumps(grid.settings()), encoding="utf-8")
    grid.refuse_other_settings()
    (grid.folder / grid.complete).unlink()
    other.refuse_other_settings()  # it ended before it had anything to go on from
    touched(grid.folder / grid.begun)
    with pytest.raises(ValueError, match=r"begun with training\.learning_rate=1e-3, not with training.*=1e-4: give"):
        other.refuse_other_settings()
    with pytest.raises(ValueError, match=r"begun with training\.learning_rate=1e-3, not with fewer settings"):
        fewer.refuse_other_settings()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    _, (grid, *_), _ = chain(moved, extra=["training.learning_rate=1e-3"])
    grid.refuse_other_settings()


def test_a_system_runs_once_the_one_it_starts_from_is_complete(tmp_path, monkeypatch, capsys):
    begun = []

    def run(stage, threads):
        if stage.after:
            assert (tmp_path / stage.after / stage.complete).exists()
        begun.append(stage.name)
        time.sleep(0.2 if stage.name == "waitmulti" else 0)
        touched(stage.folder / stage.complete)
        touched(stage.folder / "results.md")
        return 1.0

    monkeypatch.setattr(experiment, "run", run)
    experiment.main(["--out", str(tmp_path), "--jobs", "9"])
    assert begun[0] == "base"
    assert set(begun[1:-3]) == set(NAMES) - {"grid-after_waitk"}
    assert begun[-3:] == ["grid-after_waitk", "evaluation", "timing"]
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["seconds"]) == set(begun)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--systems", "grid,wait2"], f"--systems: there is no wait2; choose of {','.join(NAMES)}"),
        (["--systems", "grid-io_off"], "there is no grid-io_off"),
        (["--systems", "grid-after_waitk,wait3"], "grid-after_waitk starts from waitmulti; name waitmulti, too"),
        (["--systems", "wait3,offline"], "--systems wait3,offline: one must be a grid"),
        (["--seeds", "1,1"], "--seeds 1,1: each once"),
        (["--seeds", "1,3", "training.seed=2"], "not both"),
        (["--seeds", "1,x"], "invalid numbers value: '1,x'"),
        (["--variant", "a", "x=1", "--variant", "a", "x=2"], "--variant a: there is another grid-a"),
        (["--variant", "past_paper", "policy.lam=1"], "--variant past_paper: there is another grid-past_paper"),
        (["--jobs", "0"], "--jobs 0: must be at least 1"),
        (["--limit", "0"], "--limit 0: must be at least 1"),
    ],
)
def test_what_cannot_be_trained_or_compared_is_refused_before_anything_is_trained(tmp_path, capsys, arguments, told):
    with pytest.raises(SystemExit, match="2"):
        experiment.main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), *arguments])
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_seed_without_a_name_is_the_configurations():
    assert checked("train").training.seed == experiment.SEED


def test_a_base_that_is_there_is_used_and_not_pretrained(tmp_path):
    base, systems, _ = chain(tmp_path / "out", base=tmp_path / "other")
    assert base == []
    for stage in systems:
        first = "out/waitmulti" if stage.after else "other"
        assert f"model.backbone='{tmp_path / first / 'model'}'" in stage.fresh


def test_a_stage_is_started_resumed_or_skipped_by_what_lies_in_its_folder(tmp_path):
    (base,), _, (evaluation, _) = chain(tmp_path)
    assert base.command() == base.fresh
    touched(base.folder / "model.partial" / "duplexmt.json")  # killed before the model folder got its name
    assert base.command() == base.fresh
    touched(base.folder / "checkpoints" / "last.ckpt")
    assert base.command() == ["train.py", f"resume='{tmp_path / 'base'}'"]
    touched(base.folder / "model" / "duplexmt.json")
    assert base.command() is None
    assert evaluation.command() == evaluation.fresh
    touched(evaluation.folder / "decoding.json")
    assert evaluation.command() == ["evaluate.py", f"resume='{tmp_path / 'evaluation'}'"]
    touched(evaluation.folder / "results.json")  # not the last of them
    assert evaluation.command() is not None
    touched(evaluation.folder / "scored.json")
    assert evaluation.command() is None


def counting(folder, fails=0):
    """A stage that counts to 3, a line of its file a step, and goes on where it was killed; it fails before `fails`."""
    code = (
        "import os, sys, time, pathlib; folder = pathlib.Path(sys.argv[1]); folder.mkdir(exist_ok=True)\n"
        "begun = folder / 'begun'; done = begun.read_text() if begun.exists() else ''\n"
        "for step in range(len(done), 3):\n"
        "    if step < int(sys.argv[2]): sys.exit('no such file: step')\n"
        "    done += sys.argv[3]; begun.write_text(done); time.sleep(float(sys.argv[4]))\n"
        "(folder / 'complete').write_text(done)\n"
    )
    fresh, resumed = (["-c", code, str(folder), str(fails), letter, "0"] for letter in "fr")
    return experiment.Stage("count", folder, fresh, resumed, complete="complete", begun="begun")


def test_a_stage_killed_in_the_middle_goes_on_and_runs_no_second_time(tmp_path, capsys):
    stage = counting(tmp_path / "count")
    stage.fresh[-1] = "60"
    killed = subprocess.Popen([sys.executable, *stage.fresh])
    begun = stage.folder / "begun"
    while not (begun.exists() and begun.read_text() == "f"):
        time.sleep(0.02)
        assert killed.poll() is None
    killed.kill()
    killed.wait()
    assert experiment.run(stage, threads=1) is not None
    assert (tmp_path / "count" / "complete").read_text() == "frr"
    assert experiment.run(stage, threads=1) is None
    assert capsys.readouterr().out.splitlines()[-1] == "count: complete"


def test_a_stage_that_fails_is_named_with_the_end_of_its_log(tmp_path):
    with pytest.raises(ValueError, match=r"count ended with status 1 before it was complete[\s\S]*no such file: step"):
        experiment.run(counting(tmp_path / "count", fails=3), threads=1)


def test_a_stage_still_at_work_after_its_driver_was_killed_is_not_started_twice(tmp_path):
    stage = counting(tmp_path / "count")
    stage.fresh[-1] = "60"
    code = (
        "import json, pathlib, sys; from benchmarks import experiment\n"
        "stage = experiment.Stage(*(pathlib.Path(v) if i == 1 else v for i, v in enumerate(json.loads(sys.argv[1]))))\n"
        "experiment.run(stage, 1)\n"
    )
    values = [stage.name, str(stage.folder), stage.fresh, stage.resumed, stage.complete, stage.begun]
    command = [sys.executable, "-c", code, json.dumps(values)]
    driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        while not (stage.folder / "begun").exists():
            time.sleep(0.02)
            assert driver.poll() is None
        driver.kill()  # the driver alone: its child works on
        driver.wait()
        with pytest.raises(ValueError, match="count is still at work, from an earlier start"):
            experiment.run(stage, threads=1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)


def test_a_stage_at_work_keeps_the_note_of_what_it_was_begun_with(tmp_path):
    stage, other = counting(tmp_path / "count"), counting(tmp_path / "count", fails=1)
    stage.record.write_text(json.dumps(stage.settings()), encoding="utf-8")
    with open(tmp_path / "count.log", "a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="count is still at work"):
            experiment.run(other, threads=1)
    assert json.loads(stage.record.read_text(encoding="utf-8")) == stage.settings()


INTERRUPTED = """
import signal, sys, time
from pathlib import Path

signal.signal(signal.SIGINT, lambda *_: None)  # as train.py: a note, and a checkpoint when the step is done
Path(sys.argv[1], "begun").touch()
time.sleep(1.5)
Path(sys.argv[1], "saved").touch()
"""


def test_ctrl_c_waits_for_the_checkpoint_of_the_stage_at_work(tmp_path):
    (tmp_path / "stage.py").write_text(INTERRUPTED)
    code = (
        "import pathlib, signal, sys; from benchmarks import experiment\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what a shell starts with & inherits none
        "out = pathlib.Path(sys.argv[1])\n"
        "fresh = [str(out / 'stage.py'), str(out)]\n"
        "experiment.run(experiment.Stage('base', out / 'base', fresh, [], 'done', 'begun'), 1)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    )
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
        assert driver.poll() is None
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to all of them
    assert b"KeyboardInterrupt" in driver.communicate()[1]
    assert (tmp_path / "saved").exists()
