"""Dual-stream attention of one layer: the paper's approximation, and the exact form it approximates.

Both functions have one signature: queries, keys and values of the two streams (`_I` source, `_O` target) on the whole
grid in, contexts of the two streams out, before `W_O`. A stream that does not depend on `x` or `y` may have size 1
there (`eq:grid-init`). Padding needs no mask: every attention type looks only at
smaller `x` or smaller `y`, and padding comes last.
"""

import torch
from torch import Tensor

from .prefix import causal_attention, merge, prefix_softmax

ATTENTION_KINDS = ("approximate", "exact")
SOFTMAX_KINDS = ("joint", "separate")


def approximate_attention(
    q_I: Tensor,
    k_I: Tensor,
    v_I: Tensor,
    q_O: Tensor,
    k_O: Tensor,
    v_O: Tensor,
    scale: float,
    input_attends_output: bool = True,
    softmax: str = "joint",
    target_only: bool = False,
) -> tuple[Tensor, Tensor]:
    """Broadcast (`eq:broadcast-approx`) and Hadamard (`eq:io-hadamard`) attention: `X² + Y² + 2XY` scores.

    Args:
        q_I, q_O: `[B, X, Y, H, E]`, rotated.
        k_I, v_I, k_O, v_O: `[B, X, Y, K, E]`, keys rotated.
        scale: the paper's `s`.
        input_attends_output: whether source states attend to target states (I←O).
        softmax: `joint` or `separate`, see `merge`.
        target_only: whether `ctx_I` is of no use to the caller; an empty tensor stands for it.

    Returns:
        `ctx_I` and `ctx_O`, each `[B, X, Y, H, E]`; with I←O off `ctx_I` has the columns `q_I` has.
    """
    X, Y = q_I.shape[1], q_O.shape[2]
    ctx_oo, lse_oo = causal_attention(q_O[:, 0], k_O[:, 0], v_O[:, 0], scale)  # O→O on row x=0: [B, Y, H, E]
    ctx_oo, lse_oo = ctx_oo.unsqueeze(1), lse_oo.unsqueeze(1)
    # O←I: prefix along x, so x stands where prefix_softmax expects the keys.
    ctx_oi, lse_oi = prefix_softmax(hadamard_scores(q_O, k_I, scale).transpose(1, 2), grown(v_I, X, Y).transpose(1, 2))
    ctx_O = merge(ctx_oo, lse_oo, ctx_oi.transpose(1, 2), lse_oi.transpose(1, 2), softmax)

    if target_only:
        return ctx_O[:0], ctx_O
    ctx_ii, lse_ii = causal_attention(q_I[:, :, 0], k_I[:, :, 0], v_I[:, :, 0], scale)  # I→I on column y=0
    ctx_ii, lse_ii = ctx_ii.unsqueeze(2), lse_ii.unsqueeze(2)
    if not input_attends_output:
        return ctx_ii.expand(-1, -1, q_I.shape[2], -1, -1), ctx_O
    ctx_io, lse_io = prefix_softmax(hadamard_scores(q_I, k_O, scale), grown(v_O, X, Y))  # I←O: prefix along y
    return merge(ctx_ii, lse_ii, ctx_io, lse_io, softmax), ctx_O


def exact_attention(
    q_I: Tensor,
    k_I: Tensor,
    v_I: Tensor,
    q_O: Tensor,
    k_O: Tensor,
    v_O: Tensor,
    scale: float,
    input_attends_output: bool = True,
    softmax: str = "joint",
    target_only: bool = False,
) -> tuple[Tensor, Tensor]:
    """The four attention types of `tab:attn-types` without approximation, `O(X²Y + XY²)` scores.

    Cell `(x, y)` of either stream attends to `I[x', y]` for `x' ≤ x` (its column) and to `O[x, y']` for `y' ≤ y` (its
    row). Same arguments and results as `approximate_attention`.
    """

    X, Y = q_I.shape[1], q_O.shape[2]
    q_O, k_I, v_I, k_O, v_O = (grown(states, X, Y) for states in (q_O, k_I, v_I, k_O, v_O))

    def column(q: Tensor) -> tuple[Tensor, Tensor]:
        ctx, lse = causal_attention(q.transpose(1, 2), k_I.transpose(1, 2), v_I.transpose(1, 2), scale)
        return ctx.transpose(1, 2), lse.transpose(1, 2)

    def row(q: Tensor) -> tuple[Tensor, Tensor]:
        return causal_attention(q, k_O, v_O, scale)

    ctx_O = merge(*row(q_O), *column(q_O), softmax)
    if target_only:
        return ctx_O[:0], ctx_O
    q_I = grown(q_I, X, Y)
    if not input_attends_output:
        return column(q_I)[0], ctx_O
    return merge(*column(q_I), *row(q_I), softmax), ctx_O


def grown(states: Tensor, X: int, Y: int) -> Tensor:
    """`[B, X or 1, Y or 1, heads, E]` seen as `[B, X, Y, heads, E]`."""
    return states.expand(-1, X, Y, -1, -1)


def hadamard_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """`s · (Q ⊙ K) · 1` at each cell (`eq:io-hadamard`): `[..., H, E]` and `[..., K, E]` → `[..., H]`, ≥ float32."""
    at_least_float32 = torch.promote_types(q.dtype, torch.float32)
    H, K = q.shape[-2], k.shape[-2]
    products = q.to(at_least_float32).unflatten(-2, (K, H // K)) * k.to(at_least_float32).unsqueeze(-2)
    return products.sum(-1).flatten(-2) * scale
