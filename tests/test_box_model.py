"""The model in the box, as a user has it: from a clone with no run, in int8, and made again by `make model`."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from duplexmt.config import DataConfig
from duplexmt.kernels.int8 import exact_products
from duplexmt.model_folder import pack
from tests.model_folder import test_artifact

from .commands import run, succeeded
from .helpers import SENTENCES, spoken_grid
from .test_experiment import composed, printed

ROOT = Path(__file__).parents[1]
TEXT = "今天天气很好，我们去公园吧。"


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A tiny model as it is given away, with all settings of a corpus."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES), encoding="utf-8")
    monkeypatch.setattr(test_artifact, "DATA", asdict(DataConfig(corpus="pairs", path=str(path))))
    trained = test_artifact.save(tmp_path / "trained", spoken_grid(anchor=0), tokens=test_artifact.StreamTokens(0, 1))
    return pack.pack(trained, tmp_path / "packed")


@pytest.fixture
def clone(packed, tmp_path):
    """The repository as it is cloned, but for the tests, with this model in the box."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", "runs", "site", "tests", "build", "models", ".*_cache", "__pycache__"
    )
    shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out)
    shutil.copytree(packed, tmp_path / "clone" / "models" / "zh-en")
    return tmp_path / "clone"


def in_clone(clone, *arguments, stdin=""):
    command = [sys.executable, *arguments]
    return succeeded(subprocess.run(command, cwd=clone, input=stdin, text=True, capture_output=True, check=False))


@pytest.mark.slow
def test_a_fresh_clone_translates_and_says_by_which_model(clone):
    done = in_clone(clone, "translate.py", "steps=true", "max_target_tokens=4", stdin=TEXT + "\n")
    assert "model: models/zh-en (the model in the box, as there is no run here)" in done.stderr
    read = "".join(line.split()[0] for line in done.stdout.splitlines() if line.split())
    assert read.startswith("今")


@pytest.mark.slow
@pytest.mark.skipif(not exact_products(), reason="this processor has no exact integer products")
def test_int8_and_float32_are_told_apart_when_they_are_scored_together(packed, tmp_path):
    test = f"data.test_path='{tmp_path / 'pairs.tsv'}'"
    common = [f"model_folder='{packed}'", test, "policy.theta=0.5", "quality.resamples=100", "check_overlap=false"]
    for name in ("null", "int8"):
        folder = f"hydra.run.dir='{tmp_path / name}'"
        succeeded(run("evaluate.py", *common, "device=cpu", f"quantize={name}", "policy.max_target_tokens=8", folder))
    both = f"rescore=['{tmp_path / 'null'}','{tmp_path / 'int8'}']"
    succeeded(run("evaluate.py", both, "quality.resamples=100", f"hydra.run.dir='{tmp_path / 'both'}'"))
    rows = json.loads((tmp_path / "both" / "results.json").read_text(encoding="utf-8"))["rows"]
    assert len({row["system"] for row in rows}) == 2
    assert any("int8" in row["system"] for row in rows)
    done = run("translate.py", f"model_folder='{packed}'", f"text={TEXT}", "quantize=int8", "max_target_tokens=4")
    assert succeeded(done).stdout


@pytest.mark.parametrize(
    ("name", "scores", "pairs"),
    [
        ("zh-en", "data (tatoeba)", {("repository:data", "runs/box"), ("repository:data/de-en", "runs/box-de")}),
        ("de-en", "de-en", {("repository:data/de-en", "runs/box-de")}),
    ],
)
def test_a_model_in_the_box_is_small_has_its_scores_and_knows_no_path_of_another_machine(name, scores, pairs):
    box = ROOT / "models" / name
    assert sum(file.stat().st_size for file in box.iterdir()) <= 25e6
    card, manifest = ((box / name).read_text(encoding="utf-8") for name in ("README.md", "duplexmt.json"))
    assert f"## Scores: {scores}, test split, 4000 sentences" in card
    info = json.loads(manifest)
    corpora = [info["data"], *info["trained_before"]]
    assert {(data["path"], data["prepared"]) for data in corpora} == pairs
    assert not re.search(r'"/\w', manifest)
    assert len(info["samples"]["sentences"]) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("zh-en", "你能不能帮我一个忙？", "help me"), ("de-en", "Ich habe gestern ein Buch gekauft.", "bought a book")],
)
def test_a_model_in_the_box_translates(name, text, words):
    done = succeeded(run("translate.py", f"model_folder='{ROOT / 'models' / name}'", f"text={text}"))
    assert words in done.stdout


def test_every_command_of_make_model_is_one_that_is_accepted(tmp_path):
    commands = printed("box_model.sh", "zh-en", "training.seed=2", OUT=tmp_path, INTO=tmp_path / "into")
    trainings = ["tokenizer", "english", "base", "everyday", "grid", "copies", "back", "again", "daily", "written"]
    trainings += ["back-grid", "more", "more-grid", "longer", "longer-grid"]
    evaluations = ["theta", "tatoeba", "captions"]
    assert [name for name, (program, _) in commands.items() if program == "train.py"] == trainings
    trained = [composed(commands[name]) for name in trainings]
    tokenizer, english, base, everyday, grid, copies, back, again, daily, written, back_grid, *means = trained
    systems = [cfg.system.name for cfg in trained]
    assert systems == ["offline"] * 4 + ["grid"] * 2 + ["offline"] * 4 + ["grid", *["offline", "grid"] * 2]
    assert english.data.tokenizer == str(tmp_path / "tokenizer" / "model")
    bases = [*trainings[1:-3], "mean", "longer"]
    for before, cfg in zip(bases, trained[2:], strict=True):
        assert cfg.model.backbone == cfg.data.tokenizer == str(tmp_path / before / "model")
    assert again.data.sources == back.data.sources
    assert [cfg.data.copy_tokens for cfg in trained] == [0] * 5 + [8] * 10
    everyday_pairs = everyday.data.sources
    assert tokenizer.data.sources == grid.data.sources == copies.data.sources == everyday_pairs
    assert back.data.sources == [*everyday_pairs, "tatoeba-back"]
    assert daily.data.sources == [*back.data.sources, "daily-life", "daily-life-2"]
    assert written.data.sources == back_grid.data.sources == [*everyday_pairs, "daily-life", "daily-life-2"]
    assert means[0].data.sources == ["tatoeba", "3am-captions", "greetings", "daily-life-3"]
    for cfg in means[1:]:
        assert cfg.data.sources == [*written.data.sources, "daily-life-3"]
    files = {path.name.split(".")[0] for path in (ROOT / "data").glob("*.tsv.gz")}
    made = {name for name in files if name.startswith(("tatoeba-back", "daily-life"))}
    assert {*base.data.sources} == files - made, "all that people wrote"
    assert grid.training.rows == 4
    for cfg in trained:
        data = cfg.data
        assert data.path == ("repository:data/de-en" if cfg is english else "repository:data")
        assert (data.max_tokens, data.train_size, data.test_size) == (64, None, 4000)
        assert cfg.training.seed == 2
    theta, *scored = [composed(commands[name]) for name in evaluations]
    assert (theta.target_al, theta.limit, theta.model_folders) == (3, 500, [str(tmp_path / "last" / "model")])
    for cfg, held_out, limit in zip(scored, ("tatoeba", "3am-captions"), (None, 2000), strict=True):
        assert (cfg.model_folders, cfg.data.held_out, cfg.limit) == ([str(tmp_path / "packed")], [held_out], limit)


def test_every_command_of_make_model_de_is_one_that_is_accepted(tmp_path):
    commands = printed("box_model.sh", "de-en", OUT=tmp_path, INTO=tmp_path / "into", AL="2.5", LIMIT=7)
    base, grid, again, last = trained = [composed(commands[name]) for name in ("base", "grid", "again", "last")]
    assert [cfg.system.name for cfg in trained] == ["offline", "grid"] * 2
    for cfg, before in ((grid, "base/model"), (again, "grown"), (last, "again/model")):
        assert cfg.model.backbone == cfg.data.tokenizer == str(tmp_path / before)
    assert {(cfg.data.path, cfg.data.source_language) for cfg in trained} == {("repository:data/de-en", "de")}
    assert (base.data.test_size, last.training.rows, last.model.anchor) == (4000, 4, 128)
    assert composed(commands["theta"]).target_al == 2.5
    scored = composed(commands["tatoeba_de"])
    assert (scored.data.held_out, scored.limit) == (["tatoeba"], 7)
