"""Causal and prefix softmax, and how a self and a cross context are merged (Section III-D and III-E).

Every function returns the normalised context together with the log-sum-exp of its scores, so that two of them can be
merged under one softmax denominator. The paper carries `(m, Z, S)` instead; `lse = m + log Z` and `ctx = S / Z`.
Layouts end in `[..., T, heads, E]`; grouped-query heads are never expanded.
"""

import torch
from torch import Tensor

from ..kernels.products import at_least_float32, without_autocast


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Causal softmax attention of one stream with itself (I→I, O→O, and every type in exact mode).

    Args:
        q: queries `[..., T, H, E]`.
        k, v: keys and values `[..., T, K, E]`, `H` a multiple of `K`.
        scale: the paper's `s = H_d^{-1/2}`.

    Returns:
        Context `[..., T, H, E]` and log-sum-exp of the scores `[..., T, H]`, in at least float32.
    """
    T, H, K = q.shape[-3], q.shape[-2], k.shape[-2]
    precise = at_least_float32(q.dtype)
    q, k = q.to(precise), k.to(precise)
    q_KRE = (q * scale).unflatten(-2, (K, H // K)).movedim(-4, -2).flatten(-3, -2)  # R = G·T rows share one key head
    # Rounded to half precision, scores of some hundred would be off by a whole nat: keys with large biases bring such.
    with without_autocast(q.device.type):
        scores = q_KRE @ k.movedim(-3, -1)
    return _softmax_context(scores.unflatten(-2, (H // K, T)), v)


def prefix_softmax(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax-weighted sum over a growing prefix in which each key brings one score, whoever asks (`eq:io-hadamard`).

    The weights of all prefixes are a T × T triangle applied as one matrix product: more operations than a running sum,
    but exact for any spread of scores, and cheap beside the per-cell linear layers at sentence length.

    Args:
        scores: one scalar per key and query head `[..., T, H]`.
        v: values `[..., T, K, E]`.

    Returns:
        `ctx[t] = Σ_{t'≤t} softmax(scores[..t])[t'] · v[t']`, `[..., T, H, E]`, and its log-sum-exp `[..., T, H]`.
    """
    T, H, K = scores.shape[-2], scores.shape[-1], v.shape[-2]
    rows = scores.movedim(-2, -1).unflatten(-2, (K, H // K)).unsqueeze(-2)
    return _softmax_context(rows.expand(*rows.shape[:-2], T, T), v)


def _softmax_context(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Masked softmax over the last dimension of `scores [..., K, G, T, T]`, applied to `v [..., T, K, E]`."""
    G, T = scores.shape[-3], scores.shape[-1]
    scores = scores.to(at_least_float32(scores.dtype))
    future = torch.ones(T, T, dtype=torch.bool, device=scores.device).triu(1)
    scores = scores.masked_fill(future, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - lse.unsqueeze(-1)).exp().to(v.dtype)
    context = weights.flatten(-3, -2) @ v.movedim(-3, -2)  # [..., K, G·T, E]
    context = context.unflatten(-2, (G, T)).movedim(-2, -4).flatten(-3, -2)
    return context, lse.movedim(-1, -3).flatten(-2)


def merge(ctx_self: Tensor, lse_self: Tensor, ctx_cross: Tensor, lse_cross: Tensor, softmax: str) -> Tensor:
    """Merge a self and a cross context of one stream (Section III-D).

    `joint` puts both sets of keys under one softmax denominator: with log-sum-exps `a`, `c` that is
    `σ(a − c)·ctx_self + σ(c − a)·ctx_cross`. `separate` is the plain sum the paper rejects, kept as an ablation.

    Args:
        ctx_self, ctx_cross: `[..., H, E]`, broadcastable to each other.
        lse_self, lse_cross: `[..., H]`.
        softmax: `joint` or `separate`.
    """
    if softmax == "separate":
        return ctx_self + ctx_cross
    difference = (lse_self - lse_cross).unsqueeze(-1)
    gate_self, gate_cross = difference.sigmoid().to(ctx_self.dtype), (-difference).sigmoid().to(ctx_self.dtype)
    return gate_self * ctx_self + gate_cross * ctx_cross
