"""Attention over packed streams by the rule of `layout`, as Hugging Face's layers call it.

The layers find it under one name (`register`), and pass on the object that the model's forward was given, `packed`:
of a layout or of a step of the cache. On a CPU streams of about one size stand side by side in PyTorch's fused
attention; on a GPU the whole list goes through `flex_attention` with one block mask for all layers, where that proves
itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.fused_attention import fused_attention
from ..kernels.products import at_least_float32
from ..kernels.triton_use import proves_itself, use_triton, with_gradients
from .layout import Layout, naive_seen
from .rope import signed

NAME = "duplexmt"
KERNEL = "The block-masked kernel of attention over packed streams"
LONG = 256  # tokens of source and target together, from where on it is tried: its blocks of 128 are mostly masked below


# What a layer attends by, as `PackedAttention.__call__`.
Packed = Callable[[int, Tensor, Tensor, Tensor, float, int | None, float | None], Tensor]


def register() -> str:
    """The name under which a Hugging Face model finds this attention, for `config._attn_implementation`.

    No mask function is registered under it, so transformers makes none: `packed` knows who sees whom.
    """
    from transformers import AttentionInterface  # seconds, which a command that refuses its input does not need

    AttentionInterface.register(NAME, attend)
    return NAME


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    packed: Packed | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer: queries `[1, H, n, E]`, keys and values `[1, K, n, E]` → contexts `[1, n, H, E]`.

    Raises:
        TypeError: where the model does not pass on what its forward was given, or asks for something unknown.
    """
    if packed is None or further.get("s_aux") is not None:
        raise TypeError(f"{type(module).__name__} does not attend by what it is given")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (states[0].transpose(0, 1) for states in (query, key, value))
    return packed(module.layer_idx, q, k, v, scale, sliding_window, softcap)[None], None


class PackedAttention:
    """Attention of whole packed lists, in training.

    Attributes:
        wanted: which states are asked for at the end, places `[N]`.
        first: first place of each token where its state before layer 0 is the same at all its places `[U]`, else None.
        again: which of these the token at each place is, `[T]`.
        constant: whether the list was filled up to a length that all lists have; then there is `one_mask`, too.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.wanted: Tensor | None = layout.targets
        self.first, self.again, self.constant = layout.first, layout.token, layout.blocks is not None
        self.masks: dict[int | None, list[Tensor | None]] = {}  # by window
        self.blocks: dict[int | None, Any] = {}  # likewise
        self.rotations: dict[int, tuple[Tensor, Tensor]] = {}  # by the tensor they are made of

    def rotation(self, position_embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[1, T, E]` as the halves of a block take them, `[T, 1, E]`; made once for all layers."""
        cos, sin = position_embeddings
        if id(cos) not in self.rotations:
            self.rotations[id(cos)] = cos[0, :, None], signed(sin[0, :, None])
        return self.rotations[id(cos)]

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """Contexts `[n, H, E]` of a layer's new tokens, by their queries `[n, H, E]`, keys and values `[T, K, E]`.

        Args:
            q, k: rotated.
            window: positions a query looks back at most, where the layer has such a limit.
            softcap: that scores are squashed to lie within, where it does that.
        """
        if self.constant:
            mask = self.one_mask(q, (q.shape[1], k.shape[1], q.shape[2]), window)
            return contexts_under(mask, q, k, v, scale, softcap, self.wanted if len(q) < len(k) else None)
        long = max(map(sum, self.layout.shapes)) >= LONG
        if long and _takes_blocks(q, (q.shape[1], k.shape[1], q.shape[2])):
            return self.by_blocks(q, k, v, scale, window, softcap)
        return self.by_groups(q, k, v, scale, window, softcap)

    def one_mask(self, states: Tensor, heads: tuple[int, int, int], window: int | None) -> Any:
        """Who sees whom in the whole list, for `contexts_under`: by blocks where that kernel runs, else `[T, T]`.

        Args:
            states: of the list, in whatever shape: for their device, and type unless autocast has another.
            heads: H, K and E.
            window: positions a query looks back at most.
        """
        if window not in self.blocks:
            from . import flex

            fast = _takes_blocks(states, heads)
            self.blocks[window] = flex.block_mask(self.layout, window) if fast else seen_within(self.layout, window)
        return self.blocks[window]

    def by_groups(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None, softcap: float | None = None
    ) -> Tensor:
        """By masked products of streams side by side."""
        found, layout = [], self.layout
        some = len(q) < len(k)  # queries of the targets alone
        for group, mask in zip(layout.groups, self._masks(window), strict=True):
            if some and group.causal:
                continue
            queries = layout.number[group.queries] if some else group.queries
            q_own, k_own, v_own = (  # [G, heads, Y or X + Y, E]
                states.index_select(0, at.flatten()).unflatten(0, at.shape).transpose(1, 2)
                for states, at in ((q, queries), (k, group.keys), (v, group.keys))
            )
            if softcap is not None:
                ctx = capped_attention(q_own, k_own, v_own, group.seen if mask is None else mask[:, 0], scale, softcap)
            elif mask is None:
                ctx = fused_attention(q_own, k_own, v_own, is_causal=True, scale=scale)
            else:
                ctx = fused_attention(q_own, k_own, v_own, mask, scale=scale)
            found.append(ctx.transpose(1, 2).flatten(0, 1))
        return torch.cat(found).index_select(0, layout.target_slot if some else layout.slot)

    def _masks(self, window: int | None) -> list[Tensor | None]:
        """Of each group `[G, 1, Y, X + Y]`; None where a query sees its own stream up to itself, and nothing else."""
        if window not in self.masks:
            position = self.layout.position
            self.masks[window] = [
                None
                if group.causal and window is None
                else (group.seen if window is None else group.seen & (group.ahead(position) < window))[:, None]
                for group in self.layout.groups
            ]
        return self.masks[window]

    def by_blocks(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None = None, softcap: float | None = None
    ) -> Tensor:
        """The same by PyTorch's block-masked kernel."""
        from . import flex

        if window not in self.blocks:
            self.blocks[window] = flex.block_mask(self.layout, window)
        return contexts_under(self.blocks[window], q, k, v, scale, softcap, self.wanted if len(q) < len(k) else None)


def contexts_under(
    mask: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, softcap: float | None = None, wanted: Tensor | None = None
) -> Tensor:
    """Contexts of queries over a whole list, under one mask of it (`PackedAttention.one_mask`).

    Args:
        mask: `[T, T]`, or by blocks.
        q, k, v, scale, softcap: as for `PackedAttention`.
        wanted: where the queries are, `[N]`; None for all.

    Returns:
        `[n, H, E]`.
    """
    if isinstance(mask, Tensor):
        mask = mask if wanted is None else mask.index_select(0, wanted)
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        dense = fused_attention(q, k, v, mask[None, None], scale=scale) if softcap is None else (
            capped_attention(q, k, v, mask, scale, softcap)
        )  # fmt: skip
        return dense[0].transpose(0, 1)
    from . import flex

    if wanted is not None:
        q = q.new_zeros(len(k), *q.shape[1:]).index_copy(0, wanted, q)
    found = flex.contexts(q, k, v, mask, scale, softcap)
    return found if wanted is None else found.index_select(0, wanted)


def seen_within(layout: Layout, window: int | None) -> Tensor:
    """`naive_seen`, within a window where there is one."""
    seen = naive_seen(layout)
    return seen if window is None else seen & (layout.position[:, None] - layout.position < window)


def capped_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Attention in plain operations: `[…, H, Y, E]` to `[…, K, Z, E]` under `seen` `[…, Y, Z]`."""
    v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    return attention_weights(q, k, seen, scale, softcap).to(v.dtype) @ v


def attention_weights(q: Tensor, k: Tensor, seen: Tensor, scale: float, softcap: float | None) -> Tensor:
    """How much each query attends to each key, `[…, H, Y, Z]`, in at least float32."""
    scores = q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).transpose(-1, -2) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.to(at_least_float32(scores.dtype))
    return F.softmax(scores.masked_fill(~seen.unsqueeze(-3), float("-inf")), -1)


def _takes_blocks(states: Tensor, heads: tuple[int, int, int]) -> bool:
    """Whether the block-masked kernel takes queries, keys and values like these states, and gives contexts and
    gradients of such heads as the padded product does."""
    (H, K, E), device = heads, states.device
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else states.dtype
    if dtype == torch.float64 or not use_triton(states):
        return False
    rows = [[torch.full((90,), x) for x in (1, 31, 70)], [torch.full((5,), 3)], [torch.full((100,), 40)]]
    layout = Layout.of([(70, 90), (3, 5), (40, 100)], rows, 128, device=device)  # several blocks of keys
    packed, n = PackedAttention(layout), len(layout)

    def inputs(draw: torch.Generator) -> list[Tensor]:
        return [torch.randn(n, heads, E, generator=draw).to(dtype) for heads in (H, K, K, H)]

    def results(context: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
        return with_gradients(partial(context, scale=E**-0.5), given[:-1], given[-1])

    both = (partial(results, context) for context in (packed.by_blocks, packed.by_groups))
    return proves_itself(KERNEL, (H, K, E, dtype), device, inputs, *both)
