"""Where a decoder's hidden states come from: the incremental cache, or the whole grid computed again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..data.batch import PADDING_ID
from ..grid.cache import GridCache
from ..grid.model import GridModel


@dataclass
class StreamState:
    """One stream at state (x, y)."""

    index: int  # of the sentence
    source: list[int]  # prefix, text and end token
    target: list[int]  # seed, prefix, and what was written
    read: int  # source tokens visible
    written: list[int] = field(default_factory=list)


class RecomputedStates:
    """The grid of all that is visible, computed every time: oracle of `CachedStates`, and all exact attention has."""

    def __init__(self, model: GridModel) -> None:
        self.model = model

    def __call__(self, states: Sequence[StreamState]) -> Tensor:
        """Final-normed target state of each stream's present cell, `[n, D]`."""
        device = self.model.emit_head.weight.device
        X, Y = max(state.read for state in states), max(len(state.target) for state in states)
        source = torch.tensor([_padded(state.source[: state.read], X) for state in states], device=device)
        target = torch.tensor([_padded(state.target, Y) for state in states], device=device)
        lengths = torch.tensor([len(state.source) for state in states], device=device)
        rows = torch.tensor([state.read - 1 for state in states], device=device)
        columns = torch.tensor([len(state.target) - 1 for state in states], device=device)
        hidden = self.model(source, target, lengths)
        return hidden[torch.arange(len(states), device=device), rows, columns]


class CachedStates:
    """Keeps the streams in an incremental cache, and takes each to its present cell a row or column at a time."""

    def __init__(self, model: GridModel) -> None:
        self.cache = GridCache(model)
        self.device = model.emit_head.weight.device
        self.slots: dict[int, int] = {}  # by sentence
        self.reached: dict[int, tuple[int, int]] = {}  # source and target tokens in the cache
        self.hidden: dict[int, Tensor] = {}

    def __call__(self, states: Sequence[StreamState]) -> Tensor:
        """Final-normed target state of each stream's present cell, `[n, D]`."""
        if unknown := [state for state in states if state.index not in self.slots]:
            self._open(unknown)
        while behind := [s for s in states if self.reached[s.index] != (s.read, len(s.target))]:
            self._advance(behind)
        return torch.stack([self.hidden[state.index] for state in states])

    def _open(self, states: list[StreamState]) -> None:
        for state in states:
            self.slots[state.index] = len(self.slots)
        firsts = [(self.slots[s.index], s.source[0], s.target[0], len(s.source)) for s in states]
        hidden = self.cache.open(*torch.tensor(firsts, device=self.device).unbind(1))
        for state, cell in zip(states, hidden, strict=True):
            self.reached[state.index], self.hidden[state.index] = (1, 1), cell

    def _advance(self, states: list[StreamState]) -> None:
        """One token further for each: source tokens first, should several be missing."""
        steps = []
        for state in states:
            x, y = self.reached[state.index]
            emit = x == state.read
            steps.append((self.slots[state.index], emit, state.target[y] if emit else state.source[x]))
            self.reached[state.index] = (x, y + 1) if emit else (x + 1, y)
        slots, emits, tokens = torch.tensor(steps, device=self.device).unbind(1)
        hidden = self.cache.step(slots, emits.bool(), tokens)
        for state, cell in zip(states, hidden, strict=True):
            self.hidden[state.index] = cell


def _padded(tokens: list[int], width: int) -> list[int]:
    return tokens + [PADDING_ID] * (width - len(tokens))
