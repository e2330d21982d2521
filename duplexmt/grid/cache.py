"""The incremental cache (Section V-D and V-E): one more row or column of the grid, without computing the rest again.

Both steps are one computation with the two streams' roles exchanged. A step appends one token to one stream, the *new*
stream N, and computes one line of cells along the other stream, the *line* stream L:

    EMIT  appends a target token (N = O): a column, cells (x', y) for all rows x' read so far      (L = I)
    WAIT  appends a source token (N = I): a row, cells (x, y') for all columns y' written so far   (L = O)

On that line, at each layer:

    L's self attention   does not change along N (broadcast)
    L's cross attention  gains one key, N's state of the same cell: a running prefix softmax, by position on the line
    N's self attention   is that of the line's first cell (broadcast): its query over N's cached keys and values
    N's cross attention  is a prefix softmax along the line from empty; its last value is kept for the next steps

Self and cross keys share one denominator, so L's two running softmaxes are one: it begins with the self context, and
gains a key a step. A layer thus keeps six of the eight entries of `tab:kvcache-entries`: keys and values of self
attention of either stream, and for each stream one context with its log-sum-exp in place of two triples `(m, Z, S)`.
(The rejected `separate` softmax keeps the self context beside them.) At layer 0 neither stream depends on the other
yet: queries are kept there too, and a step projects its one new token. The last layer's source states are never read,
and not computed. With I←O off the source stream is one state a token: a WAIT computes one, an EMIT none, and the cross
attention reads its cached keys and values.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..decoder.cache import check_memory, free_bytes
from ..decoder.rope import signed
from ..kernels.packed import Norm, PackedLayer, packed_layers
from .model import GridModel
from .step_attention import Heads, StepAttention, join, scores
from .step_cells import I, O, Steps


class LayerCache:
    """Entries of one layer for a number of slots; the first dimension is the stream.

    Attributes:
        k, v: self-attention keys and values `[2, slots, length, K, E]`, of column 0 (I) and of row 0 (O).
        ctx, lse: context `[2, slots, length, K, G, E]` over self keys and all cross keys so far, and its log-sum-exp
            `[2, slots, length, K, G]`: I→I and I←O by row, O→O and O←I by column. With I←O off the source has none.
        own: with `separate` softmax the self context, and `ctx` and `lse` are of cross keys alone; else None.
    """

    def __init__(self, slots: int, length: int, heads: tuple[int, int, int], like: Tensor, separate: bool) -> None:
        K, G, E = heads
        statistics = torch.promote_types(like.dtype, torch.float32)
        self.k = like.new_zeros(2, slots, length, K, E)
        self.v = like.new_zeros(2, slots, length, K, E)
        self.ctx = like.new_zeros(2, slots, length, K, G, E)
        self.lse = like.new_zeros(2, slots, length, K, G, dtype=statistics)
        self.own = like.new_zeros(2, slots, length, K, G, E) if separate else None

    @property
    def entries(self) -> dict[str, Tensor]:
        """All there are, by name."""
        return {name: entries for name, entries in vars(self).items() if entries is not None}


class GridCache:
    """States of many independent streams, each at its own `(x, y)`; a step takes any of them one token further.

    Args:
        model: an approximate-attention grid model in evaluation mode.
        slots: streams held at the start; slots and length grow by doubling.
        length: tokens of either stream held at the start.
        max_bytes: memory the cache may take; by default what is free on its device when it grows.

    Raises:
        ValueError: for exact attention, which would need keys and values of every cell, and for a cache larger than
            the memory.
    """

    def __init__(self, model: GridModel, slots: int = 1, length: int = 64, max_bytes: int | None = None) -> None:
        if not model.cacheable:
            raise ValueError(
                "neither exact attention nor anchor visible_length fits this cache: exact attention with I←O off is a "
                "DecoderModel's; decode other grids by recomputation"
            )
        self.joint = model.softmax == "joint"
        self.model, self.max_bytes = model, max_bytes
        self.decoder: Any = model.causal_lm.model
        self.device, self.dtype = model.device, model.dtype
        self.like = torch.empty(0, device=self.device, dtype=self.dtype)
        attention = self.decoder.layers[0].self_attn
        self.E = attention.head_dim
        self.K = attention.k_proj.out_features // self.E
        self.G = attention.q_proj.out_features // (self.K * self.E)
        check_memory(slots, length, self.bytes_per_token, self.device, max_bytes)
        self.tokens = torch.zeros(2, slots, length, dtype=torch.int64, device=self.device)
        self.count = [[0] * slots, [0] * slots]  # tokens of each stream, by slot
        self.start = [0] * slots  # first position of each target stream
        self._tabulate(2 * length)
        self.packed: list[PackedLayer] = packed_layers(self.decoder.layers, free_bytes(self.device), self.dtype)
        self.norm = Norm(self.decoder.norm, self.dtype)
        weight, heads = self.like, (self.K, self.G, self.E)
        self.statistics = torch.promote_types(weight.dtype, torch.float32)
        self.layers = [LayerCache(slots, length, heads, weight, not self.joint) for _ in self.decoder.layers]
        self.first_q = weight.new_zeros(2, slots, length, *heads)  # layer 0's queries, which no step changes

    @property
    def bytes_per_token(self) -> int:
        """Memory of a token of both streams."""
        contexts = 1 if self.joint else 2
        keys, queries = self.K * self.E, self.K * self.G * self.E
        statistics = torch.promote_types(self.dtype, torch.float32).itemsize
        a_layer = (2 * keys + contexts * queries) * self.dtype.itemsize + self.K * self.G * statistics
        return 2 * (len(self.decoder.layers) * a_layer + queries * self.dtype.itemsize)

    @property
    def bytes(self) -> int:
        """Memory of the cached states."""
        return self.first_q.nbytes + sum(entries.nbytes for layer in self.layers for entries in layer.entries.values())

    @torch.inference_mode()
    def open(
        self, slots: Sequence[int], source: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]
    ) -> Tensor:
        """Start streams afresh with their first source token and the seed: cell (0, 0).

        Args:
            slots: which slots; more than there are make the cache grow.
            source, seed: token ids, one a slot.
            source_lengths: whole length of each source, end token included; read with anchor `source_length`.

        Returns:
            Final-normed target state of cell (0, 0), `[n, D]`.
        """
        n, anchor = len(slots), self.model.anchor
        starts = list(source_lengths) if anchor == "source_length" else [int(anchor)] * n
        self.make_room(max(slots) + 1, 1, max(starts))
        for slot, start in zip(slots, starts, strict=True):
            self.count[I][slot] = self.count[O][slot] = 1
            self.start[slot] = start
        index = torch.tensor(slots, device=self.device)
        self.tokens[:, index, 0] = torch.tensor([source, seed], device=self.device)
        states = self.decoder.embed_tokens(self.tokens[:, index, 0].flatten())  # [2n, D]
        cos, sin = self._rotation(torch.tensor([[0] * n, starts], device=self.device).flatten())
        for layer, cache in zip(self.packed, self.layers, strict=True):
            q, k, v = layer.split(layer.project(states, cos, sin).unflatten(0, (2, n)))
            if cache is self.layers[0]:
                self.first_q[:, index, 0] = q
            # One key each: a context is its value, a log-sum-exp its score.
            own, cross = (part.unsqueeze(-2).expand_as(q) for part in (v, v.flip(0)))
            own_lse, cross_lse = (scores(q, keys, layer.scale, self.statistics) for keys in (k, k.flip(0)))
            context, lse = join(own, own_lse, cross, cross_lse, not self.joint)
            values = {"k": k, "v": v, "ctx": context if self.joint else cross, "lse": lse, "own": own}
            for name, entries in cache.entries.items():
                entries[:, index, 0] = values[name]
            if not self.model.input_attends_output:
                context = torch.stack((own[I], context[O]))
            states = layer.finish(states, context.flatten(0, 1).flatten(1))
        return self.norm(states[n:])

    @torch.inference_mode()
    def step(self, slots: Sequence[int], emits: Sequence[bool], tokens: Sequence[int]) -> Tensor:
        """Take streams one token further, WAITs and EMITs mixed.

        Args:
            slots: distinct open slots.
            emits: whether the token is appended to the target (EMIT) or to the source (WAIT).
            tokens: token ids.

        Returns:
            Final-normed target state of each stream's present cell, its last row and column, `[n, D]`.

        Raises:
            ValueError: if a stream outgrows a sliding window of the backbone, or the cache the memory.
        """
        rows: list[tuple[int, ...]] = []  # as `Steps` has them
        for slot, emit, token in zip(slots, emits, tokens, strict=True):
            X, Y = self.count[I][slot], self.count[O][slot]
            self.model.check_window(*((X, Y + 1) if emit else (X + 1, Y)))
            line, at = (X, Y) if emit else (Y, X)
            rows.append((slot, int(emit), token, line, at, self.start[slot]))
        W, T = max(row[3] for row in rows), max(row[4] for row in rows) + 1
        self.make_room(0, T, max(row[5] for row in rows))
        for slot, emit in zip(slots, emits, strict=True):
            self.count[O if emit else I][slot] += 1
        return self._advance(Steps(self, torch.tensor(rows, device=self.device).T, W, T, (any(emits), not all(emits))))

    def _advance(self, steps: Steps) -> Tensor:
        """The cells of a step, layer by layer."""
        rotation = self._rotation(steps.positions)
        states = self.decoder.embed_tokens(steps.tokens)
        last = len(self.layers) - 1
        for index, (layer, cache) in enumerate(zip(self.packed, self.layers, strict=True)):
            heads = self._first_heads(steps) if index == 0 else self._heads(steps, index, states, rotation)
            attention = StepAttention(steps, cache, heads, layer.scale)
            if index < last:
                states = layer.finish(states, self._contexts(steps, attention))
        # Of the last layer only the present cell's target state is read.
        return self.norm(layer.finish(steps.present(states), self._present_context(steps, attention)))

    def _heads(self, steps: Steps, index: int, states: Tensor, rotation: tuple[Tensor, Tensor]) -> Heads:
        """Queries, keys and values of the cells' states after the first layer."""
        layer, m = self.packed[index], steps.m
        heads = layer.project(states, *rotation)
        if self.model.input_attends_output:
            line, new = (layer.split(part) for part in heads.unflatten(0, (2, m)))
            q, k, v = new
            return Heads(line[0], k, v, q, line[1], line[2], self._each(steps.first, new))
        target = q, k, v = layer.split(heads[:m])
        first: Sequence[Tensor] = layer.split(heads[m:]) if steps.waits else []
        if steps.emits:
            emitted = self._each(steps.first, target)
            first = self._either(steps.emit, emitted, first) if steps.waits else emitted
        k_new, v_new = self._each(steps.at_cells, first[1:])
        cache = self.layers[index]
        keys = (steps.line(cache.k), steps.line(cache.v)) if steps.emits else (k, v)
        return Heads(q, k_new, v_new, q, *keys, first)

    def _first_heads(self, steps: Steps) -> Heads:
        """The same at the first layer, where only the new token's are not known yet, and are the same at every cell."""
        layer, cache = self.packed[0], self.layers[0]
        states = self.decoder.embed_tokens(steps.new_tokens)
        first = layer.split(layer.project(states, *self._rotation(steps.new_positions)))
        steps.put_new(self.first_q, first[0])
        q_new, k_new, v_new = self._each(steps.at_cells, first)
        q_line = steps.line(self.first_q)
        if not self.model.input_attends_output and steps.emits and steps.waits:
            q_line = q_new = self._either(steps.emit_cells, (q_new,), (q_line,))[0]
        return Heads(q_line, k_new, v_new, q_new, steps.line(cache.k), steps.line(cache.v), first)

    def _contexts(self, steps: Steps, attention: StepAttention) -> Tensor:
        """Contexts of the computed cells, `[…, H·E]`."""
        own = attention.own()
        if self.model.input_attends_output:
            return torch.cat((attention.line(), attention.new(own))).flatten(1)
        if steps.emits and steps.waits:
            target = self._either(steps.emit_cells, (attention.new(own),), (attention.line(),))[0]
        else:
            target = attention.new(own) if steps.emits else attention.line()
        if steps.waits:  # the new source tokens' states have self attention only
            target = torch.cat((target, own[0]))
        return target.flatten(1)

    def _present_context(self, steps: Steps, attention: StepAttention) -> Tensor:
        """Context of the present target cells, `[n, H·E]`: the new stream's in an EMIT, the line's in a WAIT."""
        if not steps.emits:
            attention.append()
            return steps.last(attention.line()).flatten(1)
        context = attention.new_present(attention.own())
        if steps.waits:
            context = self._either(steps.emit, (context,), (steps.last(attention.line()),))[0]
        return context.flatten(1)

    @staticmethod
    def _either(emit: Tensor, emitted: Sequence[Tensor], read: Sequence[Tensor]) -> list[Tensor]:
        """Values of streams that take a target token, and of those that take a source token."""
        return [
            torch.where(emit.view(-1, *[1] * (one.dim() - 1)), one, other)
            for one, other in zip(emitted, read, strict=True)
        ]

    @staticmethod
    def _each(change: Callable[[Tensor], Tensor], heads: Sequence[Tensor]) -> list[Tensor]:
        """Of queries, keys and values."""
        return [change(part) for part in heads]

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, `[m]` → `[m, 1, E]` each, as `PackedLayer.project` takes them."""
        cos, sin = self.rope.index_select(0, positions).split(1, 1)
        return cos, sin

    def _tabulate(self, positions: int) -> None:
        """Numbers from 0 and the rotations of so many positions, `[positions, 2, E]`; half of the sines negated."""
        self.counting = torch.arange(positions, device=self.device)
        cos, sin = self.decoder.rotary_emb(self.like, self.counting[None])
        self.rope = torch.stack((cos[0], signed(sin[0])), 1).to(self.dtype)

    def make_room(self, slots: int, length: int, start: int = 0) -> None:
        """Double slots, length or rotary table until there are so many slots, tokens, and positions from `start` on.

        Raises:
            ValueError: for more than the memory can hold.
        """
        have_slots, have_length = self.tokens.shape[1:]
        new_slots, new_length = have_slots, have_length
        while new_slots < slots:
            new_slots *= 2
        while new_length < length:
            new_length *= 2
        if len(self.counting) < start + new_length:
            with torch.inference_mode(False), torch.no_grad():  # tensors that may be written to in any mode
                self._tabulate(2 * (start + new_length))
        if (new_slots, new_length) == (have_slots, have_length):
            return
        check_memory(new_slots, new_length, self.bytes_per_token, self.device, self.max_bytes)
        with torch.inference_mode(False), torch.no_grad():
            for cache in self.layers:
                for name, entries in cache.entries.items():
                    setattr(cache, name, resized(entries, new_slots, new_length))
            self.first_q = resized(self.first_q, new_slots, new_length)
            self.tokens = resized(self.tokens, new_slots, new_length)
        for numbers in (*self.count, self.start):
            numbers += [0] * (new_slots - have_slots)


def resized(old: Tensor, slots: int, length: int) -> Tensor:
    """`[2, slots, length, …]` in a larger tensor, zeros where there was nothing."""
    new = old.new_zeros(2, slots, length, *old.shape[3:])
    new[:, : old.shape[1], : old.shape[2]] = old
    return new
