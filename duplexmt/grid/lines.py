"""Where a decoding step's cells lie in the cache: one stream by slices, many at once by indices.

A step appends a token to one stream of a pair, the *new* stream, and computes cells along the other, the *line* (see
`cache`). Both classes list these cells, one line after the other, and read and write the cache's entries along the
lines. One stream, the live translation on a small machine, is worth its own class: its entries are slices, which cost a
fraction of gathering and scattering.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

I, O = 0, 1  # streams, as index into the entries

NO_KEY = float("-inf")


class Steps(Protocol):
    """A step of `n` streams: their lines have `m` cells in all, at most `W` each; new streams have at most `T` tokens.

    Entries of the cache are tensors `[2, slots, length, …]`. The cells to be computed are those of both streams on the
    lines, the line stream's first: `2m`. With I←O off they are those of the target stream, `m`, and behind them, where
    some streams take a source token, the new token of each stream; nobody reads that of a stream that takes none.

    Attributes:
        m, n: see above.
        emits, waits: whether some streams take a target token, and a source token.
        emit: which streams take a target token, `[n]`; not looked at unless there may be both.
        emit_cells: the same of each cell, `[m]`.
        tokens, positions: of the cells to be computed.
        new_tokens, new_positions: of the new tokens, `[n]`.
        own_mask: `[n, 1, 1, T]`, added to scores of the new stream's keys; None where all of them exist.
        line_mask: `[n, 1, 1, W]`, likewise of the line's.
    """

    m: int
    n: int
    emits: bool
    waits: bool
    emit: Tensor
    emit_cells: Tensor
    tokens: Tensor
    positions: Tensor
    new_tokens: Tensor
    new_positions: Tensor
    own_mask: Tensor | None
    line_mask: Tensor | None

    def line(self, entries: Tensor) -> Tensor:
        """Entries along the lines, `[m, …]`; may be changed in place."""
        ...

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Write back what `line` gave, once it was changed."""
        ...

    def new(self, entries: Tensor) -> Tensor:
        """Entries of the new streams up to the new token, `[n, T, …]`."""
        ...

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Write the new tokens' entries, `[n, …]`."""
        ...

    def first(self, values: Tensor) -> Tensor:
        """Values at the beginning of each line: `[m, …]` → `[n, …]`."""
        ...

    def last(self, values: Tensor) -> Tensor:
        """Values at the end of each line: `[m, …]` → `[n, …]`."""
        ...

    def at_cells(self, values: Tensor) -> Tensor:
        """Each line's value at all of its cells: `[n, …]` → `[m, …]`, or `[1, …]`, which stands for them."""
        ...

    def pad(self, values: Tensor) -> Tensor:
        """`[m, …]` → `[n, W, …]`; behind a line's end is some cell's value, which nobody may read."""
        ...

    def unpad(self, padded: Tensor) -> Tensor:
        """`[n, W, …]` → `[m, …]`."""
        ...

    def present(self, values: Tensor) -> Tensor:
        """Of the computed cells' values, those of the present target cells, `[n, …]`."""
        ...


class OneStep:
    """The step of a single stream.

    Args:
        cache: whose `tokens` hold the new one already.
        slot, emit, W, at, start: of the stream; see `GridCache.append`.
    """

    n = 1
    emit: Tensor  # never looked at, and never set
    emit_cells: Tensor
    own_mask: Tensor | None = None
    line_mask: Tensor | None = None

    def __init__(self, cache: Any, slot: int, emit: bool, W: int, at: int, start: int) -> None:
        self.m, self.at, self.emits, self.waits = W, at, emit, not emit
        self.line_stream, self.new_stream = (I, O) if emit else (O, I)
        self.slot, self.views = slot, cache.views
        both = cache.model.input_attends_output
        new_cells, line_cells = (W if both or emit else 1), (W if both or not emit else 0)
        first, new = (0, start + at) if emit else (start, at)
        self.new_tokens = cache.tokens[self.new_stream, slot, at : at + 1]
        self.new_positions = cache.counting[new : new + 1]
        self.tokens, self.positions = self.new_tokens.expand(new_cells), self.new_positions.expand(new_cells)
        if line_cells:
            self.tokens = torch.cat((cache.tokens[self.line_stream, slot, :W], self.tokens))
            self.positions = torch.cat((cache.counting[first : first + W], self.positions))
        end = line_cells + new_cells if emit else W
        self.present_cell = slice(end - 1, end)

    def _stream(self, entries: Tensor, stream: int) -> Tensor:
        """All entries of one of the two streams, `[length, …]`: a view, made once."""
        key = id(entries), stream, self.slot
        if key not in self.views:
            self.views[key] = entries[stream, self.slot]
        return self.views[key]

    def line(self, entries: Tensor) -> Tensor:
        """A view."""
        return self._stream(entries, self.line_stream).narrow(0, 0, self.m)

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Done already: `line` gave a view."""

    def new(self, entries: Tensor) -> Tensor:
        """A view."""
        return self._stream(entries, self.new_stream).narrow(0, 0, self.at + 1).unsqueeze(0)

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Write the new token's entries."""
        self._stream(entries, self.new_stream).narrow(0, self.at, 1).copy_(values)

    def first(self, values: Tensor) -> Tensor:
        """Of the only line."""
        return values[:1]

    def last(self, values: Tensor) -> Tensor:
        """Of the only line."""
        return values[-1:]

    def at_cells(self, values: Tensor) -> Tensor:
        """One cell's, which stands for all."""
        return values

    def pad(self, values: Tensor) -> Tensor:
        """There is no padding."""
        return values.unsqueeze(0)

    def unpad(self, padded: Tensor) -> Tensor:
        """There is no padding."""
        return padded[0]

    def present(self, values: Tensor) -> Tensor:
        """The last target cell."""
        return values[self.present_cell]


class ManySteps:
    """Steps of several streams, each at its own `(x, y)`.

    Args:
        cache: whose tokens do not hold the new ones yet.
        inputs: rows of `GridCache.append`, `[6, n]`, on the device.
        W, T: at least the longest line, and the longest new stream.
        kinds: whether there may be EMITs, and WAITs.
        pack: whether to leave out cells that do not exist; reads their number back from the device. Else every line has
            `W` cells, and past its end goes on with whatever the cache holds there.
    """

    def __init__(self, cache: Any, inputs: Tensor, W: int, T: int, kinds: tuple[bool, bool], pack: bool) -> None:
        slots, emit, tokens, lengths, at, start = inputs
        self.n, self.W, (self.emits, self.waits) = len(slots), W, kinds
        self.emit, self.new_tokens = emit.bool(), tokens
        _, all_slots, length = cache.tokens.shape
        begin_line, begin_new = ((stream * all_slots + slots) * length for stream in (1 - emit, emit))
        self.new_index = begin_new + at
        self.stream_index = (begin_new[:, None] + cache.counting[:T]).flatten()
        self.new_positions = torch.where(self.emit, start, 0) + at
        cache.tokens.view(-1)[self.new_index] = tokens
        no_key = torch.full((), NO_KEY, device=slots.device, dtype=cache.statistics)
        self.own_mask: Tensor | None = torch.where(cache.counting[:T] > at[:, None], no_key, 0.0)[:, None, None]
        exist = cache.counting[:W] < lengths[:, None]
        self.line_mask: Tensor | None = torch.where(exist, 0.0, no_key)[:, None, None]

        if pack:
            self.index = exist.flatten().nonzero()[:, 0]
            self.place = exist.flatten().cumsum(0) - 1  # of cells that do not exist: that of the one before
            ends = lengths.cumsum(0)
            self.first_index, self.last_index = ends - lengths, ends - 1
        else:
            self.index = torch.arange(self.n * W, device=slots.device)
            self.first_index = torch.arange(0, self.n * W, W, device=slots.device)
            self.last_index = self.first_index + lengths - 1
        self.m = len(self.index)
        self.ragged = self.m < self.n * W
        self.stream_of_cell, along = self.index // W, self.index % W
        self.line_index = begin_line[self.stream_of_cell] + along
        self.emit_cells = self.emit[self.stream_of_cell]

        line_tokens, new_tokens = cache.tokens.view(-1)[self.line_index], tokens[self.stream_of_cell]
        line_positions = torch.where(self.emit, 0, start)[self.stream_of_cell] + along
        new_positions = self.new_positions[self.stream_of_cell]
        if cache.model.input_attends_output:
            self.tokens, self.positions = (
                torch.cat((line_tokens, new_tokens)),
                torch.cat((line_positions, new_positions)),
            )
            self.present_index = emit * self.m + self.last_index
        else:
            # In an EMIT the target cells are the new token at every row; in a WAIT they are the target so far.
            self.tokens = torch.where(self.emit_cells, new_tokens, line_tokens)
            self.positions = torch.where(self.emit_cells, new_positions, line_positions)
            if self.waits:
                self.tokens = torch.cat((self.tokens, tokens))
                self.positions = torch.cat((self.positions, self.new_positions))
            self.present_index = self.last_index

    def line(self, entries: Tensor) -> Tensor:
        """Gathered."""
        return entries.flatten(0, 2).index_select(0, self.line_index)

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Scattered. What may be past a line's end goes along: a token's entries are set when it comes."""
        entries.flatten(0, 2).index_copy_(0, self.line_index, values)

    def new(self, entries: Tensor) -> Tensor:
        """Gathered."""
        return entries.flatten(0, 2).index_select(0, self.stream_index).unflatten(0, (self.n, -1))

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Scattered."""
        entries.flatten(0, 2).index_copy_(0, self.new_index, values)

    def first(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.index_select(0, self.first_index)

    def last(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.index_select(0, self.last_index)

    def at_cells(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.index_select(0, self.stream_of_cell)

    def pad(self, values: Tensor) -> Tensor:
        """Gathered, unless all lines are as long."""
        padded = values.index_select(0, self.place) if self.ragged else values
        return padded.unflatten(0, (self.n, self.W))

    def unpad(self, padded: Tensor) -> Tensor:
        """Gathered, unless all lines are as long."""
        values = padded.flatten(0, 1)
        return values.index_select(0, self.index) if self.ragged else values

    def present(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.index_select(0, self.present_index)
