"""Each cleaning rule as a table of literal examples; most come from the corpora it was fixed on."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep import rules
from data_prep.cleaning import Cleaning, clean
from duplexmt.common.text import WIDE, invisible

PAPER = Cleaning("zh", "en")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Don&apos;t say &quot;no&quot;", 'Don\'t say "no"'),
        ("R&amp;B, 1 &lt; 2 &gt; 0", "R&B, 1 < 2 > 0"),
        ("It&#39;s, it&#x27;s, it&#X27;s", "It's, it's, it's"),
        ("&amp;quot;closed&amp;quot;", '"closed"'),
        ("&amp;amp;quot;deeper&amp;amp;quot;", '"deeper"'),
        ("& quot ; spaced & #39 ; & amp ;", "\" spaced ' &"),
        ("the book & amp;quot;highland river&amp;quot ;", 'the book "highland river"'),
        ("a &#124; b &#91;c&#93;", "a | b [c]"),
        ("Kattamaran&amp;quot。这是", 'Kattamaran"。这是'),
        ("一&quot;微博女王&quot;，", '一"微博女王"，'),
        ("&QUOT;loud&QUOT;", '"loud"'),
        ("&ldquo;curly&rdquo; &hellip; a&nbsp;b", "“curly” … a b"),
        (
            "backspace &# x08 ; and half a pair &#xD800; and beyond &#9999999;",
            "backspace  and half a pair  and beyond ",
        ),
    ],
)
def test_escaped_punctuation_becomes_plain(text: str, plain: str) -> None:
    assert rules.unescape(text) == plain


def test_ampersands_that_escape_nothing_stay() -> None:
    names, addresses = (
        ["AT&T", "rock & roll; jazz", "guitar & amp", "&PyList_Type;"],
        ["a?b=1&lt=2", "a?x=1&amplitude=3"],
    )
    for text in [*names, *addresses, "&&", "&#;", "&;"]:
        assert rules.unescape(text) == text


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  a \t b\u3000c\u00a0d\u2028e ", "a b c d e"),
        ("cafe\u0301", "caf\u00e9"),
        ("\ufeffkey\u00advalue\u200b\x07", "keyvalue"),
        ("e\u200b\u0301", "\u00e9"),
        ("\u200d👩\u200d🚀", "\u200d👩\u200d🚀"),
        ("", ""),
    ],
)
def test_every_language_gets_nfc_single_spaces_and_no_invisible_characters(text: str, normal: str) -> None:
    assert rules.tidy(rules.unescape(text)) == normal


@pytest.mark.parametrize(
    ("language", "text", "clean"),
    [
        # In Chinese and Japanese, but not in Korean, spaces go beside Han, kana and their marks.
        ("zh", "工资 冻结 暂缓 ， 由于", "工资冻结暂缓，由于"),
        ("zh", "我用 Visual Studio 写代码", "我用Visual Studio写代码"),
        ("zh", "喜欢 New York City", "喜欢New York City"),
        ("zh", "New York City 很 大 。", "New York City很大。"),
        ("zh", "《 The Old Man and the Sea 》 是 书", "《The Old Man and the Sea》是书"),
        ("zh", "他 说 ： “ Hello , World ” ， 走 了", "他说：“Hello, World”，走了"),
        ("zh", "在 2019 年 3 月 , 大约 10 000 人 ( 见 图 1 ) 。", "在2019年3月,大约10 000人(见图1)。"),
        ("zh", "增长 5 % 以上 , iPhone 's App Store", "增长5%以上, iPhone's App Store"),
        ("zh", "用 C++ 和 .NET Core 3.1 写", "用C++和.NET Core 3.1写"),
        ("zh", "ＮＥＷ ＹＯＲＫ ， 方 방탄 소년단", "ＮＥＷ ＹＯＲＫ，方방탄 소년단"),
        ("zh", "Привет мир 你 好 😀 Big Ben", "Привет мир你好😀 Big Ben"),
        ("zh", "ㄅ ㄆ ㄇ 𠮷 野 々 〇", "ㄅㄆㄇ𠮷野々〇"),
        ("ja", "あり　がとう", "ありがとう"),
        ("ja", "ﾊﾟｿｺﾝ で Visual Studio Code を 使う", "ﾊﾟｿｺﾝでVisual Studio Codeを使う"),
        ("ja", "「 New York 」 へ ・ ラーメン ー ｡", "「New York」へ・ラーメンー｡"),
        ("ko", "감사 합니다 .", "감사 합니다."),
        # Where spaces part phrases, they stay.
        ("th", "สวัสดีครับ  ยินดีที่ได้รู้จัก", "สวัสดีครับ ยินดีที่ได้รู้จัก"),
        ("lo", "ສະບາຍດີ ທ່ານ", "ສະບາຍດີ ທ່ານ"),
        ("km", "ជំរាបសួរ អ្នក", "ជំរាបសួរ អ្នក"),
        ("my", "မင်္ဂလာပါ ခင်ဗျာ", "မင်္ဂလာပါ ခင်ဗျာ"),
        ("bo", "བཀྲ་ཤིས། བདེ་ལེགས། །", "བཀྲ་ཤིས། བདེ་ལེགས། །"),
        ("dz", "ག་དེ་སྦེ། ཨིན། །", "ག་དེ་སྦེ། ཨིན། །"),
        # From others, those before punctuation that ends something.
        ("en", "After that , she left .", "After that, she left."),
        ("en", "Well ... yes ; no : why ?!", "Well... yes; no: why?!"),
        ("en", "the point ) . Then ]", "the point). Then]"),
        ("en", '"Old Man River" .', '"Old Man River".'),
        ("en", "rose by 6.2 % in May", "rose by 6.2% in May"),
        ("en", "the lake 's surface , don 't, don &apos;t", "the lake's surface, don't, don't"),
        ("en", "the .NET way, .5 of it", "the .NET way, .5 of it"),
        ("en", "sweater ;) great :-)", "sweater ;) great :-)"),
        ("en", "7 % 3 and the letter 's' a - b / c", "7 % 3 and the letter 's' a - b / c"),
        ("fr", "Bonjour ! Ça va\u00a0? Oui : bien ; merci , Jean .", "Bonjour ! Ça va ? Oui : bien ; merci, Jean."),
        ("de", "Guten Tag ! Wie geht 's , 6 % .", "Guten Tag! Wie geht 's, 6 %."),
        # Nothing invisible is to be translated.
        ("zh", "我\u200d们\ufe0f看\u202e书\U000e0041", "我们看书"),
        ("en", "soft\u00adware &#x200d;is\u2064 \u3164here", "software is here"),
        ("zh", "&am\u200dp;", "&"),
        ("fa", "می\u200cخواهم\u200e", "می\u200cخواهم"),  # written with joiners
        ("zh", "\u200d" * 50, ""),
    ],
)
def test_spaces_and_invisible_characters_go_as_the_language_wants_it(language: str, text: str, clean: str) -> None:
    assert rules.clean_side(text, language) == clean


@pytest.mark.parametrize("code", ["cn", "jp", "zh-CN", "zh_Hans", "ZH", "eng", "", "english", "xx", "zh en"])
def test_a_code_outside_iso_639_1_is_an_error_that_shows_it(code: str) -> None:
    with pytest.raises(ValueError, match="ISO 639-1") as error:
        rules.clean_side("text", code)
    assert repr(code) in str(error.value)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("10-26", "10-26.", "only_numerals"), ("25.26.27", "...25, 26, 27...", "only_numerals"),
        ("1 2 3", "3", "only_numerals"), ("１２３", "?", "only_numerals"),
        ("。", "A carrot the size of a monkey.", "wordless"), ("大叔 我们一起来跳舞", "????????????", "wordless"),
        ("!", "?", "wordless"), (",,0000,0000,0000,,不用了", "No, I'm good.", "placeholder_numerals"),
        ("No.", "0000 0000", "placeholder_numerals"),
        ("表 1 2 3 4 5 6 7", "Table 12 13 14 15 16 17 18", "numeral_table"), ("", "No source", "empty_side"),
        ("没有", "", "empty_side"),
    ],
)  # fmt: skip
def test_meaningless_pairs_are_rejected_with_a_reason(source: str, target: str, reason: str) -> None:
    assert rules.rejects(source, target) == reason
    assert clean(source, target, PAPER).dropped == reason


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("我生于1988年。", "I was born in 1988."),
        ("3点半了。", "It's 3:30."),
        ("一万五千美元", "$15,000."),
        ("90-10", "Ninety-ten."),
        ("热火胜网队108-78", "Heat beats Nets 108-78"),
        ("1929年还是1989年?", "1929 or 1989?"),
        ("2010年2月22日 上午11点38分", "2/22/10, 11:38:05 AM"),
        ("是1-0-0-1-0-0-1", '"one-zero-zero-one-zero-zero-one"'),
        ("共1,0000,0000元", "100,000,000 yuan, or 1 000 000 000"),
        ("中奖号码是 3 、 15 、 22 、 31 、 40 、 41 和 42", "The winning numbers are 3, 15, 22, 31, 40, 41 and 42"),
        (
            "在 10 月 6 日 、 10 月 27 日 、 11 月 3 日 、 12 月 8 日",
            "on October 6, October 27, November 3, December 8",
        ),
    ],
)
def test_a_sentence_with_numbers_in_it_is_kept(source: str, target: str) -> None:
    assert rules.rejects(source, target) is None


def test_numerals_are_judged_before_the_spaces_go() -> None:
    row = "3 1 4 1 5 9 2 6 表"
    assert rules.rejects(row.replace(" ", ""), "3 1 4 1 5 9 2 6 row") is None
    assert clean(row, "3 1 4 1 5 9 2 6 row", PAPER).dropped == "numeral_table"


def test_an_escape_does_not_hide_an_empty_side() -> None:
    assert clean("&nbsp; ", "Hello", PAPER).dropped == "empty_side"


SHOWN = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001345f"  # signs around others


def test_all_format_characters_but_those_that_show_something_are_invisible_and_nothing_white() -> None:
    shown = re.compile(f"[{SHOWN}]")
    for character in map(chr, range(0x110000)):
        if unicodedata.category(character) == "Cf" and not shown.match(character):
            assert invisible(character, "zh"), f"U+{ord(character):04X}"
        if character.isspace() or shown.match(character):
            assert not invisible(character, "zh"), f"U+{ord(character):04X}"


@given(st.text())
def test_any_text_can_be_cleaned(text: str) -> None:
    assert "  " not in rules.clean_side(text, "en")
    assert not re.search(rf"\s(?=[{WIDE}])(?!\u3099|\u309a)|(?<=[{WIDE}])\s", rules.clean_side(text, "zh"))


@given(
    st.text(st.sampled_from("eかはÅ \u3000\u00a0\t\u200b\u0301\u0327\u3099\u309a가&;."), max_size=10),
    st.sampled_from(["zh", "ja", "en"]),
)
@example("か \u3099", "ja")
def test_a_clean_side_is_in_nfc_and_clean(text, language):
    clean = rules.clean_side(text, language)
    assert unicodedata.is_normalized("NFC", clean)
    assert rules.clean_side(clean, language) == clean
