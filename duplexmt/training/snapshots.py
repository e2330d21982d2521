"""Model folders at steps on the way, for studies of how a model comes about."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L


class Snapshots(L.Callback):
    """Saves the model as it stands after given optimiser steps, 0 being before the first.

    Args:
        folder: gets a folder for each step, `000100` for step 100.
        steps: optimiser steps; those a run does not reach leave no folder.
        save: writes a model folder, as `save_model_folder` does.
    """

    def __init__(self, folder: Path, steps: Sequence[int], save: Callable[[Path], Any]) -> None:
        self.folder, self.steps, self.save = folder, frozenset(steps), save
        self.saved = -1  # the last step looked at: several batches may belong to one

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The weights before the first step, unless the run is resumed."""
        self._save(trainer)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Behind an optimiser step."""
        self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        step = trainer.global_step
        if step != self.saved and step in self.steps and trainer.is_global_zero:
            self.save(self.folder / f"{step:06d}")
        self.saved = step
