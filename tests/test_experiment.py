"""Chains of commands as shell scripts (benchmarks/*.sh): what is run, skipped or resumed, and that each is accepted."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from .test_config import checked, leaves

ROOT = Path(__file__).parents[1]
NAMES = ["grid", "grid-past_paper", "grid-after_waitk", "wait1", "wait3", "wait5", "wait7", "waitmulti", "offline"]
OF_CHAINS = ("OUT", "INTO", "DATA", "BASE", "SIZE", "JOBS", "SEEDS", "SYSTEMS", "QUALITY", "LIMIT", "AL", "DRY_RUN")
PYTHON = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def around(variables):
    """The environment of a chain, in one thread and with the Python of these tests."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_CHAINS}
    ours = {"PATH": PYTHON, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return kept | ours | {name: str(value) for name, value in variables.items()}


def chain(script, *arguments, **variables):
    command = ["bash", str(ROOT / "benchmarks" / script), *arguments]
    return subprocess.run(command, env=around(variables), capture_output=True, text=True, check=False)


def printed(script, *arguments, **variables):
    """Of each folder the command that fills it, with its settings, without Hydra's own."""
    done = chain(script, *arguments, DRY_RUN=1, JOBS=1, **variables)
    assert done.returncode == 0, done.stderr
    commands = {}
    for python, program, *settings in map(shlex.split, done.stdout.splitlines()):
        assert python == "python"
        folder = settings[-1].rpartition("/")[2].rstrip("'")
        commands.setdefault(folder, (program, [each for each in settings if not each.startswith("hydra.")]))
    return commands


def experiment(out, *arguments, **variables):
    return printed("experiment.sh", *arguments, **({"OUT": out, "SIZE": "mini", "DATA": "/corpora"} | variables))


def composed(command):
    """The settings of a command, as its program checks them."""
    return checked(command[0].removesuffix(".py"), *command[1])


def differing(one, other):
    one, other = (dict(leaves(asdict(composed(command)))) for command in (one, other))
    return {name for name in one if one[name] != other[name]}


@pytest.mark.parametrize("size", ["mini", "small", "medium"])
def test_every_command_of_the_experiment_is_one_that_is_accepted(tmp_path, size):
    out = tmp_path / "it's [mine], a=b"  # a folder that Hydra's grammar could misread
    commands = experiment(out, "training.seed=2", SIZE=size, LIMIT=7)
    order = ["base", *[name for name in NAMES if name != "grid-after_waitk"], "grid-after_waitk"]
    assert [*commands] == [*order, "evaluation-limit-7"]
    assert composed(commands["base"]).system.name == "offline"
    for name in NAMES:
        cfg = composed(commands[name])
        kind, _, k = name.partition("wait") if name.startswith("wait") else (name.partition("-")[0], "", None)
        assert (cfg.system.name, str(cfg.system.k)) == (kind or "waitk", str(k))
        first = "waitmulti" if name == "grid-after_waitk" else "base"
        assert cfg.model.backbone == cfg.data.tokenizer == str(out / first / "model")
        assert (cfg.data.path, cfg.training.seed) == ("/corpora", 2)
    cfg = composed(commands["evaluation-limit-7"])
    assert cfg.model_folders == [str(out / name / "model") for name in NAMES]
    assert (cfg.agreement, cfg.limit, cfg.claims, cfg.quality.comet) == ([2, 3, 4], 7, True, None)


@pytest.mark.parametrize(("size", "pairs"), [("mini", 60_000), ("small", None), ("medium", None)])
def test_without_a_folder_the_pairs_are_those_of_the_repository(tmp_path, size, pairs):
    commands = experiment(tmp_path, SIZE=size, DATA="")
    assert composed(commands["base"]).data.train_size == pairs
    for name in ("base", *NAMES):
        data = composed(commands[name]).data
        assert (data.path, data.held_out, data.test_size) == ("repository:data", ["tatoeba", "3am-captions"], 4000)


def test_the_grids_past_the_paper_are_trained_as_the_papers_but_for_what_their_files_say(tmp_path):
    commands = experiment(tmp_path, SIZE="medium")
    assert differing(commands["grid"], commands["grid-past_paper"]) == {
        "name", "model.attention", "model.input_attends_output", "model.emit_hidden", "policy.lam",
        "training.lm_cells", "training.emit_loss", "training.emit_learning_rate", "training.rows",
    }  # fmt: skip
    assert differing(commands["grid-past_paper"], commands["grid-after_waitk"]) == {
        "name", "model.backbone", "data.tokenizer", "training.learning_rate", "training.warmup_steps",
        "training.emit_learning_rate", "trainer.max_steps",
    }  # fmt: skip
    past, after = (composed(commands[name]).training for name in ("grid-past_paper", "grid-after_waitk"))
    assert after.learning_rate == past.learning_rate / 5


def test_several_seeds_train_each_system_from_one_base_and_are_evaluated_as_one(tmp_path):
    once, commands = experiment(tmp_path), experiment(tmp_path, SEEDS="1,2,13")
    models = [name + suffix for suffix in ("", "-seed2", "-seed13") for name in NAMES]
    assert {*commands} == {"base", *models, "evaluation-seeds-1-2-13"}
    assert all(commands[name] == once[name] for name in ("base", *NAMES)), "a run of one seed is gone on with"
    assert differing(commands["wait3"], commands["wait3-seed13"]) == {"training.seed"}
    assert composed(commands["wait3-seed13"]).training.seed == 13
    assert composed(commands["grid-after_waitk-seed2"]).model.backbone == str(tmp_path / "waitmulti-seed2" / "model")
    cfg = composed(commands["evaluation-seeds-1-2-13"])
    assert cfg.over_seeds
    assert cfg.model_folders == [str(tmp_path / name / "model") for name in models]
    assert checked("train").training.seed == 1, "the one without a suffix"


@pytest.mark.parametrize(
    ("systems", "agreement"),
    [("grid,wait3", []), ("wait3,grid-past_paper,offline", [2, 3, 4]), ("grid,waitmulti", [2, 3, 4])],
)
def test_only_the_systems_asked_for_are_trained_and_evaluated_in_a_folder_of_their_own(tmp_path, systems, agreement):
    commands, names = experiment(tmp_path, SYSTEMS=systems), systems.split(",")
    own = "-of-" + "-".join(names)
    assert [*commands] == ["base", *names, f"evaluation{own}"]
    cfg = composed(commands[f"evaluation{own}"])
    assert cfg.model_folders == [str(tmp_path / name / "model") for name in names]
    assert cfg.agreement == agreement, "local agreement needs an offline or a multi-path model"


def test_a_model_trained_beside_them_is_evaluated_and_a_base_that_is_there_is_used(tmp_path):
    (tmp_path / "grid-io_off" / "model").mkdir(parents=True)
    commands = experiment(tmp_path, SYSTEMS="grid-io_off,offline", BASE=tmp_path / "other")
    assert [*commands][:1] == ["offline"]
    assert composed(commands["offline"]).model.backbone == str(tmp_path / "other" / "model")
    folders = composed(commands["evaluation-of-grid-io_off-offline"]).model_folders
    assert folders == [str(tmp_path / name / "model") for name in ("grid-io_off", "offline")]


@pytest.mark.parametrize(
    ("script", "variables", "arguments", "told"),
    [
        ("experiment.sh", {"SYSTEMS": "grid,wait2"}, [], f"there is no wait2; choose of {','.join(NAMES)}, or train"),
        ("experiment.sh", {"SYSTEMS": "grid-after_waitk,wait3"}, [], "grid-after_waitk starts from waitmulti; add it"),
        ("experiment.sh", {"SYSTEMS": "wait3,offline"}, [], "SYSTEMS=wait3,offline: one must be a grid"),
        ("experiment.sh", {"SEEDS": "1,3"}, ["training.seed=2"], "not both"),
        ("experiment.sh", {"SEEDS": "1,x"}, [], "SEEDS=1,x: must be whole numbers"),
        ("experiment.sh", {"SIZE": "foo"}, [], "SIZE=foo: there is no conf/experiment/foo_finetune.yaml"),
        ("experiment.sh", {"QUALITY": "best"}, [], "QUALITY=best: must be basic or neural"),
        ("experiment.sh", {"JOBS": "0"}, [], "JOBS=0: must be a whole number, at least 1"),
        ("experiment.sh", {}, ["--jobs", "1"], "--jobs: must be a setting of the trainings, KEY=VALUE"),
        ("box_model.sh", {"LIMIT": "0"}, ["zh-en"], "LIMIT=0: must be a whole number, at least 1"),
        ("box_model.sh", {"AL": "nan"}, ["zh-en"], "AL=nan: must be a number above 0"),
        ("box_model.sh", {"AL": "0"}, ["de-en"], "AL=0: must be a number above 0"),
        ("box_model.sh", {}, [], "which model? benchmarks/box_model.sh zh-en, or de-en"),
        ("box_model.sh", {}, ["data.train_size=9"], "which model?"),
    ],
)
def test_what_cannot_be_trained_or_compared_is_refused_before_anything_is(tmp_path, script, variables, arguments, told):
    done = chain(script, *arguments, OUT=tmp_path / "out", INTO=tmp_path / "into", **variables)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


# --- stages, by a program in the place of Python's ---------------------------------------------------------------

PROGRAM = """#!/usr/bin/env bash
# Makes what train.py and evaluate.py do of a folder, and notes begin and end; FAIL is a stage that fails once begun.
set -eu
[[ $1 != translate.py ]] || exec cat
folder=${*: -1}
for word in "$@"; do
    case $word in hydra.run.dir=*|resume=*) folder=${word#*=\\'}; folder=${folder%\\'} ;; esac
done
name=${folder##*/}
echo "> $name $1 ${*: -1}" >> "$NOTES"
mkdir -p "$folder/checkpoints" "$folder/model"
touch "$folder/checkpoints/last.ckpt" "$folder/decoding.json" "$folder/results.md"
if [[ $name == "${FAIL:-}" ]]; then echo "no such file: it"; exit 1; fi
[[ $name != "${SLOW:-}" ]] || { trap 'sleep 0.5; echo "saved $name" >> "$NOTES"; exit 130' INT; sleep 60 & wait $!; }
sleep 0.1
touch "$folder/model/duplexmt.json" "$folder/scored.json"
echo "< $name" >> "$NOTES"
"""


@pytest.fixture
def notes(tmp_path):
    """What a chain runs, by a program that only makes the files; a file of notes."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{PYTHON}", "NOTES": tmp_path / "notes", "OUT": tmp_path / "out"}


def taken(notes):
    lines = notes["NOTES"].read_text(encoding="utf-8").splitlines() if notes["NOTES"].exists() else []
    notes["NOTES"].unlink(missing_ok=True)
    return lines


def test_systems_run_side_by_side_once_those_that_they_start_from_are_complete_and_a_second_time_none(notes):
    done = chain("experiment.sh", JOBS=3, **notes)
    assert done.returncode == 0, done.stderr
    lines, most, running = taken(notes), 0, set()
    for line in lines:
        running ^= {line.split()[1]}
        most = max(most, len(running))
    assert most == 3
    assert [line.split()[1] for line in lines[:2]] == ["base", "base"]
    names = [line.split()[1] for line in lines if line[0] == ">"]
    assert {*names[1:-2]} == {*NAMES} - {"grid-after_waitk"}
    assert names[-2:] == ["grid-after_waitk", "evaluation"]
    assert lines.index("< waitmulti") < lines.index(next(line for line in lines if "after_waitk" in line))
    done = chain("experiment.sh", JOBS=3, **notes)
    assert taken(notes) == []
    assert done.stdout.count(": complete") == 11


@pytest.mark.parametrize("stage", ["wait3", "evaluation"])
def test_a_stage_that_fails_is_named_with_the_end_of_its_log_and_the_same_command_resumes_it(notes, stage):
    done = chain("experiment.sh", FAIL=stage, **notes)
    assert done.returncode != 0
    out = notes["OUT"]
    assert f"no such file: it\nerror: {out}/{stage} is not complete (its log is {out}/{stage}.log)" in done.stderr
    lines = taken(notes)
    assert not any("grid-after_waitk" in line for line in lines) or stage == "evaluation"
    assert stage != "wait3" or "< offline" in lines, "the others are finished"
    done = chain("experiment.sh", **notes)
    assert done.returncode == 0, done.stderr
    program = "evaluate.py" if stage == "evaluation" else "train.py"
    assert f"> {stage} {program} resume='{out}/{stage}'" in taken(notes)


def test_a_stage_that_was_begun_with_other_settings_is_refused_wherever_its_folder_is_by_now(notes):
    assert chain("experiment.sh", "training.learning_rate=1e-3", FAIL="base", **notes).returncode == 2
    for settings in (["training.learning_rate=1e-4"], []):
        done = chain("experiment.sh", *settings, **notes)
        assert done.returncode == 2
        assert f"{notes['OUT']}/base was begun with other settings" in done.stderr
    notes["OUT"] = notes["OUT"].rename(notes["OUT"].with_name("moved"))
    assert chain("experiment.sh", "training.learning_rate=1e-3", **notes).returncode == 0
    (notes["OUT"] / "base.settings").unlink()  # nothing is noted
    (notes["OUT"] / "grid.settings").unlink()
    done = chain("experiment.sh", SYSTEMS="grid", **notes)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_waits_for_the_checkpoint_of_the_stages_at_work(notes):
    stage = "wait1"
    command = ["bash", str(ROOT / "benchmarks" / "experiment.sh")]
    free = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), "start_new_session": True}
    begun = subprocess.Popen(command, env=around(notes | {"SLOW": stage}), stderr=subprocess.DEVNULL, **free)
    limit = time.monotonic() + 120
    while not (notes["OUT"] / stage / "results.md").exists():
        assert begun.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: to all of them
    assert begun.wait(timeout=120) != 0
    assert f"saved {stage}" in taken(notes)


def test_a_model_is_packed_with_the_scores_of_what_was_packed_and_samples_chosen_by_the_first(notes, tmp_path):
    into, out = tmp_path / "into", notes["OUT"]
    done = chain("box_model.sh", "zh-en", INTO=into, **notes)
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    scores = [f"{out}/tatoeba", f"{out}/captions"]
    assert [command[2:] for command in commands if command[1] == "-m"] == [
        ["duplexmt.model_folder.average", *(f"{out}/{one}/model" for one in ("back-grid", "more-grid", "mean"))],
        ["duplexmt.model_folder.average", *(f"{out}/{one}/model" for one in ("mean", "longer-grid", "last"))],
        ["duplexmt.model_folder.pack", f"{out}/last/model", f"{out}/packed"],
        ["duplexmt.model_folder.pack", f"{out}/last/model", f"{into}", "--results", *scores],
        ["duplexmt.evaluation.samples", scores[0], f"{into}"],
    ]
    rows = (into / "README.md").read_text(encoding="utf-8").splitlines()[-20:]
    assert all(re.fullmatch(r"\| (.+) \| \1 \|", row) for row in rows), "everyday sentences, and here themselves"
    others = [command[1] for command in commands if command[1] != "train.py"]
    assert others == ["-m", "-m", "evaluate.py", "-m", "evaluate.py", "evaluate.py", "-m", "-m"]
