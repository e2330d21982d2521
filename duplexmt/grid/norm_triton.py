"""RMSNorm as two Triton kernels, for GPUs: the residual stream's precision in, the products' out, in one pass each.

For a weight that is frozen. PyTorch's own kernel writes the residual stream's precision, and a second one rounds it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x, weight, out, r_out, epsilon, D: tl.constexpr, D_: tl.constexpr, precise: tl.constexpr
):
    """`w · x · r` of one position, with `r = 1 / sqrt(mean(x²) + ε)`; D_ is a power of two."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, D_)
    inside = d < D
    x_row = tl.load(x + row * D + d, mask=inside, other=0).to(precise)
    w = tl.load(weight + d, mask=inside, other=0).to(precise)
    r = 1 / tl.sqrt(tl.sum(x_row * x_row, 0) / D + epsilon)
    tl.store(out + row * D + d, (x_row * r * w).to(out.dtype.element_ty), mask=inside)
    tl.store(r_out + row, r)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    x, weight, r_in, d_out, d_x, D: tl.constexpr, D_: tl.constexpr, precise: tl.constexpr
):
    """`∂x = r·w ⊙ ∂y − x · r³ · (∂y ⊙ x)·w / D` of one position."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, D_)
    inside = d < D
    x_row = tl.load(x + row * D + d, mask=inside, other=0).to(precise)
    g = tl.load(d_out + row * D + d, mask=inside, other=0).to(precise)
    g *= tl.load(weight + d, mask=inside, other=0).to(precise)
    r = tl.load(r_in + row)
    slope = tl.sum(g * x_row, 0) * r * r * r / D
    tl.store(d_x + row * D + d, (g * r - x_row * slope).to(d_x.dtype.element_ty), mask=inside)


class _RMSNorm(torch.autograd.Function):
    """One program for each position."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        x, weight, D = x.contiguous(), weight.contiguous(), x.shape[-1]
        precise = torch.promote_types(x.dtype, torch.float32)
        out = torch.empty_like(x, dtype=dtype)
        r = torch.empty(x.shape[:-1], dtype=precise, device=x.device)
        ctx.constants = {
            "D": D, "D_": triton.next_power_of_2(D), "precise": tl.float64 if precise == torch.float64 else tl.float32,
            "num_warps": 4 if D > 256 else 1,
        }  # fmt: skip
        if r.numel():
            with torch.cuda.device_of(x):  # Triton launches on the current device
                _forward[(r.numel(),)](x, weight, out, r, epsilon, **ctx.constants)
        ctx.save_for_backward(x, weight, r)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, weight, r = ctx.saved_tensors
        d_x = torch.empty_like(x)
        if r.numel():
            with torch.cuda.device_of(x):
                _backward[(r.numel(),)](x, weight, r, gradients[0].contiguous(), d_x, **ctx.constants)
        return d_x, None, None, None


def rms_norm(states: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """`norm.rms_norm` over the last dimension on a GPU, in `dtype`; the weight gets no gradient."""
    return _RMSNorm.apply(states, weight, epsilon, dtype)
