"""Offline runs of W&B, read back once they are complete."""

import time

from tests.wandb_file import read_wandb_file


def finished_run(folder):
    """The one offline run below a folder; W&B's own process writes the last of it after `finish` has returned."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    end = time.monotonic() + 60
    while True:
        run = read_wandb_file(file) if file.stat().st_size > 7 else None
        if run is not None and run.finished:
            return run
        assert time.monotonic() < end, f"{file} is not complete after a minute"
        time.sleep(0.05)
