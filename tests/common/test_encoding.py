"""A text in another encoding is refused by that encoding's name and with the command that converts it."""

import gzip
import lzma
import random
import subprocess

import pytest

from data_prep.reading import read_columns
from data_prep.report import Report
from duplexmt.common.encoding import is_utf8, seems

ZH = [
    "今天天气很好，我们去公园吧。",
    "你叫什么名字？",
    "他昨天没有来上班。",
    "这本书是谁的？",
    "请给我一杯水。",
    "我不知道该怎么办。",
]
HANT = [
    "今天天氣很好，我們去公園吧。",
    "你叫什麼名字？",
    "他昨天沒有來上班。",
    "這本書是誰的？",
    "請給我一杯水。",
    "我不知道該怎麼辦。",
]
JA = [
    "今日は天気がいいですね。",
    "私は学生です。",
    "東京に行きたいです。",
    "ありがとうございます。",
    "彼は疲れたと言った。",
]
KO = ["안녕하세요.", "저는 학생입니다.", "오늘 날씨가 좋네요.", "서울에 가고 싶어요."]
DE = ["Ich möchte ein Bier.", "Die Straße ist nass.", "Für dich würde ich alles tun.", "Das ist schön.", "Wir gehen."]
PL = ["Dzień dobry, jak się masz?", "Zażółć gęślą jaźń.", "Idę do domu.", "Świeci słońce."]
RU = ["Привет, как дела?", "Я хочу пойти домой.", "Сегодня хорошая погода.", "Он сказал, что устал."]
EN = [
    "The weather is fine.",
    "What is your name?",
    "He did not come.",
    "Whose book is this?",
    "A glass of water, please.",
]
CASES = [
    ("utf-16", "UTF-16", ZH), ("utf-16-le", "UTF-16LE", EN), ("utf-16-be", "UTF-16BE", JA), ("utf-32", "UTF-32", ZH),
    ("utf-32-le", "UTF-32LE", DE), ("gbk", "GB18030", ZH), ("big5", "BIG5", HANT), ("shift_jis", "SHIFT_JIS", JA),
    ("euc_jp", "EUC-JP", JA), ("euc_kr", "EUC-KR", KO), ("latin-1", "CP1252", DE), ("cp1250", "CP1250", PL),
    ("cp1251", "CP1251", RU), ("koi8_r", "KOI8-R", RU),
]  # fmt: skip


def pairs_in(codec, sources):
    return "".join(f"{source}\t{target}\n" for source, target in zip(sources, EN, strict=False)).encode(codec)


def read(path):
    return [pair for columns in read_columns(path, report=Report()) for _, pair in columns.pairs()]


@pytest.mark.parametrize(("codec", "name", "sources"), CASES)
def test_another_encoding_is_named_and_its_command_makes_a_file_that_can_be_read(codec, name, sources, tmp_path):
    path = tmp_path / "my pairs.tsv"
    path.write_bytes(pairs_in(codec, sources))
    with pytest.raises(
        ValueError, match=rf"pairs\.tsv is not UTF-8 but seems to be {name}: convert it by `iconv"
    ) as told:
        read(path)
    command = str(told.value).split("`")[1]
    assert command.startswith(f"iconv -f {name} -t UTF-8 ")
    subprocess.run(["sh", "-c", command], check=True)
    pairs = list(zip(sources, EN, strict=False))
    assert [tuple(pair[:2]) for pair in read(tmp_path / "my pairs.utf8.tsv")] == pairs


@pytest.mark.parametrize(("suffix", "pack", "unpack"), [(".gz", gzip.compress, "gzip"), (".xz", lzma.compress, "xz")])
def test_of_a_compressed_file_the_command_unpacks_it_first(suffix, pack, unpack, tmp_path):
    path = tmp_path / f"a.tsv{suffix}"
    path.write_bytes(pack(pairs_in("gb18030", ZH)))
    with pytest.raises(ValueError, match=rf"GB18030: convert it by `{unpack} -dc .*a\.tsv{suffix} \| iconv") as told:
        read(path)
    subprocess.run(["sh", "-c", str(told.value).split("`")[1]], check=True)
    assert [pair.source for pair in read(tmp_path / "a.utf8.tsv")] == ZH[:5]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_compressed_file_without_its_suffix_is_told_it(suffix, pack, tmp_path):
    (tmp_path / "a.tsv").write_bytes(pack(pairs_in("utf-8", ZH)))
    with pytest.raises(ValueError, match=rf"a\.tsv is compressed: name it \S*a\.tsv\{suffix}$"):
        read(tmp_path / "a.tsv")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_other_formats_are_refused_alike(name, tmp_path):
    path = tmp_path / name
    text = {"a.csv": "s,t\n" + "".join(f"{s},x\n" for s in ZH), "a.jsonl": "".join(f'{{"s": "{s}"}}\n' for s in ZH)}
    path.write_bytes(text[name].encode("gb18030"))
    with pytest.raises(ValueError, match="seems to be GB18030"):
        list(read_columns(path, source_field="s", target_field="t", report=Report()))


def test_a_byte_order_mark_of_utf_8_is_taken_off_and_nothing_said(tmp_path):
    for packing, pack in (("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a.tsv{packing}"
        path.write_bytes(pack(pairs_in("utf-8-sig", ZH)))
        assert [tuple(pair[:2]) for pair in read(path)] == list(zip(ZH, EN, strict=False))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"a\tb\n", "好\tgood\n".encode() * 9 + b"\xb4\xf2\n", b"nul\0\tbyte\n" * 9,
        b"caf\xe9\ta\n" + b"a\tb\n" * 9,
        "好".encode()[:2], b"a\tb\n\0\0\n" * 5 + b"c\td\n", "\u2028字\x85\n".encode(),
    ],
)  # fmt: skip
def test_some_wrong_bytes_make_no_other_encoding_of_a_text(text):
    assert is_utf8(text)


def test_a_chinese_sentence_is_told_from_a_korean_one():
    for text in ("我们走。今天很冷。", "我想买两张去西安的火车票。", "他在哪里工作？", "你好", "对不起", "大家好"):
        assert seems(f"{text}\n".encode("gbk")) == "GB18030"
    for text in (
        "안녕하세요. 저는 학생입니다.",
        "오늘은 날씨가 좋습니다.",
        "그는 “안녕하세요”라고 말했다.",
        "안녕ㅋㅋㅋ 뭐해ㅠㅠ",
    ):
        assert seems(f"{text}\n".encode("cp949")) == "EUC-KR"


def test_simplified_chinese_is_told_from_big5_and_shift_jis_however_few_signs_it_has():
    assert seems("汉字\n".encode("gb18030") * 1000) == "GB18030"


@pytest.mark.parametrize("size", [40, 400, 4000])
def test_bytes_that_are_no_text_are_in_no_encoding(size):
    assert seems(random.Random(size).randbytes(size)) is None
