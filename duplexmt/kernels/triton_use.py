"""Whether a Triton kernel takes the place of PyTorch's own operations.

None of them is trusted unseen. At its first use on a device each is compared with its plain twin on small random input;
where it differs or fails, one warning says so, and the process goes on without it.

Under DDP every process finds out for itself, all from the same numbers. On unlike cards two may come to different
answers, which does no harm: no twin communicates, either gives every gradient, and gradients are averaged before a
weight changes. Such a group is as slow as its slowest process.
"""

import logging
import os
import shutil
import sysconfig
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from .products import without_autocast

log = logging.getLogger(__name__)

# Of the largest value of each result, that a twin may differ by: several times what rounding its inputs' type brings.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 2e-2}

proven: set[Hashable] = set()  # names of kernels, each with a form it has proved itself in
refused: set[str] = set()  # names of what differed or failed


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


def refuse(name: str, why: object, instead: str = "PyTorch's own operations") -> None:
    """Go on without something for the whole process, and say so once."""
    if name not in refused:
        refused.add(name)
        log.warning("%s: %s. %s are used instead, which are slower", name, why, instead)


def proves_itself(
    name: str,
    form: Hashable,
    device: torch.device,
    inputs: Callable[[torch.Generator], Sequence[Tensor]],
    fast: Callable[..., Sequence[Tensor]],
    naive: Callable[..., Sequence[Tensor]],
) -> bool:
    """Whether a kernel gives what its naive twin gives. It is tried once for each form, and refused if not.

    A trial takes no random number of PyTorch's own, and leaves autocast and what is saved for gradients alone.

    Args:
        name: of the kernel, as a user is to read it.
        form: what it is compiled for, such as types and sizes: a trial of the same form compiles nothing in vain.
        inputs: small random ones on the CPU, in the form's types.
        fast, naive: from these to all results, gradients included. The naive one gets them in float64.
    """
    if name in refused or (name, form, device) in proven:
        return name not in refused
    try:
        unlike = _trial(device, inputs, fast, naive)
    except Exception as error:  # whatever a compiler, a driver or a launch may raise
        unlike = f"{type(error).__name__}: {error}"
    if unlike:
        refuse(name, unlike)
    else:
        proven.add((name, form, device))
    return not unlike


def _trial(
    device: torch.device,
    inputs: Callable[[torch.Generator], Sequence[Tensor]],
    fast: Callable[..., Sequence[Tensor]],
    naive: Callable[..., Sequence[Tensor]],
) -> str | None:
    """How far a kernel is from its twin, where that is too far."""
    kept = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)  # a checkpoint around does not count them
    with torch.inference_mode(False), torch.enable_grad(), kept, without_autocast(device.type):
        given = [part.to(device) for part in inputs(torch.Generator().manual_seed(0))]
        tolerance = max(tolerance_of(part.dtype) for part in given)
        precise = [part.to(torch.float64, copy=True) if part.is_floating_point() else part for part in given]
        return difference(fast(*given), naive(*precise), tolerance)


def tolerance_of(dtype: torch.dtype) -> float:
    """Of the largest value of a result, what its inputs' type may bring; products of float32 may be allowed TF32."""
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        dtype = torch.float16
    return TOLERANCES.get(dtype, 0.0)


def difference(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> str | None:
    """In words, where results differ by more than the tolerance times the largest expected value; else None.

    Raises:
        ValueError: for results of other shapes.
    """
    for number, (one, other) in enumerate(zip(found, expected, strict=True), 1):
        if one.shape != other.shape:
            raise ValueError(f"result {number} has shape {list(one.shape)} instead of {list(other.shape)}")
        if other.numel():
            off = (one.double() - other).abs().max() / other.abs().max().clamp(min=1e-30)
            if not off.item() <= tolerance:  # not a number is too far, too
                return (
                    f"result {number} of {len(found)} differs from PyTorch's by {off.item():.2g} of its largest value, "
                    f"and may by {tolerance:.2g}"
                )
    return None


def with_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], upstream: Tensor) -> tuple[Tensor, ...]:
    """A function's value and its gradients with respect to all of its inputs."""
    inputs = [part.detach().requires_grad_() for part in inputs]
    value = function(*inputs)
    return value, *torch.autograd.grad(value, inputs, upstream)
