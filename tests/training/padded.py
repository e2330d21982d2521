"""The grid step on padded pairs, the oracle of the flat one: approximate attention, both streams at every cell.

A batch is padded to `[B, X, Y]`, every layer computes all of it for both streams, though much of it is the same along a
row or a column or belongs to no pair, and prefix softmaxes are T × T triangles. States are `[B, X, Y, D]`, queries
`[B, X, Y, H, E]`, keys and values `[B, X, Y, K, E]`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from duplexmt.data.batch import Batch
from duplexmt.grid.model import GridModel
from duplexmt.grid.prefix_softmax import causal_attention, merge, prefix_softmax
from duplexmt.grid.scan import hadamard_scores
from duplexmt.policy.path import best_path, emit_mask

Rotation = tuple[Tensor, Tensor]


def padded_losses(model: GridModel, batch: Batch, lam: float) -> Tensor:
    """`L_LM + L_emit` of a batch."""
    (X, Y), lengths = (batch.source.shape[1], batch.target.shape[1]), (batch.source_lengths, batch.target_lengths)
    rows, columns = (torch.arange(size) < own[:, None] for size, own in zip((X, Y), lengths, strict=True))
    valid = rows[:, :, None] & columns[:, None, :]  # the paper's 𝒱
    hidden = padded_states(model, batch)[valid]
    labels = batch.labels[:, None, :].expand_as(valid)[valid]
    losses = F.cross_entropy(model.text_logits(hidden), labels, reduction="none")  # eq:grid-loss
    heatmap = losses.new_zeros(valid.shape).masked_scatter(valid, losses)
    mask = emit_mask(best_path(heatmap.detach(), *lengths, lam), Y)
    return heatmap[mask & valid].mean() + F.cross_entropy(model.emit_logits(hidden), mask[valid].long())


def padded_states(model: GridModel, batch: Batch) -> Tensor:
    """Final-normed target states `[B, X, Y, D]`."""
    decoder: Any = model.causal_lm.model
    X, Y = batch.source.shape[1], batch.target.shape[1]
    I = decoder.embed_tokens(batch.source)[:, :, None].expand(-1, -1, Y, -1)
    O = decoder.embed_tokens(batch.target)[:, None].expand(-1, X, -1, -1)
    start = batch.source_lengths if model.anchor == "source_length" else torch.full((len(I),), int(model.anchor))
    cos_I, sin_I = decoder.rotary_emb(I, torch.arange(X)[None])
    cos_O, sin_O = decoder.rotary_emb(I, start[:, None] + torch.arange(Y))
    rope_I = cos_I[:, :, None, None], sin_I[:, :, None, None]
    rope_O = cos_O[:, None, :, None], sin_O[:, None, :, None]
    for layer in decoder.layers:
        context_I, context_O = contexts(model, layer, heads(layer, I, rope_I), heads(layer, O, rope_O))
        I, O = finished(layer, I, context_I), finished(layer, O, context_O)
    return rms_norm(O, decoder.norm)


def contexts(model: GridModel, layer: Any, of_I: tuple[Tensor, ...], of_O: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Contexts of both streams `[B, X, Y, H, E]`: broadcast (`eq:broadcast-approx`) and Hadamard (`eq:io-hadamard`)."""
    (q_I, k_I, v_I), (q_O, k_O, v_O), scale = of_I, of_O, layer.self_attn.scaling
    ctx_oo, lse_oo = causal_attention(q_O[:, 0], k_O[:, 0], v_O[:, 0], scale)  # O→O on row x = 0
    # O←I: prefix along x, so x stands where prefix_softmax expects the keys.
    ctx_oi, lse_oi = prefix_softmax(hadamard_scores(q_O, k_I, scale).transpose(1, 2), v_I.transpose(1, 2))
    cross = ctx_oi.transpose(1, 2), lse_oi.transpose(1, 2)
    ctx_O = merge(ctx_oo[:, None], lse_oo[:, None], *cross, model.softmax)
    ctx_ii, lse_ii = causal_attention(q_I[:, :, 0], k_I[:, :, 0], v_I[:, :, 0], scale)  # I→I on column y = 0
    if not model.input_attends_output:
        return ctx_ii[:, :, None].expand_as(q_I), ctx_O
    cross = prefix_softmax(hadamard_scores(q_I, k_O, scale), v_O)  # I←O: prefix along y
    return merge(ctx_ii[:, :, None], lse_ii[:, :, None], *cross, model.softmax), ctx_O


def heads(layer: Any, states: Tensor, rope: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of states, rotated."""
    attention, normed = layer.self_attn, rms_norm(states, layer.input_layernorm)
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    q, k, v = (project(normed).unflatten(-1, (-1, attention.head_dim)) for project in projections)
    return rotated(q, *rope), rotated(k, *rope), v


def finished(layer: Any, states: Tensor, context: Tensor) -> Tensor:
    """The rest of a decoder block, with its residuals."""
    states = states + layer.self_attn.o_proj(context.flatten(-2))
    return states + layer.mlp(rms_norm(states, layer.post_attention_layernorm))


def rms_norm(states: Tensor, norm: Any) -> Tensor:
    """The backbone's RMSNorm, in float64 where states are: its own would go through float32."""
    return F.rms_norm(states, states.shape[-1:], norm.weight, norm.variance_epsilon)


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE of `[..., heads, E]`."""
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin
