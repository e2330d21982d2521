"""What became of the lines of a corpus: counts by rule, and a uniform sample of each rule's victims."""

import heapq
import json
from dataclasses import dataclass, field
from typing import Any

VICTIMS = 50
"""Examples kept of each rule: those of the lowest ranks, which are a uniform sample and the same in every run."""

_WIDTH = 300  # characters of a side that are shown

Victim = tuple[int, str, str, str]
"""Rank, place, the pair as it was, and as it became (empty where it was dropped); the least rank sorts first."""


@dataclass
class Account:
    """Counts of lines by what became of them, and victims by rule.

    `faulty` are lines that are no pair, `dropped` pairs by the rule that dropped them, `rewritten` kept pairs by the
    rules that changed them; `lines` = faulty + dropped + `kept`.
    """

    lines: int = 0
    kept: int = 0
    faulty: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    rewritten: dict[str, int] = field(default_factory=dict)
    victims: dict[str, list[Victim]] = field(default_factory=dict)

    def add_victims(self, rule: str, victims: list[Victim]) -> None:
        victims = [(rank, place, _shown(before), _shown(after)) for rank, place, before, after in victims]
        self.victims[rule] = heapq.nsmallest(VICTIMS, [*self.victims.get(rule, []), *victims])

    def add(self, other: "Account") -> None:
        """Count in what another part of the corpus says."""
        self.lines += other.lines
        self.kept += other.kept
        for mine, theirs in (
            (self.faulty, other.faulty),
            (self.dropped, other.dropped),
            (self.rewritten, other.rewritten),
        ):
            for rule, count in theirs.items():
                mine[rule] = mine.get(rule, 0) + count
        for rule, victims in other.victims.items():
            self.add_victims(rule, victims)

    def counts(self) -> dict[str, Any]:
        """All counts, rules in order of their names."""
        return {
            "lines": self.lines,
            **{name: dict(sorted(getattr(self, name).items())) for name in ("faulty", "dropped", "rewritten")},
            "kept": self.kept,
        }

    def to_json(self) -> str:
        return json.dumps(vars(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Account":
        values = json.loads(text)
        values["victims"] = {rule: [tuple(each) for each in victims] for rule, victims in values["victims"].items()}
        return cls(**values)


def _shown(text: str) -> str:
    sides = text.split("\t")
    return "\t".join(side if len(side) <= _WIDTH else side[: _WIDTH - 1] + "…" for side in sides)
