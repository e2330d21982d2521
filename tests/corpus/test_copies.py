"""Training pairs with something to be copied: what is drawn stands on both sides, and is of its kind."""

import random
import re
from collections import Counter

import pytest

from duplexmt.common.pair import Pair
from duplexmt.corpus.copies import KINDS, NAMES, copies, draw, like, replaceable
from duplexmt.corpus.prepared import prepare_corpus
from tests.helpers import CORPUS, tsv

CHINESE = [
    Pair("汤姆有25本书。", "Tom has 25 books."),
    Pair("调用setState更新界面。", "Call setState to update the view."),
    Pair("请访问https://example.org/a。", "Please visit https://example.org/a."),
    Pair("写信给me@example.org。", "Write to me@example.org."),
    Pair("会议在9:30开始。", "The meeting starts at 9:30."),
    Pair("我喜欢Berlin。", "I like Berlin."),
    Pair("猫在睡觉。", "The cat is sleeping."),
    Pair("她很高兴。", "She is happy."),
]
ZH_EN = "zh", "en"
LATIN = re.compile(r"[A-Za-z0-9_.,:/@%-]*[A-Za-z0-9]%?")


def kinds(source, target, known=NAMES[ZH_EN]):
    return replaceable(Pair(source, target), known)


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("汤姆有25本书。", "Tom has 25 books.", [("number", "25", "25"), ("name", "汤姆", "Tom")]),
        ("汤姆明天来。", "Tomorrow he comes.", []),  # no Tom, but a part of a word
        ("我有1只猫。", "I have 1 cat.", []),  # of any other number there would be cats
        ("涨了5%。", "It rose by 5%.", [("number", "5%", "5%")]),
        ("见3.2节。", "See section 3.2.", [("number", "3.2", "3.2")]),
        ("第3页有3张图。", "Page 3 has 3 pictures.", []),  # which is which?
        ("5月15日", "May 15", [("number", "15", "15")]),
        ("看https://a.org/b?c=1。", "See https://a.org/b?c=1.", [("url",) + ("https://a.org/b?c=1",) * 2]),
        ("问a.b@c.org", "Ask a.b@c.org", [("email", "a.b@c.org", "a.b@c.org")]),
        ("A班", "A class", []),  # an article
        ("用my_list", "use my_list", [("identifier", "my_list", "my_list")]),
        ("在Berlin", "in Berlin", [("name", "Berlin", "Berlin")]),
        ("在柏林", "in Berlin", []),
        ("José来了。", "José came.", []),  # nor is Jos
        ("汤姆(Tom)来了。", "Tom came.", [("name", "Tom", "Tom")]),
    ],
)
def test_what_stands_once_on_both_sides_can_be_replaced(source, target, found):
    assert kinds(source, target) == found


def test_names_of_chinese_sentences_are_none_of_other_languages():
    assert kinds("汤姆来了。", "Tom came.", known={}) == []


@pytest.mark.parametrize("languages", [ZH_EN, ("de", "en"), ("zh", "de")])
def test_as_many_pairs_are_made_as_asked_and_what_is_drawn_stands_on_both_sides(languages):
    made = copies(CHINESE * 50, 0.5, languages, seed=1)
    assert len(made) == 200
    latin = [Counter(LATIN.findall(re.sub(r"[^\x00-\x7f]", " ", pair.source))) for pair in made]
    for found, pair in zip(latin, made, strict=True):
        assert found, "something to copy"
        assert all(text in pair.target for text in found), pair
    drawn = {text for found in latin for text in found} - {"setState", "Berlin", "25", "9:30"}
    assert len(drawn) > 100, "hardly one twice"


def test_half_are_pairs_with_another_one_in_place_and_half_have_a_sentence_about_one():
    made = copies(CHINESE * 50, 1, ZH_EN, seed=1)
    in_place, beside = made[:200], made[200:]
    frames = {re.sub(r"[\x00-\x7f]+|汤姆", "", pair.source) for pair in CHINESE}
    assert {re.sub(r"[\x00-\x7f]+", "", pair.source) for pair in in_place} <= frames
    assert not any("汤姆" in pair.source or "Tom" in pair.target for pair in in_place)
    assert any(pair.source == "猫在睡觉。" or "猫在睡觉。" in pair.source for pair in beside)
    assert all("The cat is sleeping." in pair.target for pair in beside if "猫在睡觉。" in pair.source)
    assert not any(" " in re.sub(r"[A-Za-z]+ [A-Z][a-z]+", "", pair.source) for pair in beside), "as Chinese is cleaned"


def test_where_nothing_can_be_replaced_all_have_a_sentence_about_something():
    made = copies(CHINESE[-2:] * 10, 0.5, ZH_EN, seed=1)
    assert len(made) == 10
    assert all(re.search("[A-Za-z0-9]", pair.source) for pair in made)


def test_the_seed_alone_decides():
    assert copies(CHINESE, 1, ZH_EN, 1) == copies(CHINESE, 1, ZH_EN, 1)
    assert copies(CHINESE, 1, ZH_EN, 1) != copies(CHINESE, 1, ZH_EN, 2)


@pytest.mark.parametrize("kind", ["url", "email", "number", "name", "identifier"])
def test_what_is_drawn_is_of_its_kind(kind):

    rng = random.Random(1)
    drawn = [draw(kind, rng) for _ in range(300)]
    assert len(set(drawn)) > 150
    assert all(all(KINDS[kind].fullmatch(part) for part in text.split()) for text in drawn)


@pytest.mark.parametrize(
    ("number", "rule"),
    [("1998", r"(18|19|20)\d\d"), ("9:30", r"\d?\d:[0-5]\d"), ("12", r"\d\d?"), ("1,500", r"[2-9],[2-9]00"),
     ("0.5%", r"0\.[2-9]%"), ("76", r"[2-9]{2}"), ("9" * 5000, r"[2-9]{5000}")],
)  # fmt: skip
def test_another_number_looks_the_same(number, rule):

    rng = random.Random(1)
    found = {like(number, rng) for _ in range(50)}
    assert len(found) > 5
    assert all(re.fullmatch(rule, one) for one in found)


def test_copies_are_trained_on_beside_the_others_are_short_enough_and_change_no_other_split(tmp_path):
    numbers = "一二三四五六七八九十"
    pairs = [
        (f"我有{a}{b}{c}只猫。", f"I have {a}-{b}-{c} cats.") for a in numbers for b in numbers for c in numbers[:3]
    ]
    english = str.maketrans(dict(zip(numbers, "abcdefghij", strict=True)))
    path = tsv(tmp_path / "pairs.tsv", [(one, other.translate(english)) for one, other in pairs])
    settings = CORPUS | {"path": path, "max_tokens": 24, "validation_size": 20, "test_size": 20}
    settings["train_on_relatives"] = True  # all of them are alike
    alone, prepared = prepare_corpus(**settings), prepare_corpus(**settings, copies=0.5)
    train = prepared.splits["train"]
    size = len(alone.splits["train"])
    assert train[:size] == alone.splits["train"]
    assert prepared.splits["test"] == alone.splits["test"]
    assert prepared.splits["validation"] == alone.splits["validation"]
    more = train[size:]
    assert 0 < len(more) < size / 2, "some are too long"
    assert prepared.report.counts["train"]["copies"] == len(more)
    assert max(len(ids) for ids in prepared.sources.ids([pair.source for pair in more])) <= 24
    joined = prepare_corpus(**settings, copies=0.5, joined_tokens=24).splits["train"]
    assert joined[: len(train)] == train
    assert any(pair.source.startswith(more[0].source[:-1]) for pair in joined[len(train) :]) or len(more[0].source) > 12
