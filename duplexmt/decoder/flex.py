"""Attention over packed streams without padding, by PyTorch's block-masked kernel (`flex_attention`).

Work and memory go by the blocks of keys that a block of queries reads: for each query two spans, its source up to what
it sees, and its own stream up to itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .layout import Layout

BLOCK = 128  # queries, and keys, of a block

kernel: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)


def block_mask(layout: Layout, window: int | None = None) -> BlockMask:
    """Which blocks of keys each block of queries reads, and within them which keys each query sees."""
    begin, source, _, length = layout.streams.to(layout.pair.device, non_blocking=True)
    of_token = torch.repeat_interleave(torch.arange(len(length), device=length.device), length, output_size=len(layout))
    own, first = begin[of_token], source[of_token]
    last = first + layout.sees - 1  # of a source token itself
    token = torch.arange(len(layout), device=length.device)
    blocks = -(-len(layout) // BLOCK)
    # Each span is noted down where it begins and, negative, behind its end: sums from the left count who reads a block.
    notes = token.new_zeros(blocks, blocks + 1)
    one, block = torch.ones_like(token), token // BLOCK
    for start, end in ((first, last), (own, token)):
        notes.index_put_((block, start // BLOCK), one, accumulate=True)
        notes.index_put_((block, end // BLOCK + 1), -one, accumulate=True)
    read = (notes.cumsum(1)[:, :-1] > 0).int()[None, None]
    position = layout.position

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        of_source = (first[query] <= key) & (key <= last[query])
        found = of_source | ((own[query] <= key) & (key <= query))
        return found if window is None else found & (position[query] - position[key] < window)

    in_order = read.argsort(dim=-1, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(
        read.sum(-1, dtype=torch.int32), in_order, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(len(layout),) * 2
    )


def contexts(q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask, scale: float, softcap: float | None = None) -> Tensor:
    """Contexts `[T, H, E]` of queries `[T, H, E]` over keys and values `[T, K, E]`."""

    def capped(score: Tensor, *place: Tensor) -> Tensor:
        assert softcap is not None
        return torch.tanh(score / softcap) * softcap

    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    ctx: Tensor = kernel(
        q, k, v, score_mod=None if softcap is None else capped, block_mask=blocks, scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return ctx[0].transpose(0, 1)
