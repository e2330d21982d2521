"""The order in which examples are seen: shuffled, alike in length within a step, equal for any number of devices."""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate as accumulate_sums
from itertools import pairwise
from operator import attrgetter

from .batch import Batch, Example, collate


def size(pair: Example) -> tuple[int, int]:
    """Sort key: pairs next to each other have the same source length and nearly the same target length."""
    return len(pair.source), len(pair.target)


class StepLoader:
    """Batches of one epoch for one device, deterministic by seed and epoch, resumable at any batch.

    An optimiser step takes `batch_size` pairs, or pairs of about `batch_cells` cells in all, on each of `world_size`
    devices for each of `accumulate` batches. Steps are drawn from the shuffled corpus in pools of about `pool` pairs,
    at least a step each, sorted by size, so that pairs of a step have similar lengths, and come in random order. Which
    pairs form a step depends only on the size of a step, not on how many devices share it. Every epoch has the same
    number of steps and sees every pair exactly once: what is left over, too little for a step of its own, is spread
    over the steps.

    Args:
        examples: the tokenised corpus.
        batch_size: pairs a batch, on each device.
        seed: of the shuffling.
        accumulate: batches in an optimiser step.
        rank, world_size: this device and how many there are.
        pool: pairs to sort by length at a time.
        batch_cells: cells a batch, on each device, in place of a number of pairs.
        cells: how many a pair counts for `batch_cells`.

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
        batch_cells: int | None = None,
        cells: Callable[[Example], int] = attrgetter("cells"),
    ) -> None:
        self.examples, self.seed, self.rank = examples, seed, rank
        self.batches_per_step = accumulate * world_size
        self.accumulate, self.pairs_per_step = accumulate, batch_size * accumulate * world_size
        self.pool = pool
        self.cells = cells
        self.cells_per_step = None if batch_cells is None else batch_cells * accumulate * world_size
        if len(examples) < self.batches_per_step:
            raise ValueError(
                f"{len(examples)} training pairs cannot fill {world_size} devices × {accumulate} accumulated batches: "
                "use fewer devices, less accumulation, or more data"
            )
        self.all_cells: int | None = None
        if self.cells_per_step is None:
            steps = len(examples) // self.pairs_per_step
        else:
            self.all_cells = sum(map(cells, examples))
            steps = min(round(self.all_cells / self.cells_per_step), len(examples) // self.batches_per_step)
        self.steps_per_epoch = max(1, steps)
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
        return self.steps_per_epoch * self.accumulate

    def __iter__(self) -> Iterator[Batch]:
        start, self._start = self._start, 0
        for index, batch in enumerate(self._batches()):
            if index >= start:
                self._seen = index + 1
                yield batch
        self._seen = 0

    def state_dict(self) -> dict[str, int | None]:
        """The epoch, how many of its batches have been seen, and how it was shared out: kept in checkpoints."""
        return {"epoch": self.epoch, "seen": self._seen} | self._sharing()

    def load_state_dict(self, state: Mapping[str, int | None]) -> None:
        """Continue after the batches already seen.

        Raises:
            ValueError: inside an epoch that was shared out into other batches, as far as its checkpoint tells: old ones
                know the number of batches alone.
        """
        epoch, seen, batches = (state[name] or 0 for name in ("epoch", "seen", "batches"))
        now = self._sharing()
        others = [f"{name}={state[name]} (now {now[name]})" for name in now if state.get(name, now[name]) != now[name]]
        if seen < batches and others:
            raise ValueError(
                f"the checkpoint was saved after {seen} of an epoch's {batches} batches, and these settings make other "
                f"ones of it: {', '.join(others)}; resume with the training.seed, batch size, devices and accumulation "
                "the run was begun with"
            )
        self.epoch, self._start = epoch, seen if seen < batches else 0
        self._seen = self._start

    def _sharing(self) -> dict[str, int | None]:
        """What decides, beside the epoch, which pairs a batch holds."""
        return {
            "batches": len(self),
            "seed": self.seed,
            "pairs_per_step": self.pairs_per_step if self.cells_per_step is None else None,
            "cells_per_step": self.cells_per_step,
            "cells": self.all_cells,
            "accumulate": self.accumulate,
        }

    def _steps(self) -> list[list[Example]]:
        shuffle = random.Random(f"{self.seed}/{self.epoch}")
        order = list(range(len(self.examples)))
        shuffle.shuffle(order)
        if self.cells_per_step is not None:
            steps = list(self._steps_by_cells([self.examples[i] for i in order]))
            shuffle.shuffle(steps)
            return steps
        count = self.steps_per_epoch
        cuts = [len(order) * i // count for i in range(count + 1)]  # where the steps begin and end
        steps_per_pool = max(1, self.pool // self.pairs_per_step)
        steps = []
        for first in range(0, count, steps_per_pool):
            begin, *ends = cuts[first : first + steps_per_pool + 1]
            pool = sorted((self.examples[i] for i in order[begin : ends[-1]]), key=size)
            steps += [pool[i - begin : j - begin] for i, j in pairwise((begin, *ends))]
        shuffle.shuffle(steps)
        return steps

    def _steps_by_cells(self, shuffled: list[Example]) -> Iterator[list[Example]]:
        """Steps of equal numbers of cells, as nearly as whole pairs allow."""
        count = self.steps_per_epoch
        pools = max(1, min(round(len(shuffled) / self.pool), count))
        ends = [count * i // pools for i in range(1, pools + 1)]  # steps up to the end of each pool
        for pool, (first, last) in zip(self._cut(shuffled, ends), pairwise((0, *ends)), strict=True):
            yield from self._cut(sorted(pool, key=size), range(1, last - first + 1))

    def _cut(self, pairs: list[Example], ends: Sequence[int]) -> Iterator[list[Example]]:
        """Cut pairs after numbers of steps, all of equal cells; a step has at least a pair for each batch."""
        cells = list(accumulate_sums(map(self.cells, pairs)))
        begin = before = 0
        for steps in ends:
            end = bisect_left(cells, cells[-1] * steps / ends[-1]) + 1
            least = begin + (steps - before) * self.batches_per_step
            most = len(pairs) - (ends[-1] - steps) * self.batches_per_step
            end = min(max(end, least), most)
            yield pairs[begin:end]
            begin, before = end, steps

    def _share(self, step: list[Example]) -> list[list[Example]]:
        """The pairs of a step as `batches_per_step` batches, alike in size."""
        if self.cells_per_step is None:
            return [step[batch :: self.batches_per_step] for batch in range(self.batches_per_step)]
        shares: list[list[Example]] = [[] for _ in range(self.batches_per_step)]
        cells = [0] * len(shares)
        for pair in sorted(step, key=lambda pair: (-self.cells(pair), pair)):  # the largest first, to whoever has least
            least = cells.index(min(cells))
            shares[least].append(pair)
            cells[least] += self.cells(pair)
        return shares

    def _batches(self) -> Iterator[Batch]:
        for step in self._steps():
            shares = self._share(step)
            mine = [collate(shares[self.rank * self.accumulate + j]) for j in range(self.accumulate)]
            if self.accumulate == 1:
                yield mine[0]
            else:
                yield replace(mine[0], step=tuple(mine))
                yield from mine[1:]
