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

import psutil
import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.packed import Norm, PackedLayer, packed_layers
from .attention import PackedAttention, attention_weights, capped_attention
from .blocks import window_of
from .layout import SOURCE, Layout
from .model import DecoderModel
from .rope import signed

TARGET, REFERENCE = 1, 2  # lines; REFERENCE: a second view of the same translation, which sees less of the source
MANY = 16  # streams with several tokens, from which on the shorter half of them attends apart from the longer


class Token(NamedTuple):
    """One token to append."""

    line: int
    place: int  # in its line
    token: int
    position: int  # rotary
    sees: int  # source tokens; of a source token those up to itself


@dataclass(slots=True)
class Append:
    """What one slot appends, and which of these tokens' states are asked for."""

    slot: int
    tokens: Sequence[Token]
    wanted: Sequence[int] = (-1,)
    attended: slice | None = None  # of the source, how much each token attends to it is asked for
    weights: list[Tensor] = field(default_factory=list)  # the answer, by layer: `[heads, tokens, attended]`


class DecoderCache:
    """Keys and values of independent streams in numbered slots; slots and length grow by doubling.

    Args:
        model: in evaluation mode, on its device.
        lines: of a slot.
        slots, length: slots, and tokens of a line, held at the start.
        max_bytes: memory the cache may take; by default what is free on its device when it grows.
        heads: whose attention is told where it is asked for: layer and head of each; None for all.

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
    ) -> None:
        self.model, self.lines, self.max_bytes, self.heads = model, lines, max_bytes, heads
        self.device, self.dtype = model.device, model.dtype
        self.sizes = entry_sizes(model)
        self.slots, self.length = 0, 0
        self.keys: list[Tensor] = []  # of each layer, [slots, length, lines, K, E]
        self.values: list[Tensor] = []
        self.positions = torch.empty(0, device=self.device)  # [slots, length, lines]
        self.packed: list[PackedLayer] | None = None
        if model.patched:  # of whose layers all is known
            self.packed = packed_layers(model.decoder.layers, free_bytes(self.device), self.dtype)
            self.norm = Norm(model.decoder.norm, self.dtype)
            self.windows = [window_of(layer.self_attn) for layer in model.decoder.layers]
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
        return sum(entries.nbytes for entries in (*self.keys, *self.values))

    @torch.inference_mode()
    def append(self, asked: Sequence[Append]) -> list[Tensor]:
        """Take slots further, any number of tokens each.

        Returns:
            Of each the final-normed states asked for, `[wanted, D]`.

        Raises:
            ValueError: if there is no memory for as many tokens.
        """
        self.make_room(
            1 + max(one.slot for one in asked), 1 + max(token.place for one in asked for token in one.tokens)
        )
        step = _Step(self, asked)
        states = self._states(step)
        if step.wanted is None:
            states = states.index_select(0, step.wanted_places)
        return list(states.split([len(one.wanted) for one in step.asked]))

    def _states(self, step: "_Step") -> Tensor:
        if self.packed is None:
            return self.model.packed_states(step.tokens, step.position, step)
        hidden = self.model.embed(step.tokens)
        cos, sin = self._rotation(step.position, step.highest)
        last = len(self.packed) - 1
        for number, (layer, window) in enumerate(zip(self.packed, self.windows, strict=True)):
            q, k, v = layer.split(layer.project(hidden, cos, sin))
            if number == last and step.wanted is not None:
                hidden, q = hidden.index_select(0, step.wanted), q.index_select(0, step.wanted)
            context = step(number, q.flatten(1, 2), k, v, layer.scale, window, None)
            hidden = layer.finish(hidden, context.flatten(1))
        return self.norm(hidden)

    def _rotation(self, positions: Tensor, highest: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, `[m]` → `[m, 1, E]` each, as `PackedLayer.project` takes them."""
        if highest >= len(self.rope):
            every = torch.arange(2 * (highest + 1), device=self.device)
            with torch.inference_mode(False), torch.no_grad():
                like = torch.empty(0, device=self.device, dtype=self.dtype)
                cos, sin = self.model.decoder.rotary_emb(like, every[None])
                self.rope = torch.stack((cos[0], signed(sin[0])), 1).to(self.dtype)
        cos, sin = self.rope.index_select(0, positions).split(1, 1)
        return cos, sin

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

            def resized(old: Tensor | None, dtype: torch.dtype, *shape: int) -> Tensor:
                new = torch.zeros(new_slots, new_length, self.lines, *shape, dtype=dtype, device=self.device)
                if old is not None:
                    new[: self.slots, : self.length] = old
                return new

            for entries, shapes in zip((self.keys, self.values), zip(*self.sizes, strict=True), strict=True):
                old: list[Tensor | None] = [*entries] or [None] * len(shapes)
                entries[:] = [resized(one, self.dtype, *shape) for one, shape in zip(old, shapes, strict=True)]
            self.positions = resized(self.positions if self.slots else None, torch.int64)
        self.slots, self.length = new_slots, new_length


class _Step:
    """New tokens of some slots, and attention from them to what the slots hold: see `attention.Packed`.

    Streams with one token each stand side by side, and so do those with several, padded to the longest of each group.
    """

    first: Tensor | None = None  # this and the next two: of `Packed`, for training
    again = torch.empty(0)
    constant = False
    wanted: Tensor | None

    def __init__(self, cache: DecoderCache, asked: Sequence[Append]) -> None:
        self.cache, self.asked = cache, asked
        device = cache.device
        by_length = sorted(range(len(asked)), key=lambda number: len(asked[number].tokens))
        single = [number for number in by_length if len(asked[number].tokens) == 1]
        several = by_length[len(single) :]
        half = len(several) // 2 if len(several) >= MANY else 0
        groups = [group for group in (single, several[:half], several[half:]) if group]
        rows: list[tuple[int, ...]] = []  # slot, line, place, token, position, sees, place among the padded
        ends: list[int] = [0] * len(asked)  # first row of each
        parts = []
        for group in groups:
            begin, w = len(rows), max(len(asked[number].tokens) for number in group)
            for at, number in enumerate(group):
                one = asked[number]
                ends[number] = len(rows)
                rows += [(one.slot, *token, at * w + i) for i, token in enumerate(one.tokens)]
            parts.append((group, w, slice(begin, len(rows))))
        numbers = torch.tensor(rows, device=device)
        self.slot, self.line, self.place, self.tokens, self.position, self.sees, padded = numbers.T
        self.highest = max(row[4] for row in rows)
        self.index = (self.slot * cache.length + self.place) * cache.lines + self.line
        cache.positions.flatten().index_copy_(0, self.index, self.position)
        longest = {
            number: 1 + max(max(token.place, token.sees - 1) for token in asked[number].tokens)
            for number in range(len(asked))
        }
        self.groups = [
            _Group(self, [asked[n].slot for n in group], max(longest[n] for n in group), w, part, padded[part])
            for group, w, part in parts
        ]
        self.members = [[asked[number] for number in group] for group, _, _ in parts]
        wanted = [
            ends[number] + (place if place >= 0 else len(one.tokens) + place)
            for number, one in enumerate(asked)
            for place in one.wanted
        ]
        self.wanted_places = torch.tensor(wanted, device=device)
        one_each = all(len(one.wanted) == 1 and one.attended is None for one in asked)
        self.wanted = self.wanted_places if one_each and cache.packed is not None else None
        if self.wanted is not None:
            slots = [one.slot for one in asked]
            self.last = _Group(self, slots, max(longest.values()), 1, self.wanted, None)

    def rotation(self, position_embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Of `Packed`: the cache has its own."""
        raise AssertionError("a step of the cache runs packed layers, or modules as they are")

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """Keep the new tokens' keys and values, and attend to all that each of them sees."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys.flatten(0, 2).index_copy_(0, self.index, k.to(keys.dtype))
        values.flatten(0, 2).index_copy_(0, self.index, v.to(values.dtype))
        if len(q) < len(k):
            return self.last(q, keys, values, scale, window, softcap)
        found = []
        for group, members in zip(self.groups, self.members, strict=True):
            found.append(group(q[group.part], keys, values, scale, window, softcap))
            if any(one.attended is not None for one in members):
                self._record(group, members, layer, q[group.part], keys, (scale, window, softcap))
        return found[0] if len(found) == 1 else torch.cat(found)

    def _record(
        self, group: "_Group", members: list[Append], layer: int, q: Tensor, keys: Tensor, how: tuple[Any, ...]
    ) -> None:
        """Tell how much of their attention the chosen heads of a layer give to the source."""
        heads, H = self.cache.heads, q.shape[1]
        chosen = range(H) if heads is None else [head for at, head in heads if at == layer]
        own = torch.tensor(list(chosen), dtype=torch.int64)
        if len(own):
            own = own.to(q.device)
            weights = group.weights(q[:, own], keys, own // (H // keys.shape[-2]), *how)
            for one, of_stream in zip(members, weights, strict=True):
                if one.attended is not None:
                    one.weights.append(of_stream[:, : len(one.tokens), one.attended])


class _Group:
    """Some streams' new tokens side by side.

    Args:
        step: they belong to.
        slots: of the streams.
        W: places of a line, at which attention looks.
        w: tokens of each stream, with padding.
        part: which of the step's tokens they are.
        padded: where each is among the `len(slots) · w`; None without padding.
    """

    def __init__(
        self, step: _Step, slots: Sequence[int], W: int, w: int, part: slice | Tensor, padded: Tensor | None
    ) -> None:
        self.cache, self.part, self.W, self.n, self.w = step.cache, part, W, len(slots), w
        line, place, sees = step.line[part][:, None], step.place[part][:, None], step.sees[part][:, None]
        self.position = step.position[part]
        self.padded = padded if padded is not None and len(line) < self.n * w else None
        self.slots = torch.tensor(slots, device=line.device)
        along = torch.arange(W, device=line.device)
        own = along <= place
        views = [along < torch.where(line == SOURCE, place + 1, sees)]
        views += [own & (line == number) for number in range(1, step.cache.lines)]
        self.seen = self._spread(torch.stack(views, -1).flatten(1), True).view(self.n, w, -1)  # [n, w, W · lines]
        self.masks: dict[int | None, Tensor] = {}

    def _spread(self, rows: Tensor, fill: bool | float) -> Tensor:
        """Rows of tokens `[m, …]` among those of padding."""
        if self.padded is None:
            return rows
        return rows.new_full((self.n * self.w, *rows.shape[1:]), fill).index_copy_(0, self.padded, rows)

    def mask(self, window: int | None) -> Tensor:
        """Whom each token sees, `[n, w, W · lines]`."""
        if window not in self.masks:
            seen = self.seen
            if window is not None:
                keys = self.cache.positions[:, : self.W].index_select(0, self.slots).flatten(1)[:, None]
                seen = seen & (self._spread(self.position, 0).view(self.n, self.w, 1) - keys < window)
            self.masks[window] = seen
        return self.masks[window]

    def entries(self, states: Tensor) -> Tensor:
        """Keys or values `[n, K, W · lines, E]` of a layer's `[slots, length, lines, K, E]`."""
        return states[:, : self.W].index_select(0, self.slots).flatten(1, 2).transpose(1, 2)

    def padded_queries(self, q: Tensor) -> Tensor:
        """`[m, H, E]` → `[n, H, w, E]`."""
        return self._spread(q, 0.0).view(self.n, self.w, *q.shape[1:]).transpose(1, 2)

    def __call__(
        self, q: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """Contexts `[m, H, E]` of queries `[m, H, E]`."""
        H, K, seen = q.shape[1], keys.shape[-2], self.mask(window)
        k, v = self.entries(keys), self.entries(values)
        queries = self.padded_queries(q)
        if softcap is not None:
            context = capped_attention(queries, k, v, seen, scale, softcap)
        else:  # query heads that share keys stand side by side, as further queries
            queries = queries.unflatten(1, (K, -1)).flatten(2, 3)
            mask = seen[:, None] if self.w == 1 else seen[:, None].repeat(1, 1, H // K, 1)
            context = F.scaled_dot_product_attention(queries.to(k.dtype), k, v, mask, scale=scale)
            context = context.unflatten(2, (-1, self.w)).flatten(1, 2)
        context = context.transpose(1, 2).reshape(self.n * self.w, H, -1)
        return context if self.padded is None else context.index_select(0, self.padded)

    def weights(
        self, q: Tensor, keys: Tensor, shared: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """How much each token attends to the source by some heads' queries `[m, H, E]`, whose keys are those of the
        heads `shared` `[H]`: `[n, H, w, W]`."""
        own = self.entries(keys)[:, shared]
        every = attention_weights(self.padded_queries(q), own, self.mask(window), scale, softcap)
        return every.unflatten(-1, (self.W, -1))[..., SOURCE]


class _Sizes(PackedAttention):
    """Notes what the layers' keys and values are like, and attends to nothing."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.noted: dict[int, tuple[torch.Size, torch.Size]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """See `attention.Packed`."""
        self.noted[layer] = k.shape[1:], v.shape[1:]
        return v.new_zeros(len(q), q.shape[1], v.shape[-1])


@torch.inference_mode()
def entry_sizes(model: DecoderModel) -> list[tuple[torch.Size, torch.Size]]:
    """Heads and their width, of each layer's keys and of its values, which types have under names of their own."""
    layout = Layout.of([(1, 1)], [[torch.ones(1, dtype=torch.int64)]], 0, device=model.device)
    packed = _Sizes(layout)
    model.packed_states(torch.zeros_like(layout.pair), layout.position, packed)
    return [packed.noted[layer] for layer in sorted(packed.noted)]


def check_memory(slots: int, length: int, bytes_per_token: int, device: torch.device, max_bytes: int | None) -> None:
    """Raise `ValueError` for a cache of more than `max_bytes`, by default what is free on its device."""
    needed = slots * length * bytes_per_token
    free = free_bytes(device) if max_bytes is None else max_bytes
    if needed > free:
        raise ValueError(
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
