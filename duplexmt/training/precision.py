"""The precision a run trains in: `trainer.precision`."""

import os
from pathlib import Path

import torch

from ..kernels.products import fast_bfloat16
from .base import PRECISION
from .checkpoint import read_checkpoint

CHOSEN_PRECISION = "DUPLEXMT_PRECISION"  # of the first process, in the environment of those it starts


def settled_precision(precision: str, accelerator: str, num_nodes: int = 1, resume_from: Path | None = None) -> str:
    """The precision asked for; `auto` is what a run that goes on was begun with, else what this machine is fastest in:
    bf16-mixed where it multiplies faster in bfloat16, else 32.

    The first process measures, and those it starts take its choice; under `torchrun` each measures for itself.
    Several CPU nodes, which may be unlike, take 32.

    Args:
        resume_from: the checkpoint of a run that goes on.
    """
    if precision != "auto":
        return precision
    if resume_from is not None:
        return str(read_checkpoint(resume_from, mmap=True)[PRECISION])
    if "LOCAL_RANK" not in os.environ or CHOSEN_PRECISION not in os.environ:
        os.environ[CHOSEN_PRECISION] = fastest_precision(accelerator, num_nodes)
    return os.environ[CHOSEN_PRECISION]


def fastest_precision(accelerator: str, num_nodes: int) -> str:
    """What `auto` stands for on this machine."""
    if torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda"):
        return "bf16-mixed" if fast_bfloat16("cuda") else "32"
    return "bf16-mixed" if num_nodes == 1 and fast_bfloat16("cpu") else "32"


def half_precision(precision: str) -> torch.dtype | None:
    """The type mixed precision computes in, by the name a trainer gives it (on a CPU Lightning takes bf16 for fp16).

    Returns:
        None in full precision.
    """
    return {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(precision)
