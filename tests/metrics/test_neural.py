"""COMET and BLEURT by their own environment: the protocol with a stand-in for it, and the real thing where it is."""

import json
import os
import runpy
import stat
import subprocess
import sys
from pathlib import Path
from statistics import mean
from types import SimpleNamespace

import pytest

from duplexmt.metrics.neural import Translation, neural_scores

from ..helpers import METRICS_PYTHON, needs_metrics_environment

ROOT = Path(__file__).parents[2]
ITEMS = [
    Translation("人是人", "the man", ["a man is a man"]),
    Translation("我好", "", ["I am well", "I'm well"]),
    Translation("人是人", "the man", ["a man is a man"]),  # another system said the same
]
MANY = [*ITEMS, *(Translation("我们好", " ".join(["we", "cat", "I am"][:n] * n), ["a cat"]) for n in range(9))]
# Scores a hypothesis by its length and a reference by half of its own; obeys a file `orders` beside it.
STAND_IN = """
import json, pathlib, sys
here = pathlib.Path(__file__).parents[1]
orders = (here / "orders").read_text() if (here / "orders").exists() else ""
items = [json.loads(line) for line in sys.stdin.buffer]
with open(here / "asked", "a") as asked:
    asked.write(str(len(items)) + "\\n")
if orders == "no checkpoint":
    print(json.dumps({"error": "OSError: no such\\nrepository"})); sys.exit(1)
print(json.dumps({"version": "stand-in 1"}))
for index, item in reversed(list(enumerate(items))):
    score = len(item["hypothesis"]) / 10 + len(item["reference"]) / 1000
    print(json.dumps({"index": index, "score": float("nan") if orders == "nan" else score}), flush=True)
    if orders == "killed":
        print("MemoryError: too little", file=sys.stderr); sys.exit(9)
"""


def stand_in(folder: Path, program: str) -> Path:
    """A metrics environment whose Python runs this program alone."""
    python = folder / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\n{program}\n", encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return folder / "environment"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    return stand_in(tmp_path, STAND_IN)


def scores_of(environment: Path, folder: Path, items: list[Translation] = ITEMS, **options: object) -> list[float]:
    return neural_scores("COMET", "some/checkpoint", items, folder, environment=str(environment), **options).scores


def asked(environment: Path) -> list[int]:
    return [int(line) for line in (environment / "asked").read_text().split()]


def test_scores_are_times_100_in_the_order_of_the_translations_and_the_mean_over_references(environment, tmp_path):
    found = neural_scores("COMET", "some/checkpoint", ITEMS, tmp_path, environment=str(environment))
    assert found.scores == pytest.approx([71.4, (0.9 + 0.8) / 2, 71.4])
    assert found.version == "stand-in 1"


def test_what_is_said_twice_or_has_been_scored_before_is_not_scored_again(environment, tmp_path):
    scores_of(environment, tmp_path)
    assert asked(environment) == [3], "three different pairs of hypothesis and reference"
    again = neural_scores("COMET", "some/checkpoint", ITEMS, tmp_path, environment=str(environment))
    assert asked(environment) == [3]
    assert again.version == "stand-in 1"
    scores_of(environment, tmp_path / "gathered", also_kept=[tmp_path])
    assert asked(environment) == [3]
    scores_of(environment, tmp_path, [*ITEMS, Translation("我", "I", ["I"])])
    assert asked(environment) == [3, 1]


def test_an_interrupted_scorer_says_how_far_it_came_and_goes_on_from_there(environment, tmp_path):
    (environment / "orders").write_text("killed")
    with pytest.raises(ValueError, match=r"stopped after 1 of 3 sentences \(MemoryError: too little.*rescore=FOLDER"):
        scores_of(environment, tmp_path)
    (kept,) = tmp_path.glob("*.jsonl")
    kept.write_bytes(kept.read_bytes() + b'{"key": "half a li')  # as if we had been killed, too
    (environment / "orders").unlink()
    for _ in range(2):  # what is kept is whole again
        assert scores_of(environment, tmp_path) == pytest.approx([71.4, 0.85, 71.4])
    assert asked(environment) == [3, 2]


def test_a_score_that_is_no_number_is_refused_with_its_sentence_and_not_kept(environment, tmp_path):
    (environment / "orders").write_text("nan")
    with pytest.raises(ValueError, match=r"COMET some/checkpoint gave nan for '.*' \(source '我好'\)"):
        scores_of(environment, tmp_path)
    (environment / "orders").unlink()
    assert scores_of(environment, tmp_path) == pytest.approx([71.4, 0.85, 71.4])


def test_a_missing_environment_names_the_command_that_builds_it(tmp_path):
    with pytest.raises(ValueError, match=r"COMET needs the metrics environment.*run make metrics"):
        scores_of(tmp_path / "none", tmp_path)


def test_a_missing_checkpoint_names_the_command_that_fetches_it(environment, tmp_path):
    (environment / "orders").write_text("no checkpoint")
    with pytest.raises(ValueError, match=r"'some/checkpoint' could not be loaded \(OSError: no such repository\)") as e:
        scores_of(environment, tmp_path)
    assert "hf download some/checkpoint" in str(e.value)
    assert "quality.comet=FOLDER" in str(e.value)


def test_damaged_scores_are_named_by_their_place(environment, tmp_path):
    scores_of(environment, tmp_path)
    (kept,) = tmp_path.glob("*.jsonl")
    kept.write_text("{}\n")
    with pytest.raises(ValueError, match=r"\.jsonl:1 is damaged"):
        scores_of(environment, tmp_path)


def test_a_folder_with_other_files_is_another_checkpoint(environment, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    for content in ("first", "a second one"):
        (checkpoint / "weights").write_text(content)
        neural_scores("BLEURT", str(checkpoint), ITEMS[:1], tmp_path / "scores", environment=str(environment))
    assert asked(environment) == [1, 1]


# --- the real thing ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Tiny COMET and BLEURT checkpoints, built by the metrics environment itself."""
    folder = tmp_path_factory.mktemp("checkpoints")
    script = Path(__file__).parent / "tiny_checkpoints.py"
    items = [{"source": s, "hypothesis": h, "reference": r} for s, h, references in MANY for r in references]
    given = "".join(f"{json.dumps(item)}\n" for item in items)
    call = {"input": given, "capture_output": True, "text": True, "env": OFFLINE, "timeout": 120}
    done = subprocess.run([METRICS_PYTHON, script, folder], **call)
    assert done.returncode == 0, done.stderr
    return folder


OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", (0, "cpu", None)), ("cuda", (1, "gpu", None)), ("cuda:1", (1, "gpu", [1])), ("mps", (0, "cpu", None))],
)
def test_comet_runs_on_the_device_asked_for(device, expected, monkeypatch, tmp_path):
    """Against a stand-in for the library, which is not in this environment."""

    class Comet:
        def predict(self, samples, *, gpus, accelerator, devices=None, **_):
            asked.append((gpus, accelerator, devices))
            return SimpleNamespace(scores=[0.5] * len(samples))

    asked = []
    monkeypatch.setitem(sys.modules, "comet", SimpleNamespace(load_from_checkpoint=lambda *_, **__: Comet()))
    load_comet = runpy.run_path(str(ROOT / "metrics_env" / "neural.py"))["load_comet"]
    score = load_comet(tmp_path, device)
    assert score([{"source": "人", "hypothesis": "a man", "reference": "man"}], 8) == [0.5]
    assert asked == [expected]


@needs_metrics_environment
@pytest.mark.slow
@pytest.mark.parametrize("metric", ["COMET", "BLEURT"])
def test_a_checkpoint_scores_every_sentence_the_same_in_any_batch(metric, checkpoints, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint = str(checkpoints / metric.lower())
    found = neural_scores(metric, checkpoint, MANY, tmp_path, batch_size=32, device="cpu")
    assert found.version.split()[0] == {"COMET": "unbabel-comet", "BLEURT": "bleurt-pytorch"}[metric]
    in_threes = iter(json.loads((checkpoints / f"{metric.lower()}.json").read_text()))
    expected = [100 * mean(next(in_threes) for _ in item.references) for item in MANY]
    assert found.scores == pytest.approx(expected, abs=1e-3)
    assert len(set(found.scores)) > 5
    (kept,) = tmp_path.glob("*.jsonl")
    assert json.loads(kept.read_text().splitlines()[0])["checkpoint"] == checkpoint


@needs_metrics_environment
@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_had_offline_is_told_by_the_real_scorer(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"'lucadiliello/BLEURT-20' could not be loaded .*hf download"):
        neural_scores("BLEURT", "lucadiliello/BLEURT-20", ITEMS, tmp_path)
