"""Where predictions come from: the decoder's cache, the paper's grid and its cache, or the grid computed anew."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..data.batch import PADDING_ID
from ..decoder.cache import TARGET, Append, DecoderCache, free_bytes
from ..decoder.heads import TwoHeads
from ..decoder.layout import SOURCE
from ..decoder.likeliest import Likeliest
from ..decoder.model import DecoderModel
from ..grid.cache import GridCache
from ..grid.model import GridModel
from .policies import Requests
from .stream import Stream

AHEAD = 2  # rows a stream that is alone is taken ahead


class Slots:
    """Numbers of slots, each taken by one stream; those that were left go first."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}  # by the stream's name
        self.free: list[int] = []  # that were left

    def take(self, names: Sequence[int]) -> list[int]:
        """Which slots streams would get: `keep` takes them."""
        known = len(self.taken) + len(self.free)
        return [*self.free, *range(known, known + len(names))][: len(names)]

    def keep(self, slots: dict[int, int]) -> None:
        """Take the slots, by the streams' names."""
        self.free = self.free[len(slots) :]
        self.taken |= slots

    def leave(self, name: int) -> None:
        """Leave the slot, if there is one, to the next stream."""
        if name in self.taken:
            self.free.append(self.taken.pop(name))


class States(ABC):
    """Final-normed target states of streams."""

    def __init__(self, model: TwoHeads) -> None:
        self.slots, self.model = Slots(), model

    @abstractmethod
    def __call__(self, requests: Requests) -> Tensor:
        """What streams ask for, `[Σ wanted, D]`."""

    def likeliest(self, states: Tensor) -> Tensor:
        """The most probable next token of states `[n, D]`."""
        return self.model.text_logits(states).argmax(-1)

    def forget(self, name: int) -> None:
        """Free what is held for a stream."""
        self.slots.leave(name)


class DecoderStates(States):
    """By the cache of a decoder.

    A step of one stream takes as long as its launches, however many tokens it computes. So a stream that is alone, of a
    model with rows, is taken some rows ahead in the same pass, as far as source tokens have arrived: should the policy
    read, the state is known. All of them are read sooner or later, and each token of a row is computed once.

    Args:
        model: in evaluation mode, on its device.
        lines: of the cache that a policy takes.
        beam: endings that are weighed side by side, each in a line of its own.
        alone: whether there is one stream at a time.

    Attributes:
        first_free_line: of the cache, from which on endings may take lines.
    """

    def __init__(self, model: DecoderModel, lines: int, beam: int, alone: bool) -> None:
        super().__init__(model)
        self.ahead = AHEAD if model.rows and alone else 0
        self.first_free_line = lines + self.ahead
        lines = self.first_free_line + (beam if beam > 1 else 0)
        self.cache = DecoderCache(model, lines, heads=model.alignment_heads)
        head = model.text_head
        pays = model.logit_cap is None and Likeliest.pays(head, free_bytes(model.device))
        self.head = Likeliest(head) if pays else None
        self.length = 0  # target tokens that the states below have seen
        self.rows: dict[int, Tensor] = {}  # of a stream that is alone: states by row

    def __call__(self, requests: Requests) -> Tensor:
        """Each stream appends what it says, and one that is alone what it may ask for next."""
        if not self.ahead:
            return self._append(requests)
        ((stream, append),) = requests
        if append.best:
            if any(run.line == SOURCE for run in append.runs):
                self.rows = {}  # an ending takes the place of source tokens that they have seen
            return self._append(requests)
        x, Y = stream.visible, len(stream.target)
        if self.length != Y or x not in self.rows:
            last = min(x + self.ahead, len(stream.source))
            append, wanted = Append(stream.source_run(last)), []
            for row in range(x, last + 1):
                known, line = self.length if row in self.rows else 0, self.line(row)
                append.runs = [*append.runs, stream.target_run(known, Y, row, line=line)]
                wanted.append(len(append) - 1)
            append.wanted = wanted
            states = self._append([(stream, append)])
            stream.cached[SOURCE] = last
            self.length, self.rows = Y, dict(zip(range(x, last + 1), states.split(1), strict=True))
        return self.rows[x]

    def line(self, row: int) -> int:
        """Of the cache, where the target tokens of a row are."""
        return TARGET + row % (self.ahead + 1)

    def _append(self, requests: Requests) -> Tensor:
        unknown = [stream.name for stream, _ in requests if stream.name not in self.slots.taken]
        new = dict(zip(unknown, self.slots.take(unknown), strict=True))
        for stream, append in requests:
            append.slot = new[stream.name] if stream.name in new else self.slots.taken[stream.name]
        found = self.cache.append([append for _, append in requests])
        self.slots.keep(new)
        for stream, _ in requests:
            stream.calls += 1
        return found

    def likeliest(self, states: Tensor) -> Tensor:
        """The most probable next token, by a text head that may be as it was when the first stream joined."""
        return super().likeliest(states) if self.head is None else self.head(states)

    def forget(self, name: int) -> None:
        """Leave the slot."""
        super().forget(name)
        self.rows = {}


class GridStates(States):
    """By the paper's grid: each stream's present cell, reached a row or column at a time in its cache.

    Args:
        model: in evaluation mode, on its device.
        cache: of its streams; None has the grid of all that is visible computed every time, which is the oracle of the
            cache, and all that some grids have.
    """

    def __init__(self, model: GridModel, cache: GridCache | None) -> None:
        super().__init__(model)
        self.cache = cache
        self.reached: dict[int, tuple[int, int]] = {}  # source and target tokens in the cache
        self.last: dict[int, tuple[Tensor, int]] = {}  # target state reached last: states, and which

    def __call__(self, requests: Requests) -> Tensor:
        """One step where a stream has one more token, several where it has a prefix."""
        streams = [stream for stream, _ in requests]
        states = self._recomputed(streams) if self.cache is None else self._reached(self.cache, streams)
        for stream in streams:
            stream.calls += 1
        return states

    def _reached(self, cache: GridCache, streams: list[Stream]) -> Tensor:
        if unknown := [stream for stream in streams if stream.name not in self.slots.taken]:
            names = [stream.name for stream in unknown]
            slots = self.slots.take(names)
            source, seed, lengths = zip(*[(s.source[0], s.target[0], s.source_length) for s in unknown], strict=True)
            hidden = cache.open(slots, source, seed, lengths)
            self.slots.keep(dict(zip(names, slots, strict=True)))
            self.reached |= dict.fromkeys(names, (1, 1))
            self.last |= {name: (hidden, number) for number, name in enumerate(names)}
        while behind := [s for s in streams if self.reached[s.name] != (s.visible, len(s.target))]:
            hidden = self._advance(cache, behind)
            self.last |= {stream.name: (hidden, number) for number, stream in enumerate(behind)}
        return gathered([self.last[stream.name] for stream in streams])

    def forget(self, name: int) -> None:
        """Leave the stream's slot to the next one."""
        super().forget(name)
        self.reached.pop(name, None)
        self.last.pop(name, None)

    def _advance(self, cache: Any, streams: list[Stream]) -> Tensor:
        """One token further for each: source tokens first, should several be missing."""
        slots, emits, tokens = [], [], []
        for stream in streams:
            x, y = self.reached[stream.name]
            emits.append(x == stream.visible)
            slots.append(self.slots.taken[stream.name])
            tokens.append(stream.target[y] if emits[-1] else stream.source[x])
        hidden: Tensor = cache.step(slots, emits, tokens)
        for stream, emit in zip(streams, emits, strict=True):
            x, y = self.reached[stream.name]
            self.reached[stream.name] = (x, y + 1) if emit else (x + 1, y)
        return hidden

    def _recomputed(self, streams: list[Stream]) -> Tensor:
        device = self.model.device
        X, Y = max(stream.visible for stream in streams), max(len(stream.target) for stream in streams)
        source = torch.tensor([_padded(stream.source[: stream.visible], X) for stream in streams], device=device)
        target = torch.tensor([_padded(stream.target, Y) for stream in streams], device=device)
        lengths = torch.tensor([stream.source_length for stream in streams], device=device)
        hidden = self.model(source, target, lengths)
        return torch.stack([hidden[n, s.visible - 1, len(s.target) - 1] for n, s in enumerate(streams)])


def gathered(states: Sequence[tuple[Tensor, int]]) -> Tensor:
    """States `[n, D]`, each given as one of several; they are these very ones, if nothing has to be gathered."""
    every = states[0][0]
    if len(every) == len(states) and all([of is every and at == n for n, (of, at) in enumerate(states)]):
        return every
    return torch.stack([of[at] for of, at in states])


def _padded(tokens: list[int], width: int) -> list[int]:
    return tokens + [PADDING_ID] * (width - len(tokens))
