"""The processes of a run: how they share its batches, DDP, and when the others on this machine are started."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from time import sleep
from typing import Any

import lightning as L
import torch
from lightning.fabric.strategies.launchers.subprocess_script import _launch_process_observer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from ..common.cores import usable_cores
from ..data.loader import rounded_up
from .sharded import ShardedStrategy
from .termination import EXIT_STATUS, may_handle

CORES = "cores"  # a number of devices
LEAST_PAIRS = 4  # a process takes of each batch, or starting products costs more than sharing them saves
FIRST = "DUPLEXMT_FIRST_PROCESS"  # in the environment of the others: its number
LOOK = 1.0  # seconds between two looks at whether it is there
Batches = dict[str, Any]  # `batch_size` in pairs, `batch_tokens` in tokens or None


def share_batches(trainer: dict[str, Any], batches: Batches) -> tuple[dict[str, Any], Batches]:
    """`devices=cores`: on a CPU, one process for each core, which share what one would take as a batch.

    Where the matrices are small, threads help one process little, while processes of one thread each have nothing to
    wait for but each other's gradients. What is trained stays the same. Where there is a GPU, it trains alone.

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
    if shares.get("batch_tokens") is not None:
        shares["batch_tokens"] = rounded_up(shares["batch_tokens"])  # type: ignore[arg-type]
    return trainer | {"devices": processes}, shares


def choose_strategy(strategy: str, devices: Any, num_nodes: int, accumulate: int) -> Any:
    """DDP, by name or by `auto` with several devices, with a static graph and no search for unused weights; or FSDP.

    The grid step runs the same graph whatever the batch, so gradients need no second buffer and no search. With
    accumulated batches the graph is not declared static: DDP records it in its first backward pass, which must then be
    a synchronised one (https://github.com/pytorch/pytorch/issues/143580).

    Raises:
        ValueError: for DeepSpeed, where it is not installed.
    """
    if strategy == "fsdp":
        return ShardedStrategy()
    if strategy.startswith("deepspeed") and find_spec("deepspeed") is None:
        raise ValueError(
            f"trainer.strategy={strategy}: DeepSpeed is not installed: pip install deepspeed, or give "
            "trainer.strategy=fsdp, which needs nothing more"
        )
    several = num_nodes > 1 or devices not in (1, "1", "auto")
    if strategy == "ddp" or (strategy == "auto" and several):
        return DDPStrategy(static_graph=accumulate == 1, find_unused_parameters=False, gradient_as_bucket_view=True)
    return strategy


@contextmanager
def other_processes(trainer: L.Trainer) -> Iterator[None]:
    """Start at once the processes that Lightning would start in `fit`; what goes wrong inside ends them.

    So all prepare the data together. Started in `fit`, each begins with what the first has done by then: imports, and
    that preparation. Where `torchrun` or SLURM starts all processes, or one process is all there is, nothing is to be
    done. One that was started here ends with the first, should that be killed: else it waits for it for half an hour.
    """
    if trainer.local_rank and FIRST in os.environ:
        threading.Thread(target=_end_with, args=(int(os.environ[FIRST]),), daemon=True).start()
    launcher = trainer.strategy.launcher
    if not isinstance(launcher, _SubprocessScriptLauncher) or launcher.cluster_environment.creates_processes_externally:
        yield
        return
    before = signal.signal(signal.SIGTERM, _end) if may_handle() else None
    hook, sys.unraisablehook = sys.unraisablehook, partial(_end_again, sys.unraisablehook)
    try:
        os.environ[FIRST] = str(os.getpid())
        launcher._call_children_scripts()  # tells the environment, so `fit` takes them for processes started elsewhere
        _launch_process_observer(launcher.procs)  # if one dies they all do
        yield
    except BaseException:
        launcher.kill(signal.SIGKILL)  # they may be waiting for this one
        raise
    finally:
        sys.unraisablehook = hook
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _end_with(parent: int) -> None:
    """End this process once its parent has gone: killed, it could not say so."""
    while os.getppid() == parent:
        sleep(LOOK)
    os.kill(os.getpid(), signal.SIGKILL)


def _end(*_: Any) -> None:
    """SIGTERM while data and model are prepared: an end like any other, so that the other processes end, too."""
    raise SystemExit(EXIT_STATUS)


def _end_again(hook: Callable[[Any], Any], ignored: Any) -> None:
    """Python ignores an exception in a destructor; so that no SIGTERM is lost there, `_end` is called once more."""
    if isinstance(ignored.exc_value, SystemExit):
        threading.Timer(LOOK, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        hook(ignored)
