"""The gated activation of a backbone's MLP as two Triton kernels, one pass over memory each: for GPUs.

PyTorch's own operations take two passes forward and three backward, and keep `silu(gate)` for it besides.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # numbers of a program


@triton.jit
def _forward(gate, up, out, n, BLOCK: tl.constexpr, precise: tl.constexpr):  # type: ignore[no-untyped-def]
    """`silu(g) · u` of one block."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gate + at, mask=inside, other=0).to(precise)
    u = tl.load(up + at, mask=inside, other=0).to(precise)
    tl.store(out + at, (g / (1 + tl.exp(-g)) * u).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    gate, up, d_out, d_gate, d_up, n, BLOCK: tl.constexpr, precise: tl.constexpr
):
    """`∂u = ∂h · silu(g)` and `∂g = ∂h · u · silu′(g)`, with `silu′ = σ · (1 + g · (1 − σ))`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gate + at, mask=inside, other=0).to(precise)
    u = tl.load(up + at, mask=inside, other=0).to(precise)
    d = tl.load(d_out + at, mask=inside, other=0).to(precise)
    sigmoid = 1 / (1 + tl.exp(-g))
    tl.store(d_up + at, (d * g * sigmoid).to(d_up.dtype.element_ty), mask=inside)
    tl.store(d_gate + at, (d * u * sigmoid * (1 + g * (1 - sigmoid))).to(d_gate.dtype.element_ty), mask=inside)


class _SwiGLU(torch.autograd.Function):
    """`h = silu(g) ⊙ u`, computed in at least float32."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        out = torch.empty_like(gate)
        _launch(_forward, gate, up, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        d_gate, d_up = torch.empty_like(gate), torch.empty_like(up)
        _launch(_backward, gate, up, gradients[0].contiguous(), d_gate, d_up)
        return d_gate, d_up


def _launch(kernel: Any, *tensors: Tensor) -> None:
    """One program for each block of the first tensor's numbers."""
    n = tensors[0].numel()
    precise = tl.float64 if tensors[0].dtype == torch.float64 else tl.float32
    if n:
        with torch.cuda.device_of(tensors[0]):  # Triton launches on the current device
            kernel[(triton.cdiv(n, BLOCK),)](*tensors, n, BLOCK=BLOCK, precise=precise)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) ⊙ up`, `[n, F]` each, of one precision: the twin of `swiglu.gated` on a GPU."""
    return _SwiGLU.apply(gate, up)
