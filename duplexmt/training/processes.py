"""The other processes of a run on one machine: started before the data is prepared, so that all prepare at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
from lightning.fabric.strategies.launchers.subprocess_script import _launch_process_observer
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from .termination import EXIT_STATUS, may_handle


@contextmanager
def other_processes(trainer: L.Trainer) -> Iterator[None]:
    """Start at once the processes that Lightning would start in `fit`; what goes wrong inside ends them.

    Started in `fit`, each begins with what the first has done by then: imports, and the preparation of the data. Where
    `torchrun` or SLURM starts all processes, or one process is all there is, nothing is to be done.
    """
    launcher = trainer.strategy.launcher
    if not isinstance(launcher, _SubprocessScriptLauncher) or launcher.cluster_environment.creates_processes_externally:
        yield
        return
    before = signal.signal(signal.SIGTERM, _end) if may_handle() else None
    try:
        launcher._call_children_scripts()  # tells the environment, so `fit` takes them for processes started elsewhere
        _launch_process_observer(launcher.procs)  # if one dies they all do
        yield
    except BaseException:
        launcher.kill(signal.SIGKILL)  # they may be waiting for this one
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end(*_: Any) -> None:
    """SIGTERM while data and model are prepared: an end like any other, so that the other processes end, too."""
    raise SystemExit(EXIT_STATUS)
