"""Where a decoding step's cells lie in the cache: one stream by slices, many at once by indices.

A step appends a token to one stream of a pair, the *new* stream, and computes cells along the other, the *line* (see
`cache`). Both classes list these cells, line cells first, and read and write the cache's entries along the line. One
stream, the live translation on a small machine, is worth its own class: its entries are slices, which cost a fraction
of gathering and scattering, and none of its cells is padding.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from .stream_cache import I, O

NO_KEY = float("-inf")


class Steps(Protocol):
    """A step of `n` streams whose longest line has `W` cells, and whose longest new stream has `T` tokens.

    Entries of the cache are tensors `[2, slots, length, …]`. With I←O off the source stream is one state a token: the
    cells are those of the target stream on the line, and one more for each new source token.

    Attributes:
        n, W: streams, and cells of a line.
        emits, waits: whether some streams take a target token, and a source token.
        emit: which do, `[n]`; only looked at where there may be both.
        tokens, positions: of the cells to be computed, one after the other.
        new_tokens, new_positions: of the new tokens, `[n]`.
        own_mask: `[n, 1, 1, T]`, added to scores of the new stream's keys; None where all of them exist.
        line_mask: `[n, 1, 1, W]`, likewise of the line's.
    """

    n: int
    W: int
    emits: bool
    waits: bool
    emit: Tensor
    tokens: Tensor
    positions: Tensor
    new_tokens: Tensor
    new_positions: Tensor
    own_mask: Tensor | None
    line_mask: Tensor | None

    def line(self, entries: Tensor) -> Tensor:
        """Entries along the line, `[n, W, …]`; may be changed in place."""
        ...

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Write back what `line` gave, once it was changed."""
        ...

    def new(self, entries: Tensor) -> Tensor:
        """Entries of the new stream up to the new token, `[n, T, …]`."""
        ...

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Write the new token's entries, `[n, …]`."""
        ...

    def last(self, values: Tensor) -> Tensor:
        """Values at the end of each line: `[n, W, …]` → `[n, …]`."""
        ...

    def spread(self, values: Tensor) -> Tensor:
        """Values of the computed cells, `[m, …]`, in a layout with room for all `[n, W]` or `[2, n, W]`."""
        ...

    def take(self, padded: Tensor) -> Tensor:
        """The computed cells of that layout."""
        ...

    def present(self, values: Tensor) -> Tensor:
        """Of the computed cells' values, those of the present target cells: `[m, …]` → `[n, …]`."""
        ...


class OneStep:
    """The step of a single stream.

    Args:
        cache: whose `tokens` hold the new one already.
        slot, emit, W, at, start: of the stream; see `GridCache.append`.
    """

    n = 1
    emit: Tensor  # never looked at, and never set
    own_mask: Tensor | None = None
    line_mask: Tensor | None = None

    def __init__(self, cache: Any, slot: int, emit: bool, W: int, at: int, start: int) -> None:
        self.W, self.at, self.emits, self.waits = W, at, emit, not emit
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
        """All entries of one of the two streams, `[1, length, …]`: a view, made once."""
        key = id(entries), stream, self.slot
        if key not in self.views:
            self.views[key] = entries[stream, self.slot : self.slot + 1]
        return self.views[key]

    def line(self, entries: Tensor) -> Tensor:
        """A view."""
        return self._stream(entries, self.line_stream).narrow(1, 0, self.W)

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Done already: `line` gave a view."""

    def new(self, entries: Tensor) -> Tensor:
        """A view."""
        return self._stream(entries, self.new_stream).narrow(1, 0, self.at + 1)

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Write the new token's entries."""
        self._stream(entries, self.new_stream).select(1, self.at).copy_(values)

    def last(self, values: Tensor) -> Tensor:
        """Of the only line."""
        return values[:, -1]

    def spread(self, values: Tensor) -> Tensor:
        """There is no padding."""
        return values

    def take(self, padded: Tensor) -> Tensor:
        """There is no padding."""
        return padded

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
        pack: whether to leave cells that do not exist out of what is computed for each cell; reads their number back
            from the device.
    """

    def __init__(self, cache: Any, inputs: Tensor, W: int, T: int, kinds: tuple[bool, bool], pack: bool) -> None:
        slots, emit, tokens, lengths, at, start = inputs
        self.n, self.W, (self.emits, self.waits) = len(slots), W, kinds
        self.emit, self.new_tokens = emit.bool(), tokens
        _, all_slots, length = cache.tokens.shape
        begin_line, begin_new = ((stream * all_slots + slots) * length for stream in (1 - emit, emit))
        along, order = cache.counting[:W], torch.arange(self.n, device=slots.device)
        self.line_index = (begin_line[:, None] + along).flatten()
        self.new_index = begin_new + at
        self.stream_index = (begin_new[:, None] + cache.counting[:T]).flatten()
        self.last_index = order * W + lengths - 1
        cache.tokens.view(-1)[self.new_index] = tokens
        no_key = torch.full((), NO_KEY, device=slots.device, dtype=cache.statistics)
        self.own_mask: Tensor | None = torch.where(cache.counting[:T] > at[:, None], no_key, 0.0)[:, None, None]
        self.line_mask: Tensor | None = torch.where(along >= lengths[:, None], no_key, 0.0)[:, None, None]

        exist = along < lengths[:, None]
        line_tokens = cache.tokens.view(-1)[self.line_index].view(self.n, W)
        line_positions = torch.where(self.emit, 0, start)[:, None] + along
        self.new_positions = torch.where(self.emit, start, 0) + at
        new_tokens, new_positions = (new[:, None].expand(-1, W) for new in (tokens, self.new_positions))
        if cache.model.input_attends_output:
            self.tokens, self.positions = (
                torch.stack((line_tokens, new_tokens)).flatten(),
                torch.stack((line_positions, new_positions)).flatten(),
            )
            exist = exist.expand(2, -1, -1).flatten()
            self.present_index = emit * (self.n * W) + self.last_index
        else:  # the target stream on each line, then the new source tokens
            column = self.emit[:, None]  # whose cells are the new token at every row; a row's are the target so far
            target_tokens = torch.where(column, new_tokens, line_tokens).flatten()
            target_positions = torch.where(column, new_positions, line_positions)
            self.tokens, self.positions, exist = target_tokens, target_positions.flatten(), exist.flatten()
            if self.waits:
                self.tokens = torch.cat((self.tokens, tokens))
                self.positions = torch.cat((self.positions, self.new_positions))
                exist = torch.cat((exist, ~self.emit))
            self.present_index = self.last_index
        self.index: Tensor | None = None
        if pack:
            self.index = exist.nonzero()[:, 0]
            self.place = exist.cumsum(0) - 1  # of cells that do not exist: that of the one before
            self.present_index = self.place[self.present_index]
            self.tokens, self.positions = self.tokens[self.index], self.positions[self.index]

    def line(self, entries: Tensor) -> Tensor:
        """Gathered; a line shorter than `W` goes on with whatever the cache holds there."""
        return entries.flatten(0, 2).index_select(0, self.line_index).unflatten(0, (self.n, self.W))

    def put_line(self, entries: Tensor, values: Tensor) -> None:
        """Scattered, what is past a line's end along with it: a token's entries are set when it comes."""
        entries.flatten(0, 2).index_copy_(0, self.line_index, values.flatten(0, 1))

    def new(self, entries: Tensor) -> Tensor:
        """Gathered."""
        return entries.flatten(0, 2).index_select(0, self.stream_index).unflatten(0, (self.n, -1))

    def put_new(self, entries: Tensor, values: Tensor) -> None:
        """Scattered."""
        entries.flatten(0, 2).index_copy_(0, self.new_index, values)

    def last(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.flatten(0, 1).index_select(0, self.last_index)

    def spread(self, values: Tensor) -> Tensor:
        """Cells that do not exist are given some other cell's values, which nobody reads."""
        return values if self.index is None else values.index_select(0, self.place)

    def take(self, padded: Tensor) -> Tensor:
        """Gathered, where packed."""
        return padded if self.index is None else padded.index_select(0, self.index)

    def present(self, values: Tensor) -> Tensor:
        """Gathered."""
        return values.index_select(0, self.present_index)
