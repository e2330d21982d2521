"""Where the cells of a batch lie: one flat list without padding, pair after pair, row after row.

B pairs with X source and Y target tokens each (both differ by pair) have S = ΣX source tokens, T = ΣY target tokens and
N = ΣX·Y cells. Everything per position runs on such lists; a *line* is a row or a column of one pair's grid, and a
`Lines` object says which cells lie on it, in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.batch import each_tensor
from ..decoder.blocks import repeated, spread


@dataclass(frozen=True)
class Lines:
    """All rows, or all columns, of a batch: cell `t` of line `l` is `start[l] + t · stride[l]`, for `t < length[l]`."""

    start: Tensor  # [L]
    stride: Tensor  # [L]
    length: Tensor  # [L]
    counts: tuple[int, ...]  # lines with more than t cells, for each t
    order: Tensor  # [L], lines from the longest to the shortest
    by_step: Tensor  # [N], all cells: the first of every line (in `order`), the second of every line that has one, …

    @cached_property
    def to_flat(self) -> Tensor:
        """Inverse of `by_step`: the place in it of each cell, `[N]`."""
        return torch.empty_like(self.by_step).scatter_(
            0, self.by_step, torch.arange(len(self.by_step), device=self.by_step.device)
        )


def make_lines(start: Tensor, stride: Tensor, length: Tensor) -> Lines:
    """Lines given by first cell, distance of neighbours and number of cells, each `[L]` on the CPU."""
    order = length.argsort(descending=True, stable=True)
    lengths = length[order]
    counts = (lengths[:, None] > torch.arange(int(lengths[0]))).sum(0).tolist()
    first, step = start[order], stride[order]
    by_step = torch.cat([first[:count] + t * step[:count] for t, count in enumerate(counts)])
    return Lines(start, stride, length, tuple(counts), order, by_step)


@dataclass(frozen=True)
class Cells:
    """The layout of a batch; all tensors int64. Built by `Cells.of`."""

    shapes: tuple[tuple[int, int], ...]  # (X, Y) of each pair
    source_token: Tensor  # [N], index into the list of source tokens
    target_token: Tensor  # [N], index into the list of target tokens
    x: Tensor  # [S], row of each source token
    y: Tensor  # [T], column of each target token
    source_pair: Tensor  # [S], pair of each source token
    target_pair: Tensor  # [T]
    rows: Lines  # one for each source token
    columns: Lines  # one for each target token
    pairs: int  # with that of what was filled in

    @staticmethod
    def of(shapes: Sequence[tuple[int, int]], device: torch.device | str = "cpu") -> "Cells":
        """The layout of pairs of `shapes`, (X, Y) each at least 1; made on the CPU and moved to `device`."""
        X, Y = torch.tensor(shapes).unbind(1)
        before = [torch.cat((sizes.new_zeros(1), sizes.cumsum(0)[:-1])) for sizes in (X, Y, X * Y)]
        source_before, target_before, cells_before = before  # tokens and cells of earlier pairs
        pairs = torch.arange(len(shapes))
        source_pair, target_pair, pair = (pairs.repeat_interleave(sizes) for sizes in (X, Y, X * Y))
        x = torch.arange(len(source_pair)) - source_before[source_pair]
        y = torch.arange(len(target_pair)) - target_before[target_pair]
        within = torch.arange(len(pair)) - cells_before[pair]  # x·Y + y
        rows = make_lines(cells_before[source_pair] + x * Y[source_pair], torch.ones_like(x), Y[source_pair])
        columns = make_lines(cells_before[target_pair] + y, Y[target_pair], X[target_pair])
        cells = Cells(
            shapes=tuple((int(x), int(y)) for x, y in shapes),
            source_token=source_before[pair] + within // Y[pair],
            target_token=target_before[pair] + within % Y[pair],
            x=x,
            y=y,
            source_pair=source_pair,
            target_pair=target_pair,
            rows=rows,
            columns=columns,
            pairs=len(shapes),
        )
        return cells.to(device)

    def __len__(self) -> int:
        return len(self.source_token)

    @property
    def width(self) -> tuple[int, int]:
        """Rows and columns of the largest pair."""
        return max(X for X, _ in self.shapes), max(Y for _, Y in self.shapes)

    @cached_property
    def source_slot(self) -> Tensor:
        """Place of each source token in a padded `[B, X]`, `[S]`."""
        return self.source_pair * self.width[0] + self.x

    @cached_property
    def target_slot(self) -> Tensor:
        """Place of each target token in a padded `[B, Y]`, `[T]`."""
        return self.target_pair * self.width[1] + self.y

    @cached_property
    def slot(self) -> Tensor:
        """Place of each cell in a padded `[B, X, Y]`, `[N]`."""
        return self.source_slot[self.source_token] * self.width[1] + self.y[self.target_token]

    def to(self, device: torch.device | str) -> "Cells":
        """The same on another device."""
        return each_tensor(self, lambda own: own.to(device, non_blocking=True))  # type: ignore[no-any-return]

    def padded(self, values: Tensor) -> Tensor:
        """Values of cells `[N, …]` in a grid `[B, X, Y, …]`, 0 where no pair has a cell."""
        X, Y = self.width
        return spread(values, self.slot, len(self.shapes) * X * Y).unflatten(0, (-1, X, Y))

    def flat(self, grid: Tensor) -> Tensor:
        """The cells' values `[N, …]` of a grid `[B, X, Y, …]`."""
        return grid.flatten(0, 2).index_select(0, self.slot)  # whose gradient, unlike indexing's, needs no sorting

    def filled(self, tokens: int, count: int) -> "Cells":
        """The same lists on the CPU, filled up to so many tokens of each stream, at least one more, and so many cells.

        What is filled in is a pair of its own, which nobody reads. It need be no grid: its tokens share its cells out
        twice, as rows and as columns, so that each cell is on one of either, and finite. Some may have none.
        """
        N, B = len(self), len(self.shapes)

        def more(own: Tensor, of_cells: Tensor, lines: Lines, width: int) -> tuple[Tensor, Tensor, Lines]:
            before, fillers, left = len(own), torch.arange(tokens - len(own)), count - N
            assert len(fillers), "there is a token that takes what is left over"
            length = left // len(fillers) + (fillers < left % len(fillers))
            start = (N + length.cumsum(0) - length).clamp(max=count - 1)
            parts = (lines.start, start), (lines.stride, torch.ones_like(start)), (lines.length, length)
            token = torch.cat((of_cells, before + fillers.repeat_interleave(length)))
            return torch.cat((own, fillers % width)), token, make_lines(*map(torch.cat, parts))

        x, source_token, rows = more(self.x, self.source_token, self.rows, self.width[0])
        y, target_token, columns = more(self.y, self.target_token, self.columns, self.width[1])
        of_I, of_O = (F.pad(own, (0, tokens - len(own)), value=B) for own in (self.source_pair, self.target_pair))
        return Cells(self.shapes, source_token, target_token, x, y, of_I, of_O, rows, columns, B + 1)

    def over_rows(self, tokens: Tensor) -> Tensor:
        """`[S, …]` repeated along each row, `[N, …]`; what is given by cell already stays as it is."""
        return tokens if len(tokens) == len(self) else repeated(tokens, self.source_token)

    def over_columns(self, tokens: Tensor) -> Tensor:
        """`[T, …]` repeated along each column, `[N, …]`; what is given by cell already stays as it is."""
        return tokens if len(tokens) == len(self) else repeated(tokens, self.target_token)

    def column_0(self, states: Tensor) -> Tensor:
        """Source states of column y = 0, `[N, …]` → `[S, …]`; what is given by token already stays as it is."""
        return states if len(states) == len(self.x) else states.index_select(0, self.rows.start)

    def row_0(self, states: Tensor) -> Tensor:
        """Target states of row x = 0, `[N, …]` → `[T, …]`; what is given by token already stays as it is."""
        return states if len(states) == len(self.y) else states.index_select(0, self.columns.start)
