"""The recurrence of the best path: a step is taken at each place of a line at once, and the best of all places before
it carries on. On a GPU it is one launch, however many steps there are.
"""

import torch
from torch import Tensor

from ..kernels.triton_use import proves_itself, use_triton

KERNEL = "The Triton kernel of the best path"


def running_best(gains: Tensor) -> Tensor:
    """`best[s][w] = max_{k ≤ w} (gains[s][k] + best[s − 1][k])` (`eq:dp-recur`); before the first step all have 0.

    Args:
        gains: `[S, N, W]`: steps, lines that have nothing to do with each other, places.

    Returns:
        `[S, N, W]` in the dtype of the gains.
    """
    gains = gains.contiguous()
    if use_triton(gains) and _kernel_proves_itself(gains):
        from . import recurrence_triton

        return recurrence_triton.running_best(gains, block_of(gains.shape[2]))
    return naive_running_best(gains)


def naive_running_best(gains: Tensor) -> Tensor:
    """The same by PyTorch's own operations, two a step."""
    best, before = torch.empty_like(gains), torch.zeros_like(gains[0])
    places = torch.empty_like(before, dtype=torch.int64)
    for own, found in zip(gains.unbind(), best.unbind(), strict=True):
        torch.cummax(own + before, -1, out=(found, places))
        before = found
    return best


def block_of(W: int) -> int:
    """Places of a kernel's program, a power of two: few numbers, as each is compiled for itself."""
    return max(64, 1 << (W - 1).bit_length())


def _kernel_proves_itself(like: Tensor) -> bool:
    """Whether the Triton kernel gives what its naive twin does, for lines of so many places."""
    W, dtype = like.shape[2], like.dtype

    def inputs(draw: torch.Generator) -> list[Tensor]:
        return [torch.randn(5, 3, W, generator=draw).to(dtype)]

    def fast(gains: Tensor) -> tuple[Tensor]:
        from . import recurrence_triton

        return (recurrence_triton.running_best(gains, block_of(W)),)

    def naive(gains: Tensor) -> tuple[Tensor]:
        return (naive_running_best(gains),)

    return proves_itself(KERNEL, (block_of(W), dtype), like.device, inputs, fast, naive)
