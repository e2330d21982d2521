"""Whole columns come to what one pair at a time comes to: on literal, random and adversarial lines."""

import functools
import re
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.cleaning import Cleaning, clean
from data_prep.vectorised import clean_columns, text_keys
from duplexmt.common.text import text_key
from duplexmt.data.builtin import builtin_corpus

PAPER = Cleaning("zh", "en")
STRICT = Cleaning("zh", "en", True, True, 40, True, 0.5, 2.0, "near")
RULES = [
    PAPER,
    STRICT,
    Cleaning("en", "zh", True, True, 30, True, 0.5, 1.5),
    Cleaning("fr", "ru", least_script=0.7),
    Cleaning("ja", "th"),
]

LINES = [
    "", " ", "我 用 Visual Studio 写代码", "這個問題", "瞭解", "坏主意", "中文&quot;引号&amp;quot;", "AT&T", "a &amp b",
    "10-26", "1 2 3 4 5 6 7", "Table 1 2 3 4 5 6 7", "0000 0000", "1,0000,0000", "。", "?", "It 's 6 % , really !",
    "café", "cafe\u0301", "straße ſtop ﬁne", "İstanbul", "ÀÉÎÕÜ ß × ÷", "①②③ ½ ²", "１２３ ＡＢＣ", "\ufeffmark",
    "zero\u200bwidth", "a\x00b", "bad \ufffd", "Good\ue4d1", "\ue4d1坏\x07",
    "tab\tin text", "line\u2028sep", "a\u00a0b\u3000c", "👩\u200d🚀 ok",
    "ひらがな", "Привет", "مرحبا", "हिन्दी", "한국어", "𠮷野家", "iPhone 4", "iphone 4.", "it''s ' s",
    "a;b :c ;) .NET .5", "x" * 50, "字" * 50, "–—…·°", "«guillemets» „low“", "mixed 中文 and English 文字",
    "A. B! C? D", "trailing ", " leading", "喜欢 New York City", "《 Old Man 》 是 “ New York ” 的 , 书 !",
    "New York , 5 % ( CNN ) 年 [ 12 000 ] 人 's ' iPhone 's", "用 .NET - A / B , … 写 ; 好 : x ; y", "“ A ‘ B ’ C ” D",
]  # fmt: skip


def columns(pairs, rules):
    cleaned = clean_columns(*(pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)), rules)
    texts = zip(cleaned.source.to_pylist(), cleaned.target.to_pylist(), strict=True)
    return [
        (cleaned.reasons[dropped] or None, *pair, {rule for rule, mask in cleaned.rewritten.items() if mask[index]})
        for index, (dropped, pair) in enumerate(zip(cleaned.dropped, texts, strict=True))
    ]


def assert_equal(pairs, rules):
    for pair, (dropped, source, target, rewritten) in zip(pairs, columns(pairs, rules), strict=True):
        fate = clean(*pair, rules)
        assert dropped == fate.dropped, pair
        if dropped is None:
            assert (source, target, rewritten) == (fate.source, fate.target, set(fate.rewritten)), pair


@pytest.mark.parametrize("rules", RULES)
def test_columns_equal_pairs_on_combinations_of_adversarial_lines(rules):
    pairs = [(source, target) for source in LINES for target in LINES]
    assert_equal(pairs if rules is STRICT else pairs[::7], rules)


@pytest.mark.parametrize("rules", [PAPER, STRICT])
def test_columns_equal_pairs_on_the_grammars_sentences(rules):
    pairs = [(pair.source, pair.target) for pair in builtin_corpus(300, 1, 1, 1)["train"]]
    spaced = [(" ".join(source), target.replace(",", " ,").replace(".", " .")) for source, target in pairs]
    assert_equal([*pairs, *spaced], rules)


TEXT = st.one_of(
    st.text(max_size=30),
    st.text("我是这個 aA1.,&;'%0-。，quotapos\u00e9\u200b\t", max_size=30),
    st.lists(st.sampled_from(LINES), max_size=3).map(" ".join),
)


@settings(max_examples=60)
@given(st.lists(TEXT, max_size=20))
def test_keys_of_a_column_are_those_of_its_texts(texts):
    assert text_keys(pa.array(texts, pa.string())).to_pylist() == list(map(text_key, texts))


# What corpora really do to sentences: tokenise them, escape them, take their letters, join them.
NOISE = [
    lambda text: re.sub(r"([,.!?;:%)'’\]}…]+)", r" \1", text),
    lambda text: re.sub(r"([,.!?;:%)'’\]}…])", r" \1 ", text),
    lambda text: re.sub(r"(?<=\w)('\w+)", r" \1", text),
    lambda text: text.replace("'", "&apos;").replace('"', "&quot;"),
    lambda text: text.replace("&", "&amp;").replace("<", " &lt; "),
    lambda text: text.replace(" ", "  "),
    lambda text: f" {text}\u3000",
    lambda text: " ".join(text),
    lambda text: re.sub(r"[^\W\d]", "", text),
    lambda text: re.sub(r"\d", "0000", text),
    lambda text: f"{text} 5 % (6 %), it 's 7 %.",
    lambda text: f"{text} ♪ «oui» ... I 'd 've , . ! )",
]
SENTENCE = st.builds(
    lambda parts, noise: functools.reduce(lambda text, change: change(text), noise, "".join(parts)),
    st.lists(
        st.sampled_from(
            ["It's", " ", " ", "5%", "don't", "他说", "，", "1-0-0-1-0-0-1", " 12", ".5", ". ", ", ", "; ", " (see 3)",
             "…", '"', "他 的", "The dogs' bone", "?!", "这个", "這個", "0000", ".NET", " :c:func:", "A&B", "I'd", "。"]
        ),
        min_size=1, max_size=8,
    ),
    st.lists(st.sampled_from(NOISE), max_size=3),
)  # fmt: skip


@settings(max_examples=120)
@given(
    st.one_of(*(st.lists(st.tuples(kind, kind), min_size=1, max_size=30) for kind in (TEXT, SENTENCE))),
    st.sampled_from(RULES),
)
def test_columns_equal_pairs_on_any_text_and_on_noisy_sentences(pairs, rules):
    assert_equal(pairs, rules)


def test_sentences_that_need_no_more_than_their_spaces_removed_are_cleaned_by_columns():
    source = [f"他 说 “ 第 {number} 个” ，好" for number in range(20)] + ["這個 問題"]
    clean_source = [f"他说“第{number}个”，好" for number in range(20)] + ["这个问题"]
    target = [f'He said "no. {number}", didn\'t he? 5%.' for number in range(20)] + ["A question."]
    with mock.patch("data_prep.vectorised.clean", side_effect=AssertionError):
        cleaned = columns(list(zip(source, target, strict=True)), STRICT)
        foreign = columns([("喜欢 New York City ， 12 000 人", "“ x ” 5")], PAPER)
    assert [each[:2] for each in cleaned] == [(None, text) for text in clean_source]
    assert foreign == [(None, "喜欢New York City，12 000人", "“ x ” 5", {"remove_spaces"})]
    with mock.patch("data_prep.vectorised.text_key", side_effect=AssertionError):
        keys = text_keys(pa.array(target)).to_pylist()
    assert keys == list(map(text_key, target))


MARKED_UP = [
    (
        "使用 `get_absolute_url()` 或 [path](https://x.org/a_b) 。",
        "Use `get_absolute_url()` or [path](https://x.org/a_b).",
    ),
    ("请 参阅 django.db 的 `DEBUG` 。", "See the `DEBUG` of django.db for this."),
    ("一二 ab，c 三 d，e", "Two of four words are Han"),  # right by half, as each comma parts two words
    ("一 ab，c d，e 三 f", "Too many words are Latin"),
    ("English words here 汉", "English words 汉字 and 漢"),
    ("iPhone 4 版", "iPhone 4 版！"),
    ("这一边说了比那一边多得多的话", "Hm"),
    ("字" * 41, "x " * 19 + "x"),
    ("hello there", "hello there 2"),
]


def test_marked_up_pairs_and_those_that_an_optional_rule_drops_are_judged_by_columns():
    for pairs, rules in ((MARKED_UP, STRICT), ([pair[::-1] for pair in MARKED_UP], RULES[2])):
        expected = [clean(*pair, rules) for pair in pairs]
        with mock.patch("data_prep.vectorised.clean", side_effect=AssertionError):
            found = columns(pairs, rules)
        assert [each[0] for each in found] == [fate.dropped for fate in expected]
        assert {each[0] for each in found} >= {"too_long", "identical_sides", "wrong_script", "length_ratio", None}
        assert_equal(pairs, rules)


def test_every_character_is_treated_alike():
    # One character a line, all of Unicode: no screen may take for plain what the rules would change.
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    texts = [f"字a{character}b" for character in characters if ord(character) < 0x3000 or ord(character) % 23 == 0]
    assert_equal([(text, "word") for text in texts], PAPER)
    assert text_keys(pa.array(texts)).to_pylist() == list(map(text_key, texts))
