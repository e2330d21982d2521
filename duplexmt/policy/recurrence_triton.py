"""The recurrence of `policy.recurrence` as a Triton kernel: a program takes one line through all steps in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _larger(a, b):  # type: ignore[no-untyped-def]
    return tl.maximum(a, b)


@triton.jit
def _steps(gains, best, S, N, W, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """All steps of one line; BLOCK is a power of two of at least W."""
    lane = tl.arange(0, BLOCK)
    start = tl.zeros((BLOCK,), dtype=gains.dtype.element_ty)
    for s in range(S):
        at = (tl.cast(s, tl.int64) * N + tl.program_id(0)) * W + lane
        own = tl.load(gains + at, mask=lane < W, other=0)
        start = tl.associative_scan(start + own, 0, _larger)
        tl.store(best + at, start, mask=lane < W)


def running_best(gains: Tensor, block: int) -> Tensor:
    """Same as `recurrence.running_best`, of contiguous gains on a GPU (or under Triton's interpreter), by programs for
    up to `block` places (`recurrence.block_of`)."""
    S, N, W = gains.shape
    best = torch.empty_like(gains)
    if gains.numel():
        with torch.cuda.device_of(gains):  # Triton launches on the current device
            warps = min(8, max(1, block // 128))
            _steps[(N,)](gains, best, S, N, W, BLOCK=block, num_warps=warps)
    return best
