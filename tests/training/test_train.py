"""A whole run of train.py in this process: the scores it saves, and the link it leaves."""

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from torch import OutOfMemoryError

from duplexmt.corpus.evaluation_files import clean_source
from duplexmt.data.tokenizer import (
    SourceTokens,
    check_tokens_of,
    load_tokenizer,
    save_tokenizer,
    stream_tokens,
    train_bpe,
)
from duplexmt.training.finish import link_latest
from tests.helpers import tiny_backbone, tiny_tokenizer, unknown_kind
from tests.test_config import checked
from train import looks_of, train

SMALL = [
    "experiment=smoke", "data.train_size=32", "data.validation_size=8", "data.test_size=2", "data.vocab_size=1600",
    "data.batch_size=16", "model.architecture.hidden_size=32", "model.architecture.intermediate_size=48",
    "model.architecture.num_hidden_layers=1", "training.warmup_steps=1", "training.sample_size=1", "probes.count=0",
    "policy.max_target_tokens=8", "demonstrate=0", "trainer.accelerator=cpu", "trainer.precision=32",
    "trainer.enable_progress_bar=false",
]  # fmt: skip


def configured(*changes):
    """The settings of a small run."""
    return checked("train", *SMALL, *changes)


def run(folder, *changes):
    """Scores in the model folder of a run of `train.py`."""
    train(configured(*changes), folder, "test", None)
    return json.loads((folder / "model" / "duplexmt.json").read_text(encoding="utf-8"))["scores"]


def test_the_scores_of_a_model_folder_are_those_of_its_own_weights(tmp_path):
    """Two steps an epoch: the last validation is at the last step of one run, and before that of the others."""
    expected = run(tmp_path / "last", "trainer.max_epochs=3")
    for name, changes in {
        "every second epoch": ["trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2"],
        "between epochs": [
            "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=null", "trainer.val_check_interval=5"
        ],
    }.items():  # fmt: skip
        assert run(tmp_path / name, *changes) == pytest.approx(expected), name


@pytest.mark.parametrize(
    ("changes", "interval", "batches"),
    [
        ([], 3, 2), (["data.batch_size=8", "trainer.accumulate_grad_batches=4"], 5, 4),
    ],
)  # fmt: skip
def test_more_batches_between_validations_than_an_epoch_has_are_refused_before_anything_is_written(
    changes, interval, batches, tmp_path
):
    message = (
        rf"trainer\.val_check_interval={interval}: an epoch has {batches} batches .* give at most {batches}, or .*0\.5"
    )
    with pytest.raises(ValueError, match=message):
        train(configured(*changes, f"trainer.val_check_interval={interval}"), tmp_path / "run", "test", None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("interval", ["2", "0.01", "00:00:10:00"])
def test_as_many_batches_between_validations_as_an_epoch_has_or_a_share_or_a_time_are_no_mistake(interval, tmp_path):
    assert "validation/BLEU" in run(tmp_path, f"trainer.val_check_interval={interval}")


def test_what_is_recorded_of_a_training_does_not_depend_on_how_often_it_was_resumed(tmp_path):
    """Stopped within an epoch; resumed, there is nothing left to train."""

    def recorded(*changes):
        run(tmp_path, "trainer.max_steps=1", *changes)
        return json.loads((tmp_path / "model" / "duplexmt.json").read_text(encoding="utf-8"))["training"]

    before = recorded()
    assert before["epochs"] == 1
    assert recorded(f"resume={tmp_path}") == before


@pytest.mark.parametrize("system", ["waitk", "grid"])
def test_a_run_on_packed_lists_records_their_length(tmp_path, system):
    run(tmp_path / "run", f"system={system}", "data.batch_tokens=512", "training.sample_size=0", "trainer.max_steps=2")
    recorded = json.loads((tmp_path / "run" / "model" / "duplexmt.json").read_text(encoding="utf-8"))["data"]
    assert recorded["batch_tokens"] == 512
    if system == "grid":
        with pytest.raises(ValueError, match=r"data\.batch_tokens=512: exact attention of rows that read each other"):
            run(tmp_path / "no", "model.attention=exact", "data.batch_tokens=512")


def test_where_the_saved_model_cannot_be_shown_the_run_ends_as_any_other(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("duplexmt.training.finish.demonstrate", Mock(side_effect=OutOfMemoryError("no memory")))
    assert "validation/BLEU" in run(tmp_path, "trainer.max_steps=1", "demonstrate=1")
    assert "demonstrate=1: left out (OutOfMemoryError: no memory)" in caplog.text


def test_a_training_that_has_diverged_leaves_no_model(tmp_path):
    with pytest.raises(ValueError, match=r"is not finite: training has diverged"):
        run(tmp_path, "training.learning_rate=1e38", "training.optimizer=muon", "trainer.max_steps=2")
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()
    assert not (tmp_path / "model").exists()


def test_a_backbone_takes_no_other_tokenizer_than_its_own(tmp_path):
    """Of the same size, so that nothing else would tell."""
    base, other = tmp_path / "base", tmp_path / "other"
    for folder, letters in ((base, "abc"), (other, "xyz")):
        save_tokenizer(train_bpe([letters * 9], 300), folder)
    tiny_backbone(vocab_size=len(load_tokenizer(base))).save_pretrained(base)
    check_tokens_of(str(base), load_tokenizer(base))
    with pytest.raises(ValueError, match=r"tokens of data\.tokenizer are others in model\.backbone=.*; give data\.tok"):
        run(
            tmp_path / "run", f"model.backbone={base}", "model.architecture=null", f"data.tokenizer={other}",
            "data.max_tokens=null", "trainer.max_steps=1",
        )  # fmt: skip


def test_a_tokenizer_that_will_hold_live_text_back_is_told_of_before_training(tmp_path, caplog, monkeypatch):
    unknown_kind(tmp_path / "tokenizer")
    monkeypatch.setattr("lightning.Trainer.fit", lambda *_, **__: pytest.fail("it is told of first"))
    for segmentation, told in (("tokens", 1), ("characters", 0)):
        caplog.clear()
        changes = [f"data.tokenizer={tmp_path}/tokenizer", f"data.segmentation={segmentation}", "data.max_tokens=null"]
        with pytest.raises(pytest.fail.Exception, match="it is told of first"):
            run(tmp_path / segmentation, *changes)
        assert caplog.text.count("settled at sentence ends and pauses only, as its normalizer Lowercase") == told


def test_where_wandb_has_no_run_nothing_is_trained_and_the_way_out_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"W&B has no run for this training .*logger\.offline=true"):
        run(tmp_path / "run", "logger=wandb", "logger.project=a/b")
    assert not (tmp_path / "run" / "corpus.json").exists()


def test_probes_of_ones_own_are_cleaned_as_the_sources_were(tmp_path):
    cfg = configured("data=permissive", "probes.count=1", "probes.pairs=[['我媽媽','x']]")
    assert clean_source("我媽媽", asdict(cfg.data)) == "我妈妈"
    tokenizer = tiny_tokenizer()
    prepared = SimpleNamespace(splits={"validation": []}, sources=SourceTokens(tokenizer), tokenizer=tokenizer)
    _, probes = looks_of(cfg, tmp_path, prepared, stream_tokens(tokenizer))
    assert [probe.source for probe in probes.probes] == ["我妈妈"]


def test_the_last_job_of_a_sweep_is_the_latest_run_beside_the_sweep_too(tmp_path):
    job = tmp_path / "sweep" / "3"
    job.mkdir(parents=True)
    (job.parent / "multirun.yaml").touch()
    link_latest(job)
    assert (tmp_path / "latest").resolve() == (tmp_path / "sweep" / "latest").resolve() == job


@pytest.mark.parametrize("given", ["mine", "latest"])
def test_latest_links_the_folder_of_a_run_under_whatever_name_it_was_given(tmp_path, given):
    (tmp_path / "mine").mkdir()
    (tmp_path / "latest").symlink_to("mine", target_is_directory=True)
    link_latest(tmp_path / given)
    assert (tmp_path / "latest").readlink() == Path("mine")
