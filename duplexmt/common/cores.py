"""How many processes this machine has room for, and which of a run's this one is."""

import os


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_rank() -> int:
    """The number of this process on its machine, as launchers tell it."""
    return next((int(os.environ[name]) for name in ("LOCAL_RANK", "SLURM_LOCALID") if name in os.environ), 0)
