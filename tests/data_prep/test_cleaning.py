"""The optional cleaning rules as tables of literal examples, and all of them together."""

import time

import pytest

from data_prep import cleaning
from data_prep.cleaning import Cleaning, Fate, clean

PAPER = Cleaning("zh", "en")
STRICT = Cleaning("zh", "en", True, True, 1000, True, 0.5, 3.0, "near")


def test_several_control_characters_or_one_mark_of_a_broken_decoding_are_damage_and_nothing_else():
    for text in ("caf\ufffd", "a\x07\x07b", "\x00\x9d", "要马上\ue01f臀\ue1f0幔"):
        assert cleaning.control_characters(text)
    white, invisible = "tab\tand\nnewline\r", ("zero\u200bwidth", "\ufeffmark", "软\u00ad连字符")
    for text in (white, *invisible, "♪ 🚀", "Good\ue4d1", "fine\x7f"):
        assert not cleaning.control_characters(text)


def test_sides_that_say_the_same_are_identical_and_no_others():
    for source, target in (("iPhone 4", "iPhone 4"), ("ＷＭＴ!", "ＷＭＴ"), ("汉字", "「汉字」")):
        assert cleaning.identical_sides(source, target)
    assert not cleaning.identical_sides("iPhone 4", "iPhone 5")


@pytest.mark.parametrize(
    ("text", "language", "wrong"),
    [
        ("我用Visual Studio写代码", "zh", False), ("Visual Studio Code", "zh", True), ("使用 Ctrl 键", "zh", False),
        ("他说 hello", "zh", False), ("说 hello again my friend", "zh", True),
        ("使用 :c:func:`Py_XDECREF` 代替 :c:func:`Py_DECREF` 的宏", "zh", False), ("背景音乐 For Granted", "en", True),
        ("ひらがな", "zh", True), ("ひらがな", "ja", False), ("Hello, 北京", "en", True),
        ("Hello from Beijing, 北京", "en", False), ("Привет", "en", True), ("Привет", "ru", False),
        ("naïve café", "en", False), ("안녕하세요", "ko", False), ("123, 456", "zh", False),
    ],
)  # fmt: skip
def test_a_side_mostly_in_another_script_is_wrong(text, language, wrong):
    assert cleaning.wrong_script(text, language, 0.5) is wrong


@pytest.mark.parametrize(
    ("text", "language", "foreign"),
    [
        ("Hello world, how are you?", "zh", True), ("OK, thank you!", "zh", False), ("我昨天看见了他。", "de", True),
        ("https://example.org/a/b", "zh", False), ("Привет", "zh", False), ("how are you, 朋友", "zh", False),
        ("how are you, my friend", "th", False), ("1, 2, 3, 4, 5", "zh", False),
    ],
)  # fmt: skip
def test_a_sentence_of_several_words_in_another_script_is_foreign(text, language, foreign):
    assert cleaning.is_foreign(text, language) is foreign


@pytest.mark.parametrize(
    ("source", "target", "dropped"),
    [
        ("好", "All right, then, let's go.", False),  # within the slack
        ("好" * 20, "a" * 60, False),
        ("好" * 20, "a" * 211, True),
        ("好" * 20, "a" * 210, False),
        ("好" * 40, "Yes, a long story.", True),
    ],
)
def test_sides_may_differ_by_a_factor_in_bytes_and_some_bytes_more(source, target, dropped):
    assert cleaning.length_ratio(source, target, 3) is dropped
    assert cleaning.length_ratio(target, source, 3) is dropped


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("這個問題", "这个问题"),
        ("頭髮和發展", "头发和发展"),
        ("乾坤與乾燥", "乾坤与干燥"),
        ("这个坏主意是覆写的", "这个坏主意是覆写的"),  # opencc alone: 坯主意, 复写
        ("瞭解", "瞭解"),  # 瞭 is in GB 2312
        ("Hello", "Hello"),
    ],
)
def test_only_text_with_traditional_characters_is_simplified(text, simplified):
    assert cleaning.simplify(text) == simplified


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("坏\ufffd了", "It is broken.", "control_characters"),
        ("字" * 1001, "A line of words. " * 170, "too_long"),
        ("Python 3", "python 3.", "identical_sides"),
        ("Hello there, how are you", "你好", "wrong_script"),
        ("是的", "No one has ever said so much about so little in so many words as he did.", "length_ratio"),
        ("10-26", "10-26.", "only_numerals"),
        ("", "No source", "empty_side"),
    ],
)
def test_the_strict_preset_names_the_first_rule_that_drops_a_pair(source, target, reason):
    assert clean(source, target, STRICT).dropped == reason
    paper = clean(source, target, PAPER).dropped
    assert paper == (reason if reason in ("only_numerals", "empty_side") else None)


def test_a_kept_pair_names_every_rule_that_rewrote_it():
    fate = clean("這 個&quot;", "It 's \u200b fine .", STRICT)
    assert fate == Fate(
        '这个"', "It's fine.", None, ("unescape", "normalise", "remove_spaces", "close_up_punctuation", "simplify")
    )
    assert clean("这个。", "It's fine.", STRICT) == Fate("这个。", "It's fine.")


def test_a_single_private_character_goes_and_the_pair_stays():
    assert clean("太好了\ue4d1", "Good.", STRICT) == Fate("太好了", "Good.", None, ("strip_control",))
    assert clean("這好\ue4d1", "Good.", PAPER).source == "這好\ue4d1", "without the rules all stays"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source_language": "cn"}, "ISO 639-1"),
        ({"duplicates": "some"}, "duplicates='some'"),
        ({"max_characters": 0}, "max_characters=0"),
        ({"least_script": 0.0}, "least_script=0.0"),
        ({"least_script": 1.5}, "least_script=1.5"),
        ({"length_ratio": 0.5}, "length_ratio=0.5"),
        ({"target_language": "ta", "least_script": 0.5}, "script of 'ta' is not known"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Cleaning(**{"source_language": "zh", "target_language": "en"} | values)


@pytest.mark.parametrize("part", ["1 ", "0000 ", "& ", "a , "])
def test_a_million_characters_take_no_longer_than_their_number(part):
    text = part * (1_000_000 // len(part)) + "1"
    start = time.process_time()
    clean(text, "A short line.", STRICT)
    clean("短行。", text, PAPER)
    assert time.process_time() - start < 10
