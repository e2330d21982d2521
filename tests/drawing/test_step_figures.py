"""Figures of one sentence's simultaneous translations: what is shown, and what is refused."""

import warnings

import pytest

from duplexmt.drawing.step_figures import emission_figure, emission_markdown, staircase_figure

from .test_style import NASTY

STEPS = {
    "0.3": [("站在", "standing"), ("那边", ""), ("的男人", " there, the man"), ("⏹", ".")],
    "0.9": [("站在", ""), ("那边", ""), ("的男人", " the man standing there"), ("⏹", ".")],
}


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_the_table_says_what_is_written_at_which_token():
    assert emission_markdown(STEPS).splitlines() == [
        "| θ | 1 站在 | 2 那边 | 3 的男人 | 4 ■ |",
        "| --- | --- | --- | --- | --- |",
        "| 0.3 | standing |  | there, the man | . |",
        "| 0.9 |  |  | the man standing there | . |",
    ]


def test_the_same_token_twice_has_two_columns_and_markup_is_escaped():
    text = emission_markdown({"0.5": [("<b>", "a|b"), ("<b>", "<script>")]})
    assert "1 &lt;b&gt; | 2 &lt;b&gt;" in text
    assert "a\\|b | &lt;script&gt;" in text


def test_a_translation_cut_off_before_the_source_ended_leaves_its_cells_empty(tmp_path):
    rows = {"0.1": STEPS["0.3"][:2], "0.9": STEPS["0.9"]}
    assert "| 0.1 | standing |  |  |  |" in emission_markdown(rows)
    assert emission_figure(rows, tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        {"0.5": STEPS["0.3"]},  # one θ only
        {"0.5": [(text, text) for text in NASTY]},
        {f"{theta / 10}": [(f"源{x}", " word" * (x % 7)) for x in range(60)] for theta in range(3, 10)},
        {"x" * 500: [("y" * 500, "z" * 500 + " z" * 100)]},
        {"0.5": [("站", "")]},
    ],
    ids=["one θ", "any characters", "a long sentence", "long words", "nothing written"],
)
def test_tables_of_any_sentence_can_be_drawn_within_a_page(tmp_path, rows):
    svg, png = emission_figure(rows, tmp_path)
    assert b"<script" not in svg.read_bytes()
    assert int.from_bytes(png.read_bytes()[16:20]) < 1600


@pytest.mark.parametrize(("length", "systems"), [(1, 9), (9, 9), (150, 9), (9, 30)])
def test_staircases_of_many_systems_are_drawn(tmp_path, length, systems):
    source = [f"源{x}" if x % 2 else "站" for x in range(length)]
    delays = {f"wait-{k}": [min(length, k + i) for i in range(length + 3)] for k in range(1, systems + 1)} | {
        "silent": []
    }
    svg, png = staircase_figure(source, delays, tmp_path)
    assert svg.stat().st_size > 1000
    assert png.stat().st_size > 1000


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one system"):
        staircase_figure(["站"], {}, tmp_path)
    with pytest.raises(ValueError, match="grid: delays must never fall"):
        staircase_figure(["站", "在"], {"grid": [2, 1]}, tmp_path)
    with pytest.raises(ValueError, match="the 2 source tokens"):
        staircase_figure(["站", "在"], {"grid": [1, 3]}, tmp_path)
