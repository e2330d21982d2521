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

from ..grid.model import GridModel
from ..grid.rope import VISIBLE_LENGTH
from .stream_cache import I, O, StreamCache, resized


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
        shape = len(self.decoder.layers), 2, slots, length, self.K, self.E
        self.keys, self.values = (list(self.like.new_zeros(shape)) for _ in range(2))  # of each layer, stream first

    @property
    def bytes_per_token(self) -> int:
        """Memory of a token of both streams."""
        return 2 * len(self.decoder.layers) * 2 * self.K * self.E * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Memory of the cached states."""
        return sum(entries.nbytes for entries in (*self.keys, *self.values))

    @torch.inference_mode()
    def open(
        self, slots: Sequence[int], source: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]
    ) -> Tensor:
        """See `StreamCache.open`."""
        self._begin(slots, source, seed, source_lengths)
        return self._advance(slots, [False] * len(slots))  # a new row, with its first column

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

        `m` states in all, the present target cell of each stream the last of its own. Attention sees them padded to
        `[n, w]`, and as keys the `W` places of the source stream and then those of the target stream.
        """
        n = len(slots)
        needed = [self._needed(slot, emit) for slot, emit in zip(slots, emits, strict=True)]
        counts = [len(states) for states in needed]
        w, m = max(counts), sum(counts)
        table = [(slot, stream, place) for slot, states in zip(slots, needed, strict=True) for stream, place in states]
        at_row = [row * w + i for row, count in enumerate(counts) for i in range(count)]
        visible, start = [self.count[I][slot] for slot in slots], [self.start[slot] for slot in slots]
        W = max(max(visible), max(self.count[O][slot] for slot in slots))

        slot_of, stream, place = torch.tensor(table, device=self.device).T
        padded, rows = torch.tensor(at_row, device=self.device), torch.tensor(slots, device=self.device)
        row_values = torch.tensor([visible, start], device=self.device)
        visible_of, start_of = row_values[:, padded // w]
        index = (stream * self.tokens.shape[1] + slot_of) * self.tokens.shape[2] + place
        along, target = self.counting[:W], (stream == O)[:, None]
        own = along <= place[:, None]
        # A source state sees the source up to itself; a target state all that is visible, and the target up to itself.
        seen = torch.cat((torch.where(target, along < visible_of[:, None], own), own & target), 1)
        mask = seen.new_ones(n * w, 2 * W).index_copy_(0, padded, seen).view(n, 1, w, 2 * W)
        ends = torch.tensor(counts, device=self.device).cumsum(0) - 1
        last_mask = mask.flatten(0, 2)[padded[ends]].view(n, 1, 1, 2 * W)

        states = self.decoder.embed_tokens(self.tokens.flatten()[index])
        rotation = self._rotation(place + torch.where(stream == O, start_of, 0))
        last = len(self.packed) - 1
        for number, (layer, keys, values) in enumerate(zip(self.packed, self.keys, self.values, strict=True)):
            q, k, v = layer.split(layer.project(states, *rotation))
            keys.flatten(0, 2).index_copy_(0, index, k)
            values.flatten(0, 2).index_copy_(0, index, v)
            k, v = (self._keys(entries, rows, W) for entries in (keys, values))
            if number == last:  # of which only the present cells are read
                context = self._attend(q[ends].unsqueeze(1), k, v, last_mask, layer.scale)
                return self.norm(layer.finish(states[ends], context.flatten(0, 1)))
            if m < n * w:
                q = q.new_zeros(n * w, *q.shape[1:]).index_copy_(0, padded, q)
            context = self._attend(q.unflatten(0, (n, w)), k, v, mask, layer.scale).flatten(0, 1)
            states = layer.finish(states, context if m == n * w else context[padded])
        raise AssertionError("a decoder has layers")

    def _needed(self, slot: int, emit: bool) -> list[tuple[int, int]]:
        """Stream and place of the states a new token calls for: after an EMIT its own, after a WAIT a whole row."""
        X, Y = self.count[I][slot], self.count[O][slot]
        return [(O, Y - 1)] if emit else [(I, X - 1), *((O, y) for y in range(Y))]

    @staticmethod
    def _keys(entries: Tensor, rows: Tensor, W: int) -> Tensor:
        """Keys or values of both streams, one after the other: `[2, slots, length, K, E]` → `[n, K, 2W, E]`."""
        return entries[:, rows, :W].permute(1, 3, 0, 2, 4).flatten(2, 3)

    @staticmethod
    def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Softmax attention of queries `[n, w, K, G, E]` → contexts `[n, w, H·E]`; the mask is true where they see."""
        n, w, K, G, E = q.shape
        queries = q.permute(0, 2, 3, 1, 4).flatten(2, 3)  # the G queries of a key head one after the other
        context = F.scaled_dot_product_attention(queries, k, v, mask.repeat(1, 1, G, 1), scale=scale)
        return context.unflatten(2, (G, w)).permute(0, 3, 1, 2, 4).reshape(n, w, K * G * E)

    def _resize(self, slots: int, length: int) -> None:
        """Keys and values."""
        for entries in (self.keys, self.values):
            entries[:] = [resized(layer, slots, length) for layer in entries]
