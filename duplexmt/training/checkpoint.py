"""The checkpoint a run goes on from."""

import os
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from ..common.files import write_whole


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that are on disk whole or not at all, and that are read only if nothing in them has changed.

    Lightning writes one to the folder of temporary files, and from there to its place; on another disk that copies, so
    a run killed meanwhile leaves half of one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint beside its place, then put it there.

        Raises:
            OSError: naming the checkpoint, where there is no room for it; the one before stays.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(path, partial(torch.save, checkpoint))
        except (OSError, RuntimeError) as error:
            raise OSError(f"{os.path.relpath(path)} could not be written ({error}); make room on its disk") from error

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        """What is in a checkpoint; see `read_checkpoint`."""
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path, mmap: bool = False) -> dict[str, Any]:
    """What is in a checkpoint, which may hold tensors and plain values only.

    Args:
        mmap: whether to leave tensors on disk until they are needed.

    Raises:
        ValueError: if it is damaged.
        OSError: where it may not be read, or finds no memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"the checksum of {damaged} is another")
        content = torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # torch.load has many kinds
        name, why = os.path.relpath(path), (str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, MemoryError) or "allocate memory" in why:
            raise OSError(f"{name} finds no memory ({why}): end other programs, and resume again") from error
        raise ValueError(
            f"{name} is damaged ({why}): put a copy of it there, or train anew in another folder"
        ) from error
    assert isinstance(content, dict)
    return content


class LastCheckpoint(Checkpoint):
    """Keeps one checkpoint to resume from: every few optimiser steps, and at the last one of each epoch and of the run.

    Lightning's `ModelCheckpoint` cannot do this: with a number of steps it leaves the end of training out, and by
    epochs it takes a run stopped by `max_steps` for one that has finished its epoch. One saved when an epoch has ended
    cannot be resumed under `max_steps` either: Lightning takes the next epoch for done.

    Args:
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
