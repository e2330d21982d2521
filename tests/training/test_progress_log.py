"""Lines about a training in its log, in the place of a progress bar."""

import logging
import sys

import pytest
from lightning.pytorch.callbacks import ProgressBar

from duplexmt.training.progress_log import ProgressLog
from tests.training.small_run import built_trainer, small_data, small_module, small_trainer


@pytest.fixture
def lines(caplog):
    """Fits with a `ProgressLog` and returns what it said."""
    caplog.set_level(logging.INFO, logger="duplexmt.training.progress_log")

    def fit(progress, **settings):
        trainer = small_trainer(callbacks=[progress], **settings)
        trainer.fit(small_module(), small_data(4))
        return [record.message for record in caplog.records if record.name.endswith("progress_log")]

    return fit


def test_each_line_says_where_training_is_what_came_of_it_and_how_long_it_will_take(lines):
    first, second, third, validation, *_ = lines(ProgressLog(seconds=0.0), max_epochs=2, limit_val_batches=1.0)
    assert [line.split(", train/lm_loss ")[0] for line in (first, second, third)] == [
        f"step {step} of 6, epoch 1" for step in (1, 2, 3)
    ]
    loss, left = first.split("train/lm_loss ")[1].split("; ")
    assert float(loss) > 0
    assert left.endswith(" left")
    assert validation.startswith("step 3 of 6, epoch 1, validation/lm_loss ")


def test_lines_come_now_and_then_and_after_validation(lines):
    said = lines(ProgressLog(seconds=3600.0), max_epochs=2, limit_val_batches=1.0, num_sanity_val_steps=1)
    assert [line.split(", validation/")[0] for line in said] == ["step 3 of 6, epoch 1", "step 6 of 6, epoch 2"]


def test_the_validation_of_a_run_that_max_steps_ended_is_of_the_epoch_it_was_in(caplog):
    caplog.set_level(logging.INFO, logger="duplexmt.training.progress_log")
    settings = {"max_epochs": 2, "max_steps": 2, "limit_val_batches": 1.0}
    trainer, module = small_trainer(callbacks=[ProgressLog(seconds=3600.0)], **settings), small_module()
    trainer.fit(module, small_data(4))
    trainer.validate(module, small_data(4), verbose=False)
    assert [line for line in caplog.messages if line.startswith("step ")][-1].startswith("step 2 of 2, epoch 1")


@pytest.mark.parametrize(("terminal", "wanted"), [(True, True), (False, True), (False, False)])
def test_a_bar_is_for_terminals_and_lines_for_logs(terminal, wanted, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    trainer = built_trainer(tmp_path, enable_progress_bar=wanted)
    kinds = [ProgressBar, ProgressLog]
    found = [any(isinstance(callback, kind) for callback in trainer.callbacks) for kind in kinds]
    assert found == [terminal and wanted, wanted and not terminal]
