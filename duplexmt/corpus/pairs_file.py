"""A file of pairs, or one for each split, to splits that depend on texts alone: `data=pairs`."""

from itertools import chain
from typing import Any

from data_prep.cleaning import Cleaning, check_order, clean_context
from data_prep.reading import read_columns
from data_prep.relatives import Relatives
from data_prep.report import Report
from data_prep.splitting import HELD_OUT, Texts, by_rank, hold_out
from data_prep.vectorised import clean_columns

from ..common.pair import Pair
from .corpus_settings import CorpusSettings
from .training_pairs import nothing_left, to_train_on, unshared


def file_pairs(asked: CorpusSettings, report: Report, train: bool = True) -> dict[str, list[Pair]]:
    """Cleaned pairs without exact duplicates, by split; no text of one is in another, and no training pair a relative.

    "test" and "validation" are in the order of their files, or of their ranks; "train" is in a random order.

    Args:
        asked: `path` or `train_path` leads to the pairs to train on. `validation_path` and `test_path` are taken whole;
            without them as many pairs as `validation_size` and `test_size` say are cut from those to train on.
        report: of what was read and left out.
        train: without it there is no "train"; the other splits are the same.

    Raises:
        FileNotFoundError, ValueError: no path, or one that leads nowhere; an unknown language code, a negative size,
            too few pairs to hold out, no clean pair in one of the files, or none that shares no text with test pairs;
            those of `read_columns`.
    """
    main = asked.path or asked.train_path
    if main is None:
        raise ValueError("give data.path=FILE, or data.train_path=FILE: there are no pairs to train on")
    rules = Cleaning(asked.source_language, asked.target_language)

    def read(name: str, path: str) -> list[Pair]:
        """Clean pairs in the order of the file, each exact pair once. Pairs are judged by the source alone."""
        pairs: dict[Pair, None] = {}
        how: dict[str, Any] = asked.reading | {"languages": rules.languages, "report": report}
        for raw in read_columns(path, stage=f"{name}.read", **how):
            cleaned = clean_columns(raw.source, raw.target, rules)
            columns = cleaned.dropped, cleaned.source.to_pylist(), cleaned.target.to_pylist()
            for (place, pair), code, source, target in zip(raw.pairs(), *columns, strict=True):
                clean = Pair(source, target, clean_context(pair.before, rules) if pair.before else "")
                if code or clean in pairs:
                    reason = cleaned.reasons[code] or "duplicate"
                    report.add_example(f"{name}.clean", reason, f"{pair.source}\t{pair.target}", place)
                else:
                    pairs[clean] = None
        report.add(f"{name}.clean", "kept", len(pairs))
        if not pairs:
            where = f"{path} (source_field={asked.source_field}, target_field={asked.target_field})"
            raise nothing_left(name, report, where)
        check_order(name, list(pairs), *rules.languages)
        return list(pairs)

    splits: dict[str, list[Pair]] = {}
    sizes: dict[str, dict[str, int]] = {}
    held = Texts()
    for name in HELD_OUT:
        path, size = getattr(asked, f"{name}_path"), getattr(asked, f"{name}_size")
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
    pairs = read("train", main)
    for name, found in hold_out(by_rank({"train": pairs}, asked.seed), sizes, held, asked.seed).items():
        splits[name] = [each.pair for each in found]
        held.add(splits[name])
    if train:
        near = () if asked.train_on_relatives else chain(splits["test"], splits["validation"])
        splits["train"] = to_train_on(
            [("train", pairs)], {"shares_held_out": held}, report, Relatives(near, rules.languages), asked.seed
        )
    return {name: splits[name] for name in ("train", "validation", "test") if name in splits}
