"""Text that is not UTF-8: which encoding it seems to be in, and the command that converts it."""

import codecs
from pathlib import Path
from shlex import quote

from charset_normalizer import from_bytes

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}  # fmt: skip  # those of UTF-32 first: one of them begins as one of UTF-16 does
_WIDE = {"utf-32-le": "UTF-32LE", "utf-32-be": "UTF-32BE", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE"}
_OTHERS = {  # what iconv calls them; those that charset_normalizer chooses from, as it mistakes rarer ones for these
    "gb18030": "GB18030", "big5": "BIG5", "cp932": "SHIFT_JIS", "euc_jp": "EUC-JP", "cp949": "EUC-KR",
    "cp1250": "CP1250", "cp1251": "CP1251", "cp1252": "CP1252", "cp1253": "CP1253", "cp1254": "CP1254",
    "cp1255": "CP1255", "cp1256": "CP1256", "cp1258": "CP1258", "cp874": "CP874", "koi8_r": "KOI8-R",
}  # fmt: skip
_UNPACK = {".gz": "gzip -dc", ".zst": "zstd -dc", ".xz": "xz -dc"}
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\0": ".xz"}  # first bytes; what names it
_LOOKED_AT = 100_000  # bytes that tell an encoding
_SHORT = 1_000  # bytes below which Chinese may be taken for Korean


def check_utf8(head: bytes, name: str) -> None:
    """Refuse a text that is in another encoding. Some lines with wrong bytes make no other encoding of a text.

    Args:
        head: how it begins, or all of it.
        name: of the file, for people.

    Raises:
        ValueError: naming the encoding that it seems to be in, and the command that converts it; or it is compressed.
    """
    for mark, suffix in _PACKED.items():
        if head.startswith(mark):
            raise ValueError(f"{name} is compressed: name it {name}{suffix}")
    if not is_utf8(head):
        raise not_utf8(name, seems(head))


def not_utf8(name: str, encoding: str | None) -> ValueError:
    """The error for a text in another encoding, or in none that is known here."""
    path, file = Path(name), quote(name)
    convert = f"iconv -f {encoding or 'ENCODING'} -t UTF-8"
    if unpack := _UNPACK.get(path.suffix.lower()):
        path, convert = path.with_suffix(""), f"{unpack} {file} | {convert}"
    else:
        convert = f"{convert} {file}"
    new = path.with_suffix(f".utf8{path.suffix}")
    seeming = f"seems to be {encoding}" if encoding else "is in an encoding that is not known here"
    return ValueError(
        f"{name} is not UTF-8 but {seeming}: convert it by `{convert} > {quote(str(new))}`, look at what has become of "
        "it, and give the new file"
    )


def is_utf8(head: bytes) -> bool:
    """Whether a text that begins so is UTF-8: all but for a few lines.

    It is none that has the byte-order mark of another encoding, or a quarter of NUL bytes, as UTF-16 has them; or
    where most lines beyond ASCII are wrong, and these are a tenth of all lines, and two at least, or half of all.
    """
    if has_mark(head) or (4 * head.count(0) > len(head) and _wide(head)):
        return False
    if decodes(head, "utf-8"):
        return True
    lines = [line for line in head.splitlines() if line.strip()]
    beyond = [line for line in lines if not line.isascii()]
    wrong = sum(not decodes(line + b"\n", "utf-8") for line in beyond)
    return not (2 * wrong > len(beyond) and 10 * wrong >= len(lines) and (wrong > 1 or 2 * wrong >= len(lines)))


def has_mark(head: bytes) -> bool:
    """Whether a text begins with the byte-order mark of UTF-16 or UTF-32."""
    return head.startswith(tuple(_MARKS))


def seems(head: bytes) -> str | None:
    """The encoding, as iconv calls it, that a text which begins so seems to be in; None where none fits."""
    for mark, marked in _MARKS.items():
        if head.startswith(mark):
            return marked
    head = head[:_LOOKED_AT]
    if 0 in head and (name := _wide(head)):
        return name
    best = from_bytes(head, cp_isolation=[*_OTHERS]).best()
    if best is None:
        fitting = (codec for codec in _OTHERS if decodes(head, codec) and _is_legible(head.decode(codec, "replace")))
        return next((_OTHERS[codec] for codec in fitting), None)
    found = best.encoding
    doubtful = found in ("big5", "cp932") or (found == "cp949" and len(head) < _SHORT and not _is_hangul(head))
    if doubtful and _is_simplified(head):
        found = "gb18030"
    elif found == "cp932" and decodes(head, "big5") and not _has_kana(head):
        found = "big5"
    elif found in ("cp1250", "cp1252"):
        found = "cp1250" if _is_central_european(head) else "cp1252"
    return _OTHERS[found] if _is_legible(head.decode(found, "replace")) else None  # bytes that are no text


def decodes(text: bytes, codec: str) -> bool:
    """Whether bytes are valid in an encoding; they may end within a character."""
    try:
        codecs.getincrementaldecoder(codec)().decode(text)
    except UnicodeDecodeError:
        return False
    return True


def _is_simplified(head: bytes) -> bool:
    """Whether bytes taken for GB18030 hold the signs of GB 2312 almost alone, as those of Big5 or Shift-JIS do not."""
    beyond = [sign for sign in head.decode("gb18030", "replace") if not sign.isascii()]
    return 20 * len("".join(beyond).encode("gb2312", "ignore")) >= 19 * 2 * len(beyond)


def _is_hangul(head: bytes) -> bool:
    """Whether of the letters of bytes taken for EUC-KR nine tenths are hangul, as in Korean; of Chinese half are."""
    signs = head.decode("cp949", "replace")
    hangul = sum("가" <= sign <= "힣" or "ㄱ" <= sign <= "ㆎ" for sign in signs)
    hanja = sum("一" <= sign <= "鿿" or "豈" <= sign <= "龎" for sign in signs)
    return hangul >= 9 * hanja


def _has_kana(head: bytes) -> bool:
    """Whether of the signs of bytes taken for Shift-JIS a tenth is kana, as nearly all Japanese has it."""
    beyond = [sign for sign in head.decode("cp932", "replace") if not sign.isascii()]
    return 10 * sum("ぁ" <= sign <= "ヺ" for sign in beyond) >= len(beyond)


def _is_central_european(head: bytes) -> bool:
    """Whether bytes taken for CP1250 hold letters whose bytes are none, or rare ones, of a word in CP1252."""
    signs = {*head.decode("cp1250", "replace").casefold()}
    return bool(signs & {*"šžťłśźąţ"}) or signs > {*"őű"}


def _wide(head: bytes) -> str | None:
    """The encoding of two or four bytes a character that a text is in; None for others."""
    return next((name for codec, name in _WIDE.items() if _is_text(head[:_LOOKED_AT], codec)), None)


def _is_text(head: bytes, codec: str) -> bool:
    """Whether bytes are text in an encoding of two or four bytes a character: lines or columns of known signs."""
    text = head.decode(codec, "replace")
    return any(end in text for end in "\n\r\t") and _is_legible(text)


def _is_legible(text: str) -> bool:
    """Whether of a text's signs hardly any are control characters, or unknown."""
    return 50 * sum(not (sign.isprintable() or sign.isspace()) or sign == "\ufffd" for sign in text) < len(text)
