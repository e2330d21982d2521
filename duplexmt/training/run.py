"""The Lightning trainer of a run: loggers, checkpoints, progress."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from .data import PreparedCorpus
from .sample import SimultaneousSample


class LastCheckpoint(Checkpoint):
    """Keeps one checkpoint to resume from: every few optimiser steps, at the last one, and after each epoch.

    Lightning's `ModelCheckpoint` cannot do this: with a number of steps it leaves the end of training out, and by
    epochs it takes a run stopped by `max_steps` for one that has finished its epoch.

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

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Save where an optimiser step has just been taken, never inside an accumulated one."""
        step = trainer.global_step
        if step != self.step and (step % self.every_n_steps == 0 or step == trainer.max_steps):
            self.step = step
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save after the epoch's validation, where epochs are what limits the run (else its last step is saved)."""
        if trainer.max_steps == -1:
            trainer.save_checkpoint(self.path)


def build_trainer(
    folder: Path,
    *,
    trainer: dict[str, Any],
    logger: dict[str, Any],
    name: str,
    settings: dict[str, Any],
    checkpoint_every_n_steps: int,
    callbacks: list[L.Callback],
) -> L.Trainer:
    """A trainer that writes metrics, and checkpoints to resume from, into the run's folder.

    Args:
        folder: of the run.
        trainer: keyword arguments of `lightning.Trainer`.
        logger: `wandb` (on or off), `offline`, `project`.
        name: of the run.
        settings: the whole configuration, for W&B.
        checkpoint_every_n_steps: optimiser steps between checkpoints, beside the one after each epoch.
        callbacks: further callbacks.

    Raises:
        ValueError: for settings this machine cannot honour.
    """
    # Notices of the libraries' own doings that a user can do nothing about.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")  # a resumed run's folder
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")  # batches are ready in memory
    logging.getLogger("lightning.pytorch").propagate = False  # it has a handler of its own
    loggers: list[Logger] = [CSVLogger(folder, name="metrics")]
    if logger["wandb"]:
        loggers.append(
            WandbLogger(
                name=name, project=logger["project"], save_dir=str(folder), offline=logger["offline"], config=settings
            )
        )
    checkpoints = LastCheckpoint(folder / "checkpoints" / "last.ckpt", checkpoint_every_n_steps)
    try:
        return L.Trainer(
            default_root_dir=folder,
            logger=loggers,
            callbacks=[checkpoints, LearningRateMonitor("step"), *callbacks],
            use_distributed_sampler=False,  # StepLoader shares the pairs out itself
            enable_model_summary=False,
            **trainer,
        )
    except MisconfigurationException as error:  # such as a GPU this machine does not have
        raise ValueError(f"trainer settings: {error}") from error


def close_loggers(trainer: L.Trainer) -> None:
    """End the W&B run, so that the next job of a sweep starts one of its own."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()


def sample_callback(
    prepared: PreparedCorpus, size: int, target_language: str, theta: float, max_target_tokens: int
) -> SimultaneousSample:
    """The callback that translates the first `size` validation pairs at θ after each validation."""
    sample = prepared.splits["validation"][:size]
    sources = prepared.sources.ids([source for source, _ in sample])
    references = [target for _, target in sample]
    return SimultaneousSample(sources, references, prepared.tokenizer, target_language, theta, max_target_tokens)


def choose_device(device: str) -> str:
    """The device to decode on: `auto` takes a GPU where there is one.

    Raises:
        ValueError: for a device this machine does not have.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r}: not to be had on this machine ({error}); try device=auto") from error
    return device
