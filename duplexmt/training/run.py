"""The Lightning trainer of a run."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.accelerators import AcceleratorRegistry, CPUAccelerator
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from ..common.cores import usable_cores
from .checkpoint import LastCheckpoint, WholeCheckpoints
from .loggers import run_loggers
from .optimizers import Scaler
from .precision import settled_precision
from .processes import choose_strategy
from .progress_log import ProgressBar, ProgressLog
from .termination import StopOnTermination
from .throughput import ThroughputMonitor


def build_trainer(
    folder: Path,
    *,
    trainer: dict[str, Any],
    logger: dict[str, Any],
    name: str,
    settings: dict[str, Any],
    checkpoint_every_n_steps: int,
    callbacks: Sequence[L.Callback] = (),
    group: str | None = None,
    resumed: bool = False,
) -> L.Trainer:
    """A trainer that writes metrics, and checkpoints to resume from, into the run's folder.

    Args:
        trainer: keyword arguments of `lightning.Trainer`.
        logger: `wandb` (on or off), `offline`, `project`.
        checkpoint_every_n_steps: optimiser steps between checkpoints, beside the one at the end of each epoch.
        callbacks: further callbacks, see `add_callbacks`.
        group: of the W&B run, such as the sweep it belongs to.
        resumed: whether the folder's run goes on, in the precision it was begun with if that is left open.

    Raises:
        ValueError: for settings that cannot be honoured, here or on this machine.
    """
    quiet_libraries()
    last = folder / "checkpoints" / "last.ckpt"
    progress = [ProgressBar() if sys.stdout.isatty() else ProgressLog()] if trainer["enable_progress_bar"] else []
    try:
        built = L.Trainer(
            default_root_dir=folder,
            logger=run_loggers(folder, logger, name, group, settings),
            callbacks=[
                LastCheckpoint(last, checkpoint_every_n_steps),
                StopOnTermination(last),
                LearningRateMonitor("step"),
                ThroughputMonitor(trainer["log_every_n_steps"]),
                *progress,
            ],
            plugins=[WholeCheckpoints()],
            use_distributed_sampler=False,  # StepLoader shares the pairs out itself
            enable_model_summary=False,
            **settled(trainer, last if resumed else None),
        )
    except (MisconfigurationException, TypeError, ModuleNotFoundError) as error:  # no such GPU, devices=many, tpu
        told = f"trainer settings: {error}"
        known = AcceleratorRegistry
        there = [name for name in known.available_accelerators() if known[name]["accelerator"].is_available()]
        asked = trainer["accelerator"]
        if asked not in ("auto", *there) and not (asked == "gpu" and {"cuda", "mps"} & {*there}):
            told = f"trainer.accelerator={asked}: this machine has {', '.join(there)}; give one of these, or auto"
        raise ValueError(told) from error
    check_torchrun(built, trainer["devices"])
    plugin: Any = built.precision_plugin
    if getattr(plugin, "scaler", None) is not None:
        plugin.scaler = Scaler("cuda")
    if isinstance(built.accelerator, CPUAccelerator):
        torch.set_num_threads(min(torch.get_num_threads(), max(1, usable_cores() // built.num_devices)))
    add_callbacks(built, *callbacks)
    return built


def settled(trainer: dict[str, Any], checkpoint: Path | None) -> dict[str, Any]:
    """The trainer's settings with what is left to this machine decided; `checkpoint` is of a run that goes on."""
    devices = trainer["accelerator"], trainer["num_nodes"]
    shares = trainer["devices"], trainer["num_nodes"], trainer["accumulate_grad_batches"]
    return trainer | {
        "precision": settled_precision(trainer["precision"], *devices, checkpoint),
        "strategy": choose_strategy(trainer["strategy"], *shares),
        "enable_progress_bar": trainer["enable_progress_bar"] and sys.stdout.isatty(),
    }


def quiet_libraries() -> None:
    """Leave out the libraries' notices of their own doings, about which a user can do nothing."""
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")  # a resumed run's folder
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")  # batches are ready in memory
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # validation sums already are over devices
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*")  # an epoch of few batches
    warnings.filterwarnings(
        "ignore", message=".*returned a view tensor.*"
    )  # of a sharded layer; nothing writes into it
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)


def check_torchrun(trainer: L.Trainer, devices: Any) -> None:
    """Refuse processes that `torchrun` has started and the trainer does not know of: each would train alone.

    Raises:
        ValueError: naming the devices asked for.
    """
    started = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if trainer.world_size < started:  # Lightning would have each of them train alone, all on one device
        raise ValueError(
            f"torchrun has started {started} processes, and trainer.devices={devices} wants one: give the "
            "devices of a machine (and trainer.num_nodes), or start without torchrun"
        )


class AtStart(L.Callback):
    """Does something once, at the latest before the first batch: after a checkpoint has been accepted, and not at all
    where nothing is left to train.

    Attributes:
        acted: whether it has.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self.action, self.acted = action, False

    def act(self) -> None:
        """Do it, unless it is done."""
        if not self.acted:
            self.acted = True
            self.action()

    def on_train_batch_start(self, *_: Any) -> None:
        """Training starts."""
        self.act()


def add_callbacks(trainer: Any, *callbacks: L.Callback) -> None:
    """Have a trainer call more, before it writes its checkpoints."""
    first = next(i for i, callback in enumerate(trainer.callbacks) if isinstance(callback, Checkpoint))
    trainer.callbacks[first:first] = callbacks
