"""A TSV as people's tools write it, as the plain columns that all else here reads: one pair a line, nothing quoted.

**Quotation marks.** A program such as pandas puts a field that holds a quotation mark, a tab or a line end into
quotation marks, and doubles those within. A TSV of sentences, as corpora have it, knows no quoting: a mark is text.
Which of them a file is, say its fields that have marks. For quoting speak fields in marks with doubled ones within, or
with a tab or line end without which the columns of these lines do not come right. Against it speak fields with a mark
elsewhere, or one that is not closed (`"Hello," he said.`), as whoever quotes would have quoted these. The majority
decides, in the first megabyte that has any. Where there are none, a file of two lines or more is quoted if, in its
first megabyte, all texts are in marks, or all that have a comma (three or more) and no others, as Excel writes them.
Anything else stays as it is: `"好。"\\t"Good."` is a pair of quotations. In a quoted file a tab or line end within a
field becomes a space.

**A carriage return alone** ends a line (`streams.text`), except within a line that has the right number of columns as
it is: there it is a space.

**A header** is a first line that names both columns by two languages or two roles (`de`, `en`; `source`, `target`;
`translation.zh`, `translation.en`), or by their numbers.

**An index** is a first column of whole numbers, no two alike, where that column is asked for as a text and there is one
more to the right of those asked for.

What was found is logged in a line.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import mode

from duplexmt.common.streams import text
from duplexmt.common.text import check_language

log = logging.getLogger("data_prep")

_HEAD = 100  # lines that tell the number of columns
_MOST_LINES = 1_000  # of a quoted field
_LINE_END = re.compile(rb"[\r\n]")
_FIELD = re.compile(rb'(?:"((?:[^"]|"")*+)"(?=[\t\r\n])|([^\t\r\n]*+))([\t\r\n])')
_QUOTED = re.compile(rb'"(?<![^\t\r\n]")((?:[^"]|"")*+)(?:"(?=[\t\r\n])|(\Z))')
_RETURNED = re.compile(rb"^[^\r\n]*+\r[^\n]*+", re.MULTILINE)
_INDEX = re.compile(rb"^[^\t\n]*+\t", re.MULTILINE)
_SPACES = bytes.maketrans(b"\t\n\r", b"   ")

_LANGUAGES = {
    "zh": "cmn zho chi cn chinese mandarin hans hant 中文 汉语 漢語 chinesisch",
    "en": "eng english englisch anglais inglés 英文 英语 英語",
    "de": "deu ger german deutsch 德语", "fr": "fra fre french français 法语", "es": "spa spanish español",
    "ja": "jpn jp japanese 日本語", "ko": "kor kr korean 한국어", "ru": "rus russian русский", "ar": "ara arb arabic",
    "it": "ita italian", "pt": "por portuguese", "nl": "nld dut dutch", "pl": "pol polish", "cs": "ces cze czech",
    "uk": "ukr ukrainian", "tr": "tur turkish", "vi": "vie vietnamese", "th": "tha thai", "hi": "hin hindi",
    "fa": "fas per pes persian", "he": "heb hebrew", "id": "ind indonesian", "el": "ell gre greek", "sv": "swe swedish",
}  # fmt: skip
_ROLES = {
    "source": "src original input from quelle 原文",
    "target": "tgt trg translation translated output to ziel 译文 譯文",
    "reference": "ref refs gold",
    "hypothesis": "hyp mt",
}
_NAMES = {name: key for names in (_LANGUAGES, _ROLES) for key, others in names.items() for name in others.split()}
_BESIDE = frozenset(
    "text texts sentence sentences sent segment lang language side column us gb hk latn cyrl arab jpan 句子".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Plain:
    """A TSV's pairs as plain lines."""

    pieces: Iterator[bytes]  # of whole lines
    columns: int  # of most of the first ones
    first: int  # number of the first line in the file, from 1
    header: str  # the line before it, or nothing


def plain_tsv(
    data: Iterator[bytes], name: str, fields: tuple[int, int], languages: Sequence[str] | None = None
) -> Plain:
    """The bytes of a TSV as the plain lines of its pairs; see above.

    `fields` are the columns of source and target, from 0: where an index is asked for, those behind it are taken.

    Raises:
        ValueError: a header that names the languages the other way round; those of `text`.
    """
    pieces = _unquoted(text(data, name, alone=b"\r"), name)
    head = next(pieces, b"")
    lines = [line for line in islice(_LINE_END.split(head), _HEAD) if line.strip()]
    columns = max(*(field + 1 for field in fields), mode(line.count(b"\t") for line in lines) + 1 if lines else 0)
    head = _ended(head, columns)
    rows = [line.split(b"\t") for line in islice(head.split(b"\n"), _HEAD) if line.count(b"\t") + 1 == columns]
    has_index = 0 in fields and columns > max(fields) + 1 and _is_index([row[0] for row in rows])
    shifted = (fields[0] + 1, fields[1] + 1) if has_index else fields
    line, _, behind = head.partition(b"\n")
    names = line.decode("utf-8", "replace").split("\t")
    is_header = len(names) == columns and _is_header(names, *shifted, fields)
    if is_header:
        _check_header(name, names, shifted, languages)
        head = behind
        log.warning("%s: line 1 is taken for a header: %s", name, ", ".join(filter(None, names)))
    if has_index:
        log.warning(
            "%s: its first column is taken for an index: source and target are columns %d and %d", name, *shifted
        )
    rest = chain([head], (_ended(piece, columns) for piece in pieces))
    plain = (_INDEX.sub(b"", piece) for piece in rest) if has_index else rest
    return Plain(filter(None, plain), columns - has_index, 1 + is_header, "\t".join(names) if is_header else "")


def _ended(piece: bytes, columns: int) -> bytes:
    """Lines with carriage returns within, as lines without."""

    def ended(line: re.Match[bytes]) -> bytes:
        return line[0].replace(b"\r", b" " if line[0].count(b"\t") + 1 == columns else b"\n")

    return _RETURNED.sub(ended, piece) if b"\r" in piece else piece


# --- quotation marks --------------------------------------------------------------------------------------------------


def _unquoted(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same with all fields plain, whether the file is quoted or not."""
    is_quoted: bool | None = None  # not known yet
    rest = b""
    for number, piece in enumerate(chain(pieces, [b""])):
        if is_quoted is None and b'"' in piece:
            is_quoted = _is_quoted(piece, is_first=not number)
            if is_quoted:
                log.warning(
                    "%s: its fields are taken for quoted, as pandas and Excel write them: the marks around them are "
                    "left out, and doubled ones are one",
                    name,
                )
        if is_quoted:
            piece, rest = _unquote(rest + piece, is_last=not piece)
        if piece:
            yield piece


def _is_quoted(piece: bytes, is_first: bool) -> bool | None:
    """Whether the fields of some lines are quoted; None where nothing says it. All texts of the first lines may."""
    tabs = mode(line.count(b"\t") for line in islice(_LINE_END.split(piece), _HEAD))
    doubled = mended = against = lines = bare = commas = with_comma = without = 0
    begin = width = 0
    is_wide = False
    for field in _FIELD.finditer(piece):
        within, plain, end = field.groups()
        if within is None:
            against += b'"' in plain
            bare += lines > 0 and not (plain.isdigit() or plain.isspace() or not plain)
            commas += b"," in plain
        elif b'""' in within:
            doubled += 1
        elif within.translate(_SPACES) != within:
            is_wide = True
        else:
            with_comma += b"," in within
            without += b"," not in within
        width += end == b"\t"
        if end != b"\t":
            if is_wide:
                record = _LINE_END.split(piece[begin : field.end() - 1])
                mends = width == tabs and any(line.count(b"\t") != tabs for line in record)
                mended, against = mended + mends, against + (not mends)
            begin, width, is_wide, lines = field.end(), 0, False, lines + 1
    if doubled or mended or against:
        return doubled + mended >= against if doubled else mended > against
    all_texts = lines > 1 and not bare and with_comma + without > 1
    all_with_comma = with_comma > 2 and not without and not commas
    return True if is_first and (all_texts or all_with_comma) else None


def _unquote(piece: bytes, is_last: bool) -> tuple[bytes, bytes]:
    """Plain lines, and what is left over: from the line on in which a field is not closed yet."""
    begin = before = 0  # of the line at hand; the end of the last quoted field
    is_open = False

    def plain(field: re.Match[bytes]) -> bytes:
        nonlocal begin, before, is_open
        begin = max(begin, *(piece.rfind(end, before, field.start()) + 1 for end in (b"\n", b"\r")))
        before, is_open = field.end(), field[2] is not None
        if is_open or field[1].count(b"\n") > _MOST_LINES:
            return field[0]
        return field[1].replace(b'""', b'"').translate(_SPACES)

    found = _QUOTED.sub(plain, piece)
    if not is_open or is_last or piece.count(b"\n", begin) > _MOST_LINES:
        return found, b""
    whole, rest = piece[:begin], piece[begin:]
    whole = _QUOTED.sub(plain, whole)
    return whole[:-1] + b"\n" if whole else whole, rest


# --- header and index -------------------------------------------------------------------------------------------------


def _is_index(cells: list[bytes]) -> bool:
    """Whether a column, with or without a name above, numbers its lines."""
    below = cells if cells and cells[0].isdigit() else cells[1:]
    enough = len(below) > 1 or (len(below) == 1 and not cells[0])
    return enough and all(cell.isdigit() for cell in below) and len(set(below)) == len(below)


def _is_header(names: list[str], source: int, target: int, numbers: tuple[int, int]) -> bool:
    """Whether a line's cells name their columns."""
    if (names[source], names[target]) == tuple(map(str, numbers)):
        return True
    meanings = [_meaning(names[column]) for column in (source, target)]
    return None not in meanings and meanings[0] != meanings[1]


def _meaning(name: str) -> tuple[str, ...] | None:
    """What a column's name says, the same for all names of a language or a role; None for what is no name."""
    parts = [part for part in re.split(r"[\W_]+|(?<=\D)(?=\d)", name.strip().casefold()) if part]
    meant = [_NAMES.get(part, part) for part in parts]
    known = all(_is_known(part) or part in _BESIDE or (part.isdigit() and len(parts) > 1) for part in meant)
    return tuple(dict.fromkeys(part for part in meant if part not in _BESIDE)) or ("text",) if known and parts else None


def _is_known(part: str) -> bool:
    try:
        return part in _ROLES or bool(check_language(part))
    except ValueError:
        return False


def _check_header(name: str, names: list[str], fields: tuple[int, int], languages: Sequence[str] | None) -> None:
    """Refuse a header that names the languages the other way round."""
    if languages is None or languages[0] == languages[1]:
        return
    said = [_meaning(names[field]) or () for field in fields]
    if languages[1] in said[0] and languages[0] in said[1]:
        raise ValueError(
            f"{name}: its header says {names[fields[0]]}, {names[fields[1]]}, and {languages[0]} is to be translated "
            f"into {languages[1]}: exchange source_field and target_field (of a source of data_prep: source and target)"
        )
