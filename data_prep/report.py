"""What became of the lines and pairs of a corpus: counts by stage and reason, and examples of each."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES = 50
"""Kept of each reason: those of the lowest ranks, which are a uniform sample and the same in every run."""

_WIDTH = 300  # characters of a side that are kept
_SHOWN = 80  # of an example in a summary


class Example(NamedTuple):
    """A line or pair; `after` is what became of it, empty where it was dropped. The least rank sorts first."""

    rank: int
    place: str
    before: str
    after: str = ""


@dataclass
class Report:
    """How many lines or pairs met which fate, by stage and reason in the order met, with examples of each.

    Of a corpus that is cleaned block by block the stages are `lines` ("read", "kept"), `faulty` (lines that are no
    pair), `dropped` (pairs) and `rewritten` (kept pairs), and all lines = faulty + dropped + kept.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    examples: dict[str, dict[str, list[Example]]] = field(default_factory=dict)

    def add(self, stage: str, reason: str, count: int = 1, examples: Sequence[Example] = ()) -> None:
        """Count some, and of those there are with the examples keep those of the lowest ranks."""
        reasons = self.counts.setdefault(stage, {})
        reasons[reason] = reasons.get(reason, 0) + count
        if examples:
            known = self.examples.setdefault(stage, {})
            new = [Example(rank, place, _short(before), _short(after)) for rank, place, before, after in examples]
            known[reason] = heapq.nsmallest(EXAMPLES, [*known.get(reason, []), *new])

    def add_example(self, stage: str, reason: str, text: str, place: str) -> None:
        """Count one and, while there are few, keep its text and its place."""
        number = self.counts.get(stage, {}).get(reason, 0) + 1
        self.add(stage, reason, 1, [Example(number, place, text)] if number <= EXAMPLES else ())

    def merge(self, other: "Report") -> None:
        """Count in what another part of the corpus says."""
        for stage, counts in other.counts.items():
            for reason, count in counts.items():
                self.add(stage, reason, count, other.examples.get(stage, {}).get(reason, ()))

    def summary(self) -> str:
        """One line for each stage and reason: its count and its first example."""
        lines = []
        for stage, reasons in self.counts.items():
            for reason, count in reasons.items():
                found = self.examples.get(stage, {}).get(reason)
                shown = f"{found[0].place}: {_short(found[0].before, _SHOWN)!r}" if found else ""
                lines.append(f"{stage:<18} {reason:<24} {count:>12,}  {shown}".rstrip())
        return "\n".join(lines)


def _short(text: str, width: int = _WIDTH) -> str:
    return "\t".join(side if len(side) <= width else side[: width - 1] + "…" for side in text.split("\t"))
