"""What the approximations of Section IV cost: exact against approximate attention, layer by layer.

The grid of one pair, naively: all scores exist. Everything is written once, for a stream whose own tokens run along
the first dimension and those of the other stream along the second:

    A  own tokens (source: x, target: y)         D  hidden size, H heads, E size of a head
    T  tokens of the other stream                U  cross keys t' ≤ t

A state of the source stream at `[a, t]` is cell (a, t); of the target stream it is cell (t, a).
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from duplexmt.decoder.blocks import finish_block, project_and_rotate, rotation
from duplexmt.decoder.decoder_options import VISIBLE_LENGTH
from duplexmt.decoder.rope import target_positions
from duplexmt.grid.cells import Cells
from duplexmt.grid.dual_attention import approximate_attention, exact_attention
from duplexmt.grid.model import GridModel
from duplexmt.kernels.norm import rms_norm


@dataclass(frozen=True)
class StreamStates:
    """One stream at the entrance of a layer, own tokens first."""

    states: Tensor  # [A, T, D]
    normed: Tensor  # [A, T, D], Ĩ or Õ
    q: Tensor  # [A, T, H, E], rotated
    k: Tensor  # likewise, each key head repeated for its query heads
    v: Tensor


def with_attention(model: GridModel, kind: str) -> GridModel:
    """The same weights under `approximate` or `exact` attention; nothing is copied."""
    other = copy.copy(model)
    other.attention = kind
    return other


@torch.no_grad()
def layer_inputs(model: GridModel, source: Tensor, target: Tensor) -> Iterator[tuple[Any, ...]]:
    """Run the grid of one pair, and yield each layer with both streams' states as they enter it.

    After the last layer comes one more item without a layer (None), whose `normed` target states are the model's
    output; its other states do not matter.

    Args:
        model: in evaluation mode; its own attention runs.
        source, target: token ids `[X]` (end token included) and `[Y]` (seed token first).
    """
    X, Y = len(source), len(target)
    cells = Cells.of([(X, Y)], source.device)
    decoder = model.causal_lm.model
    I = cells.over_rows(decoder.embed_tokens(source).to(model.dtype))
    O = cells.over_columns(decoder.embed_tokens(target).to(model.dtype))
    x, y = cells.x[cells.source_token], cells.y[cells.target_token]
    lengths = torch.full_like(y, X)
    positions = x + 1 + y if model.anchor == VISIBLE_LENGTH else target_positions(model.anchor, lengths, y)
    rope_I, rope_O = rotation(decoder, I, x), rotation(decoder, O, positions)

    def stream(states: Tensor, normed: Tensor, projected: tuple[Tensor, ...], transpose: bool) -> StreamStates:
        groups = projected[0].shape[1] // projected[1].shape[1]
        q, k, v = (
            part.repeat_interleave(groups if part.shape[1] < projected[0].shape[1] else 1, 1) for part in projected
        )
        grids = (part.unflatten(0, (X, Y)) for part in (states, normed, q, k, v))
        return StreamStates(*(grid.transpose(0, 1) if transpose else grid for grid in grids))

    attend = approximate_attention if model.attention == "approximate" else exact_attention
    for layer in decoder.layers:
        of_I, of_O = project_and_rotate(layer, I, *rope_I), project_and_rotate(layer, O, *rope_O)
        yield (
            layer,
            stream(I, rms_norm(I, layer.input_layernorm), of_I, transpose=False),
            stream(O, rms_norm(O, layer.input_layernorm), of_O, transpose=True),
        )
        (q_I, k_I, v_I), (q_O, k_O, v_O) = of_I, of_O
        ctx_I, ctx_O = attend(
            cells,
            *(q_I, k_I, v_I, q_O, k_O, v_O),
            scale=layer.self_attn.scaling,
            input_attends_output=model.input_attends_output,
            softmax=model.softmax,
        )
        I, O = finish_block(layer, I, ctx_I), finish_block(layer, O, ctx_O)
    ends = [
        StreamStates(
            *(part.unflatten(0, (X, Y)) for part in (states, rms_norm(states, decoder.norm))), *[states[:0]] * 3
        )
        for states in (I, O)
    ]
    yield None, *ends


def cross_scores(own: StreamStates, other: StreamStates, scale: float, *, approximate: bool) -> Tensor:
    """Scores of a stream's queries and the other one's keys, `[A, T, U, H]`, −∞ for later keys; exact, or by
    `eq:io-hadamard`: the query stands at the key's own cell."""
    q, k, T = own.q * scale, other.k.transpose(0, 1), own.q.shape[1]
    scores = (q * k).sum(-1)[:, None].expand(-1, T, -1, -1) if approximate else torch.einsum("athe,auhe->atuh", q, k)
    return scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1)[None, :, :, None], float("-inf"))


def score_errors(exact: Tensor, approximate: Tensor) -> Tensor:
    """Exact minus approximate scores, 0 for later keys, which have none (`eq:hadamard-error` for cross scores)."""
    return torch.where(exact.isneginf(), 0.0, exact - approximate)


def corrected_bound(layer: Any, own: StreamStates, other: StreamStates) -> Tensor:
    """`s · ‖W_Q‖₂ · ‖Ĩ[x,y] − Ĩ[x,y']‖₂ · ‖K_O[x,y']‖₂`, what the derivation of `eq:hadamard-error-bound` gives.

    The bias of the query cancels, and so does RoPE: both queries stand at one position of their stream, and a rotation
    keeps lengths. `‖W_Q‖₂` is that of each head. It does not hold where a norm follows the query (Qwen3), nor where the
    positions of a stream depend on the other (anchor `visible_length`).

    Returns:
        `[A, T, U, H]`, for later keys too.
    """
    weight = _query_weight(layer, own)
    # The form by matrix products loses small distances to rounding.
    distance = torch.cdist(own.normed, own.normed, compute_mode="donot_use_mm_for_euclid_dist")  # [A, T, U]
    return _product(layer, torch.linalg.matrix_norm(weight, ord=2), distance, other)


def printed_bound(layer: Any, own: StreamStates, other: StreamStates) -> Tensor:
    """`eq:hadamard-error-bound` as printed: `‖δI[x, y − y']‖₂`, of states that are not normed, and all heads' `‖W_Q‖₂`.

    Returns:
        `[A, T, U, H]`; 0 for later keys.
    """
    weight = _query_weight(layer, own)
    shift = (own.states - own.states[:, :1]).norm(dim=-1)  # ‖δI[x, ·]‖, [A, T]
    T = shift.shape[1]
    behind = torch.arange(T, device=shift.device)
    difference = behind[:, None] - behind[None, :]
    distance = torch.where(difference >= 0, shift[:, difference.clamp(min=0)], 0.0)
    norm = torch.linalg.matrix_norm(weight.flatten(0, 1), ord=2)
    return _product(layer, norm.expand(len(weight)), distance, other)


def _query_weight(layer: Any, own: StreamStates) -> Tensor:
    """`W_Q` of each head, `[H, E, D]`."""
    return layer.self_attn.q_proj.weight.to(own.q.dtype).unflatten(0, own.q.shape[-2:])


def _product(layer: Any, norms: Tensor, distance: Tensor, other: StreamStates) -> Tensor:
    keys = other.k.transpose(0, 1).norm(dim=-1)  # [A, U, H]
    return layer.self_attn.scaling * norms * distance[..., None] * keys[:, None]
