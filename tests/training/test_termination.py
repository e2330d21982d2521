"""SIGTERM ends a run in all its processes, with a checkpoint from which it goes on."""

import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from duplexmt.training import processes
from duplexmt.training.termination import StopOnTermination
from tests.commands import run

from .small_run import built_trainer, small_data, small_module

pytestmark = pytest.mark.usefixtures("ctrl_c_taken")


class Terminate(L.Callback):
    """Sends a signal, or several, to its own process in one batch, in some of the processes."""

    def __init__(self, batch, ranks=(0,), signals=(signal.SIGTERM,)):
        self.batch, self.ranks, self.signals = batch, ranks, signals

    def on_train_batch_start(self, trainer, pl_module, batch, batch_index):
        if batch_index == self.batch and trainer.global_rank in self.ranks:
            for number in self.signals:
                os.kill(os.getpid(), number)


def trainer_in(folder, *callbacks, **settings):
    return built_trainer(folder, *callbacks, every=1000, **({"gradient_clip_val": 1.0, "max_epochs": 1} | settings))


@pytest.mark.parametrize(
    ("accumulate", "batch", "number"), [(1, 3, signal.SIGTERM), (2, 4, signal.SIGTERM), (1, 3, signal.SIGINT)]
)
def test_a_run_stops_after_its_step_and_goes_on_as_if_undisturbed(tmp_path, caplog, accumulate, batch, number):
    def fit(folder, *callbacks, checkpoint=None):
        module = small_module()
        trainer = trainer_in(folder, *callbacks, accumulate_grad_batches=accumulate)
        trainer.fit(module, small_data(2), ckpt_path=checkpoint, weights_only=True)
        return module.state_dict()

    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stopped, caplog.at_level(logging.WARNING):
        fit(tmp_path / "parts", Terminate(batch, signals=[number]))
    assert stopped.value.code == 128 + number
    steps = batch // accumulate + 1
    assert f"{number.name}: stopped after step {steps}, checkpoint: " in caplog.text
    assert f"go on with resume={os.path.relpath(tmp_path / 'parts')}" in caplog.text
    assert signal.getsignal(number) == before
    last = tmp_path / "parts" / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == steps
    resumed, whole = fit(tmp_path / "parts", checkpoint=last), fit(tmp_path / "whole")
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_a_second_ctrl_c_ends_a_run_at_once(tmp_path):
    with pytest.raises(SystemExit):
        trainer_in(tmp_path, Terminate(3, signals=[signal.SIGINT] * 2)).fit(small_module(), small_data(2))
    assert not (tmp_path / "checkpoints").exists()


def test_a_handler_that_was_there_before_is_left_alone(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        callback = StopOnTermination(tmp_path / "last.ckpt")
        callback.on_train_start(SimpleNamespace(global_step=0), None)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [1]
    assert not callback.signal


@pytest.mark.slow
def test_all_processes_stop_though_only_the_second_was_asked(tmp_path):  # both: tests/test_entry_points.py
    done = run("tests.training.test_termination", str(tmp_path), "1")
    assert done.returncode != 0
    assert "SIGTERM: stopped after step 2" in done.stderr
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 2


if __name__ == "__main__":
    folder, ranks = Path(sys.argv[1]), [int(rank) for rank in sys.argv[2].split(",")]
    logging.basicConfig(level=logging.WARNING)
    trainer_in(folder, Terminate(1, ranks), devices=2, strategy="ddp_fork").fit(small_module(), small_data(2))


class Interrupted:
    """A SIGTERM comes while it is taken down."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # the handler is called in here


def interrupted_and_waiting():
    doomed = Interrupted()
    del doomed
    time.sleep(30)


def test_a_sigterm_in_a_destructor_is_not_lost(monkeypatch):
    """Python ignores what is raised there: "Exception ignored in: ... SystemExit: 143"."""
    launcher = object.__new__(_SubprocessScriptLauncher)
    launcher.cluster_environment, launcher.procs = SimpleNamespace(creates_processes_externally=False), []
    launcher._call_children_scripts = launcher.kill = lambda *_: None
    monkeypatch.setattr(processes, "_launch_process_observer", lambda procs: None)
    monkeypatch.setattr(processes, "LOOK", 0.1)
    monkeypatch.setenv(processes.FIRST, "")
    hook = sys.unraisablehook
    trainer = SimpleNamespace(local_rank=0, strategy=SimpleNamespace(launcher=launcher))
    with pytest.raises(SystemExit, match="143"), processes.other_processes(trainer):
        interrupted_and_waiting()
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
