"""How far a training is: a bar, or lines of its log where its output is no terminal."""

import logging
import math
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar
from tqdm import tqdm

log = logging.getLogger(__name__)
FIRST = 10.0  # seconds until the first line, which tells whether all goes well


class ProgressBar(TQDMProgressBar):
    """Lightning's bar, without the number of a log file."""

    def get_metrics(self, *values: Any) -> dict[str, Any]:
        """What stands behind the bar."""
        return {name: value for name, value in super().get_metrics(*values).items() if name != "v_num"}


class ProgressLog(L.Callback):
    """A line after ten seconds, then every minute and after each validation.

    Args:
        seconds: between two lines.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self.begin = self.next = 0.0
        self.first_step = 0
        self.steps: float | None = None  # of the whole run; not known where there is nothing left to train

    def on_train_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Count from here, where a resumed run has steps behind it."""
        self.begin, self.first_step = time.monotonic(), trainer.global_step
        self.next = self.begin + min(FIRST, self.seconds)
        self.steps = trainer.estimated_stepping_batches  # asked by all processes, as the first answer waits for all

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Say what has come of the steps so far, and how long the others will take."""
        now, done = time.monotonic(), trainer.global_step - self.first_step
        if now < self.next or not done:
            return
        self.next = now + self.seconds
        left = ((self.steps or 0) - trainer.global_step) * (now - self.begin) / done
        self.say(trainer, "train/", "" if math.isinf(left) else f"; {tqdm.format_interval(left)} left")

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Say what was found, save before training, when Lightning only tries whether it works."""
        if not trainer.sanity_checking:
            self.say(trainer, "validation/")

    def say(self, trainer: L.Trainer, kind: str, end: str = "") -> None:
        """Where a trainer is, and the metrics of its progress bar of a kind; the first process alone."""
        if trainer.is_global_zero:
            steps = f"step {trainer.global_step:,}" + ("" if self.steps is None else f" of {self.steps:,}")
            values = {name: float(value) for name, value in trainer.progress_bar_metrics.items()}
            found = [f"{name} {value:.3f}" for name, value in values.items() if name.startswith(kind)]
            # The last epoch begun. `current_epoch` counts on at the end of a run that `max_steps` stopped within one.
            epoch = trainer.fit_loop.epoch_progress.current.started  # type: ignore[attr-defined]
            log.info("%s%s", ", ".join([steps, f"epoch {epoch}", *found]), end)
