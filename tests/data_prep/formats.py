"""Corpora in the published formats, written as they are published."""

import gzip
import io
import random
import tarfile
import zipfile
from string import ascii_lowercase

_DRAW, _HAN = random.Random(0), "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
PAIRS = [
    (
        f"第{number}号 句子 {''.join(_DRAW.choices(_HAN, k=9))}。",
        f"Sentence number {number} {' '.join(''.join(_DRAW.choices(ascii_lowercase, k=2)) for _ in range(5))} .",
    )
    for number in range(600)
]
"""No two are relatives."""


def part(index):
    """A sixth of the pairs."""
    return PAIRS[index * 100 : (index + 1) * 100]


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def side(pairs, index):
    return "".join(pair[index] + "\n" for pair in pairs).encode()


def tar_of(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def write_parts(root, data, count=2):
    """A file cut up as `split -d` does it."""
    size = -(-len(data) // count)
    for number in range(count):
        path = root / f"UNv1.0.en-zh.tar.gz.{number:02d}"
        path.write_bytes(data[number * size : (number + 1) * size])


def un(zh, en):
    return tar_of({"en-zh/UNv1.0.en-zh.en": en, "en-zh/UNv1.0.en-zh.zh": zh})


def write_wmt21(root):
    """All six sources, 100 pairs each."""
    (root / "ccmt" / "neu2017").mkdir(parents=True)
    (root / "en-zh-v1.txt.gz").write_bytes(gzip.compress(tsv((en, zh) for zh, en in part(0))))
    rows = [row for zh, en in part(1) for row in ((en, zh), ("", ""))]  # an empty line between articles
    (root / "news-commentary-v16.en-zh.tsv.gz").write_bytes(gzip.compress(tsv(rows)))
    (root / "wikititles-v3.zh-en.tsv").write_bytes(tsv(part(2)))
    write_parts(root, un(side(part(3), 0), side(part(3), 1)))
    rows = [(f"1.{number:02d}", en, zh, "en", "zh") for number, (zh, en) in enumerate(part(4))]
    (root / "WikiMatrix.v1.en-zh.langid.tsv.gz").write_bytes(gzip.compress(tsv(rows)))
    with zipfile.ZipFile(root / "ccmt" / "casia2015.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("casia2015/casia2015_ch.txt", side(part(5)[:50], 0).decode().encode("gb18030"))
        zipped.writestr("casia2015/casia2015_en.txt", side(part(5)[:50], 1).replace(b"\n", b"\r\n"))
        zipped.writestr("casia2015/readme.txt", "Not a side.")
    spaced = [(" ".join(zh), en) for zh, en in part(5)[50:]]
    for name, index in (("NEU.zh", 0), ("NEU.en", 1)):
        (root / "ccmt" / "neu2017" / name).write_bytes(side(spaced, index))
