"""The halves of a decoder block around its attention, as fast as they are known to be computed, and where they stand in
for Hugging Face's own.

They fit decoders that differ in biases and per-head norms alone (`KNOWN`). Of such a decoder every layer, and the norm
at the end, is given a `forward` of these halves; of any other type the modules stay as they are. The paper's grid runs
on the same halves.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ..kernels.lora import linear
from ..kernels.norm import rms_norm
from .attention import contexts_under
from .rope import rotate, signed

KNOWN = ("qwen2", "llama", "mistral", "qwen3")  # types of which these halves are all there is
# Versions of a compiled block: parts to project, with gradients or without, in training or not, in which precision.
# By default all but the first 8 would not be compiled.
MOST_VERSIONS = 64
Rotation = tuple[Tensor, Tensor]  # cos and sin


def join(*rotations: Iterable[Tensor]) -> Rotation:
    """Cosines and sines of the source stream, then of the target stream, as one list of positions."""
    cos, sin = (torch.cat(parts) for parts in zip(*rotations, strict=True))
    return cos, sin


def rotation(decoder: Any, like: Tensor, positions: Tensor) -> Rotation:
    """`(cos, sin)`, `[n, 1, E]` each, of positions `[n]`, as `rotate` takes them."""
    cos, sin = decoder.rotary_emb(like, positions[None])
    return cos[0, :, None], signed(sin[0, :, None])


def finish_block(layer: Any, states: Tensor, context: Tensor) -> Tensor:
    """Output projection and MLP of one decoder block, with residuals: `[..., D]` and `[..., H, E]` → `[..., D]`."""
    return add_mlp(layer, states + linear(layer.self_attn.o_proj, context.flatten(-2)))


def add_mlp(layer: Any, states: Tensor) -> Tensor:
    """The second half of a decoder block, with its residual: `[..., D]` → `[..., D]`."""
    mlp, normed = layer.mlp, rms_norm(states, layer.post_attention_layernorm)
    hidden = mlp.act_fn(linear(mlp.gate_proj, normed)) * linear(mlp.up_proj, normed)
    return states + linear(mlp.down_proj, hidden)


def project_and_rotate(layer: Any, states: Tensor, cos: Tensor, sin: Tensor, parts: str = "qkv") -> tuple[Tensor, ...]:
    """The first half of a decoder block, up to attention.

    Covers what tells the supported decoders apart: biases (Qwen2) sit in the linear layers, per-head norms of queries
    and keys (Qwen3) are applied where the module has them.

    Args:
        states: `[n, D]`.
        cos, sin: rotation of each position, as `rotate` takes it.
        parts: which of rotated queries (q), rotated keys (k) and values (v) to compute.

    Returns:
        The parts in their order: queries `[n, H, E]`, keys and values `[n, K, E]`.
    """
    attention, normed = layer.self_attn, rms_norm(states, layer.input_layernorm)
    found = []
    for part in parts:
        heads = linear(getattr(attention, f"{part}_proj"), normed).unflatten(-1, (-1, attention.head_dim))
        if part != "v":
            norm = getattr(attention, f"{part}_norm", None)
            heads = rotate(heads if norm is None else rms_norm(heads, norm), cos, sin)
        found.append(heads)
    return tuple(found)


class Blocks:
    """The two halves as they run: compiled, where that was asked for."""

    def __init__(self) -> None:
        self.plain()

    def plain(self) -> None:
        """Have nothing compiled."""
        self.project: Callable[..., Any] = project_and_rotate
        self.finish: Callable[..., Any] = finish_block
        self.whole: Callable[..., Any] | None = None  # `whole_block`, where it is compiled
        self.unproven = False  # whether what was compiled has not been compared with what was not

    def compile(self, constant: bool = False, whole: bool = True) -> None:
        """Have `torch.compile` fuse what runs per position, once for all layers and all numbers of cells; or, of lists
        of a constant length, `whole` layers or as much."""
        import torch._dynamo.config as dynamo  # takes a while, and is of use here only
        import torch._inductor.config as inductor

        dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_VERSIONS)
        inductor.fallback_random = True  # dropout leaves out what it would have left out
        self.unproven = True
        if constant and whole:
            self.whole = torch.compile(whole_block, dynamic=False)
            return
        self.project, self.finish = (compiled(half, constant) for half in (project_and_rotate, finish_block))


def compiled(half: Callable[..., Any], constant: bool) -> Callable[..., Any]:
    """A half of a block compiled; of constant lists only where it is trained, as validation has lists of any length,
    each of which would be compiled anew."""
    fast = torch.compile(half, dynamic=not constant)
    return (lambda *inputs: (fast if torch.is_grad_enabled() else half)(*inputs)) if constant else fast


def patch(decoder: Any, blocks: Blocks) -> bool:
    """Give a known decoder's layers and last norm a faster `forward`; False, and nothing changed, for another type.

    From then on the decoder runs packed lists alone, not as Hugging Face's own, and cannot be pickled; it is saved and
    copied as before.
    """
    if decoder.config.model_type not in KNOWN:
        return False
    for layer in decoder.layers:
        layer.blocks, layer.is_last = blocks, layer is decoder.layers[-1]
        layer.forward = MethodType(layer_forward, layer)
    decoder.norm.forward = MethodType(norm_forward, decoder.norm)
    return True


def norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    """RMSNorm, in the place of the module's own."""
    return rms_norm(hidden_states, self)


def layer_forward(self: Any, hidden_states: Tensor, *, position_embeddings: Rotation, packed: Any, **_: Any) -> Tensor:
    """A decoder layer over a packed list `[1, T, D]`, in the place of the module's own; computed again in the backward
    pass where Hugging Face's switch says so, which wraps the `forward` of the class."""
    whole = partial(block, self, position_embeddings=position_embeddings, packed=packed)
    if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
        return self._gradient_checkpointing_func(whole, hidden_states)  # type: ignore[no-any-return]
    return whole(hidden_states)


def block(self: Any, hidden_states: Tensor, position_embeddings: Rotation, packed: Any) -> Tensor:
    """A decoder layer over a packed list `[1, T, D]`.

    Of the last layer only the states that are wanted are computed, `[1, N, D]`; in the first, where a token is the same
    in every row, each is projected once.
    """
    states, attention = hidden_states[0], self.self_attn
    cos, sin = packed.rotation(position_embeddings)
    number, wanted = attention.layer_idx, packed.wanted
    if packed.constant and self.blocks.whole is not None:
        heads = attention.config.num_attention_heads, attention.config.num_key_value_heads, attention.head_dim
        mask = packed.one_mask(states, heads, window_of(attention))
        return self.blocks.whole(self, states, cos, sin, mask, wanted if self.is_last else None)[None]  # type: ignore[no-any-return]
    if self.is_last and wanted is not None:
        k, v = self.blocks.project(self, states, cos, sin, "kv")
        states = states.index_select(0, wanted)
        (q,) = self.blocks.project(self, states, cos.index_select(0, wanted), sin.index_select(0, wanted), "q")
    elif number == 0 and packed.first is not None:
        once = (part.index_select(0, packed.first) for part in (states, cos, sin))
        q, k, v = (repeated(part, packed.again) for part in self.blocks.project(self, *once))
    else:
        q, k, v = self.blocks.project(self, states, cos, sin)
    context = packed(number, q, k, v, attention.scaling, window_of(attention), None)
    return self.blocks.finish(self, states, context)[None]  # type: ignore[no-any-return]


def whole_block(layer: Any, states: Tensor, cos: Tensor, sin: Tensor, mask: Any, wanted: Tensor | None) -> Tensor:
    """`block` over a list `[T, D]` of constant length, as one function to compile: `[T, D]`, or `[N, D]` of the states
    that are wanted."""
    if wanted is None:
        q, k, v = project_and_rotate(layer, states, cos, sin)
    else:
        k, v = project_and_rotate(layer, states, cos, sin, "kv")
        states, cos, sin = (part.index_select(0, wanted) for part in (states, cos, sin))
        (q,) = project_and_rotate(layer, states, cos, sin, "q")
    return finish_block(layer, states, contexts_under(mask, q, k, v, layer.self_attn.scaling, None, wanted))


def window_of(attention: Any) -> int | None:
    """Positions that a known type's layer looks back at most."""
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window  # type: ignore[no-any-return]
    return getattr(attention.config, "sliding_window", None)  # Mistral's layers ask there, when they run


def repeated(tokens: Tensor, at: Tensor) -> Tensor:
    """`tokens[at]`, whose gradient is summed in at least float32: a GPU would round each addition to half precision."""
    wide = tokens.float() if tokens.dtype in (torch.float16, torch.bfloat16) else tokens
    return wide.index_select(0, at).to(tokens.dtype)


def spread(values: Tensor, slots: Tensor, size: int) -> Tensor:
    """`[n, …]` written to distinct slots of a zero tensor `[size, …]`."""
    return values.new_zeros(size, *values.shape[1:]).index_copy(0, slots, values)
