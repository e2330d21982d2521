"""The order in which examples are seen: shuffled, alike in length within a step, equal for any number of devices."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .batch import Batch, Example, collate


def size(pair: Example) -> tuple[int, int]:
    """Sort key: pairs next to each other have the same source length and nearly the same target length."""
    return len(pair.source), len(pair.target)


class StepLoader:
    """Batches of one epoch for one device, deterministic by seed and epoch, resumable at any batch.

    An optimiser step takes `batch_size` pairs on each of `world_size` devices for each of `accumulate` batches. Steps
    are drawn from the shuffled corpus in pools of about `pool` pairs sorted by size, so that pairs of a step have
    similar lengths, and come in random order. Which pairs form a step depends only on the number of pairs in a step,
    not on how many devices share it. Every pair is seen exactly once an epoch: pairs left over, too few for a step of
    their own, are spread over all steps.

    Args:
        examples: the tokenised corpus.
        batch_size: pairs a batch, on each device.
        seed: of the shuffling.
        accumulate: batches in an optimiser step.
        rank, world_size: this device and how many there are.
        pool: pairs to sort by length at a time.

    Raises:
        ValueError: if there are fewer pairs than one pair for each batch of a step.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        batch_size: int,
        seed: int,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pool: int = 2048,
    ) -> None:
        self.examples, self.seed, self.rank = examples, seed, rank
        self.batches_per_step = accumulate * world_size
        self.accumulate, self.pairs_per_step = accumulate, batch_size * accumulate * world_size
        self.pool = pool
        if len(examples) < self.batches_per_step:
            raise ValueError(
                f"{len(examples)} training pairs cannot fill {world_size} devices × {accumulate} accumulated batches: "
                "use fewer devices, less accumulation, or more data"
            )
        self.epoch = 0
        self._start = 0  # batches of the epoch already seen when it is resumed
        self._seen = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffling; Lightning calls this before every epoch."""
        self.epoch = epoch

    @property
    def sampler(self) -> "StepLoader":
        """Where Lightning looks for `set_epoch`."""
        return self

    def __len__(self) -> int:
        return len(self._steps()) * self.accumulate

    def __iter__(self) -> Iterator[Batch]:
        start, self._start = self._start, 0
        for index, batch in enumerate(self._batches()):
            if index >= start:
                self._seen = index + 1
                yield batch
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        """Position within the epoch, kept in checkpoints."""
        return {"epoch": self.epoch, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the batches already seen."""
        self.epoch, self._start = state["epoch"], state["seen"]
        if self._start >= len(self):
            self._start = 0
        self._seen = self._start

    def _steps(self) -> list[list[Example]]:
        shuffle = random.Random(f"{self.seed}/{self.epoch}")
        order = list(range(len(self.examples)))
        shuffle.shuffle(order)
        count = max(1, len(order) // self.pairs_per_step)
        cuts = [len(order) * i // count for i in range(count + 1)]  # where the steps begin and end
        steps_per_pool = max(1, self.pool // self.pairs_per_step)
        steps = []
        for first in range(0, count, steps_per_pool):
            begin, *ends = cuts[first : first + steps_per_pool + 1]
            pool = sorted((self.examples[i] for i in order[begin : ends[-1]]), key=size)
            steps += [pool[i - begin : j - begin] for i, j in pairwise((begin, *ends))]
        shuffle.shuffle(steps)
        return steps

    def _batches(self) -> Iterator[Batch]:
        for step in self._steps():
            # Batch j of device r takes every n-th pair: all batches of a step are alike in size.
            mine = [
                collate(step[self.rank * self.accumulate + j :: self.batches_per_step]) for j in range(self.accumulate)
            ]
            if self.accumulate == 1:
                yield mine[0]
            else:
                yield replace(mine[0], step=tuple(mine))
                yield from mine[1:]
