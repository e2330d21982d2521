"""Which rows of a grid a training step computes (`training.rows`), and what of the full grid they stand for.

The last row, in which the whole source is read, is always among them; the others are drawn, one from each of R − 1
stretches of (nearly) equal length. What is decided by looking at all rows (best path, worth of a decision, where
decoding writes) is decided on a full grid: between two drawn rows its losses and p(EMIT) are taken to change evenly,
above the first they are the first one's. A decision learnt so is that of one row against the next, as in decoding, and
λ counts every row. Sums over the rows of a stretch fall to the row that was drawn from it.

Far ahead of the diagonal neither a path nor a fixed delay writes. So of seven pairs in eight a row is computed no
further than a margin past what its stretch has read; what comes later in a row changes nothing before. Path and visits
wait at that end. The eighth pair is computed whole, as decoding at a small θ may come there: its decisions past the
others' ends count eightfold, which leaves the sum of the EMIT loss without bias. Words there are not weighted up.
"""

import itertools
import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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


WHOLE = 1 / 8  # of the pairs, drawn by chance: their rows are computed to the end
MARGIN = 1 / 16  # of the target's tokens, past the diagonal, to which others are computed


@dataclass(frozen=True)
class DrawnRows:
    """The rows drawn of each pair of a batch, ascending; padded to R drawn rows, or to X rows of the grid."""

    at: tuple[tuple[int, ...], ...]  # row of each, in the grid of scored rows
    columns: tuple[tuple[int, ...], ...]  # cells that are computed of each, from the first scored one on
    x: Tensor  # [B, R] int64: `at`, 0 past a pair's rows
    ends: Tensor  # [B, R] int64: `columns`, 0 past a pair's rows
    common: Tensor  # [B, R] int64: those that would be computed whatever is drawn, 0 past a pair's rows
    stand_for: Tensor  # [B, R] int64: rows of the stretch each was drawn from, 1 past a pair's rows
    stretch: Tensor  # [B, X] int64: which drawn row stands for a row
    near: tuple[Tensor, Tensor]  # [B, X] int64 both: the drawn rows (0 … R − 1) before and behind a row
    share: Tensor  # [B, X]: of the latter of the two in the value of a row

    @staticmethod
    def of(
        at: Sequence[Sequence[int]],
        parts: Sequence[Sequence[range]],
        columns: Sequence[Sequence[int]],
        common: Sequence[Sequence[int]],
    ) -> "DrawnRows":
        """Rows `at` of each pair, one from each of its stretches `parts`; the last one is among them, and whole."""
        R, X = max(map(len, at)), max(own[-1] + 1 for own in at)

        def padded(rows: Sequence[Sequence[float]], width: int, fill: int) -> Tensor:
            return torch.tensor([[*own, *[fill] * (width - len(own))] for own in rows])

        before, behind, share = [], [], []
        for own in at:
            found = [bisect_left(own, x) for x in range(own[-1] + 1)]
            behind.append(found)
            before.append([max(i - 1, 0) for i in found])
            share.append([(x - own[i - 1]) / (own[i] - own[i - 1]) if i else 1.0 for x, i in enumerate(found)])
        return DrawnRows(
            at=tuple(map(tuple, at)),
            columns=tuple(map(tuple, columns)),
            x=padded(at, R, 0),
            ends=padded(columns, R, 0),
            common=padded(common, R, 0),
            stand_for=padded([[len(part) for part in own] for own in parts], R, 1),
            stretch=padded([[i for i, part in enumerate(own) for _ in part] for own in parts], X, 0),
            near=(padded(before, X, 0), padded(behind, X, 0)),
            share=padded(share, X, 1),
        )

    def spread(self, values: Tensor, beyond: float | Tensor) -> Tensor:
        """Values of the drawn rows `[B, R, Y]` → of all rows `[B, X, Y]`, changing evenly from one to the next.

        Where a drawn row was not computed, the next one's take its place; a stretch ends where its row was cut, and
        past that all is `beyond` (of each pair, `[B, 1, 1]`, or of all).
        """
        R, y = values.shape[1], torch.arange(values.shape[2], device=values.device)
        there = y < self.ends[:, :, None]
        rows = list(values.unbind(1))
        for i in range(R - 2, -1, -1):
            rows[i] = torch.where(there[:, i], rows[i], rows[i + 1])
        before, behind = (_rows(torch.stack(rows, 1), near) for near in self.near)
        every = torch.lerp(before, behind, self.share[:, :, None].to(values.dtype))
        return every.where(y < self.ends.gather(1, self.stretch)[:, :, None], beyond)

    def of_all(self, values: Tensor) -> Tensor:
        """Values of all rows `[B, X, Y]` → of the drawn rows `[B, R, Y]`."""
        return _rows(values, self.x)

    def summed(self, values: Tensor) -> Tensor:
        """Values of all rows `[B, X, Y]`, 0 past a pair's → sums over the stretch of each drawn row `[B, R, Y]`."""
        B, _, Y = values.shape
        sums = values.new_zeros(B, self.x.shape[1], Y)
        return sums.scatter_add_(1, self.stretch[:, :, None].expand(-1, -1, Y), values)


def _rows(values: Tensor, at: Tensor) -> Tensor:
    return values.gather(1, at[:, :, None].expand(-1, -1, values.shape[2]))


def drawn_rows(
    keys: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    R: int,
    epoch: int,
    source_prefix: int = 0,
    target_prefix: int = 0,
) -> DrawnRows:
    """Up to R rows of each pair, one from each of its stretches, and how far they are computed.

    They are drawn by the pair's tokens and the epoch: a pair has the same rows in whatever batch or process it comes,
    and in a resumed run, but others in the next epoch.

    Args:
        keys: of each pair, by its tokens (`Example.key`).
        shapes: source and target tokens of each pair.
        source_prefix: source tokens before the text, whose rows are not scored.
        target_prefix: target tokens before the text, whose columns are not scored.
    """
    pairs = zip(keys, shapes, strict=True)
    drawn = [drawn_of_pair(key, (X - source_prefix, Y - target_prefix), R, epoch) for key, (X, Y) in pairs]
    at, parts, columns, common = zip(*drawn, strict=True)
    return DrawnRows.of(at, parts, columns, common)


def drawn_of_pair(
    key: int, shape: tuple[int, int], R: int, epoch: int
) -> tuple[list[int], list[range], list[int], list[int]]:
    """What `drawn_rows` draws of one pair of scored `shape`: its rows, the stretches each stands for, cells that are
    computed of each, and those that would be whatever is drawn."""
    (X, Y), draw = shape, random.Random(f"rows {key} {epoch}")
    parts = stretches(X, R)
    at, common = [draw.choice(part) for part in parts], reach(parts, X, Y)
    return at, parts, [Y] * len(parts) if draw.random() < WHOLE else common, common


def drawn_points(keys: Sequence[int], epoch: int) -> Tensor:
    """A number between 0 and 1 of each pair `[B]` (`visits.drawn_cells`), drawn as its rows are, apart from them."""
    return torch.tensor([random.Random(f"words {key} {epoch}").random() for key in keys])


def reach(parts: Sequence[range], X: int, Y: int) -> list[int]:
    """Cells that are always computed of the row drawn from each stretch of a grid of X rows and Y columns.

    At least the columns in which a fixed delay writes in the stretch: `y ≤ x`. Where all rows are drawn, all.
    """
    if len(parts) == X:
        return [Y] * X
    return [min(Y, math.ceil(part.stop * max(1.0, Y / X) + MARGIN * Y)) for part in parts]


@cache
def mean_cells(X: int, Y: int, R: int) -> float:
    """Cells computed of a pair in a step, on average over what is drawn."""
    parts = stretches(X, R)
    return WHOLE * len(parts) * Y + (1 - WHOLE) * sum(reach(parts, X, Y))
