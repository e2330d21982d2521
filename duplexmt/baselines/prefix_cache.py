"""Incremental decoding of the prefix model: source and target tokens in the order they arrive, none encoded twice.

Source states never depend on the target or on source to come, and a target state keeps what it has seen. So an ordinary
key/value cache serves read and write steps in any order. A slot holds a source token, a target token or nothing; source
queries see source slots only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from .prefix_model import PrefixModel, additive

NOTHING, SOURCE, TARGET = 0, 1, 2


class Slot(NamedTuple):
    """One token to append."""

    token: int
    kind: int  # SOURCE or TARGET
    position: int  # rotary


PADDING = Slot(0, NOTHING, 0)  # any valid id will do: nobody sees it


class PrefixCache:
    """Keys and values of streams that are decoded side by side.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: PrefixModel) -> None:
        self.model = model
        self.cache = DynamicCache()
        self.kinds = torch.empty(0, 0, dtype=torch.int64, device=model.device)  # [n, L]

    @property
    def length(self) -> int:
        """Slots of each stream, L."""
        return self.kinds.shape[1]

    @torch.no_grad()
    def append(self, slots: Sequence[Sequence[Slot]]) -> Tensor:
        """Take each stream some tokens further (none, for some streams).

        Args:
            slots: what each stream appends; the same streams in the same order at every call.

        Returns:
            Final-normed state of the last token each stream has appended, `[n, D]`; meaningless where there is none.

        Raises:
            ValueError: if the sequence is longer than a sliding window of the backbone.
        """
        m = max(map(len, slots))
        filled = [[*row, *[PADDING] * (m - len(row))] for row in slots]
        tokens, kinds, positions = torch.tensor(filled, device=self.model.device).unbind(-1)
        self.kinds = torch.cat((self.kinds, kinds), dim=1) if self.length else kinds
        if self.model.window is not None:  # which asks the device
            self.model.check_window(int((self.kinds != NOTHING).sum(1).max()))
        decoder = self.model.causal_lm.model
        embedded = self.model.embed(tokens)
        states = decoder(
            inputs_embeds=embedded,
            attention_mask=additive(arrival_mask(self.kinds, m), embedded.dtype),
            position_ids=positions,
            cache=self.cache,
            use_cache=True,
        ).last_hidden_state
        last = torch.tensor([max(len(row) - 1, 0) for row in slots], device=states.device)
        return states[torch.arange(len(slots), device=states.device), last]

    def forget_last(self, rows: Sequence[int]) -> None:
        """Empty the last slot that holds something, in some streams: its token is to be appended anew."""
        if rows:
            chosen = torch.tensor(rows, dtype=torch.int64, device=self.kinds.device)
            place = torch.arange(self.length, device=self.kinds.device)
            last = (place * (self.kinds[chosen] != NOTHING)).argmax(1)
            self.kinds[chosen, last] = NOTHING

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these streams only, in this order."""
        chosen = torch.tensor(rows, dtype=torch.int64, device=self.kinds.device)
        self.kinds = self.kinds[chosen]
        self.cache.batch_select_indices(chosen)

    def crop(self, length: int) -> None:
        """Go back to the first `length` slots."""
        if length < self.length:
            self.cache.crop(length - self.length)
            self.kinds = self.kinds[:, :length]


def arrival_mask(kinds: Tensor, m: int) -> Tensor:
    """Attention mask of the last `m` slots over all, true where a query sees a key.

    Args:
        kinds: what each slot holds, in order of arrival, `[n, L]`.
        m: queries.

    Returns:
        `[n, m, L]`, boolean. Every query sees itself, so that slots of padding stay finite.
    """
    L = kinds.shape[1]
    place = torch.arange(L, device=kinds.device)
    query, key = kinds[:, L - m :, None], kinds[:, None]
    earlier = place <= place[L - m :, None]
    seen = (key == SOURCE) | ((key == TARGET) & (query == TARGET))
    return (earlier & seen) | (place == place[L - m :, None])
