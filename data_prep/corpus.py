"""From raw files to disjoint train, validation and test splits, in two steps with room for a tokenizer between them.

    parts = read_and_clean(...)            read, clean, drop duplicates; set candidates for holding out apart
    ... train a tokenizer on parts["train"], where the corpus has to bring its own ...
    splits = finish_splits(parts, ...)     filter by length, hold out exactly n pairs, sample the training pairs

Which pairs are held out depends on the texts and the seed alone, never on the order of lines: every pair has the keyed
hash of its source as its rank, and of the pairs that pass the length filter the lowest ranks make the test split, the
next ones the validation split. The length filter needs the tokenizer and the tokenizer must not see what is held out,
so `read_and_clean` keeps the lowest ranks back as a "pool", several times as many as needed, with all training pairs
that share a target with them. What the pool has left over goes back to the training pairs in the end. Should the pool
not be enough, the ranks after it are held out and the report says so (`beyond_pool`).

Splits are disjoint by source and by target, up to case, spaces and punctuation (`text_key`).
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from data_prep.cleaning import check_order
from data_prep.reading import Pair, PathLike, read_pairs
from data_prep.report import Report
from data_prep.rules import check_language, clean_pair, clean_side
from data_prep.splitting import (
    Texts,
    hold_out,
    nothing_left,
    rank,
    sample,
    text_key,
)

Paths = PathLike | Sequence[PathLike]
CountTokens = Callable[[list[str]], list[int]]
Splits = dict[str, list[Pair]]

_POOL_FACTOR = 4  # candidates for each pair to be held out, as long as they are at most half of the corpus
_BATCH = 1000  # texts in one call of a token counter


def read_and_clean(
    train: Paths,
    validation: Paths | None = None,
    test: Paths | None = None,
    *,
    source_language: str,
    target_language: str,
    source_field: int | str = 0,
    target_field: int | str = 1,
    validation_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    report: Report,
    context_separator: str | None = None,
) -> Splits:
    """Cleaned pairs without exact duplicates: "train", "pool" (candidates), "validation" and "test" if they have files.

    "train" is what a tokenizer may see: no pair in it shares a text with validation, test or the ranked candidates
    ("pool" ends with the pairs kept back for sharing a target with those). A path may be a list of paths, which are
    read one after the other.

    Args:
        validation, test: files of their own; without them the split is cut from the pairs of `train`.
        validation_size, test_size: how many pairs; None is all of the file, or no such split where there is no file.
        context_separator: between the sentence before and the source in the source column; None where there is none.

    Raises:
        ValueError: unknown language code, negative size, no clean pair in one of the inputs; and those of `read_pairs`.
        FileNotFoundError: one of the paths leads nowhere.
    """
    languages = check_language(source_language), check_language(target_language)
    _check_sizes(validation_size=validation_size, test_size=test_size)
    how: dict[str, Any] = {
        "languages": languages, "fields": (source_field, target_field), "report": report,
        "context_separator": context_separator,
    }  # fmt: skip
    parts: Splits = {}
    wanted = 0
    held_out = Texts()
    for name, paths, size in (("test", test, test_size), ("validation", validation, validation_size)):
        if paths is None:
            wanted += size or 0
        else:
            parts[name] = held_out.drop_shared(_read_split(name, paths, **how), report, name)
            held_out.add(parts[name])

    pairs = held_out.drop_shared(_read_split("train", train, **how), report, "train")
    pairs.sort(key=lambda pair: (rank(text_key(pair.source), seed), pair))
    cut = min(_POOL_FACTOR * wanted, len(pairs) // 2)
    while 0 < cut < len(pairs) and len({text_key(pairs[at].source) for at in (cut - 1, cut)}) == 1:
        cut += 1  # all pairs of one source on one side
    targets = {text_key(pair.target) for pair in pairs[:cut]}
    parts["pool"], parts["train"] = pairs[:cut], []
    for pair in pairs[cut:]:
        parts["pool" if text_key(pair.target) in targets else "train"].append(pair)
    return parts


def finish_splits(
    parts: Splits,
    *,
    max_tokens: int | None = None,
    count_source: CountTokens | None = None,
    count_target: CountTokens | None = None,
    train_size: int | None = None,
    validation_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    report: Report,
) -> Splits:
    """ "train", "validation" and "test" of exactly the sizes asked for, from what `read_and_clean` returned.

    Give the sizes and the seed that were given there. Held-out pairs cut from the corpus have distinct
    sources and distinct targets; training pairs that share either with them are dropped. `train_size` takes a uniform
    sample, of which a smaller one with the same seed is a part. Without file and size, validation and test are empty.

    Raises:
        ValueError: fewer pairs than a size asks for, no pair left in a split, or what `filter_by_length` raises.
    """
    _check_sizes(train_size=train_size, validation_size=validation_size, test_size=test_size)
    parts = filter_by_length(parts, max_tokens, count_source, count_target, report)
    sizes = {"test": test_size, "validation": validation_size}
    to_cut = {name: size or 0 for name, size in sizes.items() if name not in parts}

    held, train = hold_out(parts["pool"], parts["train"], sum(to_cut.values()), report)
    splits = {"train": sample("train", train, train_size, seed, report)}
    for name in sizes:
        if name in to_cut:
            splits[name], held = held[: to_cut[name]], held[to_cut[name] :]
        else:
            size = sizes[name]
            splits[name] = parts[name] if size is None else sample(name, parts[name], size, seed, report)
    return {name: splits[name] for name in ("train", "validation", "test")}


def filter_by_length(
    parts: Splits,
    max_tokens: int | None,
    count_source: CountTokens | None,
    count_target: CountTokens | None,
    report: Report,
) -> Splits:
    """The pairs whose source and target both have at most `max_tokens` tokens; all of them when it is None.

    The counters take a list of texts and return a list of token counts, with or without special tokens as the caller
    sees fit. The paper keeps <= 32 on both sides.

    Raises:
        ValueError: `max_tokens` below 1 or without both counters, a counter that returns too few or too many counts,
            or no pair left in a part that had some.
    """
    if max_tokens is None:
        return dict(parts)
    if max_tokens < 1 or count_source is None or count_target is None:
        raise ValueError(f"max_tokens must be at least 1 and come with two token counters, got {max_tokens}")
    kept: Splits = {}
    for name, pairs in parts.items():
        sources = _count(count_source, [pair.source for pair in pairs])
        targets = _count(count_target, [pair.target for pair in pairs])
        kept[name] = []
        for pair, source, target in zip(pairs, sources, targets, strict=True):
            if source <= max_tokens and target <= max_tokens:
                kept[name].append(pair)
            else:
                text = f"{pair.source}\t{pair.target}"
                report.add_example(f"{name}.length", f"over_{max_tokens}_tokens", text, placed=False)
        report.add(f"{name}.length", "kept", len(kept[name]))
        if pairs and not kept[name] and name not in ("train", "pool"):
            raise nothing_left(name, report)
    if not kept["train"] and not kept.get("pool"):
        raise nothing_left("train", report)
    return kept


def _count(count_tokens: CountTokens, texts: list[str]) -> list[int]:
    counts: list[int] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        counts += count_tokens(batch)
        if len(counts) != start + len(batch):
            raise ValueError(f"the token counter returned {len(counts) - start} counts for {len(batch)} texts")
    return counts


def _read_split(
    name: str,
    paths: Paths,
    *,
    languages: tuple[str, str],
    fields: tuple[int | str, int | str],
    report: Report,
    context_separator: str | None,
) -> list[Pair]:
    """Clean pairs in the order of the files, each exact pair once. ValueError for none, or swapped columns.

    Pairs are judged by the source alone; the sentence before is cleaned for itself.
    """
    seen: set[Pair] = set()
    pairs: list[Pair] = []
    stage = f"{name}.clean"
    files = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in files:
        raw = read_pairs(
            path, source_field=fields[0], target_field=fields[1], report=report, stage=f"{name}.read",
            context_separator=context_separator,
        )  # fmt: skip
        for source, target, before in raw:
            cleaned = clean_pair(source, target, *languages)
            if isinstance(cleaned, str):
                report.add_example(stage, cleaned, f"{source}\t{target}")
                continue
            pair = Pair(*cleaned, clean_side(before, languages[0]))
            if pair in seen:
                report.add_example(stage, "duplicate", f"{source}\t{target}")
            else:
                seen.add(pair)
                pairs.append(pair)
    report.add(stage, "kept", len(pairs))
    if not pairs:
        where = f"{', '.join(map(str, files))} (source_field={fields[0]}, target_field={fields[1]})"
        raise nothing_left(name, report, where)
    check_order(name, pairs, *languages)
    return pairs


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 0:
            raise ValueError(f"{name} must not be negative, got {size}")
