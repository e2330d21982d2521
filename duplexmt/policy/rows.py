"""Which rows of a grid a training step computes (`training.rows`), and what of the full grid they stand for.

The last row, in which the whole source is read, is always among them; the others are drawn, one from each of R − 1
stretches of (nearly) equal length. A row stands for its stretch: a sum over all rows of a grid is estimated without
bias by the sum over the drawn ones, each times the length of its stretch. A path may leave the drawn rows only: it
waits through the rows between two of them, and each of these WAITs counts for its area.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor


def stretches(X: int, R: int) -> list[range]:
    """Rows 0 … X − 1 as R stretches of which one row each is drawn; the last one is row X − 1 alone.

    Where `R ≥ X` each row is a stretch of its own.
    """
    if R >= X:
        return [range(x, x + 1) for x in range(X)]
    cuts = [(X - 1) * i // (R - 1) for i in range(R)]
    return [*(range(first, end) for first, end in itertools.pairwise(cuts)), range(X - 1, X)]


@dataclass(frozen=True)
class DrawnRows:
    """The rows drawn of each pair of a batch, ascending; padded tensors are `[B, R]` int64, 1 past a pair's rows."""

    at: tuple[tuple[int, ...], ...]  # row of each, in the grid of scored rows
    gaps: Tensor  # WAITs from each to the next; 1 for the last
    stand_for: Tensor  # rows of the stretch each was drawn from
    x: Tensor  # the rows themselves, 0 past a pair's rows

    @staticmethod
    def of(at: Sequence[Sequence[int]], stand_for: Sequence[Sequence[int]], device: torch.device | str) -> "DrawnRows":
        """Rows `at` of each pair, with what each stands for."""
        R = max(map(len, at))

        def padded(values: Sequence[Sequence[int]], fill: int) -> Tensor:
            return torch.tensor([[*own, *[fill] * (R - len(own))] for own in values], device=device)

        gaps = [[*(b - a for a, b in itertools.pairwise(own)), 1] for own in at]
        return DrawnRows(tuple(map(tuple, at)), padded(gaps, 1), padded(stand_for, 1), padded(at, 0))

    @property
    def counts(self) -> Tensor:
        """Rows of each pair, `[B]`."""
        return torch.tensor([len(own) for own in self.at], device=self.x.device)


def drawn_rows(
    source: Tensor, target: Tensor, shapes: Sequence[tuple[int, int]], R: int, epoch: int, source_prefix: int = 0
) -> DrawnRows:
    """Up to R rows of each pair, one from each of its stretches.

    They are drawn by the pair's tokens and the epoch: a pair has the same rows in whatever batch or process it comes,
    and in a resumed run, but others in the next epoch.

    Args:
        source, target: token ids `[B, X]` and `[B, Y]`; padding, if any, on the right.
        shapes: source and target tokens of each pair, padding left out.
        R: rows of a pair.
        epoch: number of the pass over the data.
        source_prefix: source tokens before the text, whose rows are not scored.
    """
    at, stand_for = [], []
    for own, other, (X, Y) in zip(source.tolist(), target.tolist(), shapes, strict=True):
        draw = random.Random(crc32(repr((epoch, own[:X], other[:Y])).encode()))
        parts = stretches(X - source_prefix, R)
        at.append([draw.choice(part) for part in parts])
        stand_for.append([len(part) for part in parts])
    return DrawnRows.of(at, stand_for, source.device)
