"""One joint softmax per cell, as a running sum along rows or columns (Sections III-D and III-E).

Under Hadamard attention (`eq:io-hadamard`) the keys of a line bring one score each, and under broadcast attention
(`eq:broadcast-approx`) all cells of that line share one self context. So the joint softmax of a cell, over its self
keys and a prefix of the line's keys, is a running sum that starts from the self context instead of from nothing: with
log-sum-exp `c` and normalised context `h` in place of the paper's `(m, Z, S)`,

    c[t] = log(exp c[t−1] + exp s[t])
    h[t] = exp(c[t−1] − c[t]) · h[t−1] + exp(s[t] − c[t]) · v[t]

where no factor exceeds 1, and likewise backwards. The work is linear in the number of cells.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..decoder.blocks import spread
from ..kernels.products import at_least_float32
from ..kernels.triton_use import proves_itself, use_triton, with_gradients
from .cells import Cells, Lines


def joint_scan(scores: Tensor, v: Tensor, self_ctx: Tensor, self_lse: Tensor, lines: Lines) -> Tensor:
    """Context of each cell under one softmax over its line's self keys and the line's keys up to the cell.

    Args:
        scores: `s` of each cell's own key `[N, H]`.
        v: its value `[N, K, E]`, `H` a multiple of `K`.
        self_ctx, self_lse: normalised self context and log-sum-exp of each line, `[L, H, E]` and `[L, H]`; −∞ where
            there is none.
        lines: the rows, for I←O, or the columns, for O←I.

    Returns:
        `[N, H, E]` in the values' dtype; sums run in at least float32.
    """
    return _JointScan.apply(scores, v, self_ctx, self_lse, lines)


class _JointScan(torch.autograd.Function):
    """The recurrence over all lines at once, step by step; the lines that are over drop out at the end."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, v: Tensor, self_ctx: Tensor, self_lse: Tensor, lines: Lines) -> Tensor:
        H, (K, E) = scores.shape[1], v.shape[1:]
        precise = at_least_float32(v.dtype)
        s = scores.index_select(0, lines.by_step).to(precise)
        v_KE = v.index_select(0, lines.by_step).to(precise)
        c = torch.empty_like(s)
        first = self_lse.index_select(0, lines.order).to(precise)
        before = torch.empty_like(s)  # c[t − 1]
        last = first
        for s_t, c_t, before_t in zip(*(part.split(lines.counts) for part in (s, c, before)), strict=True):
            before_t.copy_(last[: len(s_t)])
            last = torch.logaddexp(before_t, s_t, out=c_t)
        keep, add = (before - c).exp_(), (s - c).exp_()

        h = (add.view(-1, K, H // K, 1) * v_KE.unsqueeze(2)).view(-1, H, E)
        last = self_ctx.index_select(0, lines.order).to(precise)
        for h_t, keep_t in zip(h.split(lines.counts), keep.unsqueeze(-1).split(lines.counts), strict=True):
            last = h_t.addcmul_(keep_t, last[: len(h_t)])
        ctx.save_for_backward(v_KE, h, keep, add, self_ctx)
        ctx.lines, ctx.dtypes = lines, (scores.dtype, v.dtype, self_ctx.dtype, self_lse.dtype)
        return h.index_select(0, lines.to_flat).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        """`A[t] = Σ_{t' ≥ t} exp(c[t] − c[t'])·∂h[t']` and `b[t]`, likewise of `−∂h[t']·h[t']`; then
        `∂v[t] = exp(s[t] − c[t])·A[t]` and `∂s[t] = exp(s[t] − c[t])·(v[t]·A[t] + b[t])`."""
        v_KE, h, keep, add, self_ctx = ctx.saved_tensors
        lines, (scores_dtype, v_dtype, ctx_dtype, lse_dtype) = ctx.lines, ctx.dtypes
        (N, H, E), K = h.shape, v_KE.shape[1]
        A = gradients[0].index_select(0, lines.by_step).to(h.dtype)
        b = -(A * h).sum(-1)
        parts = [part.split(lines.counts) for part in (A, keep.unsqueeze(-1), b, keep)]
        for t in range(len(lines.counts) - 2, -1, -1):
            (A_t, A_next), (_, keep_A), (b_t, b_next), (_, keep_b) = (part[t : t + 2] for part in parts)
            A_t[: len(A_next)].addcmul_(keep_A, A_next)
            b_t[: len(b_next)].addcmul_(keep_b, b_next)
        A_KGE = A.view(N, K, H // K, E)
        d_scores = add * ((A_KGE * v_KE.unsqueeze(2)).sum(-1).view(N, H) + b)
        d_v = (A_KGE * add.view(N, K, -1, 1)).sum(2)
        first = slice(lines.counts[0])
        d_self = keep[first].unsqueeze(-1) * A[first]
        order = lines.order[first]
        own = self_ctx.index_select(0, order).to(h.dtype)
        d_lse = keep[first] * ((A[first] * own).sum(-1) + b[first])
        return (
            d_scores.index_select(0, lines.to_flat).to(scores_dtype),
            d_v.index_select(0, lines.to_flat).to(v_dtype),
            spread(d_self, order, len(lines.order)).to(ctx_dtype),  # a line may have no cells
            spread(d_lse, order, len(lines.order)).to(lse_dtype),
            None,
        )


def hadamard_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, self_ctx: Tensor, self_lse: Tensor, lines: Lines
) -> Tensor:
    """Hadamard attention along lines (`eq:io-hadamard`), under one softmax with each line's self context.

    Args:
        q: queries of the cells `[N, H, E]`, rotated.
        k, v: keys and values of the other stream at the same cells `[N, K, E]`, keys rotated.
        self_ctx, self_lse: of each line, see `joint_scan`.
        lines: rows or columns.

    Returns:
        Contexts `[N, H, E]`.
    """
    if use_triton(q) and _kernel_proves_itself(q, k, v, self_ctx, self_lse):
        from . import scan_triton

        return scan_triton.hadamard_attention(q, k, v, scale, self_ctx, self_lse, lines)
    return naive_hadamard_attention(q, k, v, scale, self_ctx, self_lse, lines)


def naive_hadamard_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, self_ctx: Tensor, self_lse: Tensor, lines: Lines
) -> Tensor:
    """The same by PyTorch's own operations."""
    return joint_scan(hadamard_scores(q, k, scale), v, self_ctx, self_lse, lines)


KERNEL = "The Triton kernel of attention along rows and columns"
TRIAL = ((3, 4), (1, 1), (5, 2))  # tokens of three pairs: lines of 1 to 5 cells, none of them a multiple of 8


def _kernel_proves_itself(*like: Tensor) -> bool:
    """Whether the Triton kernel attends to such queries, keys, values and self contexts as its naive twin does."""
    (_, H, E), K, types = like[0].shape, like[1].shape[1], tuple(part.dtype for part in like)

    def inputs(draw: torch.Generator) -> list[Tensor]:
        N, L = sum(X * Y for X, Y in TRIAL), sum(X for X, _ in TRIAL)
        shapes = (N, H, E), (N, K, E), (N, K, E), (L, H, E), (L, H), (N, H, E)  # the last is the context's gradient
        random = [
            torch.randn(*s, generator=draw).to(dtype) for s, dtype in zip(shapes, (*types, types[2]), strict=True)
        ]
        random[4][0] = float("-inf")  # one line has no self keys
        return random

    def results(attend: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
        *own, upstream = given
        found: list[Tensor] = []
        cells = Cells.of(TRIAL, upstream.device)
        for lines in (cells.rows, cells.columns):

            def along(q: Tensor, k: Tensor, v: Tensor, ctx: Tensor, lse: Tensor, lines: Lines = lines) -> Tensor:
                L = len(lines.start)
                return attend(q, k, v, E**-0.5, ctx[:L], lse[:L], lines)

            found += with_gradients(along, own, upstream)
        return found

    def kernel(*given: Any) -> Tensor:
        from . import scan_triton

        return scan_triton.hadamard_attention(*given)

    naive = partial(results, naive_hadamard_attention)
    return proves_itself(KERNEL, (H, K, E, types), like[0].device, inputs, partial(results, kernel), naive)


def hadamard_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """`s · (Q ⊙ K) · 1` at each cell (`eq:io-hadamard`): `[..., H, E]` and `[..., K, E]` → `[..., H]`, ≥ float32."""
    precise, H, K = at_least_float32(q.dtype), q.shape[-2], k.shape[-2]
    products = q.to(precise).unflatten(-2, (K, H // K)) * k.to(precise).unsqueeze(-2)
    return products.sum(-1).flatten(-2) * scale
