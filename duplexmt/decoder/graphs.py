"""Steps of a few fixed shapes: on CUDA each is recorded once, and then one launch.

At a token a step a GPU spends its time on being given some hundred small kernels, not on computing.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from ..kernels.triton_use import difference, refuse, refused, tolerance_of

GRAPHS = "CUDA graphs of decoding steps"
Step = Callable[[Tensor], Tensor]
Recorded = tuple[Tensor, Callable[[], None], Tensor]  # what is given, what computes, what is found


def record(step: Step, given: Tensor, pools: list[Any]) -> Recorded:
    """A step as one CUDA graph, after a run that lets libraries set themselves up; graphs share the memory of what each
    computes on its way, from one pool, which the first one makes."""
    given = given.clone()
    side, graph = torch.cuda.Stream(given.device), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream(given.device))
    with torch.cuda.stream(side):
        step(given)
    torch.cuda.current_stream(given.device).wait_stream(side)
    pool = pools[0] if pools else None
    with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):  # a loader may pin memory meanwhile
        found = step(given)
    pools[:] = [graph.pool()]
    return given, graph.replay, found


class Graphs:
    """The recorded steps of one cache. Each proves itself at its first use, as kernels do: a step may be taken again,
    as it writes what it has written."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all, as tensors they read and write are replaced."""
        self.recorded: dict[Hashable, Recorded] = {}
        self.pools: list[Any] = []  # one at most, which dies with its last graph

    def __call__(self, shape: Hashable, given: Tensor, step: Step) -> Tensor:
        """What a step finds, of given numbers.

        Args:
            given: on its device.
            step: from given numbers to what it finds.
        """
        if shape in self.recorded:
            own, replay, found = self.recorded[shape]
            own.copy_(given)
            replay()
            return found.clone()
        expected = step(given)
        if GRAPHS not in refused:
            try:
                self.recorded[shape] = record(step, given, self.pools)
                unlike = difference([self(shape, given, step)], [expected.double()], tolerance_of(expected.dtype))
            except Exception as error:  # whatever a driver or a launch may raise
                unlike = f"{type(error).__name__}: {error}"
            if unlike:
                refuse(GRAPHS, unlike, instead="Single operations")
                self.forget()
        return expected
