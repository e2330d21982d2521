"""The built-in corpus: its size, its alignments, its language, and the rows they determine."""

import hashlib

import pytest

from duplexmt.data.builtin import CASE_STUDY, FILE, AlignedPair, builtin_corpus, determination_rows


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    return builtin_corpus(2000, 0, 0, seed=11)["train"]


def test_splits_are_disjoint_without_the_case_study_and_held_out_ones_independent_of_the_training_size() -> None:
    splits = builtin_corpus(train=2000, validation=200, test=300, seed=3)
    assert [len(splits[key]) for key in ("train", "validation", "test")] == [2000, 200, 300]
    together = [pair for split in splits.values() for pair in split]
    assert len({pair.source for pair in together}) == len({pair.target for pair in together}) == 2500
    assert CASE_STUDY.source not in {pair.source for pair in together}
    assert CASE_STUDY.target not in {pair.target for pair in together}
    large = builtin_corpus(train=2500, validation=200, test=300, seed=3)
    assert (large["test"], large["validation"]) == (splits["test"], splits["validation"])


def test_words_and_spans_spell_the_texts_exactly_and_every_target_word_is_linked(pairs: list[AlignedPair]) -> None:
    for pair in pairs:
        assert "".join(pair.source_words) == pair.source
        assert tuple(pair.source[a:b] for a, b in pair.source_word_spans()) == pair.source_words
        assert tuple(pair.target[a:b] for a, b in pair.target_spans) == pair.target_words
        assert "".join(pair.target_words) == pair.target.replace(" ", "")
        assert len(pair.content) == len(pair.target_words)
        assert list(pair.links) == sorted(set(pair.links))
        assert {target for target, _ in pair.links} == set(range(len(pair.target_words)))
        assert all(0 <= source < len(pair.source_words) for _, source in pair.links)


def test_case_study_alignment_is_the_one_worked_by_hand() -> None:
    assert CASE_STUDY.source == "站在那边的男人曾是棒球手。"
    assert CASE_STUDY.target == "The man standing there was a baseball player."
    assert CASE_STUDY.source_words == ("站", "在", "那边", "的", "男人", "曾", "是", "棒球手", "。")
    assert CASE_STUDY.links == (
        (0, 4), (1, 4), (2, 0), (2, 3), (3, 2), (4, 4), (4, 5), (4, 6), (5, 7), (6, 7), (7, 7), (8, 8)
    )  # fmt: skip
    assert CASE_STUDY.content == (False, True, True, True, False, False, True, True, False)
    assert CASE_STUDY.needed_characters() == (7, 7, 5, 4, 9, 12, 12, 12, 13)


def test_rows_of_whole_words_in_the_case_study() -> None:
    rows = determination_rows(CASE_STUDY, CASE_STUDY.source_word_spans(), CASE_STUDY.target_spans)
    assert rows == [4, 4, 4, 4, 6, 7, 7, 7, 8]


def test_rows_of_odd_subwords_in_the_case_study() -> None:
    # 站在 那 边的 男 人 人 曾是 棒 棒 球手。: 人 and 棒 are cut into bytes.
    source = [(0, 2), (2, 3), (3, 5), (5, 6), (6, 7), (6, 7), (7, 9), (9, 10), (9, 10), (10, 13)]
    # The, _man, _stand, ing, _there, _, was, _a_base, ball_player.
    target = [(0, 3), (3, 7), (7, 13), (13, 16), (16, 22), (22, 23), (23, 26), (26, 33), (33, 45)]
    assert determination_rows(CASE_STUDY, source, target) == [5, 5, 5, 5, 5, 5, 6, 9, 9]


def test_spans_that_do_not_fit_are_refused() -> None:
    words = CASE_STUDY.source_word_spans()
    with pytest.raises(ValueError, match=r"\(0, 99\)"):
        determination_rows(CASE_STUDY, words, [(0, 99)])
    with pytest.raises(ValueError, match="covered by no source token"):
        determination_rows(CASE_STUDY, words[:3], CASE_STUDY.target_spans)


def test_the_first_pairs_are_those_that_all_our_numbers_are_of() -> None:
    """Its language was checked when they were made, once."""
    assert hashlib.sha256(FILE.read_bytes()).hexdigest().startswith("77b222bd806b413f40b95058e1750407")
    splits = builtin_corpus(train=2, validation=500, test=500, seed=1)
    digest = hashlib.sha256(repr([*splits["test"], *splits["validation"], *splits["train"]]).encode()).hexdigest()
    assert digest.startswith("90412ef833e9d9f3afe7e4a51cffaffc")


def test_impossible_sizes_are_refused_by_value_rule_and_way_out() -> None:
    with pytest.raises(ValueError, match="validation is -2; a split's size must not be negative: use 0"):
        builtin_corpus(1, -2, 1, 0)
    with pytest.raises(ValueError, match="is 39,001; the built-in corpus has 39,000 pairs: ask for fewer"):
        builtin_corpus(39_000, 1, 0, 0)
