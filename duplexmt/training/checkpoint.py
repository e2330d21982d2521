"""The checkpoint a run goes on from."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint


class LastCheckpoint(Checkpoint):
    """Keeps one checkpoint to resume from: every few optimiser steps, and at the last one of each epoch and of the run.

    Lightning's `ModelCheckpoint` cannot do this: with a number of steps it leaves the end of training out, and by
    epochs it takes a run stopped by `max_steps` for one that has finished its epoch. One saved when an epoch has ended
    cannot be resumed under `max_steps` either: Lightning takes the next epoch for done.

    Args:
        path: of the checkpoint.
        every_n_steps: optimiser steps between checkpoints.
    """

    def __init__(self, path: Path, every_n_steps: int) -> None:
        self.path, self.every_n_steps = path, every_n_steps
        self.step = 0  # optimiser steps at the last checkpoint

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Count from where training starts."""
        self.step = trainer.global_step
        epochs = trainer.fit_loop.epoch_progress.current
        if epochs.completed == epochs.ready:  # resumed at the end of an epoch: Lightning would not count the next one
            trainer.fit_loop.reset_restart_stage()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Save where an optimiser step has just been taken, never inside an accumulated one."""
        step = trainer.global_step
        due = step % self.every_n_steps == 0 or step == trainer.max_steps or trainer.is_last_batch
        if step != self.step and due:
            self.step = step
            trainer.save_checkpoint(self.path)
