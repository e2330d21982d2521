"""Muon, which makes the steps of a matrix orthogonal (https://kellerjordan.github.io/posts/muon/).

`torch.optim.Muon` takes one matrix after the other and always multiplies in bfloat16, for which a processor without
instructions for it takes dozens of times as long as for float32. The same steps here, matrices of one size together
and in the faster type.
"""

from collections.abc import Iterable
from math import sqrt

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from ..kernels.products import fast_bfloat16

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # a, b, c of a·G + b·GGᵀG + c·(GGᵀ)²G
ITERATIONS = 5


class Muon(Optimizer):
    """Muon with Nesterov's momentum and without weight decay; its steps have the root mean square of Adam's. As fused
    Adam it skips a step where its `found_inf` is not 0.

    Args:
        matrices: weights `[m, n]`.
        lr: learning rate, on Adam's scale (0.2·√max(m, n) times Muon's own: https://arxiv.org/abs/2502.16982).
        momentum: share of the past in the running mean of gradients.
    """

    found_inf: Tensor | None = None

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        # Whether products are in bfloat16 is measured once and kept in checkpoints: a resumed run does the same.
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "bfloat16": None})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step; a closure is `Together`'s to call."""
        for group in self.param_groups:
            of_size: dict[tuple[torch.device, int, int], list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    of_size.setdefault((weight.device, min(weight.shape), max(weight.shape)), []).append(weight)
            for (device, _, longer), weights in of_size.items():
                steps = torch.stack([wide(self._mean_gradient(weight, group["momentum"])) for weight in weights])
                if group.get("bfloat16") is None:  # older checkpoints lack it
                    group["bfloat16"] = fast_bfloat16(device.type)
                steps = shared_out(steps, torch.bfloat16 if group["bfloat16"] else torch.float32)
                if self.found_inf is not None:
                    steps = torch.where(self.found_inf > 0, 0.0, steps)
                for weight, step in zip(weights, steps, strict=True):
                    wide(weight).add_(step, alpha=-group["lr"] * 0.2 * sqrt(longer))

    def _mean_gradient(self, weight: Tensor, momentum: float) -> Tensor:
        """The running mean of a weight's gradients, one step ahead (Nesterov)."""
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        assert weight.grad is not None
        gradient, mean = weight.grad, state["momentum_buffer"]
        if self.found_inf is not None:
            gradient = torch.where(self.found_inf > 0, mean, gradient)
        mean.lerp_(gradient, 1 - momentum)
        return gradient.lerp(mean, momentum)


def wide(matrix: Tensor) -> Tensor:
    """A matrix with no more rows than columns: itself, or a view of its transpose."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def shared_out(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """`orthogonal` of matrices that all processes of a run have alike: each does its share and gets the others'.

    Products are in the given type, and what is exchanged in the matrices' own: processes on unlike machines may differ
    in which type is fast.
    """
    if not dist.is_available() or not dist.is_initialized():
        return orthogonal(matrices.to(dtype)).to(matrices.dtype)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    steps = torch.zeros_like(matrices)
    steps[own] = orthogonal(matrices[own].to(dtype)).to(matrices.dtype)
    dist.all_reduce(steps)
    return steps


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices `[k, m, n]`, m ≤ n, with their singular values brought near 1 by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    matrices = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value above 1
    for _ in range(ITERATIONS):
        gram = matrices @ matrices.mT
        matrices = torch.baddbmm(matrices, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), matrices, beta=a)
    return matrices
