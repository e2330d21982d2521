"""The built-in corpus: its size, its words and its splits."""

import hashlib

import pytest

from duplexmt.data.builtin import CASE_STUDY, FILE, builtin_corpus


def test_splits_are_disjoint_without_the_case_study_and_held_out_ones_independent_of_the_training_size() -> None:
    splits = builtin_corpus(train=2000, validation=200, test=300, seed=3)
    assert [len(splits[key]) for key in ("train", "validation", "test")] == [2000, 200, 300]
    together = [pair for split in splits.values() for pair in split]
    assert len({pair.source for pair in together}) == len({pair.target for pair in together}) == 2500
    assert CASE_STUDY.source not in {pair.source for pair in together}
    assert CASE_STUDY.target not in {pair.target for pair in together}
    large = builtin_corpus(train=2500, validation=200, test=300, seed=3)
    assert (large["test"], large["validation"]) == (splits["test"], splits["validation"])


def test_the_first_pairs_are_those_that_all_our_numbers_are_of() -> None:
    """Its language was checked when they were made, once."""
    assert hashlib.sha256(FILE.read_bytes()).hexdigest().startswith("77b222bd806b413f40b95058e1750407")
    splits = builtin_corpus(train=2, validation=500, test=500, seed=1)
    digest = hashlib.sha256(repr([*splits["test"], *splits["validation"], *splits["train"]]).encode()).hexdigest()
    assert digest.startswith("b1e7af788cf6a652f7978c56986eeeae")


def test_impossible_sizes_are_refused_by_value_rule_and_way_out() -> None:
    with pytest.raises(ValueError, match="validation is -2; a split's size must not be negative: use 0"):
        builtin_corpus(1, -2, 1, 0)
    with pytest.raises(ValueError, match="is 39,001; the built-in corpus has 39,000 pairs: ask for fewer"):
        builtin_corpus(39_000, 1, 0, 0)
