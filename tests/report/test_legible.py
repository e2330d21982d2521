"""What a page shows of any text: nothing controls, hides or turns."""

from unicodedata import category

import pytest

from duplexmt.report.legible import legible, legible_token, pieces

from ..drawing.test_style import NASTY


@pytest.mark.parametrize("text", NASTY)
def test_no_character_of_any_text_controls_the_page(text):
    for drawn in (legible(text), legible_token(text)):
        assert not any(category(c)[0] == "C" and c not in "\t\n\u200c\u200d" for c in drawn)
        drawn.encode()  # halves of surrogate pairs would end the writing of the file


def test_texts_stay_as_they_are_but_for_what_is_spelt_out():
    assert legible("站在 <b>那边</b>\u202e שלום e\u0301") == "站在 <b>那边</b>⟨202E⟩ שלום e\u0301"
    assert legible("क्\u200dष") == "क्\u200dष"  # joiners belong to their scripts


def test_tokens_are_shown_as_people_expect():
    cases = {" man": "man", " ": "␣", "a\nb": "a⏎b", "\u0301": "◌\u0301", "\x07": "⟨7⟩", "⏹": "■", "a b": "a b"}
    assert {text: legible_token(text) for text in cases} == cases


def test_a_text_is_cut_after_its_tokens_and_half_characters_have_names():
    assert pieces("人好", [1, 1, 1, 2], ["人", "<0xE5>", "<0xA5>", "<0xBD>"]) == ["人", "<0xE5>", "<0xA5>", "好"]
    assert pieces("", [], []) == []
    with pytest.raises(ValueError, match="2 tokens has 1 ends of tokens: its record is damaged"):
        pieces("ab", [2], ["a", "b"])
