"""Whether Triton kernels are to be used."""

import os
from importlib.util import find_spec

import torch
from torch import Tensor


def use_triton(states: Tensor) -> bool:
    """Whether the Triton kernels take these states: on a GPU where Triton is installed. `DUPLEXMT_TRITON=0` says no.

    What `torch.compile` compiles, it makes kernels for itself.
    """
    asked = states.is_cuda and os.environ.get("DUPLEXMT_TRITON") != "0" and not torch.compiler.is_compiling()
    return asked and find_spec("triton") is not None
