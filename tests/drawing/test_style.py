"""What figures show of any text: every character has a glyph, none turns or breaks the figure; colours by lightness."""

import warnings
from itertools import pairwise

import pytest

from duplexmt.drawing import style

NASTY = [
    "\x00", "\x1b[31m", "\u202eabc", "\u0301", "e\u0301", "שלום", "مرحبا", "\u200d", "$x^2$", "<b>&amp;", "a\nb", "\t",
    " ", "  ", " man", "\ud800", "龘", "🙂", "हिन्दी", "�",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_every_character_shown_has_a_glyph_and_none_controls_anything(text):
    from unicodedata import category

    drawn = style.shown(text)
    assert drawn
    assert style.drawable() >= {*drawn}
    assert not any(category(character)[0] == "C" for character in drawn)
    assert style.shown(drawn) == drawn


def test_texts_are_shown_as_people_expect():
    cases = {
        "站在": "站在",
        " man": "man",
        " ": "␣",
        "a\nb": "a⏎b",
        "\u0301": "◌\u0301",
        "\u202ex": "⟨202E⟩x",
        "a b": "a b",
    }
    assert {text: style.shown(text) for text in cases} == cases


def test_all_of_gb_2312_is_drawn_without_a_warning(tmp_path):
    from matplotlib.figure import Figure

    rows = [bytes([high, low]).decode("gb2312", "ignore") for high in range(0xA1, 0xF8) for low in range(0xA1, 0xFF)]
    assert {*"".join(rows)} - style.drawable() == set()
    with style.figure_style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = Figure()
        figure.text(0.1, 0.5, "站在那边的男人曾是棒球手。Where $ are you? θ")
        _, svg, png = style.save(figure, tmp_path, "text")
    assert "<text" not in svg.read_text()  # outlines: the reader needs no font either
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [style.LOSS_COLOURS, style.EMIT_COLOURS])
def test_lightness_alone_tells_values_apart_and_text_is_legible_on_all_of_them(name):
    from matplotlib import colormaps

    colours = [colormaps[name](step / 50) for step in range(51)]
    lights = [style.lightness(colour) for colour in colours]
    assert all(a > b for a, b in pairwise(lights))
    assert lights[0] - lights[-1] > 0.6
    for colour in colours:
        background = 0.0 if style.ink(colour) == "black" else 1.0
        assert abs(style.lightness(colour) - background) > 0.45
