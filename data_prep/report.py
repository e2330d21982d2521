"""What became of the lines and pairs of a corpus: counts by stage and reason, and examples of each."""

import heapq
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

    `file` and `line` (from 1) are where a reader stands, so that a later stage's example can say where it came from.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    examples: dict[str, dict[str, list[Example]]] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    def add(self, stage: str, reason: str, count: int = 1) -> None:
        """Count some."""
        reasons = self.counts.setdefault(stage, {})
        reasons[reason] = reasons.get(reason, 0) + count

    def add_example(self, stage: str, reason: str, text: str) -> None:
        """Count the one that a reader has just met and, while there are few, keep its place and its text."""
        self.add(stage, reason)
        number = self.counts[stage][reason]
        if number <= EXAMPLES:
            self.add_examples(stage, reason, [Example(number, f"{self.file}:{self.line}", text)])

    def add_examples(self, stage: str, reason: str, examples: list[Example]) -> None:
        """Keep those of the lowest ranks."""
        reasons = self.examples.setdefault(stage, {})
        new = [Example(rank, place, _short(before), _short(after)) for rank, place, before, after in examples]
        reasons[reason] = heapq.nsmallest(EXAMPLES, [*reasons.get(reason, []), *new])

    def merge(self, other: "Report") -> None:
        """Count in what another part of the corpus says."""
        for stage, counts in other.counts.items():
            for reason, count in counts.items():
                self.add(stage, reason, count)
        for stage, examples in other.examples.items():
            for reason, found in examples.items():
                self.add_examples(stage, reason, found)

    def as_dict(self) -> dict[str, Any]:
        """`{"counts": {stage: {reason: count}}, "examples": {stage: {reason: [example, …]}}}`, fit for JSON."""
        return {"counts": self.counts, "examples": self.examples}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        values = json.loads(text)
        examples = {
            stage: {reason: [Example(*each) for each in found] for reason, found in reasons.items()}
            for stage, reasons in values["examples"].items()
        }
        return cls(values["counts"], examples)

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
