"""Matrix products of training steps: on a CPU in float32 by oneDNN, where that is faster than PyTorch's own BLAS.

A step multiplies thousands of positions by matrices of a few hundred columns. On one core of an AMD EPYC with AVX-512
oneDNN does 81 to 104 GFLOP/s on such shapes (2,460 positions, 64 to 1,024 columns) where `mm` does 49 to 91; on another
one 110 to 190 where `mm` does 70 to 90. On one without AVX-512 it is 57 to 85 by oneDNN and 59 to 85 by `mm`, for
gradients of weights 42 to 77 and 49 to 84, and a whole step takes 0.9 of the time by `mm`. On an Intel Xeon with
AVX-512, for which PyTorch's BLAS is made, it is 135 to 159 by oneDNN and 151 to 166 by `mm`, for gradients of weights
106 to 149 and 138 to 159, and a step takes 0.88 of the time.
"""

import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

INTEL = "GenuineIntel"
FEWEST_ROWS = 16  # a number of rows is a multiple of it
NOT_WIDE = 512  # columns, between what was measured
FAST = 0.8  # of float32's time, from where on bfloat16 pays: far from what was seen on either side


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`rows · weightᵀ + bias`, `[n, D]` and `[D', D]` → `[n, D']`: `F.linear` without a gradient of its own.

    For the inside of an autograd function; the weight may be a transposed view.
    """
    n, rows = len(rows), rounded(rows)
    return (_by_onednn if _onednn_takes(rows, weight) else F.linear)(rows, weight, bias)[:n]


def narrow_product(rows: Tensor, weight: Tensor) -> Tensor:
    """`product(rows, weight)` for a few outputs that `weight_gradient` is to get, `[n, D']`.

    Of rows that are not wide oneDNN computes it as `weight · rowsᵀ`, `[D', n]`, as the gradient wants it. For 5,064
    rows of 256 columns that is faster than a product and a copy (0.81 and 0.96 ms), of 1,024 slower (3.95 and 3.52).
    """
    if not _onednn_takes(rows, weight):
        return F.linear(rows, weight)
    return _by_onednn(weight, rows).T if rows.shape[1] <= NOT_WIDE else _by_onednn(rows, weight)


def weight_gradient(outputs: Tensor, inputs: Tensor) -> Tensor:
    """`outputsᵀ · inputs`, `[n, D']` and `[n, D]` → `[D', D]`: of a layer's weight, from the gradient of its outputs.

    oneDNN gets the narrower side as its rows; the other way round it is no faster than `mm`.
    """
    if not _onednn_takes(outputs, inputs):
        return outputs.T @ inputs
    if outputs.shape[1] <= inputs.shape[1]:
        return _by_onednn(outputs.T, inputs.T)
    return _by_onednn(inputs.T, outputs.T).T


def on_rounded(layer: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """`layer(rows)`, of a layer that takes each row by itself: computed for a round number of them."""
    more = rounded(rows)
    return layer(rows) if more is rows else layer(more)[: len(rows)]


def rounded(rows: Tensor) -> Tensor:
    """Rows of a product, `[n, D]` → `[n', D]`: where oneDNN computes it, rows of zeros are added up to a round number,
    and all are converted to autocast's type. At most a sixteenth is added, of fewer than 256 rows up to 15.

    oneDNN compiles a product when it meets a number of rows for the first time, and keeps about a thousand of them. No
    two batches have the same number of cells. In bfloat16 on one core of an Intel Xeon with AMX, 1,550 rows of 256
    times 256 columns take 0.2 ms, and 1.6 ms the first time; 768 columns 0.6 and 2.7.
    """
    if rows.device.type != "cpu" or rows.dim() != 2 or torch.compiler.is_compiling():
        return rows
    autocast = torch.is_autocast_enabled("cpu") and rows.dtype != torch.float64  # which it leaves alone
    dtype = torch.get_autocast_dtype("cpu") if autocast else rows.dtype
    step = max(FEWEST_ROWS, 1 << len(rows).bit_length() >> 5)
    more = -len(rows) % step
    if not more or not _compiled_for_rows(dtype):
        return rows
    return F.pad(rows.to(dtype), (0, 0, 0, more))


def _compiled_for_rows(dtype: torch.dtype) -> bool:
    """Whether products of this type are oneDNN's on this processor."""
    if not has_onednn(torch.device("cpu")):
        return False
    return dtype == torch.bfloat16 or (dtype == torch.float32 and onednn_is_faster())


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """In which sums over values of a type run: `torch.promote_types(dtype, torch.float32)` without asking PyTorch."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context in which products are of their tensors' own type."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()  # 50 µs less, of which a step has many


def _onednn_takes(a: Tensor, b: Tensor) -> bool:
    """Whether the product of two tensors is oneDNN's; not if there is none, of no rows or columns."""
    of_type = a.dtype == b.dtype == torch.float32 and has_onednn(a.device) and onednn_is_faster()
    return of_type and a.numel() > 0


def _by_onednn(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`rows · weightᵀ + bias`."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")  # type: ignore[no-any-return]


@cache
def onednn_is_faster() -> bool:
    """Whether this processor multiplies thousands of rows faster by oneDNN: on x86 where it has AVX-512 and is not
    Intel's. (By kind and not by measuring, so that a run that goes on sums in the same order.)"""
    return bool(cpu_capabilities().get("avx512_f", True)) and not of_intel()  # other architectures do not name it


def of_intel() -> bool:
    """Whether the processor is Intel's."""
    linux = Path("/proc/cpuinfo")
    return INTEL in (linux.read_text(errors="replace") if linux.is_file() else platform.processor())


@cache
def has_onednn(device: torch.device) -> bool:
    """Whether oneDNN's linear layer is there for tensors of a device."""
    mkldnn = torch.backends.mkldnn
    return device.type == "cpu" and mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def matrix_products() -> list[Any]:
    """The operations that a step's products are, as PyTorch dispatches them."""
    onednn = [torch.ops.mkldnn._linear_pointwise.default] if has_onednn(torch.device("cpu")) else []
    return [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, *onednn]


def fast_bfloat16(device_type: str) -> bool:
    """Whether this machine multiplies faster in bfloat16 than in float32: it has instructions for it, and they are."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    instructions = ("avx512_bf16", "amx_bf16", "arm_bf16")
    return any(cpu_capabilities().get(name) for name in instructions) and time_of_bfloat16() < FAST


@cache
def time_of_bfloat16(n: int = 512, times: int = 7) -> float:
    """The time a product of matrices `[n, n]` takes in bfloat16, over what it takes in float32, measured on this CPU.

    Instructions alone do not tell: a Xeon that shows AVX-512 bf16 without AMX took 1.9 of float32's time, others a
    half or less.
    """
    fastest = dict.fromkeys((torch.float32, torch.bfloat16), float("inf"))
    pairs = {dtype: (torch.ones(n, n, dtype=dtype), torch.ones(n, n, dtype=dtype)) for dtype in fastest}
    for _ in range(times):  # in turns, and the fastest counts: other work on the machine slows single ones down
        for dtype, (rows, weight) in pairs.items():
            start = perf_counter()
            F.linear(rows, weight)
            fastest[dtype] = min(fastest[dtype], perf_counter() - start)
    return fastest[torch.bfloat16] / fastest[torch.float32]


def cpu_capabilities() -> Mapping[str, Any]:
    """The instruction sets of this processor by name, as far as this PyTorch tells them."""
    return torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
