"""RMSNorm of the backbone, in fewer passes over memory than its composite of seven operations."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .products import at_least_float32, without_autocast


def rms_norm(states: Tensor, norm: Any) -> Tensor:
    """The backbone's RMSNorm over the last dimension, with statistics in at least float32 (float64 stays float64).

    Under autocast the result is in its type, as all linear layers behind a norm would convert it one by one.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    if states.is_cuda or torch.compiler.is_compiling():  # has one kernel for it, or makes one
        weight = norm.weight.to(states.dtype)
        return F.rms_norm(states, states.shape[-1:], weight, norm.variance_epsilon).to(dtype)
    return _RMSNorm.apply(states, norm.weight, norm.variance_epsilon, dtype)


class _RMSNorm(torch.autograd.Function):
    """`y = w · x · r` with `r = 1 / sqrt(mean(x²) + ε)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        precise = at_least_float32(x.dtype)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=precise)
        r = norm.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, r)
        return (x * r).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """With `u = ∂y ⊙ x`: `∂x = r·w ⊙ ∂y − x · r³ · (u·w) / D` and `∂w = Σ u · r` over positions."""
        x, weight, r = ctx.saved_tensors
        g, w, D = gradients[0].to(r.dtype), weight.to(r.dtype), x.shape[-1]
        u, d_weight = g * x, None
        with without_autocast(x.device.type):
            slope = (u @ w).unsqueeze(-1).mul_(r * r * r)
            if ctx.needs_input_grad[1]:
                d_weight = torch.mv(u.reshape(-1, D).T, r.reshape(-1)).to(weight.dtype)
        d_x = (g * r).mul_(w).addcmul_(x, slope, value=-1 / D)
        return d_x.to(x.dtype), d_weight, None, None
