"""Dual-stream attention of one layer: the paper's approximation, and the exact form it approximates.

Both functions have one signature: the layout of the batch, and queries, keys and values of the two streams (`_I`
source, `_O` target) in; contexts of the two streams out, before `W_O`. Tensors are lists of cells `[N, heads, E]`; a
stream that does not depend on `y` (source) or on `x` (target) may come by token instead, `[S, heads, E]` or
`[T, heads, E]` (`eq:grid-init`).
"""

import torch
from torch import Tensor

from ..decoder.blocks import spread
from ..kernels.products import at_least_float32, without_autocast
from .cells import Cells, Lines
from .scan import hadamard_attention
from .step_attention import join


def approximate_attention(
    cells: Cells,
    q_I: Tensor | None,
    k_I: Tensor,
    v_I: Tensor,
    q_O: Tensor,
    k_O: Tensor,
    v_O: Tensor,
    scale: float,
    input_attends_output: bool = True,
    softmax: str = "joint",
) -> tuple[Tensor, Tensor]:
    """Broadcast (`eq:broadcast-approx`) and Hadamard (`eq:io-hadamard`) attention: `X² + Y² + 2XY` scores a pair.

    Args:
        q_I, q_O: `[N, H, E]` (or by token), rotated; `q_I` is None where `ctx_I` is of no use to the caller.
        k_I, v_I, k_O, v_O: `[N, K, E]` (or by token), keys rotated.
        input_attends_output: whether source states attend to target states (I←O).
        softmax: `joint` (one denominator for self and cross keys) or `separate` (the rejected sum of two softmaxes).

    Returns:
        `ctx_I` and `ctx_O`, `[N, H, E]`; with I←O off `ctx_I` comes by token if `q_I` does, and without `q_I` it is
        an empty tensor.
    """
    # O→O on row x = 0, then O←I down each column from there.
    padded_X, padded_Y = ((cells.pairs, width) for width in cells.width)
    own_O = self_attention(cells.row_0(q_O), cells.row_0(k_O), cells.row_0(v_O), cells.target_slot, padded_Y, scale)
    ctx_O = cross_attention(
        cells.over_columns(q_O), cells.over_rows(k_I), cells.over_rows(v_I), own_O, cells.columns, cells.target_token,
        scale, softmax,
    )  # fmt: skip
    if q_I is None:
        return ctx_O[:0], ctx_O
    # I→I on column y = 0, then I←O along each row from there.
    own_I = self_attention(
        cells.column_0(q_I), cells.column_0(k_I), cells.column_0(v_I), cells.source_slot, padded_X, scale
    )
    if not input_attends_output:
        return own_I[0] if len(q_I) == len(cells.x) else cells.over_rows(own_I[0]), ctx_O
    ctx_I = cross_attention(
        cells.over_rows(q_I), cells.over_columns(k_O), cells.over_columns(v_O), own_I, cells.rows, cells.source_token,
        scale, softmax,
    )  # fmt: skip
    return ctx_I, ctx_O


def self_attention(
    q: Tensor, k: Tensor, v: Tensor, slots: Tensor, padded: tuple[int, int], scale: float
) -> tuple[Tensor, Tensor]:
    """Causal attention of a stream with itself, given by token; padded for it to `[B, longest, …]`.

    Returns:
        Context and log-sum-exp by token, `[n, H, E]` and `[n, H]`.
    """
    size = padded[0] * padded[1]
    q, k, v = (spread(part, slots, size).unflatten(0, padded) for part in (q, k, v))
    ctx, lse = causal_attention(q, k, v, scale)
    return ctx.flatten(0, 1).index_select(0, slots), lse.flatten(0, 1).index_select(0, slots)


def cross_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    own: tuple[Tensor, Tensor],
    lines: Lines,
    line: Tensor,
    scale: float,
    softmax: str,
) -> Tensor:
    """Prefix attention along lines, merged with each line's self context `own`; `line [N]` is that of each cell."""
    if softmax == "joint":
        return hadamard_attention(q, k, v, scale, *own, lines)
    ctx, lse = own
    nothing = torch.zeros_like(ctx), torch.full_like(lse, float("-inf"))
    return ctx[line] + hadamard_attention(q, k, v, scale, *nothing, lines)


def exact_attention(
    cells: Cells,
    q_I: Tensor | None,
    k_I: Tensor,
    v_I: Tensor,
    q_O: Tensor,
    k_O: Tensor,
    v_O: Tensor,
    scale: float,
    input_attends_output: bool = True,
    softmax: str = "joint",
) -> tuple[Tensor, Tensor]:
    """The four attention types of `tab:attn-types` without approximation, `O(X²Y + XY²)` scores a pair.

    Cell `(x, y)` of either stream attends to `I[x', y]` for `x' ≤ x` (its column) and to `O[x, y']` for `y' ≤ y` (its
    row), on padded grids: attention looks only at smaller `x` or `y`, and padding comes last. Same arguments and
    results as `approximate_attention`.
    """
    q_O, k_O, v_O = (cells.padded(cells.over_columns(part)) for part in (q_O, k_O, v_O))  # [B, X, Y, heads, E]
    k_I, v_I = (cells.padded(cells.over_rows(part)) for part in (k_I, v_I))

    def column(q: Tensor) -> tuple[Tensor, Tensor]:
        ctx, lse = causal_attention(q.transpose(1, 2), k_I.transpose(1, 2), v_I.transpose(1, 2), scale)
        return ctx.transpose(1, 2), lse.transpose(1, 2)

    def row(q: Tensor) -> tuple[Tensor, Tensor]:
        return causal_attention(q, k_O, v_O, scale)

    separate = softmax == "separate"
    ctx_O = cells.flat(join(*row(q_O), *column(q_O), separate)[0])
    if q_I is None:
        return ctx_O[:0], ctx_O
    by_token, q_I = len(q_I) == len(cells.x), cells.padded(cells.over_rows(q_I))
    if not input_attends_output:
        ctx_I = cells.flat(column(q_I)[0])
        return cells.column_0(ctx_I) if by_token else ctx_I, ctx_O
    return cells.flat(join(*column(q_I), *row(q_I), separate)[0]), ctx_O


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Causal softmax attention of one stream with itself (I→I, O→O, and every type in exact mode). Grouped-query heads
    are never expanded. The paper carries `(m, Z, S)`; here `lse = m + log Z` and `ctx = S / Z`.

    Args:
        q: queries `[..., T, H, E]`.
        k, v: keys and values `[..., T, K, E]`, `H` a multiple of `K`.
        scale: the paper's `s = H_d^{-1/2}`.

    Returns:
        Context `[..., T, H, E]` and log-sum-exp of the scores `[..., T, H]`, in at least float32.
    """
    T, G, K = q.shape[-3], q.shape[-2] // k.shape[-2], k.shape[-2]
    precise = at_least_float32(q.dtype)
    q, k = q.to(precise), k.to(precise)
    q_KRE = (q * scale).unflatten(-2, (K, G)).movedim(-4, -2).flatten(-3, -2)  # R = G·T rows share one key head
    # Rounded to half precision, scores of some hundred would be off by a whole nat: keys with large biases bring such.
    with without_autocast(q.device.type):
        scores = (q_KRE @ k.movedim(-3, -1)).unflatten(-2, (G, T))
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    scores = scores.masked_fill(future, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - lse.unsqueeze(-1)).exp().to(v.dtype)
    context = (weights.flatten(-3, -2) @ v.movedim(-3, -2)).unflatten(-2, (G, T))
    return context.movedim(-2, -4).flatten(-3, -2), lse.movedim(-1, -3).flatten(-2)
