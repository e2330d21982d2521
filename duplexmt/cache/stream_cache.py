"""What all caches of live streams share: tokens and places, rotary tables, weights as decoding likes them, memory."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Tensor

from ..decoder.knobs import VISIBLE_LENGTH
from ..decoder.rope import signed
from ..grid.model import GridModel
from ..kernels.packed import Norm, PackedLayer, packed_layers

I, O = 0, 1  # streams, as index into the entries


class StreamCache(ABC):
    """Independent streams in numbered slots, each at its own `(x, y)`; slots and length grow by doubling.

    Args:
        model: a grid model in evaluation mode.
        slots: streams held at the start.
        length: tokens of either stream held at the start.
        max_bytes: memory the cache may take; by default what is free on its device when it grows.

    Raises:
        ValueError: for a cache larger than the memory.
    """

    def __init__(self, model: GridModel, slots: int = 1, length: int = 64, max_bytes: int | None = None) -> None:
        self.model, self.max_bytes = model, max_bytes
        self.decoder: Any = model.causal_lm.model
        self.device, self.dtype = model.device, model.dtype
        self.like = torch.empty(0, device=self.device, dtype=self.dtype)
        attention = self.decoder.layers[0].self_attn
        self.E = attention.head_dim
        self.K = attention.k_proj.out_features // self.E
        self.G = attention.q_proj.out_features // (self.K * self.E)
        self._check_memory(slots, length)
        self.tokens = torch.zeros(2, slots, length, dtype=torch.int64, device=self.device)
        self.count = [[0] * slots, [0] * slots]  # tokens of each stream, by slot
        self.start = [0] * slots  # first position of each target stream
        self._tabulate(2 * length)
        self.generation = 0  # counts how often the tensors were replaced
        self.packed: list[PackedLayer] = packed_layers(self.decoder.layers, free_bytes(self.device), self.dtype)
        self.norm = Norm(self.decoder.norm, self.dtype)

    @property
    @abstractmethod
    def bytes_per_token(self) -> int:
        """Memory of a token of both streams."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory of the cached states."""

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
    def _resize(self, slots: int, length: int) -> None:
        """Keep all entries in larger tensors."""

    def _begin(
        self, slots: Sequence[int], source: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]
    ) -> list[int]:
        """Account for opened streams, see `open`; returns the first positions of their targets."""
        anchor = self.model.anchor
        first = 1 if anchor == VISIBLE_LENGTH else anchor
        starts = list(source_lengths) if anchor == "source_length" else [int(first)] * len(slots)
        self.make_room(max(slots) + 1, 1, max(starts))
        for slot, start in zip(slots, starts, strict=True):
            self.count[I][slot] = self.count[O][slot] = 1
            self.start[slot] = start
        self.tokens[:, list(slots), 0] = torch.tensor([source, seed], device=self.device)
        return starts

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
            self.generation += 1
        if (new_slots, new_length) == (have_slots, have_length):
            return
        self._check_memory(new_slots, new_length)
        with torch.inference_mode(False), torch.no_grad():
            self._resize(new_slots, new_length)
            self.tokens = resized(self.tokens, new_slots, new_length)
        for numbers in (*self.count, self.start):
            numbers += [0] * (new_slots - have_slots)
        self.generation += 1

    def _check_memory(self, slots: int, length: int) -> None:
        needed = slots * length * self.bytes_per_token
        free = free_bytes(self.device) if self.max_bytes is None else self.max_bytes
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


def resized(old: Tensor, slots: int, length: int) -> Tensor:
    """`[2, slots, length, …]` in a larger tensor, zeros where there was nothing."""
    new = old.new_zeros(2, slots, length, *old.shape[3:])
    new[:, : old.shape[1], : old.shape[2]] = old
    return new
