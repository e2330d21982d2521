"""The Lightning trainer of a run: loggers, checkpoints, progress."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from .data import PreparedCorpus
from .sample import SimultaneousSample
from .throughput import ThroughputMonitor


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
    trainer = trainer | {
        "precision": choose_precision(trainer["precision"], trainer["accelerator"]),
        "strategy": choose_strategy(trainer["strategy"], trainer["devices"], trainer["num_nodes"]),
    }
    checkpoints = LastCheckpoint(folder / "checkpoints" / "last.ckpt", checkpoint_every_n_steps)
    try:
        return L.Trainer(
            default_root_dir=folder,
            logger=loggers,
            callbacks=[
                checkpoints,
                LearningRateMonitor("step"),
                ThroughputMonitor(trainer["log_every_n_steps"]),
                *callbacks,
            ],
            use_distributed_sampler=False,  # StepLoader shares the pairs out itself
            enable_model_summary=False,
            **trainer,
        )
    except MisconfigurationException as error:  # such as a GPU this machine does not have
        raise ValueError(f"trainer settings: {error}") from error


def choose_precision(precision: str, accelerator: str) -> str:
    """`auto` is bf16-mixed where the machine multiplies bfloat16 natively, else 32; anything else stays as it is."""
    if precision != "auto":
        return precision
    if torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda"):
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("arm_bf16"))
    return "bf16-mixed" if native else "32"


def choose_strategy(strategy: str, devices: Any, num_nodes: int) -> Any:
    """DDP, by name or by `auto` with several devices, with a static graph and no search for unused weights.

    The grid step runs the same graph whatever the batch, so gradients need no second buffer and no search.
    """
    several = num_nodes > 1 or devices not in (1, "1", "auto")
    if strategy == "ddp" or (strategy == "auto" and several):
        return DDPStrategy(static_graph=True, find_unused_parameters=False, gradient_as_bucket_view=True)
    return strategy


def half_precision(precision: str) -> torch.dtype | None:
    """The type mixed precision computes in; None in full precision."""
    return {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(precision)


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
