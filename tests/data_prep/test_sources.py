"""Each published format comes to its pairs, wherever blocks are cut; damage and mistakes are named."""

import gzip
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.columns import columns_of
from data_prep.preparation import preset
from data_prep.sources import Block, Source, find_files, read_blocks
from tests.data_prep import formats
from tests.data_prep.formats import PAIRS, part, side, tsv, write_parts, write_wmt21

WMT21 = {name: Source(**values) for name, values in preset("corpus", "wmt21_zhen")["sources"].items()}
TSV = Source("tsv", ["corpus.tsv"], 0, 1, columns=2)
TAR = WMT21["un"]
PAIRED = Source("paired", ["**/*"], "zh,ch,cn", "en")


def pairs_of(source, root, block_bytes=1 << 20):
    found = []
    for block in read_blocks("test", source, root, block_bytes):
        columns = columns_of(block, source)
        found += zip(columns.source.to_pylist(), columns.target.to_pylist(), strict=True)
    return found


def faults_of(source, root, block_bytes=1 << 20):
    blocks = list(read_blocks("test", source, root, block_bytes))
    return [
        (block.first - block.line + fault.line, fault.reason)
        for block in blocks
        for fault in columns_of(block, source).faults
    ]


def write(root, data, name="corpus.tsv"):
    (root / name).write_bytes(data)
    return root


def test_what_a_folder_links_to_is_read_and_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    root = tmp_path / "root"
    root.mkdir()
    for language in (0, 1):
        write(tmp_path / "elsewhere" / "deep", side(PAIRS[:3], language), f"x.{('zh', 'en')[language]}")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    assert pairs_of(PAIRED, root) == PAIRS[:3]
    archive = write(root, b"", "more.tar.gz") / "more.tar.gz"
    with pytest.raises(ValueError, match=r"test: more\.tar\.gz is an archive, which is not looked into: unpack it"):
        pairs_of(PAIRED, root)
    archive.unlink()
    (root / "gone.zh").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"gone\.zh links to nothing"):
        pairs_of(PAIRED, root)


@pytest.mark.parametrize("suffix", ["zip", "ZIP"])
def test_a_zip_that_lies_unpacked_beside_itself_is_not_read_twice(tmp_path, suffix):
    with zipfile.ZipFile(tmp_path / f"x.{suffix}", "w") as file:
        for language in (0, 1):
            file.writestr(f"x/x.{('zh', 'en')[language]}", side(PAIRS[:3], language))
    assert pairs_of(PAIRED, tmp_path) == PAIRS[:3]
    with zipfile.ZipFile(tmp_path / f"x.{suffix}") as file:
        file.extractall(tmp_path)
    with pytest.raises(ValueError, match=rf"x\.{suffix}:x/x\.zh is unpacked beside it, and would count twice"):
        pairs_of(PAIRED, tmp_path)


# --- formats -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wmt21(tmp_path_factory):
    write_wmt21(root := tmp_path_factory.mktemp("wmt21"))
    return root


@pytest.mark.parametrize("block_bytes", [1, 3000])
@pytest.mark.parametrize(("index", "name"), list(enumerate(WMT21)))
def test_a_published_format_comes_to_its_pairs_wherever_blocks_are_cut(wmt21, index, name, block_bytes):
    found = pairs_of(WMT21[name], wmt21, block_bytes)
    if name == "ccmt":  # the one with \r\n, GB18030 and spaces
        assert found[:50] == part(5)[:50]
        assert [(zh.replace(" ", ""), en) for zh, en in found[50:]] == [
            (zh.replace(" ", ""), en) for zh, en in part(5)[50:]
        ]
    else:
        assert found == part(index)


def test_blocks_are_whole_lines_numbered_in_order_and_depend_on_the_text_alone(tmp_path):
    data = tsv(PAIRS)
    write(tmp_path, data)
    blocks = list(read_blocks("test", TSV, tmp_path, 1000))
    assert b"".join(block.text for block in blocks) == data
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert all(block.text.endswith(b"\n") and len(block.text) <= 1000 for block in blocks)
    lines = [block.text.count(b"\n") for block in blocks]
    assert [block.first for block in blocks] == [sum(lines[:index]) for index in range(len(blocks))]
    (tmp_path / "gz").mkdir()
    write(tmp_path / "gz", gzip.compress(data[:5000]) + gzip.compress(data[5000:]), "corpus.tsv.gz")
    packed = Source("tsv", ["corpus.tsv.gz"], 0, 1, columns=2)
    assert [block.text for block in read_blocks("test", packed, tmp_path / "gz", 1000)] == [b.text for b in blocks]


# --- lines that are no pair ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_line_that_is_no_pair_is_named_and_the_others_keep_their_numbers(tmp_path, ending):
    bad = [
        (b"", "empty_line"), (b" \t ", "empty_line"), (b"one column", "wrong_column_count"), (b"\tonly", "one_sided"),
        (b"one\ttwo\tthree", "wrong_column_count"), (b"\xe5\xad\tbroken", "invalid_utf8"), (b"a\0b\tc", "nul_byte"),
    ]  # fmt: skip
    write(tmp_path, b"\xef\xbb\xbf" + b"".join("字\tword".encode() + ending + line + ending for line, _ in bad))
    assert pairs_of(TSV, tmp_path) == [("字", "word")] * 7
    assert faults_of(TSV, tmp_path) == [(2 * number + 1, reason) for number, (_, reason) in enumerate(bad)]
    (block,) = read_blocks("test", TSV, tmp_path, 1 << 20)
    assert columns_of(block, TSV).lines.tolist() == [1, 3, 5, 7, 9, 11, 13]


def plain_columns(block, source):
    """Line by line: the pairs, and the numbers and reasons of the others."""
    pairs, faults = [], []
    for number, line in enumerate(block.text.split(b"\n")[:-1], 1):
        try:
            cells, reason = line.decode().split("\t"), None
        except UnicodeDecodeError:
            cells, reason = [], "invalid_utf8"
        if cells and not "".join(cells).strip():
            reason = "empty_line"
        elif cells and len(cells) != source.columns:
            reason = "wrong_column_count"
        elif b"\0" in line:
            reason = reason or "nul_byte"
        elif cells and not (cells[source.source].strip() and cells[source.target].strip()):
            one = f"{cells[source.source]}{cells[source.target]}"
            reason = "one_sided" if one.strip() else "empty_line"
        if reason:
            faults.append((number, reason))
        else:
            pairs.append((number, cells[source.source], cells[source.target]))
    return pairs, faults


CELL = st.one_of(
    st.sampled_from([b"", b" ", b'"', b'"a', b'a"b"', b"\\", b"NULL", b"NA", b"1", b"\xef\xbb\xbf", b"\v", b"\xe5"]),
    st.text("ab\"'\\,;字\u2028\x85é ", max_size=5).map(str.encode),
    st.sampled_from([b"\0", b"\xff\xfe"]),
)


@settings(max_examples=100)
@given(st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=8), st.booleans())
def test_a_block_is_read_as_it_is_line_by_line(rows, mend):
    if mend:  # as most blocks are: every line of three columns
        rows = [[cell.decode("utf-8", "ignore").replace("\0", "").encode() for cell in (row * 3)[:3]] for row in rows]
    source = Source("tsv", ["x"], 2, 0, columns=3)
    block = Block(0, 0, b"".join(b"\t".join(row) + b"\n" for row in rows), "x", 1)
    found = columns_of(block, source)
    pairs = zip(found.lines.tolist(), found.source.to_pylist(), found.target.to_pylist(), strict=True)
    assert (list(pairs), [(fault.line, fault.reason) for fault in found.faults]) == plain_columns(block, source)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("block_bytes", [1, 300, 1 << 20])
def test_sides_of_a_line_aligned_file_may_end_their_lines_in_any_way(tmp_path, ending, block_bytes):
    zh, en = (side(PAIRS[:40], index).replace(b"\n", ending) for index in (0, 1))
    formats.write_parts(tmp_path, formats.un(zh, side(PAIRS[:40], 1)))
    assert pairs_of(TAR, tmp_path, block_bytes) == PAIRS[:40]
    write(tmp_path, zh, "x.zh")
    write(tmp_path, en.removesuffix(ending), "x.en")
    assert pairs_of(Source("paired", ["x.*"], "zh", "en"), tmp_path, block_bytes) == PAIRS[:40]


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
def test_a_carriage_return_that_both_sides_have_ends_a_line_and_a_stray_one_is_a_space(tmp_path, block_bytes):
    zh, en = "一\r二\n三\r四\n五\r六\r\n七\r八\r九\n十".encode(), b"a\rb\nc d\ne\rf\ng\rh\ni"
    write(tmp_path, zh, "x.zh")
    write(tmp_path, en, "x.en")
    source = Source("paired", ["x.*"], "zh", "en")
    expected = [("一", "a"), ("二", "b"), ("三 四", "c d"), ("五", "e"), ("六", "f"), ("七 八 九", "g h"), ("十", "i")]
    assert pairs_of(source, tmp_path, block_bytes) == expected
    blocks = list(read_blocks("test", source, tmp_path, block_bytes))
    assert [block.first + 1 for block in blocks] == [block.line for block in blocks]
    assert sum(block.text.count(b"\n") for block in blocks) == 7


@pytest.mark.parametrize(("encoding", "name"), [("utf-16-le", "UTF-16LE"), ("big5", "BIG5")])
def test_a_source_in_another_encoding_is_refused_by_its_name(tmp_path, encoding, name):
    pairs = [
        ("我們去公園吧", "Let's go"),
        ("他沒有來", "He did not come"),
        ("這是誰的書", "Whose book"),
        ("請進來", "Come in"),
    ]
    write(tmp_path, "".join(f"{zh}\t{en}\n" for zh, en in pairs).encode(encoding))
    with pytest.raises(ValueError, match=rf"corpus\.tsv is not UTF-8 but seems to be {name}: convert it by `iconv"):
        pairs_of(TSV, tmp_path)
    (tmp_path / "corpus.tsv").unlink()
    write(tmp_path, "".join(f"{zh}\n" for zh, _ in pairs).encode(encoding), "x.zh")
    write(tmp_path, "".join(f"{en}\n" for _, en in pairs).encode(), "x.en")
    with pytest.raises(ValueError, match=rf"x\.zh is not UTF-8 but seems to be {name}: convert it by `iconv"):
        pairs_of(PAIRED, tmp_path)


def test_sides_of_a_line_aligned_file_may_be_bad_alone_and_hold_tabs(tmp_path):
    formats.write_parts(tmp_path, formats.un("甲\n\n乙\t丙\n".encode() + b"\xff\n", b"a\nb\nc\td\ne\n"))
    assert pairs_of(TAR, tmp_path) == [("甲", "a"), ("乙 丙", "c d")]
    assert faults_of(TAR, tmp_path) == [(1, "one_sided"), (3, "invalid_utf8")]


def test_bytes_that_are_no_gb18030_make_their_line_invalid_and_no_other(tmp_path):
    zh = "汉字\n".encode("gb18030") * 250_000 + b"\xff\xff\n" + "末\n".encode("gb18030")
    write(tmp_path, zh, "x_cn.txt")
    write(tmp_path, b"word\n" * 250_002, "x_en.txt")
    blocks = list(read_blocks("test", PAIRED, tmp_path, 1 << 20))
    assert [(b.first - b.line + f.line, f.reason) for b in blocks for f in columns_of(b, PAIRED).faults] == [
        (250_000, "invalid_utf8")
    ]
    assert columns_of(blocks[-1], PAIRED).source[-1].as_py() == "末"


# --- damage and mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 300, None])
def test_a_gzip_file_cut_short_or_with_a_flipped_bit_is_refused_by_name(tmp_path, cut):
    write_wmt21(tmp_path)
    path = tmp_path / "en-zh-v1.txt.gz"
    data = path.read_bytes()
    path.write_bytes(data[:-cut] if cut else data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])  # of the checksum
    with pytest.raises(ValueError, match=r"en-zh-v1\.txt\.gz: damaged or cut short .*fetch it again"):
        pairs_of(WMT21["paracrawl"], tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_truncated_tar_is_refused(tmp_path, packed):
    data = formats.un(side(PAIRS, 0), side(PAIRS, 1))
    data = data[:-200] if packed else gzip.compress(gzip.decompress(data)[:-40_000])
    write_parts(tmp_path, data)
    with pytest.raises(ValueError, match=r"tar\.gz\.00 … UNv1\.0\.en-zh\.tar\.gz\.01: damaged or cut short"):
        pairs_of(TAR, tmp_path)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_archive_of_which_a_part_is_missing_is_damaged(tmp_path, missing):
    write_parts(tmp_path, formats.un(side(PAIRS, 0), side(PAIRS, 1)), count=3)
    (tmp_path / f"UNv1.0.en-zh.tar.gz.{missing:02d}").unlink()
    with pytest.raises(ValueError, match=r"UNv1\.0\.en-zh\.tar\.gz\.0. … .*: damaged or cut short"):
        pairs_of(TAR, tmp_path)


def test_an_archive_without_the_file_says_what_it_holds(tmp_path):
    write_parts(tmp_path, formats.tar_of({"en-fr/UNv1.0.en-fr.en": b"a\n"}))
    with pytest.raises(ValueError, match=r"no file UNv1\.0\.en-zh\.zh in it; it holds en-fr/UNv1\.0\.en-fr\.en"):
        pairs_of(TAR, tmp_path)


@pytest.mark.parametrize(("zh", "en", "block_bytes"), [(600, 599, 1), (599, 600, 500), (0, 600, 1 << 20)])
def test_sides_of_different_length_are_refused(tmp_path, zh, en, block_bytes):
    write_parts(tmp_path, formats.un(side(PAIRS[:zh], 0), side(PAIRS[:en], 1)))
    with pytest.raises(ValueError, match=r"sides of .* have different numbers of lines"):
        pairs_of(TAR, tmp_path, block_bytes)


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><html>404</html>", b"\n <html lang=en>\n<body>Not found</body>"])
@pytest.mark.parametrize(
    ("name", "file"), [("wiki_titles", "wikititles-v3.zh-en.tsv"), ("paracrawl", "en-zh-v1.txt.gz")]
)
def test_a_web_page_saved_as_a_corpus_is_recognised(tmp_path, page, name, file):
    with pytest.raises(ValueError, match=rf"{file}.* a web page, not a corpus"):
        pairs_of(WMT21[name], write(tmp_path, page, file))


def test_a_zip_that_is_damaged_is_refused(tmp_path):
    write_wmt21(tmp_path)
    path = tmp_path / "ccmt" / "casia2015.zip"
    data = path.read_bytes()
    path.write_bytes(data[:-30])
    with pytest.raises(ValueError, match=r"casia2015\.zip: damaged"):
        pairs_of(WMT21["ccmt"], tmp_path)
    path.write_bytes(data[:90] + bytes(20) + data[110:])
    with pytest.raises(ValueError, match=r"casia2015_ch\.txt in it is damaged"):
        pairs_of(WMT21["ccmt"], tmp_path)


def test_files_that_do_not_make_two_sides_are_refused(tmp_path):
    write(tmp_path, b"a\n", "x.en")
    with pytest.raises(ValueError, match=r"x\* has no side 'zh,ch,cn'"):
        pairs_of(PAIRED, tmp_path)
    with pytest.raises(ValueError, match="named as one side"):
        pairs_of(Source("paired", ["*.en"], "zh", "de"), tmp_path)
    for name in ("x.zh", "x.cn"):
        write(tmp_path, b"a\n", name)
    with pytest.raises(ValueError, match="two files for one side"):
        pairs_of(PAIRED, tmp_path)


def test_a_missing_file_says_where_it_is_to_be_had(tmp_path):
    (tmp_path / ".corpus.tsv").touch()  # left by a download that was stopped
    with pytest.raises(FileNotFoundError, match=r"corpus\.tsv\*; get it \(docs/reference/data\.md says how\)"):
        find_files("test", Source("tsv", ["corpus.tsv*"], 0, 1, columns=2), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"corpus\.tsv; get it .*sources=\["):
        find_files("test", TSV, tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "xml"}, "kind='xml': a source is one of tsv, tar, paired"),
        ({"columns": None}, "a tsv needs the number"),
        ({"target": 2}, "target=2"),
        ({"source": "zh"}, "source='zh'"),
        ({"kind": "tar"}, "a source of kind 'tar' has no columns"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Source(**{"kind": "tsv", "files": ["x"], "source": 0, "target": 1, "columns": 2} | values)


def test_an_empty_file_has_no_pairs(tmp_path):
    assert pairs_of(TSV, write(tmp_path, b"")) == []
    assert columns_of(Block(0, 0, b"", "x", 1), PAIRED).faults == []
