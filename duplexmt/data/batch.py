"""Tokenised pairs, and padded batches of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

PADDING_ID = 0  # any valid id will do: no cell of a pair depends on padding


@dataclass(frozen=True, order=True, slots=True)
class Example:
    """One pair as token ids, with everything the two streams hold.

    `source` is source prefix, text and end token; `target` is seed token, target prefix, text and end token, so that
    column `y` reads `target[: y + 1]` and predicts `target[y + 1]`.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows X and columns Y of the pair's grid."""
        return len(self.source), len(self.target) - 1

    @property
    def cells(self) -> int:
        """Cells of the pair's grid."""
        X, Y = self.shape
        return X * Y

    @property
    def key(self) -> int:
        """A number of 32 bits by the pair's tokens: what is drawn of a pair (rows, delays) is drawn by it."""
        return crc32(repr((self.source, self.target)).encode())


@dataclass(frozen=True)
class Batch:
    """Right-padded pairs. With gradient accumulation, the first batch of a step brings the whole step along."""

    source: Tensor  # [B, X]
    target: Tensor  # [B, Y], seed token first
    labels: Tensor  # [B, Y], end token last
    source_lengths: Tensor  # [B]
    target_lengths: Tensor  # [B]
    shapes: tuple[tuple[int, int], ...]  # the two lengths of each pair again, wherever the tensors are
    keys: tuple[int, ...]  # `Example.key` of each pair
    step: "tuple[Batch, ...] | None" = None
    plan: Any = None  # what its training step wants to know beforehand (`policy.plan`), where somebody has made it

    def packed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sources, targets and labels of all pairs, one after the other without padding: `[S]`, and `[T]` twice."""
        columns = (self.source, 0), (self.target, 1), (self.labels, 1)
        source, target, labels = (
            torch.cat([row[: shape[side]] for row, shape in zip(tokens, self.shapes, strict=True)])
            for tokens, side in columns
        )
        return source, target, labels

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        plan = None if self.plan is None else self.plan.to(device)
        step = None if self.step is None else tuple(batch.to(device) for batch in self.step)
        moved = each_tensor(replace(self, plan=None, step=None), lambda own: own.to(device, non_blocking=True))
        return replace(moved, plan=plan, step=step)  # type: ignore[no-any-return]

    def pinned(self) -> "Batch":
        """The same batch in memory from which a GPU copies while it computes."""
        return each_tensor(self, Tensor.pin_memory)  # type: ignore[no-any-return]


def each_tensor(structure: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A dataclass of tensors, or of tuples and dataclasses of such, with each tensor changed."""
    if isinstance(structure, Tensor):
        return change(structure)
    if isinstance(structure, tuple):
        return tuple(each_tensor(part, change) for part in structure)
    if not is_dataclass(structure):
        return structure
    return replace(structure, **{f.name: each_tensor(getattr(structure, f.name), change) for f in fields(structure)})  # type: ignore[type-var]


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples on the right into one batch."""

    def pad(rows: list[tuple[int, ...]]) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([[*row, *[PADDING_ID] * (width - len(row))] for row in rows])

    return Batch(
        source=pad([example.source for example in examples]),
        target=pad([example.target[:-1] for example in examples]),
        labels=pad([example.target[1:] for example in examples]),
        source_lengths=torch.tensor([len(example.source) for example in examples]),
        target_lengths=torch.tensor([len(example.target) - 1 for example in examples]),
        shapes=tuple(example.shape for example in examples),
        keys=tuple(example.key for example in examples),
    )
