"""The order in which examples are seen: shuffled, alike in length within a step, equal for any number of devices."""

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any

import torch

from .batch import Batch, Example, collate

ROUND = 128  # tokens, and cells, of a list are multiples of it
SPARE = 1 / 256  # of a step's tokens, beside half a pair of mean size, that are left free
VARIED = 1 / 32  # by which lists have room for more cells than their share, as pairs differ in it


def size(pair: Example) -> tuple[int, int]:
    """Sort key: pairs next to each other have the same source length and nearly the same target length."""
    return len(pair.source), len(pair.target)


class StepLoader:
    """Batches of one epoch for one device, deterministic by seed and epoch, resumable at any batch.

    An optimiser step takes `batch_size` pairs on each of `world_size` devices for each of `accumulate` batches. Steps
    are drawn from the shuffled corpus in pools of about `pool` pairs, at least a step each, sorted by size, so that
    pairs of a step have similar lengths, and come in random order. Which pairs form a step depends only on the size of
    a step, not on how many devices share it. Every epoch has the same number of steps and sees every pair exactly once:
    what is left over, too little for a step of its own, is spread over the steps.

    Args:
        batch_size: pairs a batch, on each device.
        accumulate: batches in an optimiser step.
        pool: pairs to sort by length at a time.
        batch_tokens: length of the list into which the pairs of a batch are packed, on each device, in place of a
            number of pairs; a multiple of `ROUND`. All lists have this length, and as many scored cells, filled up by
            the plan, but for the odd one whose pairs find no room: it is longer by some `ROUND`. Steps then have pairs
            of all lengths, and are as full as each other.
        planner: with that, how large a pair is, and the plan of a batch (`policy.plan`).
        ahead: batches made by a thread while others are computed, in pinned memory; 0 makes each when it is asked for.

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
        batch_tokens: int | None = None,
        planner: Any = None,
        ahead: int = 0,
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
        self.batch_tokens, self.planner, self.ahead = batch_tokens, planner, ahead
        self.all_tokens: int | None = None
        steps = len(examples) // self.pairs_per_step
        if batch_tokens is not None:
            steps = min(self._plan_sizes(batch_tokens), len(examples) // self.batches_per_step)
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
        whole = start // self.accumulate
        steps = made_ahead(self._batches, self._steps()[whole:], self.ahead)
        for index, batch in enumerate((batch for step in steps for batch in step), whole * self.accumulate):
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
            "pairs_per_step": None if self.batch_tokens else self.pairs_per_step,
            "tokens_per_step": None if self.batch_tokens is None else self.batch_tokens * self.batches_per_step,
            "tokens": self.all_tokens,
            "accumulate": self.accumulate,
        }

    def _steps(self) -> list[list[Example]]:
        shuffle = random.Random(f"{self.seed}/{self.epoch}")
        order = list(range(len(self.examples)))
        shuffle.shuffle(order)
        if self.batch_tokens is not None:
            steps = self._steps_by_tokens([self.examples[i] for i in order])
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

    def _plan_sizes(self, batch_tokens: int) -> int:
        """The size of a list, and how many steps an epoch has."""
        means = [self.planner.mean_size(pair) for pair in self.examples]
        tokens, cells = (sum(column) for column in zip(*means, strict=True))
        share = (1 + VARIED) * cells / tokens
        self.list_size = batch_tokens, min(rounded_up(batch_tokens * share), batch_tokens - 1)
        self.all_tokens = round(tokens)
        # Room that stays, so that whoever comes last finds some: by the size of a step alone, however it is shared.
        room = batch_tokens * self.batches_per_step * (1 - SPARE) - tokens / len(means) / 2
        return math.ceil(tokens / max(room, 1.0))

    def _steps_by_tokens(self, shuffled: list[Example]) -> list[list[Example]]:
        """Steps as full as each other, by tokens and by cells, which all have pairs of all lengths."""
        sizes = [(self.planner.size(pair, self.epoch), pair) for pair in shuffled]
        sizes.sort(key=lambda one: one[0][0], reverse=True)
        return dealt(sizes, self.steps_per_epoch, self.batches_per_step, self.list_size)

    def _share(self, step: list[Example]) -> list[list[Example]]:
        """The pairs of a step as `batches_per_step` batches, alike in size."""
        if self.batch_tokens is not None:
            sized = sorted(((self.planner.size(pair, self.epoch), pair) for pair in step), reverse=True)
            return dealt(sized, self.batches_per_step, 1, self.list_size)
        return [step[batch :: self.batches_per_step] for batch in range(self.batches_per_step)]

    def _batches(self, step: list[Example]) -> list[Batch]:
        """This device's batches of a step; the first one of several brings all of them along."""
        shares = self._share(step)
        mine = [self._made(shares[self.rank * self.accumulate + j]) for j in range(self.accumulate)]
        return mine if self.accumulate == 1 else [replace(mine[0], step=tuple(mine)), *mine[1:]]

    def _made(self, pairs: list[Example]) -> Batch:
        batch = collate(pairs)
        if self.batch_tokens is not None:
            tokens, cells = map(sum, zip(*(self.planner.size(pair, self.epoch) for pair in pairs), strict=True))
            length, wanted = self.list_size
            length = max(length, rounded_up(tokens + 1))  # the last place is never a token's
            wanted = wanted if cells <= wanted else min(rounded_up(cells), length - 1)
            batch = replace(batch, plan=self.planner(batch, self.epoch, (length, wanted)))
        return batch.pinned() if self.ahead and torch.cuda.is_available() else batch


def rounded_up(count: float) -> int:
    """The next multiple of `ROUND`."""
    return -(-math.ceil(count) // ROUND) * ROUND


def dealt(
    pairs: Sequence[tuple[tuple[int, int], Example]], hands: int, least: int, room: tuple[int, int]
) -> list[list[Example]]:
    """Pairs of given sizes, the largest first, dealt to whoever has most room left, at least so many to each.

    Where the number of hands is given, this leaves as little room unused as the best fit does, and the same in each:
    the best fit fills the first ones and has the last wait for small pairs. Pairs of data=tatoeba and data=permissive
    with four rows make 179 and 683 lists of 8,192 tokens, 99.2 and 99.0 % full, by best fit 179 and 677.

    Args:
        pairs: size and pair.
        hands: how many shares to make.
        least: pairs of each; there are as many.
        room: of a share, as the pairs' sizes count.
    """
    shares: list[list[Example]] = [[] for _ in range(hands)]
    heap = [(False, 0.0, hand, 0, 0) for hand in range(hands)]  # with enough pairs, how full, which, what it holds
    heapify(heap)
    for (tokens, cells), pair in pairs:
        _, _, hand, a, b = heap[0]
        a, b = a + tokens, b + cells
        shares[hand].append(pair)
        heapreplace(heap, (len(shares[hand]) >= least, max(a / room[0], b / room[1]), hand, a, b))
    return shares


def made_ahead(make: Callable[[Any], Any], items: Iterable[Any], count: int) -> Iterator[Any]:
    """What is made of each item, in order; so many ahead by a thread."""
    if not count:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1, "batches") as thread:
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(thread.submit(make, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
