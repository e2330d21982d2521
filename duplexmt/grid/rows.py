"""Chosen rows of the grid, where no row reads another: exact attention with I←O off.

Row x is then the target stream under the first x + 1 source tokens, whatever other rows there are. So a training step
may compute some rows of each pair: the source stream once and R rows of targets, X + R·Y positions in place of X·Y,
and every cell it computes is that of the full grid.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..kernels.attention import fused_attention
from ..kernels.triton_use import proves_itself, use_triton, with_gradients
from .cells import Cells, repeated

KERNEL = "The block-masked kernel of attention along chosen rows"
LONG = 256  # tokens of source and row together, from where on it is tried: its blocks of 128 are mostly masked below
PARTS, SMALL = 4, 2**15  # padded products of rows at most; queries × keys of all from which on there is one more


@dataclass(frozen=True)
class Rows:
    """The layout of a batch of which some rows are computed; stands in for `Cells` in `GridModel.states`.

    B pairs with S source tokens in all and T target tokens have L chosen rows of N cells. All tensors int64.
    """

    shapes: tuple[tuple[int, int], ...]  # (X, Y) of each pair
    grid: Cells  # the chosen rows as grids of their own, R rows a pair: its "source tokens" are the L rows
    x: Tensor  # [S], row of each source token
    source_pair: Tensor  # [S]
    at: Tensor  # [L], the source token of each chosen row: the last one it has read
    longest: int  # source, in tokens

    @staticmethod
    def of(
        shapes: Sequence[tuple[int, int]],
        chosen: Sequence[Sequence[int]],
        device: torch.device | str,
        columns: Sequence[Sequence[int]] | None = None,
    ) -> "Rows":
        """The layout of pairs of `shapes` (X, Y) of which the rows `chosen` (ascending) are computed.

        Of each the first `columns` cells, as no cell reads a later one of its row, but all of a pair's last; by default
        all of each.

        Raises:
            ValueError: for a pair without rows, or with rows that are not ascending or not its own.
        """
        for (X, _), rows in zip(shapes, chosen, strict=True):
            if not rows or list(rows) != sorted({*rows}) or rows[0] < 0 or rows[-1] >= X:
                raise ValueError(f"rows {list(rows)} of a grid of {X} rows: must be ascending, from 0 to {X - 1}")
        lengths = torch.tensor([X for X, _ in shapes])
        before = lengths.cumsum(0) - lengths
        pair = torch.arange(len(shapes)).repeat_interleave(lengths)
        at = torch.cat([first + torch.tensor(rows) for first, rows in zip(before, chosen, strict=True)])
        grid = Cells.of([(len(rows), Y) for rows, (_, Y) in zip(chosen, shapes, strict=True)])
        if columns is not None:
            assert all(own[-1] == Y for own, (_, Y) in zip(columns, shapes, strict=True)), "each token has a cell"
            grid = grid.cut(torch.tensor(list(itertools.chain(*columns))))  # on the CPU: a GPU would be waited for
        return Rows(
            shapes=tuple(shapes),
            grid=grid.to(device),
            x=(torch.arange(len(pair)) - before[pair]).to(device),
            source_pair=pair.to(device),
            at=at.to(device),
            longest=int(lengths.max()),
        )

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def width(self) -> tuple[int, int]:
        """Tokens of the longest source and of the longest target."""
        return self.longest, self.grid.width[1]

    @property
    def y(self) -> Tensor:
        """Column of each target token, `[T]`."""
        return self.grid.y

    @property
    def target_token(self) -> Tensor:
        """Index into the list of target tokens of each cell, `[N]`."""
        return self.grid.target_token

    @property
    def target_pair(self) -> Tensor:
        """Pair of each target token, `[T]`."""
        return self.grid.target_pair

    @property
    def source_token(self) -> Tensor:
        """Index into the list of source tokens of the last one each cell has read, `[N]`."""
        return self.at[self.grid.source_token]

    @cached_property
    def source_slot(self) -> Tensor:
        """Place of each source token in a padded `[B, X]`, `[S]`."""
        return self.source_pair * self.longest + self.x

    @property
    def target_slot(self) -> Tensor:
        """Place of each target token in a padded `[B, Y]`, `[T]`."""
        return self.grid.target_slot

    def over_columns(self, tokens: Tensor) -> Tensor:
        """`[T, …]` repeated along each column, `[N, …]`; what is given by cell already stays as it is."""
        return self.grid.over_columns(tokens)

    @cached_property
    def source_at(self) -> Tensor:
        """Source token of each place of padded sources, `[B·X]`; past the end any, as nothing reads it."""
        return placed(self.source_slot, len(self.grid.shapes) * self.longest)

    @cached_property
    def padded(self) -> "PaddedRows":
        """The chosen rows as masked products: on a CPU those of about one size together, elsewhere all in one."""
        L, device, row = len(self.at), self.at.device, self.grid.source_token
        counts = torch.zeros_like(self.at).index_add_(0, row, torch.ones_like(row))
        first, sizes = counts.cumsum(0) - counts, self.width
        order, parts = torch.arange(L, device=device), 1
        if device.type == "cpu":  # a GPU would be waited for
            order = (self.x[self.at] + counts).argsort(stable=True)
            parts = min(PARTS, L, 1 + L * sizes[1] * sum(sizes) // SMALL)
        groups, start, places = [], torch.zeros_like(counts), 0
        for own in order.tensor_split(parts):
            last, length = self.x[self.at][own][:, None], counts[own][:, None]
            if device.type == "cpu":
                sizes = int(last.max()) + 1, int(length.max())
            x, y = (torch.arange(size, device=device) for size in sizes)
            cells = first[own][:, None] + torch.minimum(y, length - 1)
            sources = self.at[own][:, None] - last + torch.minimum(x, last)
            read = (x <= last)[:, None].expand(-1, len(y), -1)
            written = (y <= y[:, None]).expand(len(own), -1, -1)
            mask = torch.cat((read, written), -1)[:, None]
            groups.append(PaddedGroup(cells, torch.cat((sources, len(self.x) + cells), 1), mask))
            start[own] = places + torch.arange(len(own), device=device) * len(y)
            places += cells.numel()
        return PaddedRows(groups, start[row] + self.y[self.target_token])

    @cached_property
    def spans(self) -> Tensor:
        """First and last source token and first cell that each cell sees, `[3, N]`, as places in the list of all source
        tokens, then all cells."""
        S, last = len(self.x), self.source_token
        cells = torch.arange(len(self), device=last.device)
        return torch.stack((last - self.x[last], last, S + cells - self.y[self.target_token]))

    @cached_property
    def blocks(self) -> Any:
        """The same by blocks, as `rows_flex.target_context` reads it."""
        from . import rows_flex

        return rows_flex.block_mask(self.spans, len(self.x))


@dataclass(frozen=True)
class PaddedGroup:
    """G rows of at most Y cells under at most X source tokens; past a row's end any, as nothing reads it."""

    cells: Tensor  # [G, Y]
    keys: Tensor  # [G, X + Y], which of the source tokens, then cells, each place of [its source; the row itself] is
    mask: Tensor  # [G, 1, Y, X + Y], whom each place of a row sees of these


@dataclass(frozen=True)
class PaddedRows:
    """All chosen rows, by groups."""

    groups: list[PaddedGroup]
    slot: Tensor  # [N], place of each cell among the places of all groups


def placed(slots: Tensor, size: int) -> Tensor:
    """What stands in each of `size` places, given the place of each; 0 where nothing does."""
    return slots.new_zeros(size).index_copy_(0, slots, torch.arange(len(slots), device=slots.device))


def row_attention(
    rows: Rows,
    q_I: Tensor | None,
    k_I: Tensor,
    v_I: Tensor,
    q_O: Tensor,
    k_O: Tensor,
    v_O: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """`exact_attention` with I←O off, of chosen rows: each is one masked product with [its source; itself].

    Args:
        rows: layout of the batch.
        q_I: `[S, H, E]`, rotated; None where `ctx_I` is of no use to the caller.
        k_I, v_I: `[S, K, E]`, keys rotated.
        q_O, k_O, v_O: `[N, …]`, or by token `[T, …]` (`eq:grid-init`).
        scale: the paper's `s`.

    Returns:
        `ctx_I` `[S, H, E]` (empty without `q_I`) and `ctx_O` `[N, H, E]`.
    """
    X, B = rows.longest, len(rows.grid.shapes)
    ctx_O = target_context(rows, k_I, v_I, q_O, k_O, v_O, scale)
    if q_I is None:
        return ctx_O[:0], ctx_O

    def padded(states: Tensor) -> Tensor:  # [B, heads, X, E]
        return states.index_select(0, rows.source_at).unflatten(0, (B, X)).transpose(1, 2)

    q_I, k_I, v_I = map(padded, (q_I, k_I, v_I))
    ctx_I = fused_attention(q_I, k_I, v_I, is_causal=True, scale=scale)
    return ctx_I.transpose(1, 2).flatten(0, 1).index_select(0, rows.source_slot), ctx_O


def target_context(rows: Rows, k_I: Tensor, v_I: Tensor, q_O: Tensor, k_O: Tensor, v_O: Tensor, scale: float) -> Tensor:
    """`ctx_O` of `row_attention`: by blocks on a GPU whose kernel proves itself, where rows are long."""
    half_or_single = q_O.dtype != torch.float64
    if sum(rows.width) >= LONG and half_or_single and use_triton(q_O) and _kernel_proves_itself(q_O, k_O):
        return blocked_target_context(rows, k_I, v_I, q_O, k_O, v_O, scale)
    return naive_target_context(rows, k_I, v_I, q_O, k_O, v_O, scale)


def blocked_target_context(
    rows: Rows, k_I: Tensor, v_I: Tensor, q_O: Tensor, k_O: Tensor, v_O: Tensor, scale: float
) -> Tensor:
    """The same by PyTorch's block-masked kernel, over cells without padding."""
    from . import rows_flex

    k, v = (torch.cat((source, rows.over_columns(own))) for source, own in ((k_I, k_O), (v_I, v_O)))
    return rows_flex.target_context(rows.over_columns(q_O), k, v, rows.blocks, scale)


def naive_target_context(
    rows: Rows, k_I: Tensor, v_I: Tensor, q_O: Tensor, k_O: Tensor, v_O: Tensor, scale: float
) -> Tensor:
    """The same by masked products of padded rows."""
    S, by_token = len(k_I), len(q_O) == len(rows.y)  # as before target tokens have read anything
    k, v = torch.cat((k_I, k_O)), torch.cat((v_I, v_O))
    found = []
    for group in rows.padded.groups:
        queries, keys = group.cells, group.keys
        if by_token:
            queries = rows.target_token[queries]
            keys = torch.where(keys < S, keys, S + rows.target_token[(keys - S).clamp(min=0)])
        q_own, k_own, v_own = (  # [G, heads, Y or X + Y, E]
            repeated(states, at.flatten()).unflatten(0, at.shape).transpose(1, 2)
            for states, at in ((q_O, queries), (k, keys), (v, keys))
        )
        ctx = fused_attention(q_own, k_own, v_own, group.mask, scale=scale)
        found.append(ctx.transpose(1, 2).flatten(0, 1))
    return torch.cat(found).index_select(0, rows.padded.slot)


def _kernel_proves_itself(q: Tensor, k: Tensor) -> bool:
    """Whether the block-masked kernel gives contexts and gradients of such heads as the padded product does."""
    (H, E), K, device = q.shape[1:], k.shape[1], q.device
    rows = Rows.of([(70, 90), (3, 5), (40, 100)], [(0, 30, 69), (2,), (39,)], device)  # several blocks of keys
    S, N = len(rows.x), len(rows)

    def inputs(draw: torch.Generator) -> list[Tensor]:
        sizes = [(S, K), (S, K), (N, H), (N, K), (N, K), (N, H)]  # the last: gradient of the contexts
        return [torch.randn(n, heads, E, generator=draw).to(q.dtype) for n, heads in sizes]

    def results(context: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
        return with_gradients(partial(context, rows, scale=E**-0.5), given[:-1], given[-1])

    both = (partial(results, context) for context in (blocked_target_context, naive_target_context))
    return proves_itself(KERNEL, (H, K, E, q.dtype), device, inputs, *both)
