"""What became of the lines and pairs of a corpus: counts by stage and reason, examples of each, and a page of them."""

import heapq
from collections.abc import Sequence
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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """Of `vars` of another one, after JSON: `{"counts": {stage: {reason: count}}, "examples": …}`."""
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


def report_page(manifest: dict[str, Any], report: Report, kept: Sequence[tuple[str, str, str]]) -> str:
    """Markdown: a table of counts, what was sampled, up to 50 examples of each rule, and kept pairs (source, texts)."""
    lines = [f"# {manifest['settings']['corpus']}", "", f"`{manifest['command']}`", "", "## Lines", ""]
    names = list(manifest["sources"])
    lines += [_row(["", *names, "all"]), _row(["---"] + ["---:"] * (len(names) + 1))]
    for kind, title in (("faulty", "no pair"), ("dropped", "dropped"), ("rewritten", "rewritten")):
        rules = sorted({rule for name in names for rule in manifest["sources"][name].get(kind, {})})
        lines += [
            _counts(f"{title}: {rule}", [manifest["sources"][name].get(kind, {}).get(rule, 0) for name in names])
            for rule in rules
        ]
    for kind, title in (("read", "lines"), ("kept", "kept")):
        lines.append(_counts(f"**{title}**", [manifest["sources"][name]["lines"][kind] for name in names]))
    lines += ["", "## Pairs", "", _row(["", "pairs"]), _row(["---", "---:"])]
    lines += [_row([name.replace("_", " ") + "s", f"{count:,}"]) for name, count in manifest["duplicates"].items()]
    lines.append(_row(["to sample from", f"{manifest['pairs_to_sample_from']:,}"]))
    lines += [_row([name.replace("_", " "), f"{count:,}"]) for name, count in manifest["sampling"].items()]
    for name, split in manifest["splits"].items():
        by_source = ", ".join(f"{source} {count:,}" for source, count in split["by_source"].items())
        lines.append(_row([f"**{name}** ({by_source})", f"{split['pairs']:,}"]))
    by_rule = {rule: found for stage in report.examples.values() for rule, found in stage.items()}
    for rule, examples in sorted(by_rule.items()):
        lines += ["", f"## {rule}", ""]
        for _, place, before, after in examples:
            change = f" → {_texts(after)}" if after else ""
            lines.append(f"- {place}: {_texts(before)}{change}")
    lines += ["", "## Kept", ""]
    lines += [f"- {name}: {_texts(source + chr(9) + target)}" for name, source, target in kept]
    return "\n".join([*lines, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _counts(title: str, counts: Sequence[int]) -> str:
    return _row([title, *(f"{count:,}" for count in (*counts, sum(counts)))])


def _texts(pair: str) -> str:
    """Both sides, with whatever would break a page or hide in it made visible."""
    return " ↔ ".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in side) for side in pair.split("\t"))
