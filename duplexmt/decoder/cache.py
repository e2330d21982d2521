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
from typing import NamedTuple

import numpy as np
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
    weights: list[Tensor] = field(default_factory=list)  # the answer, by layer: `[heads, tokens, attended]`
    slot: int = 0

    def __len__(self) -> int:
        return sum([len(run.tokens) for run in self.runs])


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
        step = _Step(self, asked)
        states = self._states(step)
        return states if step.chosen is None or step.wanted is not None else states.index_select(0, step.chosen)

    def _states(self, step: "_Step") -> Tensor:
        if self.packed is None:
            return self.model.packed_states(step.tokens, step.position, step)
        embedded = self.embedding(step.tokens)
        hidden = embedded.to(torch.promote_types(embedded.dtype, self.dtype))
        cos, sin = self._rotation(step.position, step.highest)
        last = len(self.packed) - 1
        for number, (layer, window) in enumerate(zip(self.packed, self.windows, strict=True)):
            heads = layer.project(hidden, cos, sin)
            q = heads[:, : layer.H]
            step.keep(number, heads[:, layer.H :].flatten(1))
            if number == last and step.wanted is not None:
                hidden, q = hidden.index_select(0, step.wanted), q.index_select(0, step.wanted)
            hidden = layer.finish(hidden, step.attend(number, q, layer.scale, window, None))
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

            def resized(old: Tensor | None, dtype: torch.dtype, *size: int) -> Tensor:
                new = torch.zeros(new_slots, new_length, self.lines, *size, dtype=dtype, device=self.device)
                if old is not None:
                    new[: self.slots, : self.length] = old
                return new

            held: list[Tensor | None] = [*self.entries] or [None] * len(self.sizes)
            sizes = [sum(shape.numel() for shape in shapes) for shapes in self.sizes]
            self.entries = [resized(one, self.dtype, size) for one, size in zip(held, sizes, strict=True)]
            self.positions = resized(self.positions if self.slots else None, torch.int64)
            self.along = torch.arange(new_length, device=self.device)[:, None]
        self.slots, self.length = new_slots, new_length


class _Step:
    """New tokens of some slots, and attention from them to what the slots hold: see `attention.Packed`.

    Streams with one token each stand side by side, and so do those with several, padded to the longest of each group.
    """

    first: Tensor | None = None  # this and the next two: of `Packed`, for training
    again = torch.empty(0)
    constant = False
    wanted: Tensor | None = None  # which states the last layer computes; None for all

    def __init__(self, cache: DecoderCache, asked: Sequence[Append]) -> None:
        self.cache, self.asked = cache, asked
        counts = [len(one) for one in asked]
        by_length = sorted(range(len(asked)), key=counts.__getitem__)
        several = [number for number in by_length if counts[number] > 1]
        half = len(several) // 2 if len(several) >= MANY else 0
        groups = [by_length[: len(asked) - len(several)], several[:half], several[half:]]
        runs: list[tuple[int, ...]] = []  # slot, line, place, position, sees, place among the padded, tokens
        tokens: list[int] = []
        begins = [0] * len(asked)  # first token of each
        parts = []  # numbers of the slots, tokens of each with padding, places of a line, which of the step's tokens
        for group in filter(None, groups):
            begin, w, W = len(tokens), counts[group[-1]], 0
            for at, number in enumerate(group):
                one, padding = asked[number], at * w - len(tokens)
                begins[number] = len(tokens)
                for line, place, of_run, position, sees in one.runs:
                    runs.append((one.slot, line, place, position, sees, padding + len(tokens), len(of_run)))
                    tokens += of_run
                    W = max(W, place + len(of_run), sees)
            parts.append((group, w, W, slice(begin, len(tokens))))
        numbers = np.array(runs)
        self.highest = int((numbers[:, 3] + numbers[:, 6]).max())
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
        columns = torch.from_numpy(np.stack((index, tokens, position, padded, *own))).to(cache.device)
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
        self.chosen = None if wanted == [*range(len(tokens))] else torch.tensor(wanted, device=cache.device)
        w, attended = len(asked[0].wanted), [one.attended is not None for one in asked]
        as_many = all([len(one.wanted) == w for one in asked])  # of each
        if self.chosen is not None and as_many and not any(attended) and cache.packed is not None:
            self.wanted, W = self.chosen, max([W for _, _, W, _ in parts])
            of_last = limits.index_select(0, self.wanted), self.position.index_select(0, self.wanted)
            self.last = [_Group(cache, asked, W, w, slice(None), *of_last, None)]

    def rotation(self, position_embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Of `Packed`: the cache has its own."""
        raise AssertionError("a step of the cache runs packed layers, or modules as they are")

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


class _Group:
    """Some streams' new tokens side by side.

    Args:
        cache: which holds them.
        asked: what each stream appends.
        W: places of a line, at which attention looks.
        w: tokens of each stream, with padding.
        part: which of the step's tokens they are.
        limits: how many tokens of each line each of them sees, `[m, lines]`.
        position: rotary, `[m]`.
        padded: where each is among the `n · w`; None without padding.
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
    ) -> None:
        self.cache, self.asked, self.part, self.W, self.w, self.n = cache, asked, part, W, w, len(asked)
        self.position, self.padded = position, padded if len(position) < self.n * w else None
        self.watched = any([one.attended is not None for one in asked])
        slots = [one.slot for one in asked]
        self.first = slots[0] if slots == [*range(slots[0], slots[0] + self.n)] else None
        self.slots = torch.tensor(slots, device=position.device)
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
