"""Dual-stream attention of one layer: the paper's approximation, and the exact form it approximates.

Both functions have one signature: queries, keys and values of the two streams (`_I` source, `_O` target) on the whole
grid in, contexts of the two streams out, before `W_O`. Padding needs no mask: every attention type looks only at
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
) -> tuple[Tensor, Tensor]:
    """Broadcast (`eq:broadcast-approx`) and Hadamard (`eq:io-hadamard`) attention, `O(X² + Y² + XY)` scores.

    Args:
        q_I, q_O: `[B, X, Y, H, E]`, rotated.
        k_I, v_I, k_O, v_O: `[B, X, Y, K, E]`, keys rotated.
        scale: the paper's `s`.
        input_attends_output: whether source states attend to target states (I←O).
        softmax: `joint` or `separate`, see `merge`.

    Returns:
        `ctx_I` and `ctx_O`, each `[B, X, Y, H, E]`.
    """
    ctx_oo, lse_oo = causal_attention(q_O[:, 0], k_O[:, 0], v_O[:, 0], scale)  # O→O on row x=0: [B, Y, H, E]
    ctx_oo, lse_oo = ctx_oo.unsqueeze(1), lse_oo.unsqueeze(1)
    # O←I: prefix along x, so x stands where prefix_softmax expects the keys.
    ctx_oi, lse_oi = prefix_softmax(hadamard_scores(q_O, k_I, scale).transpose(1, 2), v_I.transpose(1, 2))
    ctx_O = merge(ctx_oo, lse_oo, ctx_oi.transpose(1, 2), lse_oi.transpose(1, 2), softmax)

    ctx_ii, lse_ii = causal_attention(q_I[:, :, 0], k_I[:, :, 0], v_I[:, :, 0], scale)  # I→I on column y=0
    ctx_ii, lse_ii = ctx_ii.unsqueeze(2), lse_ii.unsqueeze(2)
    if not input_attends_output:
        return ctx_ii.expand_as(ctx_O), ctx_O
    ctx_io, lse_io = prefix_softmax(hadamard_scores(q_I, k_O, scale), v_O)  # I←O: prefix along y
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
) -> tuple[Tensor, Tensor]:
    """The four attention types of `tab:attn-types` without approximation, `O(X²Y + XY²)` scores.

    Cell `(x, y)` of either stream attends to `I[x', y]` for `x' ≤ x` (its column) and to `O[x, y']` for `y' ≤ y` (its
    row). Same arguments and results as `approximate_attention`.
    """

    def column(q: Tensor) -> tuple[Tensor, Tensor]:
        ctx, lse = causal_attention(q.transpose(1, 2), k_I.transpose(1, 2), v_I.transpose(1, 2), scale)
        return ctx.transpose(1, 2), lse.transpose(1, 2)

    def row(q: Tensor) -> tuple[Tensor, Tensor]:
        return causal_attention(q, k_O, v_O, scale)

    ctx_O = merge(*row(q_O), *column(q_O), softmax)
    if not input_attends_output:
        return column(q_I)[0], ctx_O
    return merge(*column(q_I), *row(q_I), softmax), ctx_O


def hadamard_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """`s · (Q ⊙ K) · 1` at each cell (`eq:io-hadamard`): `[..., H, E]` and `[..., K, E]` → `[..., H]`, ≥ float32."""
    at_least_float32 = torch.promote_types(q.dtype, torch.float32)
    H, K = q.shape[-2], k.shape[-2]
    products = q.to(at_least_float32).unflatten(-2, (K, H // K)) * k.to(at_least_float32).unsqueeze(-2)
    return products.sum(-1).flatten(-2) * scale
