"""The command line of evaluations: what `resume` and `rescore` make of what was begun."""

import json

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from duplexmt.command_line import alone_in, rescore_arguments, resume_arguments
from duplexmt.common.files import locked


def begun(folder, overrides, content):
    """An evaluation as Hydra and `evaluate.py` leave it."""
    (folder / ".hydra").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(overrides), folder / ".hydra" / "overrides.yaml")
    (folder / "decoding.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("models", [["/runs/a/model"], ["/runs/a, b/model", "/runs/it's [1]\\/model", "/译/model"]])
def test_an_evaluation_goes_on_with_the_folders_it_was_begun_with_whatever_latest_is_now(tmp_path, models):
    run = begun(tmp_path / "run", ["model_folder=runs/latest/model", "limit=5"], {"model_folders": models})
    limit, model_folder, *rest = resume_arguments([f"resume={run}"], needs="decoding.json")
    assert (limit, rest) == ("limit=5", [f"resume={run}", f"hydra.run.dir='{run}'"])
    override = OverridesParser.create().parse_override(model_folder)
    assert (override.key_or_group, override.value()) == ("model_folder", models)


def test_a_folder_to_go_on_in_that_is_empty_is_refused():
    with pytest.raises(ValueError, match=r"resume=: give the folder a run was started in, or leave it out"):
        resume_arguments(["limit=5", "resume="])
    assert resume_arguments(["resume=null"]) == ["resume=null"]


def test_other_model_folders_named_now_take_the_place_of_those_an_evaluation_was_begun_with(tmp_path):
    run = begun(tmp_path / "run", ["model_folder=runs/latest/model"], {"model_folders": ["/runs/a/model"]})
    given = [f"resume={run}", "model_folder=moved/model"]
    assert resume_arguments(given, needs="decoding.json") == [*given, f"hydra.run.dir='{run}'"]


def test_an_evaluation_of_before_goes_on_with_the_settings_it_was_started_with(tmp_path):
    run = begun(tmp_path / "run", ["model_folder=runs/latest/model"], {"points": {}})
    assert resume_arguments([f"resume={run}"], needs="decoding.json")[0] == "model_folder=runs/latest/model"


def test_a_sweep_is_scored_again_as_it_was_but_for_what_was_swept(tmp_path):
    swept = ["policy.theta=0.3,1.0", "split=choice(test,validation)", "k=range(1,4)"]
    kept = ["model_folder=[a,b]", "quality=neural", "source_rate=2.5", "over_seeds=true", "claims=true"]
    OmegaConf.save({"hydra": {"overrides": {"task": [*swept, *kept, "target_al=3"]}}}, tmp_path / "multirun.yaml")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "decoding.json").touch()
    given = [f"rescore={tmp_path}", "claims=false"]
    assert rescore_arguments(given) == [*kept[:-1], *given, f"hydra.run.dir='{tmp_path}'"]


RANKS = "RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"


@pytest.mark.parametrize("name", RANKS)
def test_of_the_processes_of_a_run_only_the_first_of_all_machines_asks_for_the_folder(tmp_path, monkeypatch, name):
    for launcher in RANKS:
        monkeypatch.delenv(launcher, raising=False)
    with locked(tmp_path, wait=False):
        monkeypatch.setenv(name, "1")
        with alone_in(tmp_path):
            pass
        monkeypatch.setenv(name, "0")
        with pytest.raises(ValueError, match="another run is at work in"), alone_in(tmp_path):
            pass
