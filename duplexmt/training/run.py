"""The Lightning trainer of a run: loggers, checkpoints, progress."""

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from ..products import fast_bfloat16
from ..tracking import log_artifact
from .base import PRECISION
from .data import PreparedCorpus
from .progress_log import ProgressLog
from .sample import SimultaneousSample
from .termination import StopOnTermination
from .throughput import ThroughputMonitor

CORES = "cores"  # a number of devices
CHOSEN_PRECISION = "DUPLEXMT_PRECISION"  # of the first process, in the environment of those it starts
PRECISIONS = ("auto", "32", "16-mixed", "bf16-mixed", "32-true", "16", "bf16")  # the last three: Lightning's aliases
log = logging.getLogger("train")
LEAST_PAIRS = 4  # a process takes of each batch, or starting products costs more than sharing them saves


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
        folder: of the run.
        trainer: keyword arguments of `lightning.Trainer`.
        logger: `wandb` (on or off), `offline`, `project`.
        name: of the run.
        settings: the whole configuration, for W&B.
        checkpoint_every_n_steps: optimiser steps between checkpoints, beside the one at the end of each epoch.
        callbacks: further callbacks, see `add_callbacks`.
        group: of the W&B run, such as the sweep it belongs to.
        resumed: whether the folder's run goes on, in the precision it was begun with if that is left open.

    Raises:
        ValueError: for settings that cannot be honoured, here or on this machine.
    """
    if trainer["log_every_n_steps"] < 1:
        raise ValueError(
            f"trainer.log_every_n_steps={trainer['log_every_n_steps']}: must be at least 1; "
            "to log rarely give a large number"
        )
    if trainer["precision"] not in PRECISIONS:
        raise ValueError(
            f"trainer.precision={trainer['precision']!r}: trained weights stay in float32; "
            f"must be one of {', '.join(PRECISIONS)}"
        )
    # Notices of the libraries' own doings that a user can do nothing about.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")  # a resumed run's folder
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")  # batches are ready in memory
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # validation sums already are over devices
    logging.getLogger("lightning.pytorch").propagate = False  # it has a handler of its own
    loggers: list[Logger] = [CSVLogger(folder, name="metrics")]
    if logger["wandb"]:
        try:
            wandb_logger = WandbLogger(
                name=name,
                project=logger["project"],
                group=group,
                job_type="train",
                save_dir=str(folder),
                offline=logger["offline"],
                mode="offline" if logger["offline"] else None,  # Lightning sets WANDB_MODE, which may come too late
                config=settings,
            )
        except ModuleNotFoundError as error:
            raise ValueError("logger=wandb needs the package wandb: pip install wandb, or logger=csv") from error
        loggers.append(wandb_logger)
    last = folder / "checkpoints" / "last.ckpt"
    if trainer["precision"] == "auto" and resumed:
        trainer = trainer | {"precision": begun_precision(last)}
        log.info("trainer.precision: %s, with which the run was begun", trainer["precision"])
    trainer = trainer | {
        "precision": choose_precision(trainer["precision"], trainer["accelerator"], trainer["num_nodes"]),
        "strategy": choose_strategy(
            trainer["strategy"], trainer["devices"], trainer["num_nodes"], trainer["accumulate_grad_batches"]
        ),
    }
    if trainer["enable_progress_bar"] and not sys.stdout.isatty():
        trainer, callbacks = trainer | {"enable_progress_bar": False}, [*callbacks, ProgressLog()]
    try:
        built = L.Trainer(
            default_root_dir=folder,
            logger=loggers,
            callbacks=[
                LastCheckpoint(last, checkpoint_every_n_steps),
                StopOnTermination(last),
                LearningRateMonitor("step"),
                ThroughputMonitor(trainer["log_every_n_steps"]),
            ],
            use_distributed_sampler=False,  # StepLoader shares the pairs out itself
            enable_model_summary=False,
            **trainer,
        )
    except (MisconfigurationException, TypeError) as error:  # a GPU this machine does not have, devices=many
        raise ValueError(f"trainer settings: {error}") from error
    started = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if built.world_size < started:  # Lightning would have each of them train alone, all on one device
        raise ValueError(
            f"torchrun has started {started} processes, and trainer.devices={trainer['devices']} wants one: give the "
            "devices of a machine (and trainer.num_nodes), or start without torchrun"
        )
    if isinstance(built.accelerator, CPUAccelerator):
        torch.set_num_threads(min(torch.get_num_threads(), max(1, usable_cores() // built.num_devices)))
    add_callbacks(built, *callbacks)
    return built


def add_callbacks(trainer: Any, *callbacks: L.Callback) -> None:
    """Have a trainer call more, before it writes its checkpoints."""
    first = next(i for i, callback in enumerate(trainer.callbacks) if isinstance(callback, Checkpoint))
    trainer.callbacks[first:first] = callbacks


def choose_precision(precision: str, accelerator: str, num_nodes: int = 1) -> str:
    """`auto` is bf16-mixed where the machine multiplies faster in bfloat16, else 32; anything else stays as it is.

    The first process measures, and those it starts take its choice; under `torchrun` each measures for itself.
    Several CPU nodes, which may be unlike, take 32.
    """
    if precision != "auto":
        return precision
    if "LOCAL_RANK" not in os.environ or CHOSEN_PRECISION not in os.environ:
        os.environ[CHOSEN_PRECISION] = fastest_precision(accelerator, num_nodes)
        log.info("trainer.precision=auto: %s on this machine", os.environ[CHOSEN_PRECISION])
    return os.environ[CHOSEN_PRECISION]


def begun_precision(checkpoint: Path) -> str:
    """The precision of a run that goes on, as its checkpoint tells."""
    return str(torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)[PRECISION])


def fastest_precision(accelerator: str, num_nodes: int) -> str:
    """What `auto` stands for on this machine."""
    if torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda"):
        return "bf16-mixed" if fast_bfloat16("cuda") else "32"
    return "bf16-mixed" if num_nodes == 1 and fast_bfloat16("cpu") else "32"


Batches = dict[str, int | None]  # `batch_size` in pairs, `batch_cells` in cells or None


def share_batches(trainer: dict[str, Any], batches: Batches) -> tuple[dict[str, Any], Batches]:
    """`devices=cores`: on a CPU, one process for each core, which share what one would take as a batch.

    Where the matrices are small, threads help one process little, while processes of one thread each have nothing to
    wait for but each other's gradients. What is trained stays the same. Where there is a GPU, it trains alone.

    Args:
        trainer: settings of the trainer.
        batches: size of a whole batch.

    Returns:
        Both, with a number of devices and the share of each; any other number of devices stays as it is.
    """
    if trainer["devices"] != CORES:
        return trainer, batches
    processes = 1
    if trainer["accelerator"] == "cpu" or not torch.accelerator.is_available():
        pairs = batches["batch_size"] or 1
        most = min(usable_cores(), pairs // LEAST_PAIRS)
        processes = max((n for n in range(1, most + 1) if pairs % n == 0), default=1)
    shares = {name: None if size is None else max(1, size // processes) for name, size in batches.items()}
    return trainer | {"devices": processes}, shares


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_strategy(strategy: str, devices: Any, num_nodes: int, accumulate: int) -> Any:
    """DDP, by name or by `auto` with several devices, with a static graph and no search for unused weights.

    The grid step runs the same graph whatever the batch, so gradients need no second buffer and no search. With
    accumulated batches the graph is not declared static: DDP records it in its first backward pass, which must then be
    a synchronised one (https://github.com/pytorch/pytorch/issues/143580).
    """
    several = num_nodes > 1 or devices not in (1, "1", "auto")
    if strategy == "ddp" or (strategy == "auto" and several):
        return DDPStrategy(static_graph=accumulate == 1, find_unused_parameters=False, gradient_as_bucket_view=True)
    return strategy


def half_precision(precision: str) -> torch.dtype | None:
    """The type mixed precision computes in, by the name a trainer gives it (on a CPU Lightning takes bf16 for fp16).

    Returns:
        None in full precision.
    """
    return {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(precision)


def log_model(trainer: L.Trainer, model_folder: Path, name: str, scores: dict[str, float]) -> None:
    """Hand the model folder to W&B, where the run logs there.

    Args:
        trainer: of the run.
        model_folder: what was saved.
        name: of the artifact.
        scores: shown beside it.
    """
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            log_artifact(logger.experiment, [model_folder], name, "model", scores)


def close_loggers(trainer: L.Trainer) -> None:
    """End the W&B run, so that the next job of a sweep starts one of its own."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()


def sample_callback(
    prepared: PreparedCorpus,
    size: int,
    target_language: str,
    system: str,
    setting: float | int | None,
    max_target_tokens: int,
) -> SimultaneousSample:
    """The callback that translates the first `size` validation pairs by a system after each validation."""
    sample = prepared.splits["validation"][:size]
    texts = [source for source, _ in sample]
    sources, contexts = prepared.sources.ids(texts), prepared.sources.contexts(texts)
    references = [target for _, target in sample]
    return SimultaneousSample(
        sources, references, prepared.tokenizer, target_language, system, setting, max_target_tokens, contexts
    )


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
