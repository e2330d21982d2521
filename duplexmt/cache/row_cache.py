"""The incremental cache of exact attention with I←O off: row by row, where the approximation keeps lines both ways.

With I←O off a source state depends on no target token, and row `x` of the exact grid is a causal language model on
`[i_0 … i_x ; o_0 … o_y]` all by itself: no cell reads another row. So the present row is all there is to keep, keys and
values of `X + Y` tokens a layer:

    EMIT  appends a target token: one cell, (x, y)
    WAIT  appends a source token: its one state, and all cells (x, y') of the new row for the columns written so far

That is less than the approximate cache computes (its EMIT takes the new column at all rows read so far) and keeps, and
the present cell is exact. Where the target's positions move with the source (anchor `visible_length`, the naive one of
Section V-F) a new row moves along with them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..decoder.knobs import VISIBLE_LENGTH
from ..grid.model import GridModel
from .stream_cache import I, O, StreamCache

MANY = 16  # streams that WAIT, from which on the shorter half of their rows attends apart from the longer


class RowCache(StreamCache):
    """Present rows of many independent streams; a step takes any of them one token further.

    Args:
        model: a grid model with exact attention, joint softmax and I←O off, in evaluation mode.
        slots, length, max_bytes: of `StreamCache`.

    Raises:
        ValueError: for another model, and for a cache larger than the memory.
    """

    def __init__(self, model: GridModel, slots: int = 1, length: int = 64, max_bytes: int | None = None) -> None:
        if not model.row_cacheable:
            raise ValueError("a cache of rows holds exact attention with joint softmax and I←O off, nothing else")
        super().__init__(model, slots, length, max_bytes)
        shape = len(self.decoder.layers), slots, length, 2, self.K, self.E  # the streams' tokens alternate
        self.keys, self.values = (list(self.like.new_zeros(shape)) for _ in range(2))  # of each layer

    @property
    def bytes_per_token(self) -> int:
        """Memory of a token of both streams."""
        return 2 * len(self.decoder.layers) * 2 * self.K * self.E * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Memory of the cached states."""
        return sum(entries.nbytes for entries in (*self.keys, *self.values))

    def open(
        self, slots: Sequence[int], source: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]
    ) -> Tensor:
        """See `StreamCache.open`."""
        self.begin(slots, seed, source_lengths)
        return self.step(slots, [False] * len(slots), source)

    @torch.inference_mode()
    def begin(self, slots: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]) -> None:
        """Start streams afresh with their seeds alone; the first source token is then a WAIT like any other.

        Arguments as in `StreamCache.open`. Nothing is computed, so that one step takes these streams to cell (0, 0)
        and others further.
        """
        self._begin(slots, [0] * len(slots), seed, source_lengths)
        for slot in slots:
            self.count[I][slot] = 0
            self.start[slot] -= self.model.anchor == VISIBLE_LENGTH  # the first WAIT moves it, too

    @torch.inference_mode()
    def step(self, slots: Sequence[int], emits: Sequence[bool], tokens: Sequence[int]) -> Tensor:
        """See `StreamCache.step`."""
        streams = [O if emit else I for emit in emits]
        places = [self.count[stream][slot] for stream, slot in zip(streams, slots, strict=True)]
        for slot, emit in zip(slots, emits, strict=True):
            X, Y = self.count[I][slot], self.count[O][slot]
            self.model.check_window(*((X, Y + 1) if emit else (X + 1, Y)))
        moves = self.model.anchor == VISIBLE_LENGTH
        starts = [self.start[slot] + (moves and not emit) for slot, emit in zip(slots, emits, strict=True)]
        self.make_room(0, max(places) + 1, max(starts))
        self.tokens[streams, slots, places] = torch.tensor(tokens, device=self.device)
        for stream, slot, start in zip(streams, slots, starts, strict=True):
            self.count[stream][slot] += 1
            self.start[slot] = start
        return self._advance(slots, emits)

    def _advance(self, slots: Sequence[int], emits: Sequence[bool]) -> Tensor:
        """Compute the states that a new token of each stream, already among `tokens`, calls for.

        That is its own state, and after a WAIT the new row of the target stream: `m` states in all, the present target
        cell the last of each stream. The linear layers take them one after the other, attention by groups of streams
        (`_groups`), padded to the longest row of each.
        """
        states: list[tuple[int, ...]] = []  # slot, stream, place, rows visible, start of the stream, place in padding
        ends, groups = [0] * len(slots), []
        for numbers in self._groups(slots, emits):
            own, emit, first = [slots[number] for number in numbers], emits[numbers[0]], len(states)
            w = 1 if emit else 1 + max(self.count[O][slot] for slot in own)
            for row, (number, slot) in enumerate(zip(numbers, own, strict=True)):
                X, Y, start, at = self.count[I][slot], self.count[O][slot], self.start[slot], row * w
                if emit:
                    states.append((slot, O, Y - 1, X, start, at))
                else:
                    states.append((slot, I, X - 1, X, 0, at))
                    states += [(slot, O, y, X, start, at + 1 + y) for y in range(Y)]
                ends[number] = len(states) - 1
            groups.append((own, w, slice(first, len(states))))

        slot_of, stream, place, visible, start_of, padded = torch.tensor(states, device=self.device).T
        seen = self._seen(stream, place, visible, self._longest(slots))
        attentions = [
            _Attention(self, own, seen[part, : self._longest(own)], w, padded[part]) for own, w, part in groups
        ]
        present = torch.tensor(ends, device=self.device)
        index = (slot_of * self.tokens.shape[2] + place) * 2 + stream
        rotation = self._rotation(place + start_of)

        hidden = self.decoder.embed_tokens(self.tokens[stream, slot_of, place])
        for layer, keys, values in zip(self.packed, self.keys, self.values, strict=True):
            q, k, v = layer.split(layer.project(hidden, *rotation))
            keys.flatten(0, 2).index_copy_(0, index, k)
            values.flatten(0, 2).index_copy_(0, index, v)
            if layer is self.packed[-1]:  # of which only the present cells are read
                hidden, q = hidden.index_select(0, present), q.index_select(0, present)
                attentions = [_Attention(self, slots, seen[present], 1)]
            contexts = [
                attention(part, keys, values, layer.scale)
                for attention, part in zip(attentions, q.split([one.m for one in attentions]), strict=True)
            ]
            hidden = layer.finish(hidden, contexts[0] if len(contexts) == 1 else torch.cat(contexts))
        return self.norm(hidden)

    def _groups(self, slots: Sequence[int], emits: Sequence[bool]) -> list[list[int]]:
        """Which streams, by their numbers in a step, stand side by side in attention: those that EMIT have one query
        each, those that WAIT one for each column and are, where there are many, split by length."""
        by_length = sorted(range(len(slots)), key=lambda number: self.count[O][slots[number]])
        emitting, waiting = ([number for number in by_length if emits[number] == kind] for kind in (True, False))
        half = len(waiting) // 2 if len(waiting) >= MANY else 0
        return [group for group in (emitting, waiting[:half], waiting[half:]) if group]

    def _longest(self, slots: Sequence[int]) -> int:
        """Tokens of the longest stream."""
        return max(max(self.count[I][slot], self.count[O][slot]) for slot in slots)

    def _seen(self, stream: Tensor, place: Tensor, visible: Tensor, W: int) -> Tensor:
        """Which of the first `W` tokens of either stream each state sees: `[m]` → `[m, W, 2]`.

        A source state sees the source up to itself; a target state all that is visible, and the target up to itself.
        """
        along, target = self.counting[:W], (stream == O)[:, None]
        own = along <= place[:, None]
        return torch.stack((torch.where(target, along < visible[:, None], own), own & target), -1)

    def _resize(self, slots: int, length: int) -> None:
        """Keys and values."""
        for entries in (self.keys, self.values):
            for number, old in enumerate(entries):
                entries[number] = old.new_zeros(slots, length, *old.shape[2:])
                entries[number][: old.shape[0], : old.shape[1]] = old


class _Attention:
    """Softmax attention of some streams' new states to their cached keys.

    Args:
        cache: which holds them.
        slots: of the streams.
        seen: which of the first `W` tokens of either stream each state sees, `[m, W, 2]`.
        w: states of each stream, with padding.
        padded: where each state is among the `len(slots) · w`; None without padding.
    """

    def __init__(
        self, cache: RowCache, slots: Sequence[int], seen: Tensor, w: int, padded: Tensor | None = None
    ) -> None:
        self.m, self.W, _ = seen.shape
        self.n, self.w, self.padded = len(slots), w, padded if self.m < len(slots) * w else None
        self.slots = torch.tensor(slots, device=cache.device)
        mask = seen.flatten(1)
        if self.padded is not None:
            mask = mask.new_ones(self.n * w, 2 * self.W).index_copy_(0, self.padded, mask)
        self.mask = mask.view(self.n, 1, w, 2 * self.W)
        if w > 1:
            self.mask = self.mask.repeat(1, 1, cache.G, 1)

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Contexts `[m, H·E]` of queries `[m, K, G, E]`, by a layer's `[slots, length, 2, K, E]`."""
        K, G, E = q.shape[1:]
        if self.padded is not None:
            q = q.new_zeros(self.n * self.w, K, G, E).index_copy_(0, self.padded, q)
        queries = q.view(self.n, self.w, K, G, E).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [n, K, G·w, E]
        k, v = (
            entries[:, : self.W].index_select(0, self.slots).flatten(1, 2).transpose(1, 2)  # [n, K, 2W, E]
            for entries in (keys, values)
        )
        context = F.scaled_dot_product_attention(queries, k, v, self.mask, scale=scale)
        context = context.unflatten(2, (G, self.w)).permute(0, 3, 1, 2, 4).reshape(self.n * self.w, K * G * E)
        return context if self.padded is None else context.index_select(0, self.padded)
