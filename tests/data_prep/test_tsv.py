"""A TSV as pandas, Excel and corpora write it comes to the pairs that were put in, by both readers."""

import csv
import io
import logging
import re

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.columns import columns_of
from data_prep.reading import read_columns
from data_prep.report import Report
from data_prep.sources import Source, read_blocks

PAIRS = [
    ("Hallo.", "Hello."), ('"Hallo", sagte er.', '"Hello," he said.'), ('Er sagte "ja".', 'He said "yes".'),
    ("Ein\tTab", "A\ttab"), ("Zeile eins\nZeile zwei", "Line one\nline two"), ('"Gut."', '"Good."'),
    ('5" lang', '5" long'), ("NA", "null"), ("Ja, gut", "Yes, good"), ("Am\u2028Ende\x85", "At\x0bthe\x0cend"),
]  # fmt: skip
FLAT = [(re.sub(r"[\t\n]", " ", source), re.sub(r"[\t\n]", " ", target)) for source, target in PAIRS]


def both(path, fields=(0, 1), columns=2, languages=None, block_bytes=100):
    """What `read_columns` reads; what blocks and columns read is the same."""
    report = Report()
    how = {"source_field": fields[0], "target_field": fields[1], "report": report, "languages": languages}
    pairs = [(pair.source, pair.target) for found in read_columns(path, **how) for _, pair in found.pairs()]
    source, found, lines = Source("tsv", [path.name], *fields, columns=columns), [], 0
    for block in read_blocks("test", source, path.parent, block_bytes, languages):
        assert block.first == lines
        assert b"\r" not in block.text
        lines += block.text.count(b"\n")
        texts = columns_of(block, source)
        found += zip(texts.source.to_pylist(), texts.target.to_pylist(), strict=True)
    assert found == pairs
    assert lines == sum(report.counts["read"].values()) - report.counts["read"].get("header", 0)
    return pairs


def write(folder, content, name="a.tsv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- quotation marks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "header", "quoting", "end"),
    [
        (False, False, csv.QUOTE_MINIMAL, "\n"), (True, True, csv.QUOTE_MINIMAL, "\r\n"),
        (False, True, csv.QUOTE_ALL, "\n"), (True, False, csv.QUOTE_ALL, "\r\n"),
        (True, True, csv.QUOTE_NONNUMERIC, "\n"),
    ],
)  # fmt: skip
def test_what_pandas_writes_comes_back(tmp_path, index, header, quoting, end):
    table = pandas.DataFrame(PAIRS, columns=["de", "en"])
    text = table.to_csv(sep="\t", index=index, header=header, quoting=quoting, lineterminator=end)
    assert both(write(tmp_path, text)) == FLAT


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_pandas_writes_comes_back_with_carriage_returns_for_line_ends(tmp_path, quoting):
    pairs = [pair for pair in PAIRS if "\n" not in pair[0]]
    text = pandas.DataFrame(pairs).to_csv(sep="\t", index=False, header=False, quoting=quoting, lineterminator="\r")
    assert both(write(tmp_path, text)) == [pair for pair in FLAT if "Zeile" not in pair[0]]


@pytest.mark.parametrize(("some", "name"), [(slice(1, 2), "mark"), (slice(3, 4), "tab"), (slice(4, 5), "line end")])
def test_one_field_that_needed_its_marks_says_that_a_file_is_quoted(tmp_path, some, name):
    rows = [("a", "b")] * 3
    text = pandas.DataFrame(rows + PAIRS[some]).to_csv(sep="\t", index=False, header=False)
    assert both(write(tmp_path, text)) == rows + FLAT[some], name


def test_a_table_in_another_order_keeps_its_numbers_and_swapped_columns_are_read_as_asked(tmp_path):
    table = pandas.DataFrame(PAIRS, columns=["de", "en"]).sample(frac=1, random_state=3)
    path = write(tmp_path, table.to_csv(sep="\t"))
    expected = [FLAT[number] for number in table.index]
    assert both(path) == expected
    assert both(path, (1, 0), 2, ("en", "de")) == [(target, source) for source, target in expected]
    assert both(path, (1, 2), 3) == expected


def test_what_excel_writes_comes_back(tmp_path):
    """It quotes a text that has a comma, too."""
    lines = ['"Ja, gut"\t"Yes, good"', "Hallo\tHello", '"Nein, nie"\t"No, never"']
    assert both(write(tmp_path, "\r\n".join(lines))) == [
        ("Ja, gut", "Yes, good"),
        ("Hallo", "Hello"),
        ("Nein, nie", "No, never"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ['"Hello," he said.\t"Hallo", sagte er.'],
        ['"好。"\t"Good."'],
        ['"好。"\t"Good."', "你好\tHello", '"一"\tone'],
        ['"I am here.\t"Ich bin da.', "He left.\"\tEr ging.\"", "a\tb"],
        ['"I am here.\t„Ich bin da.', 'He left."\tEr ging.“', "a\tb"],
        ['5" pipe\t5" Rohr', '6"\t6"'],
        ['"\t"', 'a"\tb', '"c\td'],
        ['""\t""', 'a "b" c\td'],
        ['"a ""b"" c"\td', 'He said "e".\tf', 'g "h" i\tj "k"'],
        ['"Ja, gut"\tYes, good', "Nein, nie\tNo, never", '"Da, dort"\tThere, yonder'],
        ["'quoted'\t'text'", "`x`\t\\\"y\\\""],
    ],
)  # fmt: skip
def test_marks_of_a_text_stay_as_they_are(tmp_path, lines, caplog):
    expected = [tuple(line.split("\t")) for line in lines]
    for end in ("\n", "\r\n", "\r"):
        assert both(write(tmp_path, "".join(line + end for line in lines))) == expected
    assert not caplog.records


def test_a_stray_mark_in_a_quoted_file_and_one_that_is_never_closed_swallow_no_line(tmp_path):
    lines = ['"a ""b"""\tc', '"a ""b"""\td', '5" long\te', '"never closed\tf', "g\th"]
    found = both(write(tmp_path, "\n".join(lines) + "\n"))
    assert found == [('a "b"', "c"), ('a "b"', "d"), ('5" long', "e"), ('"never closed', "f"), ("g", "h")]


def test_quoted_fields_are_whole_wherever_a_megabyte_ends(tmp_path):
    rows = [
        (f"{number}: " + 'Satz "eins"\nund zwei, ' * 9, f'{number}: "sentence"\n' * 7 + "end")
        for number in range(9_000)
    ]
    text = pandas.DataFrame(rows).to_csv(sep="\t", index=False, header=False)
    assert len(text) > 3 << 20
    assert both(write(tmp_path, text), block_bytes=1 << 20) == [
        (source.replace("\n", " "), target.replace("\n", " ")) for source, target in rows
    ]


# --- header and index -------------------------------------------------------------------------------------------------

HEADERS = [
    "de\ten", "DE\tEN", "deu\teng", "de_DE\ten_US", "deu_Latn\teng_Latn", "German\tEnglish", "Deutsch\tEnglisch",
    "source\ttarget", "src\ttgt", "Source Text\tTarget Text", "translation.de\ttranslation.en", "de_text\ten_text",
    "sentence1\tsentence2", "zh\ten", "中文\t英文", "input\toutput", "0\t1", "text_de\ttranslation", "Quelle\tZiel",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_is_left_out_and_said(tmp_path, header, caplog):
    with caplog.at_level(logging.WARNING):
        assert both(write(tmp_path, f"{header}\nHallo\tHello\nJa\tYes\n")) == [("Hallo", "Hello"), ("Ja", "Yes")]
    assert f"a.tsv: line 1 is taken for a header: {header.replace(chr(9), ', ')}" in caplog.text
    report = Report()
    list(read_columns(tmp_path / "a.tsv", report=report))
    assert report.counts == {"read": {"header": 1, "pairs": 2}}


@pytest.mark.parametrize(
    "line",
    ["Hallo\tHello", "Deutsch\tGerman", "Englisch\tEnglish", "Text\ttext", "Ja\tYes", "1\t2", "德语\tGerman", "de\tof"],
)
def test_a_first_pair_that_looks_a_little_like_a_header_is_none(tmp_path, line):
    assert both(write(tmp_path, f"{line}\nHallo\tHello\n"))[0] == tuple(line.split("\t"))


def test_a_header_that_names_the_languages_the_other_way_round_is_refused(tmp_path):
    path = write(tmp_path, "en\tde\nHello\tHallo\n")
    with pytest.raises(
        ValueError, match=r"header says en, de, and de is to be translated into en: exchange source_field"
    ):
        both(path, languages=("de", "en"))
    assert both(path, (1, 0), 2, ("de", "en")) == [("Hallo", "Hello")]


@pytest.mark.parametrize("first", ["", "id", "Unnamed: 0", None])
def test_an_index_is_left_out_and_said(tmp_path, first, caplog):
    head = "" if first is None else f"{first}\tde\ten\n"
    path = write(tmp_path, head + "7\tHallo\tHello\n3\tJa\tYes\n12\tNein\tNo\n")
    with caplog.at_level(logging.WARNING):
        assert both(path) == [("Hallo", "Hello"), ("Ja", "Yes"), ("Nein", "No")]
    assert "its first column is taken for an index: source and target are columns 1 and 2" in caplog.text


def test_numbers_that_are_asked_for_or_no_index_stay(tmp_path):
    assert both(write(tmp_path, "1\tone\n2\ttwo\n")) == [("1", "one"), ("2", "two")]
    assert both(write(tmp_path, "1\teins\tone\n1\tzwei\ttwo\n"), columns=3) == [("1", "eins"), ("1", "zwei")]
    assert both(write(tmp_path, "1\teins\tone\n2\tzwei\ttwo\n"), (1, 2), 3) == [("eins", "one"), ("zwei", "two")]


# --- line ends --------------------------------------------------------------------------------------------------------


def test_line_ends_of_several_kinds_in_one_file_are_alike(tmp_path):
    assert both(write(tmp_path, "a\tb\rc\td\ne\tf\r\ng\th\r")) == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]


def test_a_carriage_return_in_a_line_with_the_right_columns_is_a_space(tmp_path):
    assert both(write(tmp_path, "甲\r乙\ta\rb\r\n丙\tc")) == [("甲 乙", "a b"), ("丙", "c")]


CELL = st.text("ab\"',字 \u2028\x85\x0b", min_size=1, max_size=4)
ROWS = st.lists(st.tuples(CELL, CELL, st.sampled_from(["\n", "\r\n", "\r"])), max_size=12)


@settings(max_examples=80)
@given(ROWS, st.integers(1, 60))
def test_both_readers_read_the_same_whatever_marks_and_line_ends_a_file_has(tmp_path_factory, rows, block_bytes):
    path = write(tmp_path_factory.mktemp("tsv"), "".join(f"{one}\t{other}{end}" for one, other, end in rows))
    both(path, block_bytes=block_bytes)


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.text('ab"\t\n ,字', min_size=1, max_size=6), st.text('xy"\t\n', min_size=1, max_size=6)),
        min_size=1,
    )
)
def test_what_a_program_quotes_is_read_back_where_the_file_shows_it(tmp_path_factory, rows):
    shown = [('Ein "Wort" hier', 'A "word" here')]
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows(shown * 2 * len(rows) + shown + rows)
    found = both(write(tmp_path_factory.mktemp("tsv"), stream.getvalue()), block_bytes=1 << 20)
    flat = [tuple(re.sub(r"[\t\n]", " ", text) for text in row) for row in rows]
    assert found[2 * len(rows) + 1 :] == [row for row in flat if all(text.strip() for text in row)]
