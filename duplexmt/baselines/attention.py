"""What a backbone's heads attend to, recorded while it decodes; nothing else is slowed down."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .prefix_model import PrefixModel

Head = Sequence[int]  # layer, head


class AttentionRecord:
    """Attention weights of some heads, a layer after the other.

    Args:
        heads: layer and head of each; None for all of them.
        keys: the slots whose share of the attention is kept.
    """

    def __init__(self, heads: Sequence[Head] | None, keys: slice) -> None:
        self.heads, self.keys = heads, keys
        self.layers: list[Tensor] = []

    def add(self, layer: int, query: Tensor, key: Tensor, mask: Tensor, scaling: float) -> None:
        """Keep what queries `[n, H, m, d]` attend to among keys `[n, K, L, d]`, each of which serves H/K heads."""
        own = range(query.shape[1]) if self.heads is None else [head for at, head in self.heads if at == layer]
        if not len(own):
            return
        chosen = torch.tensor(list(own), device=query.device)
        shared = chosen // (query.shape[1] // key.shape[1])
        scores = query[:, chosen] @ key[:, shared].transpose(2, 3) * scaling + mask
        self.layers.append(scores.softmax(-1)[..., self.keys])

    @property
    def weights(self) -> Tensor:
        """`[n, heads, m, keys]`; every query's weights over all that it sees sum to 1 before keys are chosen."""
        return torch.cat(self.layers, dim=1)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    record: AttentionRecord,
    **further: Any,
) -> tuple[Tensor, None]:
    """Attention as PyTorch computes it, and a record of its weights, which PyTorch does not give away."""
    record.add(module.layer_idx, query, key, attention_mask, scaling)
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **further)


@contextmanager
def recording(model: PrefixModel) -> Iterator[None]:
    """While this lasts, a backbone's forward takes `record=AttentionRecord(…)`; before and after it is as it was."""
    from transformers import AttentionInterface  # seconds, which a command that refuses its input does not need

    AttentionInterface.register("duplexmt_recorded", _attend)
    config = model.causal_lm.config
    before = config._attn_implementation
    config._attn_implementation = "duplexmt_recorded"
    try:
        yield
    finally:
        config._attn_implementation = before
