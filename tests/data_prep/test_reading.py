"""Every format there and back, and every kind of bad line; all files are written by the tests."""

import gzip
import json
import lzma
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard

from data_prep.reading import read_columns
from data_prep.report import Report

PAIRS = [("你好。", "Hello."), ("他\u2028走了。", "He left."), ("“引号”,逗号", 'a "quote", a comma'), ("NA", "null")]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}


def tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def jsonl(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def read(path: Path | str, source: int | str = 0, target: int | str = 1) -> tuple[list[tuple[str, str]], Report]:
    report = Report()
    found = read_columns(path, source_field=source, target_field=target, report=report)
    return [(pair.source, pair.target) for columns in found for _, pair in columns.pairs()], report


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("packing", PACK)
def test_pairs_come_back_as_written_plain_or_compressed(tmp_path: Path, packing: str) -> None:
    pairs, report = read(write(tmp_path / f"a.zh-en.tsv{packing}", PACK[packing](tsv(PAIRS))))
    assert pairs == PAIRS
    assert report.counts == {"read": {"pairs": 4}}
    rows = [{"translation": {"zh": source, "en": target}} for source, target in PAIRS]
    path = write(tmp_path / f"a.jsonl{packing}", PACK[packing](jsonl(rows)))
    assert read(path, "translation.zh", "translation.en")[0] == PAIRS
    content = 'id,zh,en\n1,你好。,Hello.\n2,2002,NA\n3,"“引号”,逗号","a ""quote"",\nand a line"\n'.encode()
    path = write(tmp_path / f"a.csv{packing}", PACK[packing](content))
    expected = [("你好。", "Hello."), ("2002", "NA"), ("“引号”,逗号", 'a "quote",\nand a line')]
    assert read(path, "zh", "en")[0] == read(path, 1, 2)[0] == expected


def test_byte_order_mark_and_crlf_leave_no_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"\xef\xbb\xbf" + tsv(PAIRS).replace(b"\n", b"\r\n"))
    assert read(path)[0] == PAIRS
    assert read(write(tmp_path / "b.csv", b"\xef\xbb\xbfzh,en\r\na,b\r\n"), "zh", "en")[0] == [("a", "b")]


def test_lines_longer_than_a_chunk_are_whole(tmp_path: Path) -> None:
    pairs = [("长" * 100_000, "long " * 30_000 + "end"), ("短", "short")]
    assert read(write(tmp_path / "a.tsv.gz", gzip.compress(tsv(pairs))))[0] == pairs


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("duplexmt.common.streams.LONGEST_LINE", 3 << 20)
    path = write(tmp_path / "a.tsv.gz", gzip.compress(tsv([("短", "short")]) + b"x" * (64 << 20)))
    with pytest.raises(ValueError, match=r"a\.tsv\.gz: a line of over [\d,]+ bytes: no text has such") as error:
        read(path)
    assert "67,108" not in str(error.value), "not all of it has been read"


def test_several_gzip_members_and_zstd_frames_are_one_file(tmp_path: Path) -> None:
    for packing in (".gz", ".xz", ".zst"):
        content = PACK[packing](tsv(PAIRS[:2])) + PACK[packing](tsv(PAIRS[2:]))
        assert read(write(tmp_path / f"a.tsv{packing}", content))[0] == PAIRS
    one, other = (PACK[".xz"](tsv(pairs)) for pairs in (PAIRS[:2], PAIRS[2:]))
    assert read(write(tmp_path / "a.tsv.xz", one + bytes(8) + other + bytes(4)))[0] == PAIRS, "with padding"
    for damaged in (b"\xfe" + other[1:], other[:-1]):
        with pytest.raises(ValueError, match="damaged or cut short"):
            read(write(tmp_path / "a.tsv.xz", one + damaged))


BAD_LINES = {
    "a.tsv": (0, 1, b"a\tb\n", [
        (b"", "empty_line"), (b" \t ", "empty_line"), ("你好\t".encode(), "one_sided"), (b"nul\0\tbyte", "nul_byte"),
        ("\u3000\tHello".encode(), "one_sided"), (b"no tab", "wrong_column_count"), (b"a\tb\tc", "wrong_column_count"),
        (b"\xff\xfe\tHello", "invalid_utf8"),
    ]),
    "a.jsonl": ("s", "t", b'{"s": "a", "t": "b"}\n', [
        (b"", "empty_line"), (b'{"s": "a", "t": ', "invalid_json"), (b'{"s": "a"}', "missing_field"),
        (b'{"s": "a", "t": ' + b"9" * 5000 + b"}", "invalid_json"), (b"\xff", "invalid_utf8"),
        (b'["a", "b"]', "missing_field"), (b'"text"', "missing_field"), (b'{"s": "a", "t": null}', "not_text"),
        (b'{"s": "a", "t": 7}', "not_text"), (b'{"s": "a", "t": " "}', "one_sided"),
        (b'{"s": "a", "t": "\\u0000"}', "nul_byte"), (b'{"s": "a", "t": "\\ud800"}', "invalid_utf8"),
    ]),
    "a.csv": ("s", "t", b"a,b\n", [
        (b"", "empty_line"), (b"a", "wrong_column_count"), (b"\xff,b", "invalid_utf8"), (b"a,", "one_sided"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_counted_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    source, target, good, bad = BAD_LINES[name]
    header = b"s,t\n" * name.endswith("csv")
    for line, reason in bad:
        pairs, report = read(write(tmp_path / name, header + good * 2 + line + b"\n" + good), source, target)
        assert pairs == [("a", "b")] * 3
        assert report.counts == {"read": {"pairs": 3, reason: 1}}, line
        assert report.examples["read"][reason][0].place == f"{name}:{4 if header else 3}"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("packing", PACK)
def test_lines_of_every_format_end_alike(tmp_path: Path, end: str, packing: str) -> None:
    pairs = [(f"第{number}\u2028句\x85", f"line\x0b {number}\x0c.") for number in range(40)]
    lines = {
        "a.tsv": ["\t".join(pair) for pair in pairs],
        "a.csv": ["s,t", *map(",".join, pairs)],
        "a.jsonl": [json.dumps({"s": source, "t": target}, ensure_ascii=False) for source, target in pairs],
    }
    for name, rows in lines.items():
        path = write(tmp_path / f"{name}{packing}", PACK[packing]("".join(row + end for row in rows).encode()))
        found, report = read(path) if name == "a.tsv" else read(path, "s", "t")
        assert found == pairs
        assert report.counts == {"read": {"pairs": 40}}


@pytest.mark.parametrize(
    "row",
    [{"id": 1, "translation.de": "a", "translation.en": "b"}, {"translation": {"de": "a", "en": "b"}},
     {"translation": {"en": "c"}, "translation.de": "a", "translation.en": "b"}],
)  # fmt: skip
def test_a_dotted_name_is_a_field_or_one_within_another(tmp_path: Path, row: dict[str, Any]) -> None:
    assert read(write(tmp_path / "a.jsonl", jsonl([row])), "translation.de", "translation.en")[0] == [("a", "b")]
    import datasets

    datasets.Dataset.from_list([row]).to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "translation.de", "translation.en")[0] == [("a", "b")]
    names = "the.row.translation.de", "the.row.translation.en"
    assert read(write(tmp_path / "a.jsonl", jsonl([{"the.row": row}])), *names)[0] == [("a", "b")]


@pytest.mark.parametrize(
    ("rows", "known"),
    [([{"translation.de": "a", "id": 1}] * 3, r"translation\.de, id"), ([{"x": {"de": {"y": 1}}}], r"x\.de\.y"),
     ([{"s": "a"}] * 1_000 + [{"de": "a", "en": "b"}], "s"), ([{"de": "a", "e": "b"}], "de, e")],
)  # fmt: skip
def test_a_field_that_a_jsonl_lacks_is_an_error_that_lists_those_it_has(
    tmp_path: Path, rows: list[Any], known: str
) -> None:
    path = write(tmp_path / "a.jsonl", jsonl(rows))
    with pytest.raises(ValueError, match=rf"a\.jsonl has no field .*'en'; its fields are {known}: give two"):
        read(path, "de", "en")
    with pytest.raises(
        ValueError, match=rf"has no field 0 and 1; its fields are {known}: give two that it has as source_"
    ):
        read(path)
    with pytest.raises(ValueError, match=r"has no field 'de' and 'en'; its lines are no objects"):
        read(write(path, b'["de", "en"]\n'), "de", "en")


def test_quotation_marks_within_and_around_fields_of_a_csv_are_read_as_they_stand(tmp_path: Path, caplog: Any) -> None:
    lines = [b"s,t", b'5" pipe,"two', b'lines"', b"a,b", b'c,"' + b"d" * 200_000 + b'"']
    pairs, report = read(write(tmp_path / "a.csv", b"\n".join(lines)), "s", "t")
    assert "a.csv: line 1 is taken for a header: s, t" in caplog.text
    assert pairs == [('5" pipe', "two\nlines"), ("a", "b"), ("c", "d" * 200_000)]
    assert report.counts == {"read": {"pairs": 3, "several_lines": 1}}


@pytest.mark.parametrize(("more", "last"), [(100, 105), (100_000, 100_005)])
def test_a_quotation_mark_that_is_never_closed_does_not_swallow_the_rest_of_a_csv(
    tmp_path: Path, more: int, last: int
) -> None:
    lines = [b"s,t", b"a,b", b'"two\nlines","with ""quotes"""', b'c,"d', *[b"e,f"] * more]
    message = rf"a\.csv: a quotation mark in line 5 makes one record of all up to line {last}: .* after 2 pairs"
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "a.csv", b"\n".join(lines) + b"\n"), "s", "t")


def test_two_stray_quotation_marks_do_not_make_a_pair_of_the_lines_between(tmp_path: Path) -> None:
    lines = [b"s,t", b"a,b", b'c,"d', b"e,f", b'g,"h', b"i,j", b'k,"l', b"m,n", b'o,p"', b"q,r"]
    pairs, report = read(write(tmp_path / "a.csv", b"\n".join(lines) + b"\n"), "s", "t")
    assert pairs == [("a", "b"), ("i", "j"), ("k", "l\nm,n\no,p"), ("q", "r")]
    assert report.counts == {"read": {"pairs": 4, "stray_quotation_mark": 1, "several_lines": 1}}
    told = "lines 3 to 5: ',' expected after '\"'"
    assert report.examples["read"]["stray_quotation_mark"][0][1:3] == ("a.csv:5", told)
    assert report.examples["read"]["several_lines"][0][1:3] == ("a.csv:9", "k\tl\nm,n\no,p")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_file_cut_short_is_an_error_that_names_it_and_the_pairs_read(tmp_path: Path, packing: str) -> None:
    content = PACK[packing](b"".join(b"%d\tline %d\n" % (i, i * 7919) for i in range(500_000)))
    path = write(tmp_path / f"cut.tsv{packing}", content[: len(content) // 2])
    report = Report()
    counts: list[int] = []
    with pytest.raises(ValueError, match=rf"cut\.tsv\{packing}: damaged or cut short .* after [\d,]+ pairs") as error:
        counts.extend(len(columns.lines) for columns in read_columns(path, report=report))
    pairs = sum(counts)
    assert pairs == report.counts["read"]["pairs"] > 1000
    assert f"after {pairs:,} pairs" in str(error.value)


def test_a_damaged_parquet_is_an_error_that_names_it(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"line {i * 7919}" for i in range(20_000)]
    pq.write_table(pa.table({"s": texts, "t": texts}), tmp_path / "a.parquet", compression="snappy")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[1000:1050] = b"\xff" * 50
    with pytest.raises(ValueError, match=r"a\.parquet: damaged or cut short \(.*\) after [\d,]+ pairs were read"):
        read(write(tmp_path / "a.parquet", bytes(content)), "s", "t")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_file_that_is_not_what_its_suffix_says_is_an_error(tmp_path: Path, packing: str) -> None:
    with pytest.raises(ValueError, match=r"damaged or cut short .*fetch it again"):
        read(write(tmp_path / f"b.tsv{packing}", b"\0\0" + tsv(PAIRS)))
    with pytest.raises(ValueError, match=r"text, not compressed as its name says .*; rename it"):
        read(write(tmp_path / f"a.tsv{packing}", tsv(PAIRS)))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.tsv.bz2", "a.parquet.gz", "a.gz", "a.xz"])
def test_an_unknown_suffix_is_an_error_that_lists_the_formats(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"known formats.*\.tsv, \.csv and \.jsonl .*\.parquet"):
        read(write(tmp_path / name, b"a\tb\n"))


def test_errors_come_before_the_first_pair_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no corpus at .*nowhere\.tsv"):
        read_columns(tmp_path / "nowhere.tsv", report=Report())
    path = write(tmp_path / "a.tsv", b"a\tb\n")
    for field in ("zh", -1, True):
        with pytest.raises(
            ValueError, match=rf"field {field!r} for .*: a TSV has no names, give column numbers from 0"
        ):
            read_columns(path, source_field=field, report=Report())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="without a corpus"):
        read_columns(tmp_path / "empty", report=Report())


def test_a_column_the_csv_header_lacks_is_an_error_that_shows_the_header(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no column 'zh'; its header is \['s', 't'\]"):
        read(write(tmp_path / "a.csv", b"s,t\na,b\n"), "zh", "t")
    with pytest.raises(ValueError, match="no column 2"):
        read(write(tmp_path / "a.csv", b"s,t\na,b\n"), 0, 2)


def test_a_folder_or_pattern_reads_its_files_in_order_of_name_but_no_test_files(tmp_path: Path) -> None:
    write(tmp_path / "train-1.tsv", tsv(PAIRS[2:]))
    write(tmp_path / "train-0.tsv.gz", gzip.compress(tsv(PAIRS[:2])))
    write(tmp_path / "README.md", b"not a corpus")
    write(tmp_path / ".train-2.tsv", b"half of a download\tx\n")
    assert read(tmp_path)[0] == PAIRS
    write(tmp_path / "train-testimony.tsv", b"")
    assert read(tmp_path)[0] == PAIRS
    for name in ("test.tsv", "test-wmt19.tsv"):
        write(tmp_path / name, b"x\ty\n")
        with pytest.raises(ValueError, match=rf"several splits \(.*{name}.*\): .*data=pairs_folder"):
            read(tmp_path)
        (tmp_path / name).unlink()
    assert read(tmp_path / "train-*")[0] == PAIRS


def test_datasets_from_disk_and_parquet_give_the_same_pairs_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    rows = datasets.Dataset.from_dict({"id": [1, 2, 3, 4], "translation": [{"zh": s, "en": t} for s, t in PAIRS]})
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict(train=rows).save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=rows, test=rows.select([0])).save_to_disk(tmp_path / "two")
    (tmp_path / "shards").mkdir()
    rows.select([0, 1]).to_parquet(tmp_path / "shards" / "train-00000-of-00002.parquet")
    rows.select([2, 3]).to_parquet(tmp_path / "shards" / "train-00001-of-00002.parquet")

    for name in ("saved", "one", "two/train", "shards", "shards/*.parquet"):
        assert read(tmp_path / name, "translation.zh", "translation.en")[0] == PAIRS, name
    assert read(tmp_path / "two/test", "translation.zh", "translation.en")[0] == PAIRS[:1]
    with pytest.raises(ValueError, match=r"several splits \(test, train\)"):
        read(tmp_path / "two", "translation.zh", "translation.en")
    for name in ("saved", "shards"):
        for field in ("zh", "translation.de", 0):
            message = rf"no field {field!r}; its fields are id, translation\.zh, translation\.en: give two"
            with pytest.raises(ValueError, match=message):
                read(tmp_path / name, field, "translation.en")
    with pytest.raises(ValueError, match=r"a\.parquet: damaged or cut short .* after 0 pairs were read"):
        read(write(tmp_path / "a.parquet", b"PAR1"), "zh", "en")
    assert read(tmp_path / "saved", "id", "translation.en")[1].counts["read"]["not_text"] == 4


def test_a_report_keeps_examples_in_short(tmp_path: Path) -> None:
    report = read(write(tmp_path / "a.tsv", b"a\tb\n" + b"x" * 500 + b"\n" + b"y\n" * 9))[1]
    kept = report.examples["read"]["wrong_column_count"]
    assert [example.place for example in kept] == [f"a.tsv:{line}" for line in range(2, 12)]
    assert max(len(example.before) for example in kept) == 300
    assert max(map(len, report.summary().splitlines())) < 150
    assert report.counts["read"] == {"pairs": 1, "wrong_column_count": 10}
    assert [line.split()[:3] for line in report.summary().splitlines()] == [
        ["read", "pairs", "1"],
        ["read", "wrong_column_count", "10"],
    ]
