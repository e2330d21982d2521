"""Incremental decoding of the prefix model: source and target tokens in the order they arrive, none encoded twice.

Source states never depend on the target or on source to come, and a target state keeps what it has seen. So an ordinary
key/value cache serves read and write steps in any order. A slot holds a source token, a target token or nothing; source
queries see source slots only.

A slot may also hold a target token of a second view of the same translation, which sees less of the source than has
arrived, and none of the first view's tokens: what would be predicted, had less been read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from .prefix_model import PrefixModel, additive

NOTHING, SOURCE, TARGET, REFERENCE = 0, 1, 2, 3  # REFERENCE: a target token of the second view
ALL = 2**31 - 1  # source tokens


class Slot(NamedTuple):
    """One token to append."""

    token: int
    kind: int  # SOURCE, TARGET or REFERENCE
    position: int  # rotary; of a source token also its place in the source
    sees: int = ALL  # first source tokens it sees at most


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
        self.positions = self.kinds

    @property
    def length(self) -> int:
        """Slots of each stream, L."""
        return self.kinds.shape[1]

    def append(self, slots: Sequence[Sequence[Slot]], **recording: Any) -> Tensor:
        """Take each stream some tokens further (none, for some streams).

        Args:
            slots: what each stream appends; the same streams in the same order at every call.
            recording: passed on to the attention (`attention.recording`).

        Returns:
            Final-normed state of the last token each stream has appended, `[n, D]`; meaningless where there is none.

        Raises:
            ValueError: if the sequence is longer than a sliding window of the backbone.
        """
        states = self.append_all(slots, **recording)
        last = torch.tensor([max(len(row) - 1, 0) for row in slots], device=states.device)
        return states[torch.arange(len(slots), device=states.device), last]

    @torch.no_grad()
    def append_all(self, slots: Sequence[Sequence[Slot]], **recording: Any) -> Tensor:
        """As `append`, with the states of all tokens, `[n, m, D]`."""
        m = max(map(len, slots))
        filled = [[*row, *[PADDING] * (m - len(row))] for row in slots]
        tokens, kinds, positions, sees = torch.tensor(filled, device=self.model.device).unbind(-1)
        if self.length:
            kinds, positions = torch.cat((self.kinds, kinds), dim=1), torch.cat((self.positions, positions), dim=1)
        self.kinds, self.positions = kinds, positions
        if self.model.window is not None:  # which asks the device
            self.model.check_window(int((self.kinds != NOTHING).sum(1).max()))
        decoder = self.model.causal_lm.model
        embedded = self.model.embed(tokens)
        return decoder(
            inputs_embeds=embedded,
            attention_mask=additive(arrival_mask(self.kinds, self.positions, sees), embedded.dtype),
            position_ids=positions[:, -m:],
            cache=self.cache,
            use_cache=True,
            **recording,
        ).last_hidden_state

    def forget_last(self, counts: Sequence[int]) -> None:
        """Empty the last so many slots of each stream that hold something: their tokens are to be appended anew."""
        if any(counts):
            held = self.kinds != NOTHING
            from_end = held.flip(1).cumsum(1).flip(1)
            last = from_end <= torch.tensor(counts, device=held.device)[:, None]
            self.kinds = self.kinds.masked_fill(held & last, NOTHING)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these streams only, in this order."""
        chosen = torch.tensor(rows, dtype=torch.int64, device=self.kinds.device)
        self.kinds, self.positions = self.kinds[chosen], self.positions[chosen]
        self.cache.batch_select_indices(chosen)

    def crop(self, length: int) -> None:
        """Go back to the first `length` slots."""
        if length < self.length:
            self.cache.crop(length - self.length)
            self.kinds, self.positions = self.kinds[:, :length], self.positions[:, :length]


def arrival_mask(kinds: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
    """Attention mask of the last `m` slots over all, true where a query sees a key.

    Args:
        kinds: what each slot holds, in order of arrival, `[n, L]`.
        positions: of source tokens their place in the source, `[n, L]`.
        sees: how many source tokens each query sees at most, `[n, m]`.

    Returns:
        `[n, m, L]`, boolean. Every query sees itself, so that slots of padding stay finite.
    """
    L, m = kinds.shape[1], sees.shape[1]
    place = torch.arange(L, device=kinds.device)
    query, key = kinds[:, L - m :, None], kinds[:, None]
    earlier = place <= place[L - m :, None]
    source = (key == SOURCE) & (positions[:, None] < sees[..., None])
    seen = source | ((key > SOURCE) & (key == query))
    return (earlier & seen) | (place == place[L - m :, None])
