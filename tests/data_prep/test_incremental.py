"""Cleaning text as it arrives: what is settled is a prefix of what the whole text becomes, however it goes on."""

import re
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.cleaning import simplify, simplify_as_read
from data_prep.incremental import _BEGUN, _open_escape, composed, settled_side
from data_prep.rules import NAMED, clean_side

PIECES = [
    *"&#;,.…!:%'’stdm5eBか我们。”)»=_ \t\x07한하ê", "&amp;", "&quot;", "&#", "39;", "x27", "amp", "quot", "qu", "  ",
    "re", "ll", "Å", "Ω", "\u0301", "\u0327", "\u3099", "\u200b", "\u200d", "word", "&lt", "& gt ;", "&am",
    " ", "New York", "，", "“", "(", "〈", "\u2329", "\u302a", "12 000", "カ", "ﾊﾟ", "Ａ", "\U000e0100", "q",
]  # fmt: skip
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text(max_size=12))


@settings(max_examples=100)
@given(TEXTS, st.sampled_from(["zh", "en", "fr", "de", "ja", "ko"]))
@example("a &am", "en")
@example("6 % 5", "en")
@example("\u212b\u0301", "en")
@example("\u2126\u0301", "zh")
@example("か \u3099", "ja")
@example("か\u302a \u3099", "ja")
@example("q\u0323 \u302a", "zh")
@example("York , 喜 ” x ’s", "zh")
@example("New \u2329 York", "zh")
@example("e\u00a0\u200b\u0301", "zh")
@example("it 's' x", "en")
@example("a .5 , b", "fr")
def test_what_is_settled_is_a_prefix_of_the_cleaned_whole(text, language):
    whole, before = clean_side(text, language), ""
    for end in range(len(text) + 1):
        settled = settled_side(text[:end], language)
        assert whole.startswith(settled), text[:end]
        assert settled.startswith(before), "what is settled stays so"
        before = settled


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*"他們坏主意乾隆於後看書, x", "沒有"]), max_size=12).map("".join))
def test_what_is_simplified_as_it_is_read_stays_so(text):
    whole = simplify_as_read(text)
    assert all(whole.startswith(simplify_as_read(text[:end])) for end in range(len(text) + 1))


def test_text_is_simplified_as_it_is_read_from_its_first_traditional_character_on():
    for text in ("我們對於這件事沒有辦法。", "坏主意", "Hello", ""):
        assert simplify_as_read(text) == simplify(text)
    assert simplify("於是他們走了") == "于是他们走了"
    assert simplify_as_read("於是他們走了，於是") == "於是他们走了，于是", "於 alone may be simplified text"


# What may go on as an escape, in one expression that may take time exponential in the text.
NUMBER = r"#\s*(?:x\s*[0-9a-f]{0,6}|[0-9]{0,7})"
OPEN_ESCAPE = re.compile(rf"&(?:[\s;&]|{NUMBER}|{'|'.join(NAMED)})*(?:{_BEGUN})?\Z", re.IGNORECASE)


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from([*"&&##xXabcdef0123456789; pomulqtsſİ", *NAMED, "#x", "&#x", "mid", "bul"]), max_size=9
    ).map("".join)
)
@example("&#xaamp;#xbull")
@example("&#xabcdefamp")
def test_an_escape_is_open_where_the_expression_says_so(text):
    match = OPEN_ESCAPE.search(text)
    assert _open_escape(text) == (match.start() if match else len(text))


@pytest.mark.parametrize("part", ["# ", "&#x", "#xaamp", " "])
def test_what_is_settled_takes_linear_time(part):
    for end in ("z", ""):
        begin = time.process_time()
        settled_side("&" + part * (20_000 // len(part)) + end, "en")
        assert time.process_time() - begin < 2


def test_chinese_text_is_settled_character_by_character():
    text = "站在那边的男人，曾是棒球手。"
    for end in range(len(text) + 1):
        assert settled_side(text[:end], "zh") == text[:end]


@pytest.mark.parametrize(
    ("text", "language", "settled"),
    [
        ("喜欢 ", "zh", "喜欢"),
        ("喜欢 ,", "zh", "喜欢,"),
        ("喜欢 New", "zh", "喜欢Ne"),  # N, e and w may take an accent
        ("喜欢 New ", "zh", "喜欢New"),  # the space may stand before a Chinese character
        ("喜欢 New 约", "zh", "喜欢New约"),
        ("喜欢 New Yo", "zh", "喜欢New Y"),
        ("喜欢 New ,", "zh", "喜欢New"),
        ("2019 ", "ja", "2019"),
        ("2019 12", "ja", "2019 12"),
        ("かき", "ja", "か"),
        ("สวัสดี ", "th", "สวัสดี"),
        ("สวัสดี ค", "th", "สวัสดี ค"),
    ],
)
def test_a_space_is_settled_once_what_follows_it_is_there(text, language, settled):
    assert settled_side(text, language) == settled


@pytest.mark.parametrize(
    ("text", "language", "held"),
    [
        ("cafe", "en", "e"),
        ("5 ", "en", " "),
        ("so ,", "en", " ,"),
        ("我&a", "zh", "&a"),
        ("R&a", "zh", "R&a"),  # "R&#769;" would give the R an accent
        ("R&T", "zh", "T"),
        ("か", "ja", "か"),
    ],
)
def test_no_more_is_held_back_than_may_change(text, language, held):
    assert settled_side(text, language) == text.removesuffix(held)


def test_no_composition_of_this_unicode_version_is_missed():
    for code in range(0x110000):
        whole = chr(code)
        parts = unicodedata.normalize("NFD", whole)
        if len(parts) > 1 and unicodedata.normalize("NFC", parts) == whole:
            for end in range(1, len(parts)):
                assert whole.startswith(composed(parts[:end])), whole


def test_what_composes_with_a_first_character_composes_with_all_that_normalise_to_it():
    for code in range(0x110000):
        first = chr(code)
        if not unicodedata.decomposition(first):
            continue
        for mark in ("\u0301", "\u0345", "\u3099"):
            whole = unicodedata.normalize("NFC", first + mark)
            assert whole.startswith(composed(first)), whole
