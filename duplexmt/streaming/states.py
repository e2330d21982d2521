"""Where a decoder's predictions come from: the incremental cache, the cache in fixed shapes, or the grid recomputed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..cache.graphs import StaticSteps
from ..cache.grid_cache import GridCache
from ..cache.row_cache import RowCache
from ..cache.stream_cache import StreamCache
from ..data.batch import PADDING_ID
from ..grid.model import GridModel


@dataclass
class StreamState:
    """One stream at state (x, y)."""

    index: int  # of the sentence
    source: list[int]  # prefix, text and, once the source has ended, the end token; as far as they are known
    target: list[int]  # seed, prefix, and what was written
    source_length: int  # whole length of the source, or what it is taken for (the anchor of the target stream)
    read: int  # source tokens visible
    written: list[int] = field(default_factory=list)


class States(ABC):
    """Predictions at the present cells of streams, read from the target states there."""

    def __init__(self, model: GridModel) -> None:
        self.model = model
        self.hidden: dict[int, Tensor] = {}  # by sentence
        self.likely: dict[int, int] = {}  # next tokens, where deciding has shown them

    @abstractmethod
    def __call__(self, states: Sequence[StreamState]) -> list[float]:
        """Take each stream to its present cell; p(EMIT) there."""

    def decide(self, states: Sequence[StreamState]) -> list[float]:
        """p(EMIT) as decoding compares it with θ (`GridModel.decide`)."""
        p_emit, tokens = self.model.decide(torch.stack([self.hidden[state.index] for state in states]))
        if tokens is not None:
            self.likely |= {state.index: token for state, token in zip(states, tokens.tolist(), strict=True)}
        return p_emit.tolist()

    def tokens(self, states: Sequence[StreamState]) -> list[int]:
        """Most probable next token at the cells last reached, which need not be asked for where p(EMIT) decides."""
        if self.model.certainty:
            return [self.likely[state.index] for state in states]
        return self.model.text_logits(torch.stack([self.hidden[state.index] for state in states])).argmax(-1).tolist()

    def forget(self, state: StreamState) -> None:
        """Free what is held for a stream."""
        self.hidden.pop(state.index, None)
        self.likely.pop(state.index, None)


class RecomputedStates(States):
    """The grid of all that is visible, computed every time: oracle of `CachedStates`, and all that some models have."""

    def __call__(self, states: Sequence[StreamState]) -> list[float]:
        """Compute the whole grid of each stream."""
        device = self.model.device
        X, Y = max(state.read for state in states), max(len(state.target) for state in states)
        source = torch.tensor([_padded(state.source[: state.read], X) for state in states], device=device)
        target = torch.tensor([_padded(state.target, Y) for state in states], device=device)
        lengths = torch.tensor([state.source_length for state in states], device=device)
        rows = torch.tensor([state.read - 1 for state in states], device=device)
        columns = torch.tensor([len(state.target) - 1 for state in states], device=device)
        hidden = self.model(source, target, lengths)[torch.arange(len(states), device=device), rows, columns]
        self.hidden |= {state.index: cell for state, cell in zip(states, hidden, strict=True)}
        return self.decide(states)


class CachedStates(States):
    """Keeps the streams in an incremental cache, and takes each to its present cell a row or column at a time.

    Args:
        model: in evaluation mode, on its device.
        cache: by default the one that fits the model.
    """

    def __init__(self, model: GridModel, cache: StreamCache | None = None) -> None:
        super().__init__(model)
        self.cache = cache or (RowCache(model) if model.row_cacheable else GridCache(model))
        self.slots: dict[int, int] = {}  # by sentence
        self.reached: dict[int, tuple[int, int]] = {}  # source and target tokens in the cache
        self.free: list[int] = []  # slots that were left

    def __call__(self, states: Sequence[StreamState]) -> list[float]:
        """One step where a stream has one more token, several where it has a prefix."""
        if unknown := [state for state in states if state.index not in self.slots]:
            self._open(unknown)
        while behind := [state for state in states if self.reached[state.index] != (state.read, len(state.target))]:
            self._advance(behind)
        return self.decide(states)

    def forget(self, state: StreamState) -> None:
        """Leave the stream's slot to the next one."""
        if state.index in self.slots:
            self.free.append(self.slots.pop(state.index))
            del self.reached[state.index]
        super().forget(state)

    def _open(self, states: list[StreamState]) -> None:
        """Slots are taken once the cache has them: it may find no room to grow."""
        n, known = len(states), len(self.slots) + len(self.free)
        slots = [*self.free, *range(known, known + n)][:n]
        source, seed, lengths = zip(*[(s.source[0], s.target[0], s.source_length) for s in states], strict=True)
        if isinstance(self.cache, RowCache):
            self.cache.begin(slots, seed, lengths)
            reached = 0, 1
        else:
            self._keep_opened(states, self.cache.open(slots, source, seed, lengths))
            reached = 1, 1
        self.free = self.free[n:]
        for state, slot in zip(states, slots, strict=True):
            self.slots[state.index], self.reached[state.index] = slot, reached

    def _advance(self, states: list[StreamState]) -> None:
        """One token further for each: source tokens first, should several be missing."""
        slots, emits, tokens = [], [], []
        for state in states:
            x, y = self.reached[state.index]
            emit = x == state.read
            slots.append(self.slots[state.index])
            emits.append(emit)
            tokens.append(state.target[y] if emit else state.source[x])
        self._step(states, slots, emits, tokens)
        for state, emit in zip(states, emits, strict=True):
            x, y = self.reached[state.index]
            self.reached[state.index] = (x, y + 1) if emit else (x + 1, y)

    def _keep_opened(self, states: list[StreamState], hidden: Tensor) -> None:
        self.hidden |= {state.index: cell for state, cell in zip(states, hidden, strict=True)}

    def _step(self, states: list[StreamState], slots: list[int], emits: list[bool], tokens: list[int]) -> None:
        self._keep_opened(states, self.cache.step(slots, emits, tokens))


class StaticStates(CachedStates):
    """The same in fixed shapes, both heads computed with every step: what a GPU needs (see `grid.graphs`).

    Args:
        model: in evaluation mode, on its device.
        streams: live streams at most.
        values: of `StaticSteps`.
    """

    def __init__(self, model: GridModel, streams: int, **values: Any) -> None:
        self.steps = StaticSteps(model, streams, **values)
        super().__init__(model, self.steps.cache)
        self.predicted: dict[int, tuple[float, int]] = {}

    def forget(self, state: StreamState) -> None:
        """Leave the stream's slot to the next one."""
        super().forget(state)
        self.predicted.pop(state.index, None)

    def _keep_opened(self, states: list[StreamState], hidden: Tensor) -> None:
        self._keep(states, *self.steps.predict(hidden).tolist())

    def _step(self, states: list[StreamState], slots: list[int], emits: list[bool], tokens: list[int]) -> None:
        self._keep(states, *self.steps(slots, emits, tokens))

    def _keep(self, states: list[StreamState], p_emit: list[float], tokens: list[float] | list[int]) -> None:
        for state, p, token in zip(states, p_emit, tokens, strict=True):
            self.predicted[state.index] = p, int(token)

    def decide(self, states: Sequence[StreamState]) -> list[float]:
        """Known already."""
        return [self.predicted[state.index][0] for state in states]

    def tokens(self, states: Sequence[StreamState]) -> list[int]:
        """Known already."""
        return [self.predicted[state.index][1] for state in states]


def _padded(tokens: list[int], width: int) -> list[int]:
    return tokens + [PADDING_ID] * (width - len(tokens))
