"""Cache steps in a few fixed shapes. On CUDA each shape is recorded once as a graph, so that a step costs no launches.

At one token a step a GPU spends its time on launching some thousand small kernels, not on computing. Sizes rounded up
(streams to a power of two, lines to a multiple of 32) leave a handful of shapes; `GridCache.advance` reads nothing back
from the device, so all of a step can be replayed as one graph. Rows that stand for no stream step
a slot of their own, which nobody reads. There a graph proves itself, too, before it is used (see `kernels`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..kernels.triton_use import difference, refuse, refused, tolerance_of
from .cache import GridCache
from .model import GridModel

LINE_MULTIPLE = 32
GRAPHS = "CUDA graphs of decoding steps"
MOST_SHAPES = 1024  # that may be compiled; by default all but the first 8 would silently not be


class StaticSteps:
    """Steps of a cache in fixed shapes.

    Args:
        model: in evaluation mode, on its device.
        streams: live streams at most.
        length: tokens of either stream the cache holds at the start.
        graphs: whether to record CUDA graphs; by default on CUDA only. Off, the same shapes are computed as they come.
        compiled: whether `torch.compile` fuses the small kernels of each shape first (half a minute a shape, once).
    """

    def __init__(
        self, model: GridModel, streams: int, length: int = 64, graphs: bool | None = None, compiled: bool = False
    ) -> None:
        self.model, self.streams = model, streams
        self.cache = GridCache(model, slots=streams + 1, length=length)  # the last slot is nobody's
        asked = self.cache.device.type == "cuda" if graphs is None else graphs
        self.graphs = asked and GRAPHS not in refused
        self.compiled: Any = torch.compile(self._advance, dynamic=False) if compiled else None
        self.recorded: dict[tuple[int, int], tuple[Any, Tensor, Tensor]] = {}
        self.pool: Any = None
        self.generation = self.cache.generation

    def open(
        self, slots: Sequence[int], source: Sequence[int], seed: Sequence[int], source_lengths: Sequence[int]
    ) -> Tensor:
        """See `GridCache.open`."""
        return self.cache.open(slots, source, seed, source_lengths)

    @torch.no_grad()
    def step(self, slots: Sequence[int], emits: Sequence[bool], tokens: Sequence[int]) -> Tensor:
        """See `GridCache.step`."""
        rows, W, T = self.cache.append(slots, emits, tokens)
        n = len(rows)
        size = min(1 << (n - 1).bit_length(), self.streams)
        width = min(-(-max(W, T) // LINE_MULTIPLE) * LINE_MULTIPLE, self.cache.tokens.shape[2])
        inputs = torch.tensor([*rows, *[self._nobody] * (size - n)]).T
        compute = self._replay if self.graphs else self._compute
        return compute(inputs.to(self.cache.device, non_blocking=True), width)[:n].clone()

    def _compute(self, inputs: Tensor, width: int) -> Tensor:
        if self.compiled is None:
            return self._advance(inputs, width)
        limits = {"recompile_limit": MOST_SHAPES, "accumulated_recompile_limit": MOST_SHAPES}
        with torch._dynamo.config.patch(limits):  # type: ignore[attr-defined]
            return self.compiled(inputs, width)  # type: ignore[no-any-return]

    def _advance(self, inputs: Tensor, width: int) -> Tensor:
        """`[6, n]` → states of the present cells `[n, D]`."""
        return self.cache.advance(inputs, width, width)

    @property
    def _nobody(self) -> tuple[int, ...]:
        """A row of `GridCache.advance` that steps the slot nobody reads."""
        return self.streams, 1, 0, 1, 1, 0

    def _replay(self, inputs: Tensor, width: int) -> Tensor:
        if self.generation != self.cache.generation:  # graphs hold addresses of tensors that were replaced
            self.recorded.clear()
            self.pool = None  # dies with its last graph, and no other may be recorded into it
            self.generation = self.cache.generation
        shape = inputs.shape[1], width
        if shape not in self.recorded:
            try:
                with torch.cuda.device(self.cache.device):
                    self.recorded[shape] = self._record(*shape)
                    unlike = self._unlike(*shape)
            except Exception as error:  # whatever a compiler, a driver or a launch may raise
                unlike = f"{type(error).__name__}: {error}"
            if unlike:
                refuse(GRAPHS, unlike, instead="Single operations")
        if GRAPHS in refused:
            self.graphs = False
            self.recorded.clear()
            self.pool = None
            return self._compute(inputs, width)
        graph, given, states = self.recorded[shape]
        given.copy_(inputs)
        graph.replay()
        return states

    def _record(self, size: int, width: int) -> tuple[Any, Tensor, Tensor]:
        """Capture one shape, after a few runs that let libraries set themselves up. They touch nobody's slot only."""
        given = torch.tensor([self._nobody] * size, device=self.cache.device).T.contiguous()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._compute(given, width)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            states = self._compute(given, width)
        self.pool = self.pool or graph.pool()
        return graph, given, states

    def _unlike(self, size: int, width: int) -> str | None:
        """How a recorded graph differs from the operations it was recorded from; None if it does not.

        An EMIT and a WAIT of nobody's slot start from random entries of it and must leave the same entries there.
        Afterwards those are as they were.
        """
        graph, given, states = self.recorded[size, width]
        vocabulary = len(self.cache.decoder.embed_tokens.weight)
        draw = torch.Generator(self.cache.device).manual_seed(0)
        own = [entries[:, self.streams] for entries in self.cache.entries]
        kept = [entries.clone() for entries in own]
        try:
            for emit in (1, 0):
                row = self.streams, emit, vocabulary // 3 + emit, max(width - 3, 1), width // 2, 0
                inputs = torch.tensor([row] * size, device=self.cache.device).T.contiguous()
                for entries in own:
                    if entries.is_floating_point():
                        entries.normal_(generator=draw)
                    else:
                        entries.random_(vocabulary, generator=draw)
                begin = [entries.clone() for entries in own]
                expected = self._compute(inputs, width).clone()
                left = [entries.double() for entries in own]
                for entries, first in zip(own, begin, strict=True):
                    entries.copy_(first)
                given.copy_(inputs)
                graph.replay()
                if unlike := difference([states, *own], [expected.double(), *left], tolerance_of(self.cache.dtype)):
                    return unlike
        finally:
            for entries, before in zip(own, kept, strict=True):
                entries.copy_(before)
        return None
