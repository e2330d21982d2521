"""What SIGTERM does to a training run: a checkpoint after the step at hand, and all its processes end together.

Clusters send it before they take a machine away (SLURM to every process), and `kill` to one. Lightning's own handler
broadcasts from inside the signal, wherever the process happens to be; with several processes that meets another
collective, and all of them wait for ever.
"""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint

log = logging.getLogger(__name__)
EXIT_STATUS = 128 + signal.SIGTERM  # as a shell tells it


def may_handle() -> bool:
    """Whether SIGTERM is nobody's yet, and this the thread that may take it."""
    free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    return free and threading.current_thread() is threading.main_thread()


class StopOnTermination(Checkpoint):
    """After SIGTERM to any process of a run, saves a checkpoint when the optimiser step is done, and ends them all.

    A `Checkpoint`, so that Lightning calls it when all other callbacks have had the step. Where something else handles
    SIGTERM before the trainer is built (submitit does), it is left to that.

    Args:
        path: of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = False
        self.step = 0  # optimiser steps when processes last told each other
        self.ours = may_handle()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the place of Lightning's handler (which puts back the one before it when the run is over)."""
        self.step = trainer.global_step
        if self.ours:
            signal.signal(signal.SIGTERM, self.ask)

    def ask(self, *_: Any) -> None:
        """The signal's handler: no more than a note, as it may come in the middle of anything."""
        self.asked = True

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Stop all processes if one was asked to, never inside an accumulated step.

        Raises:
            SystemExit: with the status of a process ended by SIGTERM.
        """
        if trainer.global_step == self.step:
            return
        self.step = trainer.global_step
        asked = trainer.strategy.reduce(torch.tensor(float(self.asked), device=pl_module.device), reduce_op="sum")
        if not asked:
            return
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero:
            log.warning("SIGTERM: stopped after step %d, checkpoint: %s", self.step, os.path.relpath(self.path))
        raise SystemExit(EXIT_STATUS)
