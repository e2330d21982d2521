"""An account of what happened to the lines and pairs of a corpus."""

from dataclasses import dataclass, field
from typing import Any

_EXAMPLES = 3
_EXAMPLE_WIDTH = 80  # characters


@dataclass
class Report:
    """How many lines or pairs met which fate, by stage and reason in the order met, with up to 3 examples of each.

    `file` and `line` (from 1) are where the reader stands, so that a later stage's example can say where it came from.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    examples: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    def add(self, stage: str, reason: str, count: int = 1) -> None:
        reasons = self.counts.setdefault(stage, {})
        reasons[reason] = reasons.get(reason, 0) + count

    def add_example(self, stage: str, reason: str, text: str, *, placed: bool = True) -> None:
        """Count one and, while there are few, keep its place (file and line, unless `placed` is off) and its text."""
        self.add(stage, reason)
        kept = self.examples.setdefault(stage, {}).setdefault(reason, [])
        if len(kept) < _EXAMPLES:
            text = text if len(text) <= _EXAMPLE_WIDTH else text[: _EXAMPLE_WIDTH - 1] + "…"
            kept.append(f"{self.file}:{self.line}: {text!r}" if placed else repr(text))

    def as_dict(self) -> dict[str, Any]:
        """`{"counts": {stage: {reason: count}}, "examples": {stage: {reason: [text, …]}}}`, fit for JSON."""
        return {
            "counts": {stage: dict(reasons) for stage, reasons in self.counts.items()},
            "examples": {
                stage: {reason: list(kept) for reason, kept in reasons.items()}
                for stage, reasons in self.examples.items()
            },
        }

    def summary(self) -> str:
        """One line for each stage and reason: its count and its first example."""
        lines = []
        for stage, reasons in self.counts.items():
            for reason, count in reasons.items():
                example = self.examples.get(stage, {}).get(reason, [""])[0]
                lines.append(f"{stage:<18} {reason:<24} {count:>12,}  {example}".rstrip())
        return "\n".join(lines)
