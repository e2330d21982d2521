"""One recurrence for best path, worth of decisions and visits: a step is taken at each place of a line at once, and the
best of all places before it carries on. On a GPU it is one launch, however many steps there are.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels.triton_use import proves_itself, use_triton

COMBINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": torch.add, "min": torch.minimum}
KERNEL = "The Triton kernel of the best path"


def running_best(gains: Tensor, by: str) -> Tensor:
    """`best[s][w] = max_{k ≤ w} (gains[s][k] ∘ best[s − 1][k])`, where ∘ is + or the lesser of both.

    A sum gives the best score of a monotone path (`eq:dp-recur`). The lesser of both gives the threshold below which a
    path has come to a place, if it goes on wherever its gain is above that threshold.

    Args:
        gains: `[S, N, W]`: steps, lines that have nothing to do with each other, places.
        by: `sum` (before the first step all places have 0) or `min` (there they have infinity).

    Returns:
        `[S, N, W]` in the dtype of the gains.
    """
    gains = gains.contiguous()
    if use_triton(gains) and _kernel_proves_itself(gains, by):
        from . import recurrence_triton

        return recurrence_triton.running_best(gains, by, block_of(gains.shape[2]))
    return naive_running_best(gains, by)


def naive_running_best(gains: Tensor, by: str) -> Tensor:
    """The same by PyTorch's own operations, two a step."""
    best, before = torch.empty_like(gains), torch.full_like(gains[0], 0 if by == "sum" else float("inf"))
    places = torch.empty_like(before, dtype=torch.int64)
    for own, found in zip(gains.unbind(), best.unbind(), strict=True):
        torch.cummax(COMBINED[by](own, before), -1, out=(found, places))
        before = found
    return best


def block_of(W: int) -> int:
    """Places of a kernel's program, a power of two: few numbers, as each is compiled for itself."""
    return max(64, 1 << (W - 1).bit_length())


def _kernel_proves_itself(like: Tensor, by: str) -> bool:
    """Whether the Triton kernel gives what its naive twin does, for lines of so many places."""
    W, dtype = like.shape[2], like.dtype

    def inputs(draw: torch.Generator) -> list[Tensor]:
        return [torch.randn(5, 3, W, generator=draw).to(dtype)]

    def fast(gains: Tensor) -> tuple[Tensor]:
        from . import recurrence_triton

        return (recurrence_triton.running_best(gains, by, block_of(W)),)

    def naive(gains: Tensor) -> tuple[Tensor]:
        return (naive_running_best(gains, by),)

    return proves_itself(KERNEL, (by, block_of(W), dtype), like.device, inputs, fast, naive)
