"""Tables as literal text."""

import json
from pathlib import Path

import pytest

from duplexmt.drawing.table import summary, to_csv, to_json, to_markdown, write_tables

ROWS = [
    {"system": "offline", "BLEU": 23.456789, "AL": 18, "sentences": 1000, "COMET": None},
    {"system": "grid | θ=0.5", "BLEU": 7.0, "AL": 0.125, "sentences": 1000, "COMET": 59.5},
]


def test_markdown_has_two_decimals_a_dash_for_none_and_numbers_to_the_right() -> None:
    assert to_markdown(ROWS) == (
        "| system | BLEU | AL | sentences | COMET |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| offline | 23.46 | 18.00 | 1000 | — |\n"
        "| grid \\| θ=0.5 | 7.00 | 0.12 | 1000 | 59.50 |\n"
    )


def test_csv_shows_what_markdown_shows() -> None:
    assert to_csv(ROWS) == (
        "system,BLEU,AL,sentences,COMET\noffline,23.46,18.00,1000,—\ngrid | θ=0.5,7.00,0.12,1000,59.50\n"
    )


def test_json_keeps_full_precision_null_and_order() -> None:
    document = json.loads(to_json(ROWS, caption="Quality.", footnotes=["a note"]))
    assert document == {"caption": "Quality.", "rows": ROWS, "footnotes": ["a note"]}
    assert list(document["rows"][1]) == list(ROWS[0])


def test_columns_keep_their_order_and_zero_has_no_sign() -> None:
    assert to_csv([{"b": 1, "a": 2}, {"a": 3, "b": 4}]) == "b,a\n1,2\n4,3\n"
    assert to_csv([{"AL": -0.001}]) == "AL\n0.00\n"
    assert to_markdown([{"a": "x\ny"}]).splitlines()[2] == "| x y |"


def test_summary_aligns_text_left_and_numbers_right() -> None:
    assert summary([{"system": "offline", "AL": 18.06}, {"system": "wait-3", "AL": None}]) == (
        "system      AL\n-------  -----\noffline  18.06\nwait-3       —"
    )


def test_summary_aligns_chinese_characters_of_two_cells() -> None:
    text = summary([{"source": "今天天气好", "AL": 3.0}, {"source": "rain 雨", "AL": 12.5}, {"source": "", "AL": 0.0}])
    assert text == ("source         AL\n----------  -----\n今天天气好   3.00\nrain 雨     12.50\n             0.00")


def test_write_tables_writes_the_three_forms(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    write_tables(ROWS, folder, "theta0.5", caption="Caption.", footnotes=["note"])
    assert {path.suffix: path.read_text(encoding="utf-8") for path in folder.glob("theta0.5.*")} == {
        ".md": to_markdown(ROWS, "Caption.", ["note"]),
        ".csv": to_csv(ROWS),
        ".json": to_json(ROWS, "Caption.", ["note"]),
    }


@pytest.mark.parametrize("rows", [[], [{}], [{"a": 1, "b": 2}, {"a": 1, "c": 2}]])
def test_rows_that_make_no_table_are_refused_in_every_form(rows: list[dict[str, object]]) -> None:
    for form in (to_markdown, to_csv, to_json, summary):
        with pytest.raises(ValueError, match="a table needs a row and a column at least, and the same columns in all"):
            form(rows)


@pytest.mark.parametrize("cell", [float("nan"), float("inf")])
def test_of_a_number_that_is_not_finite_nothing_is_written(tmp_path: Path, cell: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_tables([{"a": 1.0}, {"a": cell}], tmp_path, "results")
    assert not list(tmp_path.iterdir())
