"""Where a run's metrics go: CSV files always, W&B on request."""

import logging
import os
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from ..tracking.artifacts import log_artifact, place_of

log = logging.getLogger("train")


def run_loggers(
    folder: Path, logger: dict[str, Any], name: str, group: str | None, settings: dict[str, Any]
) -> list[Logger]:
    """The loggers of a run.

    Args:
        logger: `wandb` (on or off), `offline`, `project`.
    """
    loggers: list[Logger] = [CSVLogger(folder, name="metrics")]
    if logger["wandb"]:
        os.environ.setdefault("WANDB_SILENT", "true")  # we say where a run is
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
        loggers.append(wandb_logger)
    return loggers


@rank_zero_only
def open_loggers(trainer: L.Trainer) -> None:
    """Begin the W&B run, before anything is computed that could be lost.

    Raises:
        ValueError: where W&B has none for us.
    """
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            from wandb import Error

            try:
                logger.experiment  # noqa: B018 - begins it
            except Error as error:
                raise ValueError(
                    f"W&B has no run for this training ({error}): log in by `wandb login` and look at logger.project, "
                    "or keep the run on this machine with logger.offline=true"
                ) from error


def log_model(trainer: L.Trainer, model_folder: Path, name: str, scores: dict[str, float]) -> None:
    """Hand the model folder to W&B, where the run logs there."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            log_artifact(logger.experiment, [model_folder], name, "model", scores)


@rank_zero_only  # the other processes have no run
def close_loggers(trainer: L.Trainer) -> None:
    """End the W&B run, so that the next job of a sweep starts one of its own."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            where = place_of(logger.experiment)
            logger.experiment.finish()
            log.info("W&B: %s", where)
