"""Attention of chosen rows on a GPU without padding, by PyTorch's block-masked kernel (`flex_attention`).

All cells of a batch are one list of queries; all source tokens, then all cells, are one list of keys. A cell sees two
spans of the keys: its source's tokens up to the last one read, and its row up to itself. Work and memory go by the
blocks of the list that a span touches, where the padded product has L·Y·(X + Y) scores.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128  # queries, and keys, of a block

kernel: Callable[..., Any] = torch.compile(flex_attention, dynamic=True)


def block_mask(spans: Tensor, S: int) -> BlockMask:
    """Which blocks of keys each block of queries reads, and within them which keys each query does.

    Args:
        spans: first and last source token and first cell that each cell sees, as places in the list of keys, `[3, N]`.
        S: source tokens, which come first in that list.
    """
    (first, last, own), N = spans.unbind(), spans.shape[1]
    cells = torch.arange(N, device=spans.device)
    blocks = [-(-size // BLOCK) for size in (N, S + N)]
    # Each span is noted down where it begins and, negative, behind its end: sums from the left count who reads a block.
    notes = spans.new_zeros(blocks[0], blocks[1] + 1)
    one, block = torch.ones_like(cells), cells // BLOCK
    for begin, end in ((first, last), (own, S + cells)):
        notes.index_put_((block, begin // BLOCK), one, accumulate=True)
        notes.index_put_((block, end // BLOCK + 1), -one, accumulate=True)
    read = (notes.cumsum(1)[:, :-1] > 0).int()[None, None]

    def seen(batch: Tensor, head: Tensor, cell: Tensor, key: Tensor) -> Tensor:
        of_source = (first[cell] <= key) & (key <= last[cell])
        return of_source | ((own[cell] <= key) & (key <= S + cell))

    in_order = read.argsort(dim=-1, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(
        read.sum(-1, dtype=torch.int32), in_order, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(N, S + N)
    )


def target_context(q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask, scale: float) -> Tensor:
    """Contexts `[N, H, E]` of the cells' queries `[N, H, E]` over the list of keys and values `[S + N, K, E]`."""
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    ctx: Tensor = kernel(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return ctx[0].transpose(0, 1)
