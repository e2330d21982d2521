"""Whether Triton kernels are to be used."""

import logging
import os
import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger(__name__)


def use_triton(states: Tensor) -> bool:
    """Whether the Triton kernels take these states: on a GPU where Triton runs. `DUPLEXMT_TRITON=0` says no.

    What `torch.compile` compiles, it makes kernels for itself.
    """
    asked = states.is_cuda and os.environ.get("DUPLEXMT_TRITON") != "0" and not torch.compiler.is_compiling()
    return asked and triton_runs()


@cache
def triton_runs() -> bool:
    """Whether Triton is installed, and what it builds its launchers with; a warning where only that is missing."""
    if find_spec("triton") is None:
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include"), "Python.h")
    missing = [] if compiler else ["a C compiler (gcc, clang, or the one CC names)"]
    missing += [] if header.is_file() else [f"Python's headers ({header}; Debian: python3-dev)"]
    if missing:
        log.warning("Triton needs %s: without, PyTorch's own operations are used, which are slower", missing[0])
    return not missing
