"""The padded grid step, frozen: the oracle of the flat one, and what its speed is compared with.

A batch is padded to `[B, X, Y]`, every per-position layer runs on all of it, prefix softmaxes are T × T triangles, and
the heatmap's logits are differentiated at every valid cell. Do not improve it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from duplexmt.data.batch import Batch
from duplexmt.grid.model import GridModel
from duplexmt.grid.prefix_softmax import causal_attention, merge, prefix_softmax
from duplexmt.grid.scan import hadamard_scores
from duplexmt.policy.heatmap import cells_at_once
from duplexmt.policy.path import best_path, emit_mask

Rotation = tuple[Tensor, Tensor]


def padded_losses(model: GridModel, batch: Batch, lam: float) -> tuple[Tensor, Tensor]:
    """`L_LM + L_emit` of a batch, and its heatmap `[B, X, Y]`."""
    hidden = padded_states(model, batch.source, batch.target, batch.source_lengths)
    _, X, Y, _ = hidden.shape
    valid = valid_cells(batch.source_lengths, batch.target_lengths, X, Y)
    chunk = cells_at_once(model.causal_lm.config.vocab_size)
    heatmap = loss_heatmap(hidden, model.text_logits, batch.labels, valid, chunk)
    mask = emit_mask(best_path(heatmap.detach(), batch.source_lengths, batch.target_lengths, lam), Y)
    lm_loss = heatmap[mask & valid].mean()
    emit_loss = F.cross_entropy(model.emit_logits(hidden)[valid].to(heatmap.dtype), mask[valid].long())
    return lm_loss + emit_loss, heatmap


def padded_states(model: GridModel, source: Tensor, target: Tensor, source_lengths: Tensor) -> Tensor:
    """Final-normed target states `[B, X, Y, D]` of padded pairs, approximate attention."""
    X, Y = source.shape[1], target.shape[1]
    decoder = model.causal_lm.model
    I = decoder.embed_tokens(source)[:, :, None]  # [B, X, 1, D]
    O = decoder.embed_tokens(target)[:, None]  # [B, 1, Y, D]
    ropes = rotations(model, decoder, I, source_lengths, X, Y)
    for layer in decoder.layers[:-1]:
        ctx_I, ctx_O = contexts(model, layer, I, O, *ropes)
        attended_I, attended_O = on_both_streams(layer.self_attn.o_proj, ctx_I.flatten(-2), ctx_O.flatten(-2))
        I, O = on_both_streams(partial(add_mlp, layer), I + attended_I, O + attended_O)
    layer = decoder.layers[-1]
    _, ctx_O = contexts(model, layer, I, O, *ropes, target_only=True)
    return rms_norm(add_mlp(layer, O + layer.self_attn.o_proj(ctx_O.flatten(-2))), decoder.norm)


def contexts(
    model: GridModel, layer: Any, I: Tensor, O: Tensor, rope_I: Rotation, rope_O: Rotation, target_only: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention contexts `[B, X, Y, H, E]` of both streams."""
    normed = (rms_norm(states, layer.input_layernorm) for states in (I, O))
    (q_I, q_O), (k_I, k_O), (v_I, v_O) = on_both_streams(partial(project_qkv, layer.self_attn), *normed)
    q_I, k_I, q_O, k_O = rotate(q_I, *rope_I), rotate(k_I, *rope_I), rotate(q_O, *rope_O), rotate(k_O, *rope_O)
    scale, io, softmax = layer.self_attn.scaling, model.input_attends_output, model.softmax
    return approximate_attention(q_I, k_I, v_I, q_O, k_O, v_O, scale, io, softmax, target_only)


def rotations(
    model: GridModel, decoder: Any, like: Tensor, source_lengths: Tensor, X: int, Y: int
) -> tuple[Rotation, Rotation]:
    """`(cos, sin)` of the two streams, broadcastable to `[B, X, Y, heads, E]`."""
    start = source_lengths if model.anchor == "source_length" else torch.full_like(source_lengths, int(model.anchor))
    cos_I, sin_I = decoder.rotary_emb(like, torch.arange(X, device=like.device)[None])
    cos_O, sin_O = decoder.rotary_emb(like, start[:, None] + torch.arange(Y, device=like.device))
    return (cos_I[:, :, None, None], sin_I[:, :, None, None]), (cos_O[:, None, :, None], sin_O[:, None, :, None])


def on_both_streams(function: Callable[[Tensor], Any], I: Tensor, O: Tensor) -> Any:
    """Apply a per-position function to both streams at once, as they share all weights.

    Args:
        function: maps `[n, D]` to `[n, …]`, or to a tuple of such.
        I, O: `[B, X, Y, D]`, where X or Y may be 1.

    Returns:
        The function's values for I and for O; a tuple of such pairs where the function returns a tuple.
    """
    positions = I.shape[:3].numel()
    result = function(torch.cat((I.flatten(0, 2), O.flatten(0, 2))))

    def split(values: Tensor) -> tuple[Tensor, Tensor]:
        return values[:positions].unflatten(0, I.shape[:3]), values[positions:].unflatten(0, O.shape[:3])

    return tuple(map(split, result)) if isinstance(result, tuple) else split(result)


def add_mlp(layer: Any, states: Tensor) -> Tensor:
    """The second half of a decoder block, with its residual: `[..., D]` → `[..., D]`."""
    return states + layer.mlp(rms_norm(states, layer.post_attention_layernorm))


def project_qkv(attention: Any, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries `[..., H, E]`, keys and values `[..., K, E]` of normed states `[..., D]`, before rotation.

    Covers what tells the supported decoders apart: biases (Qwen2) sit in the linear layers, per-head norms of queries
    and keys (Qwen3) are applied where the module has them.
    """
    E = attention.head_dim
    q, k, v = (layer(normed).unflatten(-1, (-1, E)) for layer in (attention.q_proj, attention.k_proj, attention.v_proj))
    if hasattr(attention, "q_norm"):
        q, k = rms_norm(q, attention.q_norm), rms_norm(k, attention.k_norm)
    return q, k, v


def rms_norm(states: Tensor, norm: Any) -> Tensor:
    """The backbone's RMSNorm over the last dimension, with statistics in at least float32 (float64 stays float64)."""
    return F.rms_norm(states, states.shape[-1:], norm.weight.to(states.dtype), norm.variance_epsilon)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `states [..., heads, E]`."""
    first, second = states.chunk(2, dim=-1)
    return states * cos.to(states.dtype) + torch.cat((-second, first), dim=-1) * sin.to(states.dtype)


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


def grown(states: Tensor, X: int, Y: int) -> Tensor:
    """`[B, X or 1, Y or 1, heads, E]` seen as `[B, X, Y, heads, E]`."""
    return states.expand(-1, X, Y, -1, -1)


def valid_cells(source_lengths: Tensor, target_lengths: Tensor, X: int, Y: int) -> Tensor:
    """The paper's 𝒱: which cells `[B, X, Y]` of a padded batch belong to a pair, given its lengths `[B]`."""
    rows = torch.arange(X, device=source_lengths.device) < source_lengths[:, None]
    columns = torch.arange(Y, device=target_lengths.device) < target_lengths[:, None]
    return rows[:, :, None] & columns[:, None, :]


def loss_heatmap(
    hidden: Tensor, text_logits: Callable[[Tensor], Tensor], labels: Tensor, valid: Tensor, chunk: int
) -> Tensor:
    """`L(x, y) = −log p[x, y](o_{y+1})` at every valid cell (`eq:grid-loss`).

    Logits are computed a chunk of cells at a time, and, where one chunk does not hold all cells, again in the backward
    pass.

    Args:
        hidden: final-normed target states `[B, X, Y, D]`.
        text_logits: maps `[n, D]` to `[n, vocabulary]`.
        labels: the token each column predicts, `o_{y+1}`, `[B, Y]`.
        valid: `[B, X, Y]`, from `valid_cells`.
        chunk: cells whose logits exist at a time.

    Returns:
        `[B, X, Y]` in nats, at least float32; 0 at cells that are not valid.
    """

    def token_loss(states: Tensor, targets: Tensor) -> Tensor:
        logits = text_logits(states)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(logits, targets, reduction="none")

    states, targets = hidden[valid], labels[:, None, :].expand_as(valid)[valid]
    if len(states) <= chunk:
        losses = token_loss(states, targets)
    else:
        pieces = zip(states.split(chunk), targets.split(chunk), strict=True)
        losses = torch.cat([checkpoint(token_loss, *piece, use_reentrant=False) for piece in pieces])
    return losses.new_zeros(valid.shape).masked_scatter(valid, losses)
