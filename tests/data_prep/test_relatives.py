"""Near repetitions: what the search finds is what comparing all with all finds."""

import random

import numpy as np
import pytest

from data_prep import relatives
from data_prep.relatives import RELATED, Relatives, bigrams, jaccard
from duplexmt.common.pair import Pair
from tests.data_prep.brute_force import likeness

CHINESE = "我你他们有一本书猫狗的了在看很大小天上学。，！abc Tom 12"
ENGLISH = [
    "I", "you", "he", "has", "a", "the", "book", "cat", "dog", "don't", "well-known", "is", "reading.", "Very,", "big!",
    "small", "Tom's", "İstanbul", "straße", "(12)", "x-1",
]  # fmt: skip
HINDI = ["की", "का", "कि", "दिन", "दान", "।", "मैं", "हूँ", "घर"]
THAI = "ฉันมีหนังสือแมวกา ที่ "


def drawn(count, language):
    """Texts that a word or none tells from an earlier one, or all do."""
    words, joint = {"zh": (CHINESE, ""), "en": (ENGLISH, " "), "hi": (HINDI, " "), "th": (THAI, "")}[language]
    draw, texts = random.Random(1), []
    for _ in range(count):
        text = list(draw.choice(texts)) if texts and draw.random() < 0.6 else draw.choices(words, k=draw.randrange(9))
        if text and draw.random() < 0.8:
            text[draw.randrange(len(text))] = draw.choice(words)
        texts.append(text)
    return [joint.join(text) for text in texts]


def pairs_of(count, *languages):
    pairs = list(map(Pair, *(drawn(count, code) for code in languages)))
    random.Random(2).shuffle(pairs)
    return pairs


@pytest.mark.parametrize("least", [0.2, 1 / 3, 0.5, 1.0])
@pytest.mark.parametrize("languages", [("zh", "en"), ("en", "zh"), ("hi", "en"), ("en", "th")])
def test_the_search_finds_what_comparing_all_with_all_finds(monkeypatch, languages, least):
    monkeypatch.setattr(relatives, "_AT_ONCE", 64)
    pairs = pairs_of(260, *languages)
    own, others = pairs[:60], pairs[60:]
    expected = {
        (i, j): value
        for i, other in enumerate(others)
        for j, pair in enumerate(own)
        if (value := likeness(other, pair, languages)) >= least
    }
    found = {}
    searched = Relatives(own, languages, least)
    for i, j, value in searched.alike(*zip(*(pair[:2] for pair in others), strict=True)):
        found[i, j] = max(value, found.get((i, j), 0))
    assert found == expected
    assert len(expected) > 10
    others_left = [pair for i, pair in enumerate(others) if i not in {i for i, _ in expected}]
    assert searched.others(others) == others_left


@pytest.mark.parametrize(
    ("one", "other", "language", "value"),
    [
        ("我有一本书。", "我有两本书！", "zh", 2 / 6),
        ("我有一本书。", "他有一本书。", "zh", 4 / 6),
        ("I don't know.", "I dont know", "en", 1),
        ("A well known man", "a well-known man!", "en", 1),
        ("I see a dog.", "I see a cat.", "en", 2 / 4),
        ("Hello!", "Hello?", "en", 0),  # no bigram; `Texts` tells that they are equal
        ("Straße und Gasse", "STRASSE und Gasse", "de", 1),
        ("की का दिन", "का की दिन", "hi", 0),
        ("A line\nand another", "a line and another", "en", 1),
    ],
)
def test_likeness_is_the_larger_jaccard_index_of_two_readings(one, other, language, value):
    found = max(jaccard(*(bigrams(text, language, way) for text in (one, other))) for way in (0, 1))
    assert found == pytest.approx(value)
    assert likeness(Pair(one, "a"), Pair(other, "b"), (language, "en")) == found
    assert likeness(Pair("a", one), Pair("b", other), ("en", language)) == found
    assert Relatives([Pair(one, "a")], (language, "en")).among([other], ["b"]).tolist() == [value >= RELATED]


def test_no_pairs_have_no_relatives_and_empty_texts_are_nobodys():
    assert Relatives([], ("zh", "en")).among(["你好"], ["Hello there"]).tolist() == [False]
    empty = Relatives([Pair("", ""), Pair("。", "!")], ("zh", "en"))
    assert empty.among(["", "。", "你好吗"], ["", "!", "How are you"]).tolist() == [False] * 3
    assert Relatives([Pair("你好吗", "How are you")], ("zh", "en")).among([], []).tolist() == []


def test_a_search_holds_a_few_thousand_pairs_at_a_time(monkeypatch):
    seen = []
    numbers = relatives._numbers
    monkeypatch.setattr(relatives, "_numbers", lambda texts, code: seen.append(len(texts)) or numbers(texts, code))
    Relatives(pairs_of(5, "zh", "en"), ("zh", "en")).among(["你好吗"] * 20_000, ["How are you"] * 20_000)
    assert max(seen) <= 4096
    assert sum(seen) == 2 * (20_000 + 5)


def test_a_bigram_that_a_text_has_often_counts_once():
    own, others = [Pair("哈哈哈哈哈哈哈哈", "ha ha ha ha ha")], ["哈哈", "哈哈笑", "哈哈笑了吧"]
    found = Relatives(own, ("zh", "en")).among(others, ["-"] * 3)
    assert found.tolist() == [True, True, False]
    assert np.array_equal(found, [likeness(own[0], Pair(text, "-"), ("zh", "en")) >= 0.5 for text in others])
