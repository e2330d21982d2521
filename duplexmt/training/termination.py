"""What SIGTERM and Ctrl-C do to a training run: a checkpoint after the step at hand, and all processes end together.

Clusters send SIGTERM before they take a machine away (SLURM to every process), and `kill` to one; a terminal sends
SIGINT to every process. Lightning's own handler broadcasts from inside the signal, wherever the process happens to be;
with several processes that meets another collective, and all of them wait for ever. At Ctrl-C it keeps nothing.
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


def may_handle(number: int = signal.SIGTERM) -> bool:
    """Whether a signal is nobody's yet, and this the thread that may take it."""
    free = signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    return free and threading.current_thread() is threading.main_thread()


class StopOnTermination(Checkpoint):
    """After SIGTERM or SIGINT to any process of a run, saves a checkpoint when the optimiser step is done, and ends
    them all; a second SIGINT ends its process at once.

    A `Checkpoint`, so that Lightning calls it when all other callbacks have had the step. A signal that something else
    handles before the trainer is built (submitit does SIGTERM) is left to that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.signal = 0  # that has come; 0: none
        self.step = 0  # optimiser steps when processes last told each other
        self.ours = [number for number in (signal.SIGTERM, signal.SIGINT) if may_handle(number)]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the place of Lightning's handler (which puts back that of SIGTERM before it when the run is over)."""
        self.step = trainer.global_step
        for number in self.ours:
            signal.signal(number, self.ask)

    def on_train_end(self, *_: Any) -> None:
        """Put back Python's handler of Ctrl-C."""
        if signal.SIGINT in self.ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def on_exception(self, *_: Any) -> None:
        """The same."""
        self.on_train_end()

    def ask(self, number: int, *_: Any) -> None:
        """The signals' handler: no more than a note, as it may come in the middle of anything."""
        if number == signal.SIGINT:
            if self.signal:
                raise KeyboardInterrupt
            os.write(2, b"\ninterrupted: stops after this step, with a checkpoint; once more: at once\n")
        self.signal = number

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Stop all processes if one was asked to, never inside an accumulated step.

        Raises:
            SystemExit: with the status of a process ended by the signal.
        """
        if trainer.global_step == self.step:
            return
        self.step = trainer.global_step
        asked: Any = self.signal
        if trainer.world_size > 1:  # one process alone need not wait for its device
            asked = trainer.strategy.reduce(torch.tensor(float(asked), device=pl_module.device), reduce_op="max")
        if not asked:
            return
        trainer.save_checkpoint(self.path)
        number = signal.Signals(int(asked))
        if trainer.is_global_zero:
            log.warning(
                "%s: stopped after step %d, checkpoint: %s; go on with resume=%s",
                number.name,
                self.step,
                os.path.relpath(self.path),
                os.path.relpath(self.path.parent.parent),
            )
        raise SystemExit(128 + number)
