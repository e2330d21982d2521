"""Where a decoding step's cells lie in the cache: of one stream by slices, of many by indices.

A step appends a token to one stream of a pair, the *new* stream, and computes cells along the other, the *line* (see
`cache`). This lists these cells, one line after the other, and reads and writes the cache's entries along the lines.
"""

from typing import Any

import torch
from torch import Tensor

I, O = 0, 1  # streams, as index into the entries

NO_KEY = float("-inf")
Index = Tensor | slice  # along a list of cells


class Steps:
    """Steps of `n` streams, each at its own `(x, y)`; their lines have `m` cells in all.

    Entries of the cache are tensors `[2, slots, length, …]`. The cells to be computed are those of both streams on the
    lines, the line stream's first: `2m`. With I←O off they are those of the target stream, `m`, and behind them, where
    some streams take a source token, the new token of each stream; nobody reads that of a stream that takes none.

    Args:
        cache: whose tokens do not hold the new ones yet.
        inputs: slots, whether they EMIT, tokens, lengths of the lines, places of the tokens, and starts of the targets,
            `[6, n]`, on the device.
        W, T: the longest line, and the longest new stream.
        kinds: whether there are EMITs, and WAITs.

    Attributes:
        emit: which streams take a target token, `[n]`; `emit_cells`: the same of each cell, `[m]`.
        tokens, positions: of the cells to be computed; `new_tokens`, `new_positions`: of the new tokens, `[n]`.
        own_mask: `[n, 1, 1, T]`, added to scores of the new stream's keys; None where all of them exist.
        line_mask: `[n, 1, 1, W]`, likewise of the line's.
    """

    def __init__(self, cache: Any, inputs: Tensor, W: int, T: int, kinds: tuple[bool, bool]) -> None:
        slots, emit, tokens, lengths, at, start = inputs
        self.n, self.W, (self.emits, self.waits) = len(slots), W, kinds
        self.emit, self.new_tokens = emit.bool(), tokens
        _, all_slots, length = cache.tokens.shape
        begin_line, begin_new = ((stream * all_slots + slots) * length for stream in (1 - emit, emit))
        self.own_mask: Tensor | None = None
        self.line_mask: Tensor | None = None
        new_at = begin_new + at
        if self.n == 1:  # slices, as they are views
            line, new, token = torch.stack((begin_line, begin_new, new_at)).flatten().tolist()
            self.line_index: Index = slice(line, line + W)
            self.stream_index: Index = slice(new, new + T)
            self.new_index: Index = slice(token, token + 1)
            self.first_index: Index = slice(0, 1)
            self.last_index: Index = slice(W - 1, W)
            self.m, self.ragged = W, False
            self.stream_of_cell, along = lengths.new_zeros(W), cache.counting[:W]
        else:
            exist = cache.counting[:W] < lengths[:, None]
            self.own_mask = _mask(cache.counting[:T] <= at[:, None], cache.statistics)
            self.line_mask = _mask(exist, cache.statistics)
            self.stream_index, self.new_index = (begin_new[:, None] + cache.counting[:T]).flatten(), new_at
            self.index = exist.flatten().nonzero()[:, 0]
            self.place = exist.flatten().cumsum(0) - 1  # of cells that do not exist: that of the one before
            ends = lengths.cumsum(0)
            self.first_index, self.last_index = ends - lengths, ends - 1
            self.m = len(self.index)
            self.ragged = self.m < self.n * W
            self.stream_of_cell, along = self.index // W, self.index % W
            self.line_index = begin_line[self.stream_of_cell] + along
        self.emit_cells = self.emit[self.stream_of_cell]
        self.new_positions = torch.where(self.emit, start, 0) + at
        _put(cache.tokens, self.new_index, tokens)

        line_tokens, new_tokens = self.line(cache.tokens), tokens[self.stream_of_cell]
        line_positions = torch.where(self.emit, 0, start)[self.stream_of_cell] + along
        new_positions = self.new_positions[self.stream_of_cell]
        self.both = cache.model.input_attends_output
        if self.both:
            self.tokens = torch.cat((line_tokens, new_tokens))
            self.positions = torch.cat((line_positions, new_positions))
        else:
            # In an EMIT the target cells are the new token at every row; in a WAIT they are the target so far.
            self.tokens = torch.where(self.emit_cells, new_tokens, line_tokens)
            self.positions = torch.where(self.emit_cells, new_positions, line_positions)
            if self.waits:
                self.tokens = torch.cat((self.tokens, tokens))
                self.positions = torch.cat((self.positions, self.new_positions))

    def line(self, entries: Tensor) -> Tensor:
        """Entries along the lines, `[m, …]`; may be changed in place."""
        return _taken(entries.flatten(0, 2), self.line_index)

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Write them once changed."""
        _put(entries, self.line_index, values)

    def new(self, entries: Tensor) -> Tensor:
        """Entries of the new streams up to the new token, `[n, T, …]`."""
        return _taken(entries.flatten(0, 2), self.stream_index).unflatten(0, (self.n, -1))

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Write the new tokens' entries, `[n, …]`."""
        _put(entries, self.new_index, values)

    def first(self, values: Tensor) -> Tensor:
        """Values at the beginning of each line: `[m, …]` → `[n, …]`."""
        return _taken(values, self.first_index)

    def last(self, values: Tensor) -> Tensor:
        """Values at the end of each line: `[m, …]` → `[n, …]`."""
        return _taken(values, self.last_index)

    def at_cells(self, values: Tensor) -> Tensor:
        """Each line's value at all of its cells: `[n, …]` → `[m, …]`, or `[1, …]`, which stands for them."""
        return values if self.n == 1 else values.index_select(0, self.stream_of_cell)

    def pad(self, values: Tensor) -> Tensor:
        """`[m, …]` → `[n, W, …]`; behind a line's end is some cell's value, which nobody may read."""
        padded = values.index_select(0, self.place) if self.ragged else values
        return padded.unflatten(0, (self.n, self.W))

    def unpad(self, padded: Tensor) -> Tensor:
        """`[n, W, …]` → `[m, …]`."""
        values = padded.flatten(0, 1)
        return values.index_select(0, self.index) if self.ragged else values

    def present(self, values: Tensor) -> Tensor:
        """Of the computed cells' values, those of the present target cells, `[n, …]`."""
        last = self.last(values[: self.m])
        return torch.where(self.emit[:, None], self.last(values[self.m :]), last) if self.both else last


def _taken(values: Tensor, at: Index) -> Tensor:
    return values[at] if isinstance(at, slice) else values.index_select(0, at)


def _put(entries: Tensor, at: Index, values: Tensor) -> None:
    flat = entries.flatten(0, 2)
    if isinstance(at, slice):
        flat[at] = values
    else:
        flat.index_copy_(0, at, values)


def _mask(exist: Tensor, dtype: torch.dtype) -> Tensor:
    """To be added to scores, `[n, T]` → `[n, 1, 1, T]`: minus infinity where there is no key."""
    return torch.zeros_like(exist, dtype=dtype).masked_fill_(~exist, NO_KEY)[:, None, None]
