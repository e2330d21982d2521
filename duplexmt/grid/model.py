"""The grid model: a Hugging Face decoder whose layers run on the 2D grid of two streams (Section III)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import ATTENTION_KINDS, SOFTMAX_KINDS, approximate_attention, exact_attention
from .rope import check_anchor, rotate, target_positions

WAIT, EMIT = 0, 1  # classes of the EMIT head
SUPPORTED_BACKBONES = ("qwen2", "llama", "mistral", "qwen3")
Rotation = tuple[Tensor, Tensor]  # cos and sin
STATIC_ROPE_TYPES = ("default", "linear", "yarn", "llama3")  # frequencies that do not change with the length seen


class GridModel(nn.Module):
    """Both streams' hidden states at every cell `(x, y)`, computed with the weights of a causal language model.

    Args:
        backbone: a `Qwen2ForCausalLM` (or Llama, Mistral, Qwen3), or a `PeftModel` around one.
        attention: `approximate` (the paper's) or `exact` (the form it approximates).
        input_attends_output: whether the source stream attends to the target stream (I←O).
        softmax: `joint` (one denominator for self and cross keys) or `separate` (the rejected variant).
        anchor: first rotary position of the target stream: `source_length` or a constant.

    Raises:
        ValueError: for an unknown option, or a backbone whose attention the grid cannot honour.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        attention: str = "approximate",
        input_attends_output: bool = True,
        softmax: str = "joint",
        anchor: str | int = "source_length",
    ) -> None:
        super().__init__()
        if attention not in ATTENTION_KINDS:
            raise ValueError(f"model.attention={attention!r}: must be one of {', '.join(ATTENTION_KINDS)}")
        if softmax not in SOFTMAX_KINDS:
            raise ValueError(f"model.softmax={softmax!r}: must be one of {', '.join(SOFTMAX_KINDS)}")
        self.backbone: Any = backbone
        self.attention = attention
        self.input_attends_output = input_attends_output
        self.softmax = softmax
        self.anchor = check_anchor(anchor)
        self.window = check_backbone(self.causal_lm.config)
        self.emit_head = nn.Linear(self.causal_lm.config.hidden_size, 2)
        nn.init.normal_(self.emit_head.weight, std=0.02)
        nn.init.zeros_(self.emit_head.bias)

    @property
    def causal_lm(self) -> Any:
        """The Hugging Face causal language model inside (with LoRA layers, where there are any)."""
        return self.backbone.get_base_model() if hasattr(self.backbone, "get_base_model") else self.backbone

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that build this model again around the same backbone."""
        names = ("attention", "input_attends_output", "softmax", "anchor")
        return {name: getattr(self, name) for name in names}

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """Final-normed target states `O[x, y]`, from which logits and EMIT probability of a cell are read.

        Args:
            source: token ids `[B, X]`, end token included; padding, if any, on the right.
            target: token ids `[B, Y]`, seed token first; padding, if any, on the right.
            source_lengths: whole length of each source `[B]`; `X` for all where not given. It may exceed `X` while
                the source is still arriving.

        Returns:
            `[B, X, Y, D]`. Cells of padding hold finite values that mean nothing.

        Raises:
            ValueError: if the streams are longer than a sliding window of the backbone.
        """
        (B, X), Y = source.shape, target.shape[1]
        if source_lengths is None:
            source_lengths = torch.full((B,), X, device=source.device)
        self.check_window(X, Y)
        decoder = self.causal_lm.model
        # eq:grid-init: I does not depend on y yet, nor O on x, so each is computed once and broadcast.
        I = decoder.embed_tokens(source)[:, :, None]  # [B, X, 1, D]
        O = decoder.embed_tokens(target)[:, None]  # [B, 1, Y, D]
        ropes = self._rotations(decoder, I, source_lengths, X, Y)
        for layer in decoder.layers[:-1]:
            ctx_I, ctx_O = self._contexts(layer, I, O, *ropes)
            attended_I, attended_O = on_both_streams(layer.self_attn.o_proj, ctx_I.flatten(-2), ctx_O.flatten(-2))
            I, O = on_both_streams(partial(add_mlp, layer), I + attended_I, O + attended_O)
        # Nothing reads the source stream after the last layer's keys and values.
        layer = decoder.layers[-1]
        _, ctx_O = self._contexts(layer, I, O, *ropes, target_only=True)
        O = add_mlp(layer, O + layer.self_attn.o_proj(ctx_O.flatten(-2)))
        return rms_norm(O, decoder.norm)

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits `[..., vocabulary]` of final-normed target states `[..., D]`."""
        return self.causal_lm.lm_head(hidden)

    def emit_logits(self, hidden: Tensor) -> Tensor:
        """Logits `[..., 2]` of WAIT and EMIT (in this order) of final-normed target states `[..., D]`."""
        return self.emit_head(hidden)

    def _contexts(
        self, layer: Any, I: Tensor, O: Tensor, rope_I: Rotation, rope_O: Rotation, target_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Attention contexts `[B, X, Y, H, E]` of both streams (size 1 where a stream does not depend on `y`)."""
        normed = (rms_norm(states, layer.input_layernorm) for states in (I, O))
        (q_I, q_O), (k_I, k_O), (v_I, v_O) = on_both_streams(partial(project_qkv, layer.self_attn), *normed)
        attend = approximate_attention if self.attention == "approximate" else exact_attention
        return attend(
            rotate(q_I, *rope_I),
            rotate(k_I, *rope_I),
            v_I,
            rotate(q_O, *rope_O),
            rotate(k_O, *rope_O),
            v_O,
            scale=layer.self_attn.scaling,
            input_attends_output=self.input_attends_output,
            softmax=self.softmax,
            target_only=target_only,
        )

    def _rotations(
        self, decoder: Any, like: Tensor, source_lengths: Tensor, X: int, Y: int
    ) -> tuple[Rotation, Rotation]:
        """`(cos, sin)` of the two streams, broadcastable to `[B, X, Y, heads, E]`."""
        rows = torch.arange(X, device=like.device)[None]
        cos_I, sin_I = decoder.rotary_emb(like, rows)
        cos_O, sin_O = decoder.rotary_emb(like, target_positions(self.anchor, source_lengths, Y))
        return (cos_I[:, :, None, None], sin_I[:, :, None, None]), (cos_O[:, None, :, None], sin_O[:, None, :, None])

    def check_window(self, X: int, Y: int) -> None:
        """Raise `ValueError` where streams of `X` and `Y` tokens exceed a sliding window of the backbone."""
        if self.window is not None and self.window < X + Y:
            raise ValueError(
                f"streams of {X} + {Y} tokens exceed the backbone's sliding window of {self.window}, which grid "
                "attention cannot honour: shorten the sentences (data.max_tokens) or take a backbone without it"
            )


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


def check_backbone(config: Any) -> int | None:
    """Refuse a decoder whose attention the grid cannot honour; return its sliding window, if any layer has one.

    Raises:
        ValueError: naming the offending setting and the supported values.
    """
    if config.model_type not in SUPPORTED_BACKBONES:
        supported = ", ".join(SUPPORTED_BACKBONES)
        raise ValueError(f"backbone of type {config.model_type!r}: grid attention supports {supported}")
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in STATIC_ROPE_TYPES:
        supported = ", ".join(STATIC_ROPE_TYPES)
        raise ValueError(f"rotary embedding {rope_type!r} changes with the length seen: supported are {supported}")
    if getattr(config, "attention_dropout", 0.0):
        raise ValueError(
            f"attention_dropout={config.attention_dropout} of the backbone: grid attention has no dropout, set it to 0"
        )
    layer_types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in layer_types if layer_types else True
    window = getattr(config, "sliding_window", None)
    return window if slides else None
