"""A whole run of train.py in this process: the scores it saves, and the link it leaves."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from duplexmt.config import TrainSettings, register_schemas, settings
from duplexmt.training.finish import link_latest
from train import train

SMALL = [
    "experiment=smoke", "data.train_size=32", "data.validation_size=8", "data.test_size=2", "data.vocab_size=1600",
    "data.batch_size=16", "model.architecture.hidden_size=32", "model.architecture.intermediate_size=48",
    "model.architecture.num_hidden_layers=1", "training.warmup_steps=1", "training.sample_size=1", "probes.count=0",
    "policy.max_target_tokens=8", "demonstrate=0", "trainer.accelerator=cpu", "trainer.precision=32",
    "trainer.enable_progress_bar=false",
]  # fmt: skip


def run(folder, *changes):
    """Scores in the model folder of a run of `train.py`."""
    register_schemas()
    with initialize_config_dir(str(Path(__file__).parents[2] / "conf"), version_base="1.3"):
        cfg = settings(TrainSettings, compose("train", [*SMALL, *changes]))
    train(cfg, folder, "test", None)
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


@pytest.mark.parametrize("given", ["mine", "latest"])
def test_latest_links_the_folder_of_a_run_under_whatever_name_it_was_given(tmp_path, given):
    (tmp_path / "mine").mkdir()
    (tmp_path / "latest").symlink_to("mine", target_is_directory=True)
    link_latest(tmp_path / given)
    assert (tmp_path / "latest").readlink() == Path("mine")
