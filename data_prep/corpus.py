"""From files of pairs to disjoint train, validation and test splits: two steps, with room for a tokenizer between them.

splits = read_and_split(...)           read, clean, drop duplicates, hold out (`splitting`)
... train a tokenizer on splits["train"], where the corpus has to bring its own ...
splits["train"] = draw("train", ...)   the first n training pairs that are short enough
"""

from collections.abc import Callable, Sequence
from itertools import chain, compress, islice
from typing import Any

import pyarrow as pa

from data_prep.cleaning import Cleaning, check_order, clean_context
from data_prep.reading import PathLike, read_pairs
from data_prep.relatives import Relatives
from data_prep.report import Report
from data_prep.splitting import HELD_OUT, Texts, by_rank, hold_out, nothing_left, to_train_on, unshared
from data_prep.vectorised import clean_columns
from duplexmt.common.pair import Pair

CountTokens = Callable[[list[str]], list[int]]
Splits = dict[str, list[Pair]]

_BATCH = 5_000  # pairs in one call of a token counter


def read_and_split(
    train: PathLike,
    validation: PathLike | None = None,
    test: PathLike | None = None,
    *,
    source_language: str,
    target_language: str,
    source_field: int | str = 0,
    target_field: int | str = 1,
    validation_size: int = 0,
    test_size: int = 0,
    seed: int = 0,
    report: Report,
    context_separator: str | None = None,
    train_on_relatives: bool = False,
) -> Splits:
    """Cleaned pairs without exact duplicates, by split; no text of one is in another, and no training pair a relative.

    "test" and "validation" are in the order of their files, or of their ranks; "train" is in a random order.

    Args:
        validation, test: files of their own, taken whole; without them the split is cut from the pairs of `train`.
        validation_size, test_size: how many pairs are cut.
        context_separator: between the sentence before and the source in the source column; None where there is none.
        train_on_relatives: whether near repetitions of held-out pairs (`relatives`) are trained on.

    Raises:
        ValueError: unknown language code, negative size, too few pairs to hold out, no clean pair in one of the inputs,
            or none that shares no text with test pairs; and those of `read_pairs`.
        FileNotFoundError: one of the paths leads nowhere.
    """
    rules = Cleaning(source_language, target_language)
    layout: dict[str, Any] = {"source_field": source_field, "target_field": target_field}
    layout |= {"context_separator": context_separator, "languages": rules.languages, "report": report}

    def read(name: str, path: PathLike) -> list[Pair]:
        """Clean pairs in the order of the file, each exact pair once. Pairs are judged by the source alone."""
        pairs: dict[Pair, None] = {}
        raw = ((pair, report.file, report.line) for pair in read_pairs(path, stage=f"{name}.read", **layout))
        while batch := list(islice(raw, _BATCH)):
            texts = (pa.array([pair[side] for pair, *_ in batch], pa.string()) for side in (0, 1))
            cleaned = clean_columns(*texts, rules)
            sides = (column.to_pylist() for column in (cleaned.source, cleaned.target))
            for (pair, report.file, report.line), code, *both in zip(batch, cleaned.dropped, *sides, strict=True):
                clean = Pair(*both, clean_context(pair.before, rules) if pair.before else "")
                if code or clean in pairs:
                    reason = cleaned.reasons[code] or "duplicate"
                    report.add_example(f"{name}.clean", reason, f"{pair.source}\t{pair.target}")
                else:
                    pairs[clean] = None
        report.add(f"{name}.clean", "kept", len(pairs))
        if not pairs:
            where = f"{path} (source_field={source_field}, target_field={target_field})"
            raise nothing_left(name, report, where)
        check_order(name, list(pairs), *rules.languages)
        return list(pairs)

    splits: Splits = {}
    sizes: dict[str, dict[str, int]] = {}
    held = Texts()
    for name, path, size in zip(HELD_OUT, (test, validation), (test_size, validation_size), strict=True):
        if size < 0:
            raise ValueError(f"{name}_size must not be negative, got {size}")
        if path is None:
            sizes[name] = {"": size}
        else:
            known = {"shares_held_out": held}
            splits[name] = unshared(name, read(name, path), known, report, Relatives((), rules.languages))
            if not splits[name]:
                raise ValueError(
                    f"no {name} pair of {path} is left, as each shares its source or target with a test pair: give "
                    f"data.{name}_path another file than data.test_path, or leave it out"
                )
            held.add(splits[name])
    pairs = read("train", train)
    for name, found in hold_out(by_rank({"train": pairs}, seed), sizes, held, seed).items():
        splits[name] = [each.pair for each in found]
        held.add(splits[name])
    near = () if train_on_relatives else chain(splits["test"], splits["validation"])
    splits["train"] = to_train_on(
        [("train", pairs)], {"shares_held_out": held}, report, Relatives(near, rules.languages), seed
    )
    return {name: splits[name] for name in ("train", "validation", "test")}


def fits(
    pairs: Sequence[Any], max_tokens: int | None, count_source: CountTokens | None, count_target: CountTokens | None
) -> list[bool]:
    """Which pairs have at most `max_tokens` tokens on either side: all where that is None."""
    if max_tokens is None or count_source is None or count_target is None:
        return [True] * len(pairs)
    sizes = count_source([pair.source for pair in pairs]), count_target([pair.target for pair in pairs])
    return [max(both) <= max_tokens for both in zip(*sizes, strict=True)]


def draw(
    name: str,
    pairs: list[Pair],
    *,
    max_tokens: int | None,
    count: tuple[CountTokens, CountTokens],
    size: int | None,
    report: Report,
) -> list[Pair]:
    """The first `size` pairs of a split (None: all) with at most `max_tokens` tokens on either side.

    Of pairs in a random order they are a uniform sample of all that fit, and the rest needs no tokens counted. The
    counters take a list of texts and return as many numbers of tokens. The paper keeps ≤ 32 on both sides.

    Raises:
        ValueError: there are fewer.
    """
    chosen: list[Pair] = []
    looked_at = 0
    wanted = len(pairs) if size is None else size
    for start in range(0, len(pairs), _BATCH):
        if len(chosen) >= wanted:
            break
        batch = pairs[start : start + _BATCH]
        looked_at += len(batch)
        fitting = fits(batch, max_tokens, *count)
        if max_tokens is not None:
            report.add(f"{name}.length", f"over_{max_tokens}_tokens", fitting.count(False))
        chosen += compress(batch, fitting)
    if pairs and not chosen:
        raise nothing_left(name, report)
    if size is not None and len(chosen) < size:
        raise ValueError(
            f"data.{name}_size={size}: only {len(chosen):,} pairs have at most {max_tokens} tokens a side; "
            f"ask for fewer, or raise data.max_tokens\n{report.summary()}"
        )
    if len(pairs) > looked_at or len(chosen) > wanted:
        report.add(f"{name}.length", "not_sampled", len(pairs) - looked_at + max(0, len(chosen) - wanted))
    return chosen[:wanted]
