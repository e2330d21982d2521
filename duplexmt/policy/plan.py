"""What a step on a batch has to know beforehand: made of lengths and draws alone, on the CPU, while a device computes.

Everything is of the scored cells of B pairs in one list: of decoder models their rows' tokens, of the paper's grid all
its cells. A plan of a given size is filled up, so that all steps have the same shapes; what is filled in has no weight.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.batch import Batch, Example, each_tensor
from ..decoder.blocks import spread
from ..decoder.decoder_options import MULTI_PATH
from ..decoder.layout import Layout
from ..decoder.schedules import drawn_delays, visible_source
from ..grid.cells import Cells
from .rows import WHOLE, DrawnRows, drawn_of_pair, drawn_points, drawn_rows, mean_cells

Size = tuple[int, int]  # tokens of a packed list, and wanted states
SPARE = 8  # tokens of each stream of a filled grid, beside those there is room for


@dataclass(frozen=True)
class RowCells:
    """Where the scored cells of a batch are in a grid of its (drawn) rows, `[B, R, Y]`."""

    shapes: tuple[Size, ...]  # rows and columns of each pair
    slot: Tensor  # [N], of each cell; of those filled in past the grid's end
    real: Tensor | None  # [N], which were not filled in; None: all

    @property
    def width(self) -> Size:
        """Rows and columns of the largest pair."""
        return max(R for R, _ in self.shapes), max(Y for _, Y in self.shapes)

    def __len__(self) -> int:
        return len(self.slot)

    def padded(self, values: Tensor) -> Tensor:
        """Values of cells `[N, …]` in a grid `[B, R, Y, …]`, 0 where no pair has a cell."""
        (R, Y), B = self.width, len(self.shapes)
        return spread(values, self.slot, B * R * Y + 1)[:-1].unflatten(0, (B, R, Y))

    def flat(self, grid: Tensor) -> Tensor:
        """The cells' values `[N]` of a grid `[B, R, Y]`, 0 of what was filled in."""
        values = grid.flatten()
        if self.real is not None:
            values = F.pad(values, (0, 1))
        return values.index_select(0, self.slot)


@dataclass(frozen=True)
class Plan:
    """Of a step on a batch; `[N]` are the scored target tokens of all streams."""

    tokens: Tensor  # [S + Σ Y], or as many as the list has where its length is given
    layout: Any  # a `Layout`, of the paper's grid `Cells`
    labels: Tensor  # [N], the token each is to predict
    real: Tensor | None  # [N], which were not filled in; None: all
    cells: RowCells | None = None  # of rows
    lengths: tuple[Tensor, Tensor] | None = None  # [B] each, scored rows of each pair, drawn or not, and columns
    rows: DrawnRows | None = None  # those drawn; None: all
    stand_for: Tensor | None = None  # [N], decisions of the full grid that each cell stands for; None: itself
    points: Tensor | None = None  # [B], to draw cells of each token by (`visits.drawn_cells`)
    scored: Tensor | None = None  # [N], of the paper's grid the scored ones among its cells; None: all

    def to(self, device: torch.device | str) -> "Plan":
        """The same on another device."""
        layout = self.layout.to(device)
        moved = each_tensor(replace(self, layout=None), lambda own: own.to(device, non_blocking=True))  # type: ignore[arg-type]
        return replace(moved, layout=layout)  # type: ignore[no-any-return]

    @staticmethod
    def of(batch: Batch, layout: Layout, unscored: int, size: Size | None, **further: Any) -> "Plan":
        """A plan of a layout, on the CPU.

        Args:
            layout: of its tokens, filled up to `size`.
            unscored: first tokens of each target, whose labels are left out.
        """
        source, target, labels = batch.packed()
        tokens, S, N = torch.cat((source, target)), len(source), int((layout.pair[layout.targets] >= 0).sum())
        at, real = layout.token[layout.targets[:N]] - S, None
        of_cells = labels.index_select(0, at.to(labels.device, non_blocking=True))
        if size is not None:
            tokens = F.pad(tokens, (0, size[0] - len(tokens)))
            of_cells, real = F.pad(of_cells, (0, size[1] - N)), torch.arange(size[1]) < N
        return Plan(tokens, layout, of_cells, real, **further)


def row_plan(
    batch: Batch,
    prefixes: tuple[int, int],
    anchor: str | int,
    rows: DrawnRows | None = None,
    taken_for: int | None = None,
    size: Size | None = None,
    points: Tensor | None = None,
) -> Plan:
    """The plan of rows as streams: row x sees x + 1 source tokens.

    Args:
        prefixes: tokens before the text of source and target; there no cell is computed, or none is scored.
        rows: those to compute, counted after the source prefix; None for all.
        taken_for: length that the anchor `source_length` takes every source to have; None for each one's own.
    """
    before, first = prefixes
    X, Y = torch.tensor(batch.shapes).unbind(1)
    if rows is None:
        counts = X - before
        lengths = Y.repeat_interleave(counts)
        ends = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    else:
        counts = torch.tensor([len(own) for own in rows.at])
        lengths = first + torch.tensor(list(itertools.chain(*rows.columns)))
        ends = torch.tensor(list(itertools.chain(*rows.at)))
    sees = (before + 1 + ends).repeat_interleave(lengths)
    taken = None if taken_for is None else [taken_for] * len(batch.shapes)
    layout = Layout.packed(batch.shapes, counts, lengths, sees, anchor, taken, unscored=first, size=size)
    shapes = tuple((int(R), y - first) for R, (_, y) in zip(counts, batch.shapes, strict=True))
    R_most, Y_most = max(R for R, _ in shapes), max(y for _, y in shapes)
    scored = layout.targets if size is None else layout.targets[: int((lengths - first).sum())]
    pair, row, y = layout.pair[scored], layout.stream[scored] - 1, layout.place[scored] - first
    slot = (pair * R_most + row) * Y_most + y
    stand_for = None
    if rows is not None:
        own, common = (part[pair, row] for part in (rows.stand_for, rows.common))
        stand_for = own * torch.where(y < common, 1.0, 1 / WHOLE)
    if size is not None:
        more = size[1] - len(scored)
        slot = F.pad(slot, (0, more), value=len(shapes) * R_most * Y_most)
        stand_for = F.pad(torch.ones(len(scored)) if stand_for is None else stand_for, (0, more))
    plan = Plan.of(batch, layout, first, size, rows=rows, stand_for=stand_for, points=points)
    cells = RowCells(shapes, slot, plan.real)
    return replace(plan, cells=cells, lengths=(X - before, Y - first))


@dataclass(frozen=True)
class RowPlanner:
    """Plans training steps of a grid whose rows stand alone, and tells how large a pair is in them.

    Args:
        prefixes: tokens before the text of source and target.
        rows: to draw of each pair; None: all.
        words_drawn: whether words are learnt in cells that are drawn.
    """

    prefixes: tuple[int, int]
    anchor: str | int
    rows: int | None
    words_drawn: bool = False

    def __call__(self, batch: Batch, epoch: int, size: Size | None = None) -> Plan:
        """The plan of a batch on the CPU, by what the epoch draws, filled up to a size where one is given."""
        points = drawn_points(batch.keys, epoch) if self.words_drawn else None
        return row_plan(batch, self.prefixes, self.anchor, self.drawn(batch, epoch), size=size, points=points)

    def drawn(self, batch: Batch, epoch: int) -> DrawnRows | None:
        """The rows that an epoch computes of a batch; None: all."""
        return None if self.rows is None else drawn_rows(batch.keys, batch.shapes, self.rows, epoch, *self.prefixes)

    def size(self, pair: Example, epoch: int) -> Size:
        """Tokens and scored cells of a pair in an epoch."""
        (X, Y), (before, first) = pair.shape, self.prefixes
        if self.rows is None:
            return X + (X - before) * Y, (X - before) * (Y - first)
        columns = drawn_of_pair(pair.key, (X - before, Y - first), self.rows, epoch)[2]
        return X + sum(columns) + first * len(columns), sum(columns)

    def mean_size(self, pair: Example) -> tuple[float, float]:
        """The same on average over what is drawn."""
        (X, Y), (before, first) = pair.shape, self.prefixes
        if self.rows is None:
            return self.size(pair, 0)
        cells = mean_cells(X - before, Y - first, self.rows)
        return X + cells + first * min(X - before, self.rows), cells


def grid_plan(batch: Batch, prefixes: tuple[int, int], size: Size | None = None, points: Tensor | None = None) -> Plan:
    """The plan of a grid whose rows read each other; arguments as of `row_plan`, the size as `GridPlanner` has it."""
    before, first = prefixes
    X, Y = torch.tensor(batch.shapes).unbind(1)
    cells, shapes = Cells.of(batch.shapes), tuple((x - before, y - first) for x, y in batch.shapes)
    R, C = map(max, zip(*shapes, strict=True))
    beyond: Any = len(shapes) * R * C  # a place past the grid
    source, target, labels = batch.packed()
    row, y = cells.x[cells.source_token] - before, cells.y[cells.target_token] - first
    real, scored, stand_for = (row >= 0) & (y >= 0), None, None
    slot = torch.where(real, (cells.source_pair[cells.source_token] * R + row) * C + y, beyond)
    of_cells = labels.index_select(0, cells.target_token.to(labels.device, non_blocking=True))
    if size is None:
        if before or first:
            scored = real.nonzero().squeeze(-1)
            slot, of_cells = slot[scored], of_cells.index_select(0, scored.to(labels.device, non_blocking=True))
        real = None  # type: ignore[assignment]
    else:
        more, cells = size[0] - len(cells), cells.filled(size[1] + SPARE, size[0])
        source, target = (F.pad(own, (0, size[1] + SPARE - len(own))) for own in (source, target))
        slot, of_cells = F.pad(slot, (0, more), value=beyond), F.pad(of_cells, (0, more))
        real = F.pad(real, (0, more))
        stand_for = real.float()
    return Plan(
        torch.cat((source, target)), cells, of_cells, real, RowCells(shapes, slot, real), (X - before, Y - first),
        stand_for=stand_for, points=points, scored=scored,
    )  # fmt: skip


@dataclass(frozen=True)
class GridPlanner:
    """The same of a grid whose rows read each other: a list has its cells, and beside it each stream's tokens.

    Args:
        prefixes: tokens before the text of source and target.
        words_drawn: whether words are learnt in cells that are drawn.
    """

    prefixes: tuple[int, int]
    words_drawn: bool = False

    def __call__(self, batch: Batch, epoch: int, size: Size | None = None) -> Plan:
        """See `RowPlanner`; a list's size is its cells, and the tokens of the longer stream."""
        points = drawn_points(batch.keys, epoch) if self.words_drawn else None
        return grid_plan(batch, self.prefixes, size, points)

    def size(self, pair: Example, epoch: int) -> Size:
        """Cells of a pair, and tokens of the longer stream."""
        return pair.cells, max(pair.shape)

    def mean_size(self, pair: Example) -> tuple[float, float]:
        """The same."""
        return self.size(pair, 0)


@dataclass(frozen=True)
class PrefixPlanner:
    """The same of a prefix model: wait-k, multi-path, offline.

    Args:
        prefixes: tokens before the text of source and target.
    """

    prefixes: tuple[int, int]
    anchor: str | int
    k: int | str | None

    def __call__(self, batch: Batch, epoch: int, size: Size | None = None) -> Plan:
        """See `RowPlanner`; multi-path training draws each pair's k."""
        before, first = self.prefixes
        k = drawn_delays(batch.keys, batch.shapes, epoch, before) if self.k == MULTI_PATH else self.k
        X, Y = torch.tensor(batch.shapes).unbind(1)
        there = torch.arange(int(Y.max())) < Y[:, None]
        sees = visible_source(k, X, there.shape[1], before, first)[there]  # type: ignore[arg-type]
        layout = Layout.packed(batch.shapes, torch.ones_like(Y), Y, sees, self.anchor, unscored=first, size=size)
        return Plan.of(batch, layout, first, size)

    def size(self, pair: Example, epoch: int) -> Size:
        """Tokens and scored tokens of a pair."""
        X, Y = pair.shape
        return X + Y, Y - self.prefixes[1]

    def mean_size(self, pair: Example) -> tuple[float, float]:
        """The same."""
        return self.size(pair, 0)


Planner = RowPlanner | GridPlanner | PrefixPlanner
