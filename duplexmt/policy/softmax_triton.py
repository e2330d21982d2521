"""The softmax over the vocabulary as two Triton kernels, for GPUs: one pass over logits in half precision, each.

PyTorch's own `log_softmax` in float32 makes a float32 copy of the logits first and writes another, of which the heatmap
needs two numbers a cell. A program takes one row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # logits of a row at a time


@triton.jit
def _log_sum_exp(logits, out, V, BLOCK: tl.constexpr, precise: tl.constexpr):  # type: ignore[no-untyped-def]
    """`log Σ exp` of one row, as a running maximum and a running sum of each lane."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), dtype=precise)
    total = tl.zeros((BLOCK,), dtype=precise)
    for start in range(0, V, BLOCK):
        x = tl.load(logits + row * V + start + lane, mask=start + lane < V, other=float("-inf")).to(precise)
        new = tl.maximum(top, x)
        seen = new > float("-inf")  # else this lane has seen no logit yet
        total = tl.where(seen, total * tl.exp(top - new) + tl.exp(x - new), 0)
        top = new
    most = tl.max(top, 0)
    tl.store(out + row, most + tl.log(tl.sum(total * tl.exp(top - most), 0)))


@triton.jit
def _gradient(  # type: ignore[no-untyped-def]
    logits, log_totals, labels, d_losses, V, BLOCK: tl.constexpr, precise: tl.constexpr
):
    """`(softmax − one-hot) · ∂L` of a block of one row, in the place of its logits."""
    row, lane = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at, inside = logits + row * V + lane, lane < V
    x = tl.load(at, mask=inside, other=0).to(precise)
    one_hot = tl.where(lane == tl.load(labels + row), 1.0, 0.0)
    d = (tl.exp(x - tl.load(log_totals + row)) - one_hot) * tl.load(d_losses + row)
    tl.store(at, d.to(logits.dtype.element_ty), mask=inside)


def log_sum_exp(logits: Tensor) -> Tensor:
    """`log Σ exp` of each row, `[n, vocabulary]` → `[n, 1]`, at least float32."""
    logits = logits.contiguous()
    out = torch.empty(len(logits), 1, dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
    if len(logits):
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _log_sum_exp[(len(logits),)](logits, out, logits.shape[1], BLOCK=BLOCK, precise=_precise(out), num_warps=8)
    return out


def losses_of_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Same as `heatmap.losses_of_logits`, on a GPU (or under Triton's interpreter)."""
    log_totals = log_sum_exp(logits)
    return (log_totals - logits.gather(-1, labels[:, None])).squeeze(-1), log_totals


def gradients_of_logits_(logits: Tensor, log_totals: Tensor, labels: Tensor, d_losses: Tensor) -> Tensor:
    """Same as `heatmap.gradients_of_logits_`, of contiguous logits."""
    gradient_(logits, log_totals, labels, d_losses)
    return logits


def gradient_(logits: Tensor, log_totals: Tensor, labels: Tensor, d_losses: Tensor) -> None:
    """Turn logits into their gradients, `(softmax − one-hot) · ∂L`.

    Args:
        logits: `[n, vocabulary]`, contiguous; overwritten.
        log_totals: their `log Σ exp`, `[n, 1]`.
        labels: the token of each row, `[n]`.
        d_losses: gradient of each row's loss, `[n, 1]`.
    """
    if len(logits):
        blocks = triton.cdiv(logits.shape[1], BLOCK)
        given = log_totals.contiguous(), labels.contiguous(), d_losses.contiguous()
        with torch.cuda.device_of(logits):
            _gradient[(len(logits), blocks)](
                logits, *given, logits.shape[1], BLOCK=BLOCK, precise=_precise(log_totals), num_warps=8
            )


def _precise(values: Tensor) -> tl.dtype:
    """Triton's name of a type."""
    return tl.float64 if values.dtype == torch.float64 else tl.float32
