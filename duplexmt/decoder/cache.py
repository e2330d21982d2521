"""The incremental cache: keys and values of live streams, each at its own place in its own translation.

A slot is one translation. It has lines: line 0 its source, the others targets. A token is appended at a place of a line
and takes the place of what was there, so nothing has to be forgotten: whoever sees fewer tokens than a line once had
does not see the rest. What a token sees is the rule of `layout`: the source below `sees`, its own line up to itself.

    EMIT  appends a target token
    READ  appends a source token; of a model with rows, all target tokens again, as cells of the new row; of others the
          last target token again, should it have been computed already

"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.packed import Norm, PackedLayer, packed_layers
from .attention import attention_weights, capped_attention
from .blocks import window_of
from .graphs import Graphs
from .layout import SOURCE, Layout
from .model import DecoderModel, WatchedAttention
from .rope import signed

TARGET, REFERENCE = 1, 2  # lines; REFERENCE: a second view of the same translation, which sees less of the source
TOKENS, PLACES = 8, 64  # of steps in fixed shapes: tokens of a stream, and places of a line, are multiples of them
MANY = 16  # streams with several tokens, from which on the shorter half of them attends apart from the longer


class NoRoom(ValueError):
    """There is no memory for as many streams, or tokens."""


class Run(NamedTuple):
    """Tokens to append to a line, one after the other."""

    line: int
    place: int  # of the first, in its line
    tokens: Sequence[int]
    position: int  # of the first, rotary
    sees: int = 0  # source tokens, each of them; a source token sees those up to itself


@dataclass(slots=True)
class Append:
    """What one slot appends, and which of these tokens' states are asked for."""

    runs: Sequence[Run]
    wanted: Sequence[int] = (-1,)
    attended: slice | None = None  # of the source, how much each token attends to it is asked for
    best: bool = False  # whether the likeliest next tokens of each wanted state are asked for, not what the policy asks
    copies: Sequence[tuple[int, int, int]] = ()  # a line, and one that first gets so many of its tokens
    weights: list[Tensor] = field(default_factory=list)  # the answer, by layer: `[heads, tokens, attended]`
    slot: int = 0

    def __len__(self) -> int:
        return sum([len(run.tokens) for run in self.runs])


class DecoderCache:
    """Keys and values of independent streams in numbered slots; slots and length grow by doubling.

    Args:
        model: in evaluation mode, on its device.
        slots, length: slots, and tokens of a line, held at the start.
        max_bytes: memory the cache may take; by default what is free on its device when it grows.
        heads: whose attention is told where it is asked for: layer and head of each; None for all.
        fixed: whether steps are taken in a few shapes, with tokens filled in for a slot of nobody's, so that a GPU
            records each once (`graphs`); by default on CUDA.

    Raises:
        ValueError: for a cache larger than the memory.
    """

    def __init__(
        self,
        model: DecoderModel,
        lines: int = 2,
        slots: int = 1,
        length: int = 64,
        max_bytes: int | None = None,
        heads: Sequence[Sequence[int]] | None = None,
        fixed: bool | None = None,
    ) -> None:
        self.model, self.lines, self.max_bytes, self.heads = model, lines, max_bytes, heads
        self.device, self.dtype = model.device, model.dtype
        self.sizes = entry_sizes(model)
        self.slots, self.length = 0, 0
        self.fixed = model.patched and (self.device.type == "cuda" if fixed is None else fixed)
        self.graphs = Graphs()
        self.entries: list[Tensor] = []  # of each layer, [slots, length, lines, keys and values]
        self.positions = torch.empty(0, dtype=torch.int64, device=self.device)  # [slots, length, lines]
        # What is added to scores.
        self.seen, self.unseen = (torch.tensor(x, dtype=self.dtype, device=self.device) for x in (0.0, -torch.inf))
        self.packed: list[PackedLayer] | None = None
        self.sliding = True  # whether some layers may have windows
        if model.patched:  # of whose layers all is known
            self.packed = packed_layers(model.decoder.layers, free_bytes(self.device), self.dtype)
            self.norm, self.embedding = Norm(model.decoder.norm, self.dtype), model.causal_lm.get_input_embeddings()
            self.windows = [window_of(layer.self_attn) for layer in model.decoder.layers]
            self.sliding = any(self.windows)
        self.rope = torch.empty(0, device=self.device)
        self.make_room(slots, length)

    @property
    def bytes_per_token(self) -> int:
        """Memory of a place of all lines."""
        entries = sum(shape.numel() for of_layer in self.sizes for shape in of_layer)
        return entries * self.lines * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Memory of the cached states."""
        return sum(entries.nbytes for entries in self.entries)

    @torch.inference_mode()
    def append(self, asked: Sequence[Append]) -> Tensor:
        """Take slots further, any number of tokens each.

        Returns:
            The final-normed states asked for, one slot's after the other's, `[Σ wanted, D]`.

        Raises:
            ValueError: if there is no memory for as many tokens.
        """
        length = max([run.place + len(run.tokens) for one in asked for run in one.runs])
        self.make_room(1 + max([one.slot for one in asked]), length)
        self._copy([(one.slot, *copied) for one in asked for copied in one.copies])
        if not self.fixed or any([one.attended is not None for one in asked]):
            return self._taken(_Step(self, asked))
        single = [len(one) == 1 for one in asked]
        if len(asked) < MANY or all(single) or not any(single):
            return self._in_fixed_shape(asked)
        # A crowd's streams with one token do not wait for those with several.
        order = sorted(range(len(asked)), key=lambda number: not single[number])
        apart = [[asked[n] for n in order if single[n] == kind] for kind in (True, False)]
        states = torch.cat([self._in_fixed_shape(some) for some in apart])
        each = states.split([len(asked[n].wanted) for n in order])
        return torch.cat([own for _, own in sorted(zip(order, each, strict=True), key=lambda one: one[0])])

    def _copy(self, copies: Sequence[tuple[int, int, int, int]]) -> None:
        """Let lines of slots have the first tokens of others: slot, from, to, how many."""
        if copies:
            slot, line, to, count = np.array(copies).T
            of = np.repeat(np.arange(len(copies)), count)
            place = (slot[of] * self.length + np.concatenate([np.arange(n) for n in count])) * self.lines
            old, new = torch.from_numpy(np.stack((place + line[of], place + to[of]))).to(self.device)
            for held in (self.positions, *self.entries):
                flat = held.flatten(0, 2)
                flat.index_copy_(0, new, flat.index_select(0, old))

    def _in_fixed_shape(self, asked: Sequence[Append]) -> Tensor:
        given, shape, count, highest = in_fixed_shape(self, asked)
        self._tabulate(highest)

        def step(numbers: Tensor) -> Tensor:
            return self._taken(_FixedStep(self, numbers, *shape))

        on_gpu = self.device.type == "cuda"
        return (self.graphs(shape, given, step) if on_gpu else step(given))[:count]

    def _taken(self, step: "_Step") -> Tensor:
        states = self._states(step)
        return states if step.chosen is None or step.wanted is not None else states.index_select(0, step.chosen)

    def _states(self, step: "_Step") -> Tensor:
        if self.packed is None:
            return self.model.states_of(self.model.embed(step.tokens), step.position, step)
        embedded = self.embedding(step.tokens)
        hidden = embedded.to(torch.promote_types(embedded.dtype, self.dtype))
        self._tabulate(step.highest)
        cos, sin = self.rope.index_select(0, step.position).split(1, 1)
        last = len(self.packed) - 1
        for number, (layer, window) in enumerate(zip(self.packed, self.windows, strict=True)):
            heads = layer.project(hidden, cos, sin)
            q = heads[:, : layer.H]
            step.keep(number, heads[:, layer.H :].flatten(1))
            if number == last and step.wanted is not None:
                hidden, q = hidden.index_select(0, step.wanted), q.index_select(0, step.wanted)
            hidden = layer.finish(hidden, step.attend(number, q, layer.scale, window, None))
        return self.norm(hidden)

    def _tabulate(self, highest: int) -> None:
        """Have cosines and sines of all positions up to one, `[n, 2, E]`, as `PackedLayer.project` takes them."""
        if highest >= len(self.rope):
            every = torch.arange(2 * (highest + 1), device=self.device)
            with torch.inference_mode(False), torch.no_grad():
                like = torch.empty(0, device=self.device, dtype=self.dtype)
                cos, sin = self.model.decoder.rotary_emb(like, every[None])
                self.rope = torch.stack((cos[0], signed(sin[0])), 1).to(self.dtype)
            self.graphs.forget()

    def make_room(self, slots: int, length: int) -> None:
        """Double slots or length until there are so many.

        Raises:
            ValueError: for more than the memory can hold.
        """
        new_slots, new_length = max(self.slots, 1), max(self.length, 1)
        while new_slots < slots:
            new_slots *= 2
        while new_length < length:
            new_length *= 2
        if (new_slots, new_length) == (self.slots, self.length):
            return
        check_memory(new_slots, new_length, self.bytes_per_token, self.device, self.max_bytes)
        with torch.inference_mode(False), torch.no_grad():  # tensors that may be written to in any mode

            def resized(old: Tensor | None, dtype: torch.dtype, *size: int) -> Tensor:
                every = new_slots + self.fixed  # the last is nobody's
                new = torch.zeros(every, new_length, self.lines, *size, dtype=dtype, device=self.device)
                if old is not None:
                    new[: self.slots, : self.length] = old[: self.slots]
                return new

            held: list[Tensor | None] = [*self.entries] or [None] * len(self.sizes)
            sizes = [sum(shape.numel() for shape in shapes) for shapes in self.sizes]
            self.entries = [resized(one, self.dtype, size) for one, size in zip(held, sizes, strict=True)]
            self.positions = resized(self.positions if self.slots else None, torch.int64)
            self.along = torch.arange(new_length, device=self.device)[:, None]
        self.slots, self.length = new_slots, new_length
        self.graphs.forget()


class _Step:
    """New tokens of some slots, and attention from them to what the slots hold, as `PackedAttention`.

    Streams with one token each stand side by side, and so do those with several, padded to the longest of each group.
    """

    wanted: Tensor | None = None  # which states the last layer computes; None for all

    def __init__(self, cache: DecoderCache, asked: Sequence[Append]) -> None:
        self.cache, self.asked = cache, asked
        counts = [len(one) for one in asked]
        by_length = sorted(range(len(asked)), key=counts.__getitem__)
        several = [number for number in by_length if counts[number] > 1]
        half = len(several) // 2 if len(several) >= MANY else 0
        groups = [by_length[: len(asked) - len(several)], several[:half], several[half:]]
        parts, begins, numbers, self.highest = laid_out(cache, asked, groups)
        columns = torch.from_numpy(numbers).to(cache.device)
        self.index, self.tokens, self.position, padded = columns[:4]
        limits = columns[4:].T
        if cache.sliding:
            cache.positions.flatten().index_copy_(0, self.index, self.position)
        self.groups = [
            _Group(cache, [asked[n] for n in group], W, w, part, limits[part], self.position[part], padded[part])
            for group, w, W, part in parts
        ]
        wanted = [
            begins[number] + (place if place >= 0 else counts[number] + place)
            for number, one in enumerate(asked)
            for place in one.wanted
        ]
        # Which of the computed states are asked for, in which order; None for just these.
        self.chosen = None if wanted == [*range(len(self.tokens))] else torch.tensor(wanted, device=cache.device)
        w, attended = len(asked[0].wanted), [one.attended is not None for one in asked]
        as_many = all([len(one.wanted) == w for one in asked])  # of each
        if self.chosen is not None and as_many and not any(attended) and cache.packed is not None:
            self.wanted, W = self.chosen, max([W for _, _, W, _ in parts])
            of_last = limits.index_select(0, self.wanted), self.position.index_select(0, self.wanted)
            self.last = [_Group(cache, asked, W, w, slice(None), *of_last, None)]

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """Keep the new tokens' keys and values, and attend to all that each of them sees."""
        self.keep(layer, torch.cat((k.flatten(1), v.flatten(1)), 1))
        return self.attend(layer, q, scale, window, softcap).view(*q.shape[:2], -1)

    def keep(self, layer: int, keys_and_values: Tensor) -> None:
        """Keep the new tokens' `[m, …]`."""
        entries = self.cache.entries[layer]
        entries.flatten(0, 2).index_copy_(0, self.index, keys_and_values.to(entries.dtype))

    def attend(self, layer: int, q: Tensor, scale: float, window: int | None, softcap: float | None) -> Tensor:
        """Contexts `[m, H · E]` of queries `[m, H, E]`: of all new tokens, or of those the last layer computes."""
        found = []
        groups = self.groups if self.wanted is None or len(q) == len(self.tokens) else self.last
        for group in groups:
            own = q if len(groups) == 1 else q[group.part]
            found.append(group(layer, own, scale, window, softcap))
            if group.watched:
                group.record(layer, own, scale, window, softcap)
        return found[0] if len(found) == 1 else torch.cat(found)


def laid_out(
    cache: DecoderCache, asked: Sequence[Append], groups: Sequence[Sequence[int]], widest: int | None = None
) -> tuple[list[tuple[Sequence[int], int, int, slice]], list[int], Any, int]:
    """New tokens of some slots, in groups that attend side by side, the longest of each group at its end.

    Returns:
        Of each group which slots it has, tokens of each with padding (`widest`), places of a line, and which of the
        step's tokens; the first token of each slot; `[4 + lines, m]` of each token where it is kept, itself, its
        position, its place among the padded, and how many tokens of each line it sees; and the highest position.
    """
    counts = [len(one) for one in asked]
    runs: list[tuple[int, ...]] = []  # slot, line, place, position, sees, place among the padded, tokens
    tokens: list[int] = []
    begins = [0] * len(asked)  # first token of each
    parts = []  # numbers of the slots, tokens of each with padding, places of a line, which of the step's tokens
    for group in filter(None, groups):
        begin, w, W = len(tokens), widest or counts[group[-1]], 0
        for at, number in enumerate(group):
            one, padding = asked[number], at * w - len(tokens)
            begins[number] = len(tokens)
            for line, place, of_run, position, sees in one.runs:
                runs.append((one.slot, line, place, position, sees, padding + len(tokens), len(of_run)))
                tokens += of_run
                W = max(W, place + len(of_run), sees)
        parts.append((group, w, W, slice(begin, len(tokens))))
    numbers = np.array(runs)
    highest = int((numbers[:, 3] + numbers[:, 6]).max())
    if len(runs) < len(tokens):
        lengths = numbers[:, 6]
        along = np.arange(len(tokens)) - (lengths.cumsum() - lengths).repeat(lengths)
        numbers = numbers.repeat(lengths, 0)
        for column in (2, 3, 5):
            numbers[:, column] += along
    slot, line, place, position, sees, padded, _ = numbers.T
    index = (slot * cache.length + place) * cache.lines + line
    # How many tokens of each line are seen: those up to itself of its own, and of the source.
    own = [np.where(line == number, place + 1, 0) for number in range(cache.lines)]
    own[SOURCE] += np.where(line == SOURCE, 0, sees)
    return parts, begins, np.stack((index, tokens, position, padded, *own)), highest


# Streams, tokens of each, places looked at, wanted states, and of each stream (0: as it comes).
Shape = tuple[int, int, int, int, int]


def in_fixed_shape(cache: DecoderCache, asked: Sequence[Append]) -> tuple[Tensor, Shape, int, int]:
    """New tokens of some slots, filled up to one of a few shapes by tokens of a slot of nobody's.

    Returns:
        Numbers for `_FixedStep`, its shape, how many of its states are asked for, and the highest position.
    """
    most, n = max([len(one) for one in asked]), len(asked)
    streams, w = 1 << (n - 1).bit_length(), 1 if most == 1 else -(-most // TOKENS) * TOKENS
    ((_, _, W, _),), _, numbers, highest = laid_out(cache, asked, [range(n)], w)
    every = np.zeros((3 + cache.lines, streams * w), dtype=np.int64)
    every[0], every[3 + SOURCE] = cache.slots * cache.length * cache.lines, 1  # it sees one token, whatever that is
    every[:, numbers[3]] = np.delete(numbers, 3, 0)
    wanted = [at * w + place + len(one) * (place < 0) for at, one in enumerate(asked) for place in one.wanted]
    count, each = len(wanted), len(asked[0].wanted) if len({len(one.wanted) for one in asked}) == 1 else 0
    wanted += [0] * ((streams * each or 1 << (count - 1).bit_length()) - count)
    slots = [one.slot for one in asked] + [cache.slots] * (streams - n)
    given = torch.from_numpy(np.concatenate((every.ravel(), slots, wanted))).to(cache.device)
    return given, (streams, w, min(-(-W // PLACES) * PLACES, cache.length), len(wanted), each), count, highest


class _FixedStep(_Step):
    """The same of one group whose streams all have as many tokens.

    Args:
        given: numbers of `in_fixed_shape`.
    """

    highest = -1  # the table is there

    def __init__(self, cache: DecoderCache, given: Tensor, n: int, w: int, W: int, N: int, each: int) -> None:
        self.cache = cache
        columns, slots, self.chosen = given.split(((3 + cache.lines) * n * w, n, N))
        columns = columns.view(-1, n * w)
        self.index, self.tokens, self.position = columns[:3]
        limits = columns[3:].T
        if cache.sliding:
            cache.positions.flatten().index_copy_(0, self.index, self.position)
        self.groups = [_Group(cache, (), W, w, slice(None), limits, self.position, None, slots)]
        if each:
            self.wanted = self.chosen
            of_last = limits.index_select(0, self.chosen), self.position.index_select(0, self.chosen)
            self.last = [_Group(cache, (), W, each, slice(None), *of_last, None, slots)]


class _Group:
    """Some streams' new tokens side by side.

    Args:
        W: places of a line, at which attention looks.
        w: tokens of each stream, with padding.
        part: which of the step's tokens they are.
        limits: how many tokens of each line each of them sees, `[m, lines]`.
        position: rotary, `[m]`.
        padded: where each is among the `n · w`; None without padding.
        slots: of the streams, where `asked` does not tell.
    """

    def __init__(
        self,
        cache: DecoderCache,
        asked: Sequence[Append],
        W: int,
        w: int,
        part: slice,
        limits: Tensor,
        position: Tensor,
        padded: Tensor | None,
        slots: Tensor | None = None,
    ) -> None:
        self.cache, self.asked, self.part, self.W, self.w, self.n = cache, asked, part, W, w, len(position) // w
        self.watched, self.first = any([one.attended is not None for one in asked]), None
        if slots is None:
            own, self.n = [one.slot for one in asked], len(asked)
            self.first = own[0] if own == [*range(own[0], own[0] + self.n)] else None
            slots = torch.tensor(own, device=position.device)
        self.slots, self.position = slots, position
        self.padded = padded if len(position) < self.n * w else None
        self.limits = self._spread(limits, W)
        self.seen: dict[int | None, Tensor] = {}
        self.masks: dict[tuple[int | None, int], Tensor] = {}

    def _spread(self, rows: Tensor, fill: float) -> Tensor:
        """Rows of tokens `[m, …]` among those of padding, `[n, w, …]`."""
        if self.padded is not None:
            every = rows.new_full((self.n * self.w, *rows.shape[1:]), fill)
            rows = every.index_copy_(0, self.padded, rows)
        return rows.view(self.n, self.w, *rows.shape[1:])

    def _held(self, entries: Tensor) -> Tensor:
        """What the slots hold `[n, W · lines, …]`, of entries `[slots, length, lines, …]`: a view where it can be."""
        entries = entries.narrow(1, 0, self.W)
        held = entries.index_select(0, self.slots) if self.first is None else entries.narrow(0, self.first, self.n)
        return held.flatten(1, 2)

    def sees(self, window: int | None) -> Tensor:
        """Whom each token sees, `[n, w, W · lines]`."""
        if window not in self.seen:
            seen = (self.cache.along[: self.W] < self.limits.unsqueeze(2)).flatten(2)
            if window is not None:
                ahead = self._spread(self.position, 0).unsqueeze(-1) - self._held(self.cache.positions).unsqueeze(1)
                seen = seen & (ahead < window)
            self.seen[window] = seen
        return self.seen[window]

    def mask(self, window: int | None, G: int) -> Tensor:
        """What is added to the scores of G query heads of the same keys, `[n, 1, G · w, W · lines]`."""
        if (window, G) not in self.masks:
            mask: Tensor = torch.where(self.sees(window), self.cache.seen, self.cache.unseen).unsqueeze(1)
            self.masks[window, G] = mask if self.w == 1 else mask.repeat(1, 1, G, 1)
        return self.masks[window, G]

    def entries(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, `[n, K, W · lines, E]`."""
        shapes = self.cache.sizes[layer]
        k, v = self._held(self.cache.entries[layer]).split([shape.numel() for shape in shapes], -1)
        return k.unflatten(-1, shapes[0]).transpose(1, 2), v.unflatten(-1, shapes[1]).transpose(1, 2)

    def __call__(self, layer: int, q: Tensor, scale: float, window: int | None, softcap: float | None) -> Tensor:
        """Contexts `[m, H · E]` of queries `[m, H, E]`."""
        k, v = self.entries(layer)
        queries = self._spread(q, 0.0)  # [n, w, H, E]
        if softcap is not None:
            context = capped_attention(queries.transpose(1, 2), k, v, self.sees(window), scale, softcap).transpose(1, 2)
        else:  # query heads that share keys stand side by side, as further queries
            K, w = k.shape[1], self.w
            G = q.shape[1] // K
            queries = queries.view(self.n, w, K, G, -1).permute(0, 2, 3, 1, 4).flatten(2, 3).to(k.dtype)
            context = F.scaled_dot_product_attention(queries, k, v, self.mask(window, G), scale=scale)
            context = context.unflatten(2, (G, w)).permute(0, 3, 1, 2, 4)
        context = context.reshape(self.n * self.w, -1)
        return context if self.padded is None else context.index_select(0, self.padded)

    def record(self, layer: int, q: Tensor, scale: float, window: int | None, softcap: float | None) -> None:
        """Tell how much of their attention the chosen heads of a layer give to the source."""
        heads, H = self.cache.heads, q.shape[1]
        chosen = range(H) if heads is None else [head for at, head in heads if at == layer]
        own = torch.tensor(list(chosen), dtype=torch.int64)
        if len(own):
            own, (k, _) = own.to(q.device), self.entries(layer)
            queries, shared = self._spread(q[:, own], 0.0).transpose(1, 2), k[:, own // (H // k.shape[1])]
            weights = attention_weights(queries, shared, self.sees(window), scale, softcap)
            weights = weights.unflatten(-1, (self.W, -1))[..., SOURCE]  # [n, heads, w, W]
            for one, of_stream in zip(self.asked, weights, strict=True):
                if one.attended is not None:
                    one.weights.append(of_stream[:, : len(one), one.attended])


@torch.inference_mode()
def entry_sizes(model: DecoderModel) -> list[tuple[torch.Size, torch.Size]]:
    """Heads and their width, of each layer's keys and of its values, which types have under names of their own."""
    layout = Layout.of([(1, 1)], [[torch.ones(1, dtype=torch.int64)]], 0, device=model.device)
    packed = WatchedAttention(layout)
    model.states_of(model.embed(torch.zeros_like(layout.pair)), layout.position, packed)
    return [packed.sizes[layer] for layer in sorted(packed.sizes)]


def check_memory(slots: int, length: int, bytes_per_token: int, device: torch.device, max_bytes: int | None) -> None:
    """Raise `NoRoom` for a cache of more than `max_bytes`, by default what is free on its device."""
    needed = slots * length * bytes_per_token
    free = free_bytes(device) if max_bytes is None else max_bytes
    if needed > free:
        raise NoRoom(
            f"a cache of {slots} streams of {length} tokens takes {needed / 2**20:,.0f} MiB, and there are "
            f"{free / 2**20:,.0f} MiB: decode fewer streams at once (batch_size), or shorter ones"
        )


def free_bytes(device: torch.device) -> int:
    """Memory that may still be taken on a device; of the machine's own also what files have there for now."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by PyTorch's own allocator
        return torch.cuda.mem_get_info(device)[0] + unused
    available: int = psutil.virtual_memory().available
    return available
