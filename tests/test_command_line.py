"""What `resume` and `rescore` make of what was begun."""

import json

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from duplexmt.command_line import alone_in, rescore_arguments, resume_arguments
from duplexmt.common.arguments import quote_arguments
from duplexmt.common.files import locked


def begun(folder, overrides, decoding=None):
    """A run as Hydra and its program leave it: a training, or an evaluation with what it decodes."""
    (folder / ".hydra").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(overrides), folder / ".hydra" / "overrides.yaml")
    kept = folder / ("checkpoints/last.ckpt" if decoding is None else "decoding.json")
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(decoding), encoding="utf-8")
    return folder


def test_resume_brings_the_arguments_of_the_run_and_its_folder(tmp_path):
    run = begun(tmp_path / "run", ["experiment=smoke", "name=x-${policy.lam}", "resume=earlier"])
    assert resume_arguments([f"resume={run}", "trainer.max_epochs=5"]) == [
        "experiment=smoke", "name=x-${policy.lam}", f"resume={run}", "trainer.max_epochs=5", f"hydra.run.dir='{run}'"
    ]  # fmt: skip
    assert resume_arguments([f"resume={run}", "experiment=paper"]) == [
        "name=x-${policy.lam}", f"resume={run}", "experiment=paper", f"hydra.run.dir='{run}'"
    ], "Hydra takes a group once"  # fmt: skip


def test_options_of_hydra_stand_before_the_settings_of_a_resumed_run_and_a_sweep_of_it_is_refused(tmp_path):
    run = begun(tmp_path / "run", ["policy.lam=0.3", "~probes"])
    rest = ["policy.lam=0.3", "~probes", f"resume={run}", f"hydra.run.dir='{run}'"]
    assert resume_arguments([f"resume={run}", "--cfg", "job"]) == ["--cfg", "job", *rest]
    (run / "decoding.json").touch()
    assert rescore_arguments([f"rescore={run}", "--cfg", "job"])[:2] == ["--cfg", "job"]
    with pytest.raises(ValueError, match=r"goes on with one run: leave -m out"):
        resume_arguments(["-m", f"resume={run}"])


@pytest.mark.parametrize("name", ["run (2)", "it's"])
def test_a_folder_of_any_name_is_gone_on_with_and_scored_again(tmp_path, name):
    run = begun(tmp_path / name, [])
    (run / "decoding.json").touch()
    for extended, setting in ((resume_arguments, "resume"), (rescore_arguments, "rescore")):
        given = extended(quote_arguments([f"{setting}={run}"]))
        values = {one.key_or_group: one.value() for one in OverridesParser.create().parse_overrides(given)}
        assert values[setting] == values["hydra.run.dir"] == str(run)


def test_resume_into_another_folder_is_refused(tmp_path):
    run = begun(tmp_path / "run", [])
    with pytest.raises(ValueError, match=r"leave hydra\.run\.dir out"):
        resume_arguments([f"resume={run}", "hydra.run.dir=elsewhere"])


@pytest.mark.parametrize("missing", [".hydra/overrides.yaml", "checkpoints/last.ckpt"])
def test_resume_of_a_folder_without_settings_or_checkpoint_is_refused_by_name(tmp_path, missing):
    run = begun(tmp_path / "run", [])
    (run / missing).unlink()
    with pytest.raises(ValueError, match=rf"resume={run}: no run with a checkpoint"):
        resume_arguments([f"resume={run}"])


def test_an_evaluation_needs_no_checkpoint_to_be_resumed(tmp_path):
    run = begun(tmp_path / "run", ["limit=5"])
    with pytest.raises(ValueError, match=r"nothing begun \(decoding\.json\) there"):
        resume_arguments([f"resume={run}"], needs="decoding.json")
    (run / "decoding.json").touch()
    assert resume_arguments([f"resume={run}"], needs="decoding.json") == [
        "limit=5", f"resume={run}", f"hydra.run.dir='{run}'"
    ]  # fmt: skip


def test_rescoring_writes_into_the_folder_and_keeps_how_it_was_made(tmp_path):
    (tmp_path / "decoding.json").touch()
    given = [f"rescore={tmp_path}", "quality=neural"]
    assert rescore_arguments(given) == [*given, f"hydra.run.dir='{tmp_path}'"]
    for elsewhere in ([], ["rescore=null"], [f"rescore=[{tmp_path},b]"], [*given, "hydra.run.dir=b"]):
        assert rescore_arguments(elsewhere) == elsewhere
    with pytest.raises(ValueError, match="rescore=no/such: there is no such folder"):
        rescore_arguments(["rescore=no/such"])


def test_scoring_again_keeps_the_settings_of_the_evaluation_but_for_those_given_anew(tmp_path):
    run = begun(tmp_path / "run", ["experiment=duplex_results", "quality=neural", "resume=x", "target_al=3"])
    with pytest.raises(ValueError, match=rf"rescore={run}: no evaluation there"):  # a training's settings are others
        rescore_arguments([f"rescore={run}"])
    (run / "decoding.json").touch()
    assert rescore_arguments([f"rescore={run}", "quality=basic"]) == [
        "experiment=duplex_results", f"rescore={run}", "quality=basic", f"hydra.run.dir='{run}'"
    ]  # fmt: skip


def test_a_scoring_of_other_folders_is_done_again_from_those(tmp_path):
    run = begun(tmp_path / "run", ["rescore=[a,b]", "over_seeds=true", "quality=neural"])
    assert rescore_arguments([f"rescore={run}", "quality=basic"]) == [
        "over_seeds=true", "quality=basic", "rescore=[a,b]", f"hydra.run.dir='{run}'"
    ]  # fmt: skip


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
