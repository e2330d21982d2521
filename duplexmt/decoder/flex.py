"""Attention over packed streams without padding, by PyTorch's block-masked kernel (`flex_attention`).

Work and memory go by the blocks of keys that a block of queries reads: for each query two spans, its source up to what
it sees, and its own stream up to itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .layout import BLOCK, Layout

kernel: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)


def block_mask(layout: Layout, window: int | None = None) -> BlockMask:
    """Which blocks of keys each block of queries reads, and within them which keys each query sees."""
    own, first, position = layout.own, layout.source, layout.position
    last = first + layout.sees - 1  # of a source token itself
    reads, keys, read_by, queries = layout.read_blocks() if layout.blocks is None else layout.blocks

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        of_source = (first[query] <= key) & (key <= last[query])
        found = of_source | ((own[query] <= key) & (key <= query))
        return found if window is None else found & (position[query] - position[key] < window)

    return BlockMask(
        (len(layout),) * 2, reads, keys, None, None, read_by, queries, None, None, BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=seen,
    )  # fmt: skip


def contexts(q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask, scale: float, softcap: float | None = None) -> Tensor:
    """Contexts `[T, H, E]` of queries `[T, H, E]` over keys and values `[T, K, E]`."""

    def capped(score: Tensor, *place: Tensor) -> Tensor:
        assert softcap is not None
        return torch.tanh(score / softcap) * softcap

    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    attend: Any = flex_attention if torch.compiler.is_compiling() else kernel
    ctx: Tensor = attend(
        q, k, v, score_mod=None if softcap is None else capped, block_mask=blocks, scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return ctx[0].transpose(0, 1)
