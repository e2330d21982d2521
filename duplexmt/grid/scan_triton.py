"""Hadamard attention along lines as two Triton kernels: the twin of `scan.hadamard_attention` for GPUs.

A program takes one line and one key/value head, with the G query heads that share it, and walks along the line: scores,
running softmax and context stay in registers, and queries, keys and values are read once, where they lie. The
backward kernel walks back and adds up everything itself, so that gradients are the same on every run.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .cells import Lines


@triton.jit
def _walk(  # type: ignore[no-untyped-def]
    q, k, v, own_ctx, own_lse, start, stride, length, out, c_out, scale,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, G_: tl.constexpr, E_: tl.constexpr, precise: tl.constexpr,
):  # fmt: skip
    """`h[t]` and `c[t]` of one line for the query heads of one key head (see `scan`); G_, E_ are powers of two."""
    line, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    G: tl.constexpr = H // K
    g, e = tl.arange(0, G_), tl.arange(0, E_)
    heads = head * G + g
    in_g, in_e = g < G, e < E
    tile = in_g[:, None] & in_e[None, :]
    first, step, n = tl.load(start + line), tl.load(stride + line), tl.load(length + line)
    h = tl.load(own_ctx + (line * H + heads)[:, None] * E + e[None, :], mask=tile, other=0).to(precise)
    c = tl.load(own_lse + line * H + heads, mask=in_g, other=0).to(precise)
    for t in range(n):
        cell = first + t * step
        at_q = (cell * H + heads)[:, None] * E + e[None, :]
        at_k = (cell * K + head) * E + e
        q_t = tl.load(q + at_q, mask=tile, other=0).to(precise)
        k_t = tl.load(k + at_k, mask=in_e, other=0).to(precise)
        v_t = tl.load(v + at_k, mask=in_e, other=0).to(precise)
        s = tl.sum(q_t * k_t[None, :], 1) * scale
        top = tl.maximum(c, s)
        new = top + tl.log(tl.exp(c - top) + tl.exp(s - top))
        h = h * tl.exp(c - new)[:, None] + v_t[None, :] * tl.exp(s - new)[:, None]
        c = new
        tl.store(out + at_q, h.to(out.dtype.element_ty), mask=tile)
        tl.store(c_out + cell * H + heads, c, mask=in_g)


@triton.jit
def _walk_back(  # type: ignore[no-untyped-def]
    q, k, v, own_ctx, own_lse, start, stride, length, out, c_out, d_out, d_q, d_k, d_v, d_ctx, d_lse, scale,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, G_: tl.constexpr, E_: tl.constexpr, precise: tl.constexpr,
):  # fmt: skip
    """Gradients of one line for one key head, by the suffix sums `A` and `b` of `scan._JointScan.backward`."""
    line, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    G: tl.constexpr = H // K
    g, e = tl.arange(0, G_), tl.arange(0, E_)
    heads = head * G + g
    in_g, in_e = g < G, e < E
    tile = in_g[:, None] & in_e[None, :]
    first, step, n = tl.load(start + line), tl.load(stride + line), tl.load(length + line)
    A = tl.zeros((G_, E_), dtype=precise)
    b = tl.zeros((G_,), dtype=precise)
    later = tl.load(c_out + (first + (n - 1) * step) * H + heads, mask=in_g, other=0)  # c[t + 1]
    for i in range(n):
        cell = first + (n - 1 - i) * step
        at_q = (cell * H + heads)[:, None] * E + e[None, :]
        at_k = (cell * K + head) * E + e
        c = tl.load(c_out + cell * H + heads, mask=in_g, other=0)
        d_h = tl.load(d_out + at_q, mask=tile, other=0).to(precise)
        h = tl.load(out + at_q, mask=tile, other=0).to(precise)
        keep = tl.exp(c - later)
        A = d_h + A * keep[:, None]
        b = b * keep - tl.sum(d_h * h, 1)
        q_t = tl.load(q + at_q, mask=tile, other=0).to(precise)
        k_t = tl.load(k + at_k, mask=in_e, other=0).to(precise)
        v_t = tl.load(v + at_k, mask=in_e, other=0).to(precise)
        add = tl.where(in_g, tl.exp(tl.sum(q_t * k_t[None, :], 1) * scale - c), 0)
        d_s = add * (tl.sum(A * v_t[None, :], 1) + b) * scale
        tl.store(d_q + at_q, (d_s[:, None] * k_t[None, :]).to(d_q.dtype.element_ty), mask=tile)
        tl.store(d_k + at_k, tl.sum(d_s[:, None] * q_t, 0).to(d_k.dtype.element_ty), mask=in_e)
        tl.store(d_v + at_k, tl.sum(add[:, None] * A, 0).to(d_v.dtype.element_ty), mask=in_e)
        later = c
    at_own = (line * H + heads)[:, None] * E + e[None, :]
    own = tl.load(own_ctx + at_own, mask=tile, other=0).to(precise)
    keep = tl.exp(tl.load(own_lse + line * H + heads, mask=in_g, other=0).to(precise) - later)
    keep = tl.where(n > 0, keep, 0)  # of a line without cells it is any number
    tl.store(d_ctx + at_own, (A * keep[:, None]).to(d_ctx.dtype.element_ty), mask=tile)
    d_own = keep * (tl.sum(A * own, 1) + b)
    tl.store(d_lse + line * H + heads, d_own.to(d_lse.dtype.element_ty), mask=in_g)


class _HadamardAttention(torch.autograd.Function):
    """Launches one program for each line and key head."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, own_ctx: Tensor, own_lse: Tensor, lines: Lines
    ) -> Tensor:
        q, k, v, own_ctx, own_lse = (part.contiguous() for part in (q, k, v, own_ctx, own_lse))
        (N, H, E), K = q.shape, k.shape[1]
        double = v.dtype == torch.float64
        out = torch.empty(N, H, E, dtype=v.dtype, device=v.device)
        c = torch.empty(N, H, dtype=torch.float64 if double else torch.float32, device=v.device)
        ctx.constants = {
            "H": H, "K": K, "E": E, "G_": triton.next_power_of_2(H // K), "E_": triton.next_power_of_2(E),
            "precise": tl.float64 if double else tl.float32, "num_warps": 2,
        }  # fmt: skip
        ctx.scale, ctx.lines, ctx.grid = scale, lines, (len(lines.start), K)
        where = lines.start, lines.stride, lines.length
        with torch.cuda.device_of(q):  # Triton launches on the current device; a backward pass has its own there
            _walk[ctx.grid](q, k, v, own_ctx, own_lse, *where, out, c, scale, **ctx.constants)
        ctx.save_for_backward(q, k, v, own_ctx, own_lse, out, c)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, own_ctx, own_lse, out, c = ctx.saved_tensors
        d_q, d_k, d_v, d_ctx, d_lse = (torch.empty_like(part) for part in (q, k, v, own_ctx, own_lse))
        where = ctx.lines.start, ctx.lines.stride, ctx.lines.length
        _walk_back[ctx.grid](
            q, k, v, own_ctx, own_lse, *where, out, c, gradients[0].contiguous(), d_q, d_k, d_v, d_ctx, d_lse,
            ctx.scale, **ctx.constants,
        )  # fmt: skip
        return d_q, d_k, d_v, None, d_ctx, d_lse, None


def hadamard_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, self_ctx: Tensor, self_lse: Tensor, lines: Lines
) -> Tensor:
    """Same as `scan.hadamard_attention`, on a GPU (or under Triton's interpreter)."""
    return _HadamardAttention.apply(q, k, v, scale, self_ctx, self_lse, lines)
