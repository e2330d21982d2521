"""Packed streams: each token has a pair, a stream, a position and a number of source tokens it sees.

One rule says who sees whom: a query sees the source tokens of its pair below `sees`, and its own stream up to itself.
Stream 0 of a pair is its source; the others are targets, each of which may see another part of the source. So offline
translation is one target that sees all, wait-k and multi-path one whose tokens see `min(k + y, X)`, and row x of the
grid (exact attention, I←O off) one that sees x + 1.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.batch import each_tensor

SOURCE = 0  # its number among the streams of a pair
BLOCK = 128  # queries, and keys, of a block of `read_blocks`
PARTS, SMALL = 4, 2**15  # groups of rows at most; queries × keys of all from which on there is one more


@dataclass(frozen=True)
class Layout:
    """Where T tokens lie and whom they see; all tensors `[T]` int64 but `targets`."""

    pair: Tensor
    stream: Tensor  # of its pair: 0 the source, 1 … the targets
    place: Tensor  # in its stream
    position: Tensor  # rotary
    sees: Tensor  # source tokens
    token: Tensor  # which of the batch's source tokens, then target tokens, it is
    own: Tensor  # first place of its stream
    source: Tensor  # first place of its pair's source
    targets: Tensor  # [N], where the target tokens are whose states are wanted
    first: Tensor | None  # [S + Σ Y], first place of each of the batch's tokens, where its position is the same at all
    streams: Tensor  # [4, n], on the CPU: of each stream its first place, its source's, source tokens seen, length
    shapes: tuple[tuple[int, int], ...]  # source tokens and longest target of each pair
    blocks: tuple[Tensor, ...] | None  # of a list of constant length: how many blocks of keys each block of queries
    # reads, and which, and how many of queries each block of keys is read by, and which: `[1, 1, n]` and `[1, 1, n, n]`

    @staticmethod
    def of(
        shapes: Sequence[tuple[int, int]], rows: Sequence[Sequence[Tensor]], *further: Any, **named: Any
    ) -> "Layout":
        """The layout of pairs, source and then targets, pair after pair.

        Args:
            shapes: source and target tokens of each pair.
            rows: the targets of each pair: how many source tokens each of its first tokens sees, `[Y']` int64 on the
                CPU, at least 1 and at most all there are.
            further, named: see `packed`.
        """
        flat = list(itertools.chain(*rows))
        counts, lengths = (torch.tensor(list(map(len, parts)), dtype=torch.int64) for parts in (rows, flat))
        sees = torch.cat(flat) if flat else counts.new_empty(0)
        return Layout.packed(shapes, counts, lengths, sees, *further, **named)

    @staticmethod
    def packed(
        shapes: Sequence[tuple[int, int]],
        counts: Tensor,
        lengths: Tensor,
        sees: Tensor,
        anchor: str | int,
        source_lengths: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
        unscored: int = 0,
        size: tuple[int, int] | None = None,
    ) -> "Layout":
        """The same of all targets one after the other, int64 on the CPU.

        Args:
            shapes: as for `of`.
            counts: targets of each pair, `[B]`.
            lengths: tokens of each target, `[R]`; they are the first of the pair's.
            sees: source tokens that each token sees, `[N]`.
            anchor: first position of the targets: `source_length`, a constant, or `visible_length` (what the token
                itself sees, an ablation).
            source_lengths: whole length of each source, where it is longer than what is there.
            unscored: first tokens of each target whose states are not wanted.
            size: tokens, a multiple of `BLOCK`, and wanted states to fill up to. What is filled in has pair −1, and
                each token of it is a stream of its own: it sees itself alone, and nothing sees it.
        """
        X, Y = torch.tensor(shapes).unbind(1)
        B, R, S = len(shapes), len(lengths), int(X.sum())
        pairs = torch.arange(B)
        # Streams in their order: of each pair the source, then its targets.
        first = counts.cumsum(0) - counts + pairs  # number of each source among the streams
        stream_pair = pairs.repeat_interleave(counts + 1)
        number = torch.arange(B + R) - first[stream_pair]
        is_target = number > SOURCE
        length = X[stream_pair].masked_scatter(is_target, lengths)
        begin = length.cumsum(0) - length
        source = begin[first][stream_pair]
        of_token = torch.arange(B + R).repeat_interleave(length)
        own = begin[of_token]
        place = torch.arange(len(of_token)) - own
        pair, in_target = stream_pair[of_token], is_target[of_token]
        targets = in_target.nonzero().squeeze(-1)
        sees = (place + 1).index_copy_(0, targets, sees)
        token = place + torch.where(in_target, (S + Y.cumsum(0) - Y)[pair], (X.cumsum(0) - X)[pair])
        if anchor == "visible_length":
            start = sees
        elif anchor == "source_length":
            start = (X if source_lengths is None else torch.tensor(source_lengths))[pair]
        else:
            start = torch.full_like(pair, int(anchor))
        first_place = None
        if anchor != "visible_length" and R > B:
            first_place = torch.full((S + int(Y.sum()),), len(token)).scatter_reduce_(
                0, token, torch.arange(len(token)), "amin"
            )
        most = torch.zeros_like(length).scatter_reduce_(0, of_token[targets], sees[targets], "amax")
        made = Layout(
            pair, number[of_token], place, torch.where(in_target, start + place, place), sees, token, own,
            source[of_token], targets[place[targets] >= unscored] if unscored else targets, first_place,
            torch.stack((begin, source, most, length)), tuple((int(x), int(y)) for x, y in shapes), None,
        )  # fmt: skip
        return (made if size is None else made.filled(*size)).to(device)

    def filled(self, length: int, wanted: int) -> "Layout":
        """The same list filled up to so many tokens, a multiple of `BLOCK`, and so many wanted states (`packed`)."""
        n, more = len(self), length - len(self)
        assert more > 0, "the last place, where superfluous wanted states are, is a filler's"
        assert length % BLOCK == 0, "flex_attention's backward pass wants it"
        assert len(self.targets) <= wanted < length, "there is a source, too"
        values: Any = {"pair": -1, "place": 0, "position": 0, "sees": 0, "token": 0}
        filled: Any = {name: F.pad(getattr(self, name), (0, more), value=value) for name, value in values.items()}
        filler = torch.arange(n, length)
        filled |= {name: torch.cat((getattr(self, name), filler)) for name in ("own", "source")}
        filled["stream"] = torch.cat((self.stream, 1 + filler))
        filled["targets"] = F.pad(self.targets, (0, wanted - len(self.targets)), value=length - 1)
        made = replace(self, **filled, first=None)
        return replace(made, blocks=made.read_blocks())

    def read_blocks(self) -> tuple[Tensor, ...]:
        """Which blocks of keys each block of queries reads, and which of queries each block of keys is read by."""
        token, last = torch.arange(len(self), device=self.pair.device), self.source + self.sees - 1
        count = -(-len(self) // BLOCK)
        # Each span is noted down where it begins and, negative, behind its end: sums from the left count who reads a
        # block. A token that sees no source notes nothing.
        notes, one, block = token.new_zeros(count, count + 1), (self.sees > 0).long(), token // BLOCK
        for start, end, number in ((self.source, last, one), (self.own, token, torch.ones_like(one))):
            notes.index_put_((block, start // BLOCK), number, accumulate=True)
            notes.index_put_((block, end.clamp(min=0) // BLOCK + 1), -number, accumulate=True)
        read = notes.cumsum(1)[:, :-1] > 0

        def in_order(read: Tensor) -> tuple[Tensor, Tensor]:
            order = read.int().argsort(dim=-1, descending=True, stable=True)
            return read.sum(-1, dtype=torch.int32)[None, None], order.int()[None, None]

        return *in_order(read), *in_order(read.T)

    def __len__(self) -> int:
        return len(self.pair)

    def to(self, device: torch.device | str) -> "Layout":
        """The same on another device, but for `streams`."""
        moved = each_tensor(replace(self, streams=()), lambda own: own.to(device, non_blocking=True))  # type: ignore[arg-type]
        return replace(moved, streams=self.streams)  # type: ignore[no-any-return]

    @cached_property
    def groups(self) -> list["Group"]:
        """All streams as masked products: the sources, and the targets of about one size together."""
        begin, source = self.streams[:2]
        is_source = begin == source
        found = [Group.of(self, self.streams[:, is_source])]
        targets = self.streams[:, ~is_source]
        if targets.shape[1]:
            size = targets[2] + targets[3]
            scores = len(size) * int(targets[3].max()) * int(size.max())
            order = size.argsort(stable=True)
            found += [
                Group.of(self, targets[:, own])
                for own in order.tensor_split(min(PARTS, len(size), 1 + scores // SMALL))
            ]
        return found

    @cached_property
    def slot(self) -> Tensor:
        """Place of each token among the queries of all groups, `[T]`."""
        places = torch.cat([group.queries.flatten()[group.real] for group in self.groups])
        offsets = itertools.accumulate((group.queries.numel() for group in self.groups), initial=0)
        real = torch.cat([group.real + before for group, before in zip(self.groups, offsets, strict=False)])
        return torch.empty_like(real).index_copy_(0, places, real)

    @cached_property
    def target_slot(self) -> Tensor:
        """Place of each target token among the queries of all groups but the first, which has the sources, `[N]`."""
        return self.slot[self.targets] - self.groups[0].queries.numel()

    @cached_property
    def number(self) -> Tensor:
        """Which of the target tokens each place is, `[T]`; of source tokens any."""
        return torch.zeros_like(self.pair).index_copy_(
            0, self.targets, torch.arange(len(self.targets), device=self.pair.device)
        )


@dataclass(frozen=True)
class Group:
    """G streams of at most Y tokens under at most X source tokens; past a stream's end any, as nothing reads it."""

    queries: Tensor  # [G, Y], places in the packed list
    keys: Tensor  # [G, X + Y], likewise
    seen: Tensor  # [G, Y, X + Y], by the rule
    real: Tensor  # [R], which of the G · Y queries are tokens
    causal: bool  # whether a query sees its own stream alone

    @staticmethod
    def of(layout: Layout, streams: Tensor) -> "Group":
        """Some of the layout's `streams`, `[4, G]`."""
        begin, source, most, length = (values[:, None] for values in streams)
        (X, Y), device = (int(most.max()), int(length.max())), layout.pair.device
        x, y = torch.arange(X), torch.arange(Y)
        # Past its end a stream repeats its last token.
        queries = begin + torch.minimum(y, length - 1)
        keys = torch.cat((source + torch.minimum(x, (most - 1).clamp(min=0)), queries), 1)
        real = (y < length).flatten().nonzero().squeeze(-1)
        queries, keys, real, x, y = (part.to(device, non_blocking=True) for part in (queries, keys, real, x, y))
        of_source = x < layout.sees[queries][..., None]
        own = (y <= y[:, None]).expand(len(queries), -1, -1)
        return Group(queries, keys, torch.cat((of_source, own), -1), real, X == 0)

    def ahead(self, position: Tensor) -> Tensor:
        """Rotary positions by which a query is ahead of a key, `[G, Y, X + Y]`."""
        return position[self.queries][..., None] - position[self.keys][:, None]


def naive_seen(layout: Layout) -> Tensor:
    """The rule for all tokens at once, `[T, T]`, true where a query (row) sees a key (column)."""
    numbers = {name: getattr(layout, name) for name in ("pair", "stream", "place", "sees")}
    of_query, of_key = ({name: value.unsqueeze(axis) for name, value in numbers.items()} for axis in (1, 0))
    source = (of_key["stream"] == SOURCE) & (of_key["place"] < of_query["sees"])
    own = (of_key["stream"] == of_query["stream"]) & (of_key["place"] <= of_query["place"])
    return (of_key["pair"] == of_query["pair"]) & (source | own)
