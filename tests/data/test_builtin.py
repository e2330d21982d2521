"""The built-in corpus: its size, its alignments, its language, and the rows they determine."""

import hashlib
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from duplexmt.data.builtin import CASE_STUDY, AlignedPair, builtin_corpus, determination_rows

COUNT = 20_000


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    return builtin_corpus(COUNT, 0, 0, seed=11)["train"]


def test_same_seed_gives_the_same_corpus_in_another_process() -> None:
    code = (
        "import sys, duplexmt.data.builtin as g; sys.stdout.buffer.write(repr(g.builtin_corpus(9, 9, 9, 5)).encode())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode()
    assert told == repr(builtin_corpus(9, 9, 9, 5))
    assert builtin_corpus(9, 9, 9, 6) != builtin_corpus(9, 9, 9, 5)


def test_sentences_have_four_to_twenty_words_and_end_in_a_mark(pairs: list[AlignedPair]) -> None:
    assert {len(pair.source_words) for pair in pairs} <= set(range(4, 21))
    assert {pair.source_words[-1] + pair.target_words[-1] for pair in pairs} == {"。.", "？?"}


def test_splits_are_disjoint_without_the_case_study_and_held_out_ones_independent_of_the_training_size() -> None:
    splits = builtin_corpus(train=2000, validation=200, test=300, seed=3)
    assert [len(splits[key]) for key in ("train", "validation", "test")] == [2000, 200, 300]
    together = [pair for split in splits.values() for pair in split]
    assert len({pair.source for pair in together}) == len({pair.target for pair in together}) == 2500
    assert CASE_STUDY.source not in {pair.source for pair in together}
    assert CASE_STUDY.target not in {pair.target for pair in together}
    large = builtin_corpus(train=2500, validation=200, test=300, seed=3)
    assert (large["test"], large["validation"]) == (splits["test"], splits["validation"])


def test_one_source_has_one_target(pairs: list[AlignedPair]) -> None:
    target_of: dict[str, str] = {}
    for pair in pairs:
        assert target_of.setdefault(pair.source, pair.target) == pair.target


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


def test_english_is_spaced_and_has_the_right_articles_and_chinese_has_no_latin_letters(
    pairs: list[AlignedPair],
) -> None:
    for pair in pairs:
        text = pair.target
        assert text[0].isupper()
        assert "  " not in text
        assert not re.search(r" [,.?]|,\S", text), text
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", text), text
        assert not re.search(r"\b(the the|a a|be \w+ed away to|will not be not)\b", text), text
    assert all(re.fullmatch(r"[\u4e00-\u9fff]+(，[\u4e00-\u9fff]+)*[。？]|请问，.*？", pair.source) for pair in pairs)


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


@pytest.mark.parametrize(
    ("pattern", "least"),
    [("把", 7), ("被", 7), ("曾", 2), ("正在", 5), ("没", 4), ("会", 8), ("了", 30), ("比", 3), ("和", 3), ("但是", 3),
     ("因为", 3), ("如果", 1.5), ("谁", 2), ("为什么", 1), ("这", 10), ("那", 20), ("一", 15), ("给", 1),
     ("，", 10)],
)  # fmt: skip
def test_marker_occurs_in_at_least_this_percentage(pattern: str, least: float, pairs: list[AlignedPair]) -> None:
    assert 100 * sum(any(pattern in word for word in pair.source_words) for pair in pairs) / COUNT >= least


def test_many_sentences_reorder_a_relative_clause_a_time_or_a_place(pairs: list[AlignedPair]) -> None:
    def crossed(pair: AlignedPair) -> bool:
        firsts = [min(s for t, s in pair.links if t == index) for index in range(len(pair.target_words))]
        return any(b <= a - 3 for a, b in pairwise(firsts))

    assert sum(map(crossed, pairs)) / COUNT > 0.5


def test_sentences_known_only_from_their_end_are_rare(pairs: list[AlignedPair]) -> None:
    plain = sum("吗" in pair.source_words and "请问" not in pair.source_words for pair in pairs)
    assert 0 < plain / COUNT <= 0.03
    late = sum(pair.needed_characters()[0] >= 0.9 * len(pair.source) for pair in pairs)
    assert late / COUNT <= 0.03


def test_gold_alignment_agrees_with_what_the_prefixes_of_the_corpus_allow(pairs: list[AlignedPair]) -> None:
    """Among sentences that share the source read so far, the first target word is seldom another one."""
    firsts: dict[tuple[str, ...], Counter[str]] = {}
    for pair in pairs:
        for read in range(1, 6):
            firsts.setdefault(pair.source_words[:read], Counter())[pair.target_words[0]] += 1
    agree = total = 0
    for pair in pairs:
        read = max(source for target, source in pair.links if target == 0) + 1
        if read <= 5:
            others = firsts[pair.source_words[:read]]
            agree += others[pair.target_words[0]]
            total += others.total()
    assert agree / total > 0.9


def test_the_first_pairs_are_those_that_all_our_numbers_are_of() -> None:
    splits = builtin_corpus(train=2, validation=500, test=500, seed=1)
    digest = hashlib.sha256(repr([*splits["test"], *splits["validation"], *splits["train"]]).encode()).hexdigest()
    assert digest.startswith("90412ef833e9d9f3afe7e4a51cffaffc")


def test_impossible_sizes_are_refused_by_value_rule_and_way_out() -> None:
    with pytest.raises(ValueError, match="validation is -2; a split's size must not be negative: use 0"):
        builtin_corpus(1, -2, 1, 0)
    with pytest.raises(ValueError, match="is 39,001; the built-in corpus has 39,000 pairs: ask for fewer"):
        builtin_corpus(39_000, 1, 0, 0)
