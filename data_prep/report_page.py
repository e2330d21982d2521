"""The report of a preparation as a page for people."""

from collections.abc import Sequence
from typing import Any

from data_prep.report import Report


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
    lines += [
        "",
        "## Kept",
        "",
        *(f"- {name}: {_texts(source + chr(9) + target)}" for name, source, target in kept),
        "",
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _counts(title: str, counts: Sequence[int]) -> str:
    return _row([title, *(f"{count:,}" for count in (*counts, sum(counts)))])


def _texts(pair: str) -> str:
    """Both sides, with whatever would break a page or hide in it made visible."""
    return " ↔ ".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in side) for side in pair.split("\t"))
