"""The paper's cleaning rules (Section "Datasets"), each one a small pure function.

    filtering numeric sequences        only_numerals, numeral_table, placeholder_numerals  -> a pair is dropped
    normalising escaped punctuation    unescape                                           -> a side is rewritten
    space normalisation                remove_spaces, close_up_punctuation                -> a side is rewritten

`cleaning.clean` applies them in the order that keeps them right: numerals are judged after unescaping but before the
spaces go, since "1 2 3" without its spaces is one number. The numeral rules were fixed by looking at real corpora; each
says what it found there.
"""

import re
import unicodedata

from duplexmt.common.text import (
    INVISIBLE,
    UNSPACED,
    WIDE_OR_CLOSING,
    WIDE_OR_OPENING,
    check_language,
    without_invisible,
)

NAMED = {
    "amp": "&", "apos": "'", "quot": '"', "lt": "<", "gt": ">", "nbsp": " ",
    "lsquo": "‘", "rsquo": "’", "ldquo": "“", "rdquo": "”", "laquo": "«", "raquo": "»",
    "ndash": "–", "mdash": "—", "hellip": "…", "middot": "·", "bull": "•",
}  # fmt: skip
# The five XML names are also met without their semicolon ("Kattamaran&amp;quot。"), but then only unspaced:
# "guitar & amp" is English, and "?a=1&lt=2" an address.
_ESCAPE = re.compile(
    rf"&\s*(?:(?P<name>{'|'.join(NAMED)})\s*;|#\s*(?:x\s*(?P<hex>[0-9a-f]{{1,6}})|(?P<decimal>[0-9]{{1,7}}))\s*;)"
    r"|&(?P<bare>amp|apos|quot|lt|gt)(?![a-z0-9_=])",
    re.IGNORECASE,
)
_DEEPEST_ESCAPE = 5  # "&amp;amp;quot;" nests; a bound, not a setting

_LETTER = re.compile(r"[^\W\d_]")
_DIGIT = re.compile(r"\d")
# 7 numbers or more with no letter between. Possessive, as a line of a million digits must not take its square.
_NUMBER_RUN = re.compile(r"(?<!\d)\d++(?:[\W_]++\d++){6}")
_PLACEHOLDER = re.compile(r"(?<!\d)(?<!\d\W)0{4,}(?:\W+0{4,})+(?!\d)")

# A full stop, comma, … is closed up only where it ends something: not in ".NET", ".5" or ";)".
_CLOSING = r"(?=[\s\"'”’)\]}»]|$)"
_SPACE_BEFORE = re.compile(rf" +(?=[,.!?…]+{_CLOSING}|[;:](?:\s|$)|[)\]}}])")
_SPACE_BEFORE_FRENCH = re.compile(rf" +(?=[,.…]+{_CLOSING}|[)\]}}])")
_SPACE_BEFORE_PERCENT = re.compile(r"(?<=\d) +(?=%(?! ?\d))")
SPACE_AFTER_WIDE = re.compile(rf"(?<=[{WIDE_OR_OPENING}]) +")
_SPACE_BEFORE_WIDE = re.compile(rf" +(?=[{WIDE_OR_CLOSING}])(?![\u302a-\u302f\u3099\u309a])")  # but marks
_SPACE_BEFORE_CLITIC = re.compile(r"(?<=\w) +(?=['’](?:s|t|re|ll|ve|d|m)\b(?!['’]))", re.IGNORECASE)


def unescape(text: str) -> str:
    """Escaped punctuation as plain characters: XML names, a few typographic ones, any numeric reference (&#124;).

    Takes spaced ("& quot ;"), nested ("&amp;quot;") and unterminated ("&quot") forms. References to control characters
    vanish. Other names ("&PyList_Type;") stay: they are code, not punctuation.
    """
    for _ in range(_DEEPEST_ESCAPE):
        if "&" not in text:
            return text
        plain = _ESCAPE.sub(_character, text)
        if plain == text:
            return text
        text = plain
    return text


def _character(match: re.Match[str]) -> str:
    name = match["name"] or match["bare"]
    if name:
        return NAMED[name.lower()]
    code = int(match["hex"], 16) if match["hex"] else int(match["decimal"])
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return ""
    return "" if INVISIBLE.match(chr(code)) else chr(code)


def tidy(text: str) -> str:
    """What every language gets: NFC, without invisible characters, white space collapsed and stripped."""
    return " ".join(unicodedata.normalize("NFC", INVISIBLE.sub("", text)).split())


def remove_spaces(text: str) -> str:
    """Spaces removed beside Han, kana and their marks, and within brackets: "用 New York" becomes "用New York".

    Those between words of other scripts stay, and are closed up as in English, which most of them are in. The paper
    removes all from Chinese. Expects normalised text, and returns NFC, since a mark may now stand behind a letter.
    """
    if " " not in text:
        return text
    text = close_up_punctuation(SPACE_AFTER_WIDE.sub("", text), "en")
    return unicodedata.normalize("NFC", _SPACE_BEFORE_WIDE.sub("", text))


def close_up_punctuation(text: str, language: str) -> str:
    """Spaces before closing punctuation removed, but in French not those before ; : ! ?

    In English also "6 %" and "it 's". Expects normalised text (one space at a time). Quotation marks stay as they
    are: a plain `"` does not say which side it is on.
    """
    if language == "fr":
        return _SPACE_BEFORE_FRENCH.sub("", text)
    text = _SPACE_BEFORE.sub("", text)
    if language == "en":
        text = _SPACE_BEFORE_PERCENT.sub("", text)
        text = _SPACE_BEFORE_CLITIC.sub("", text)
    return text


def space(text: str, language: str) -> str:
    """The spacing rule of `language` (checked by the caller) on normalised text."""
    return remove_spaces(text) if language in UNSPACED else close_up_punctuation(text, language)


def clean_side(text: str, language: str) -> str:
    """A text to be translated, cleaned as a side of a training pair is, and without what is `invisible`.

    Raises:
        ValueError: for an unknown language code.
    """
    check_language(language)
    plain = without_invisible(unescape(without_invisible(text, language)), language)
    return space(tidy(plain), language)


def only_numerals(source: str, target: str) -> bool:
    """Neither side has a letter, and one has a digit: "10-26" ↔ "10-26.".

    One side alone is no reason: in TVsub 1,005 pairs are like "一万五千美元" ↔ "$15,000.", and of 60 sampled most were
    real translations, number words against numerals.
    """
    if _LETTER.search(source) or _LETTER.search(target):
        return False
    return bool(_DIGIT.search(source) or _DIGIT.search(target))


def numeral_table(source: str, target: str) -> bool:
    """On both sides, 7 numbers in a row and more digits than letters: table rows, sequences, index lines.

    Seven, because a date with its time has six; on both sides, because "1-0-0-1-0-0-1" ↔ "one-zero-zero-…" is a
    translation; more digits than letters, because a sentence may list the winning numbers.
    """
    return _is_table(source) and _is_table(target)


def _is_table(text: str) -> bool:
    return bool(_NUMBER_RUN.search(text)) and len(_DIGIT.findall(text)) > len(_LETTER.findall(text))


def placeholder_numerals(source: str, target: str) -> bool:
    """A side holds groups of four zeros or more in a row, an empty record: ",,0000,0000,0000,,不用了" (9,404 in TVsub).

    Not the Chinese ten-thousands of "1,0000,0000", whose first group starts with another digit.
    """
    return any("0000" in text and _PLACEHOLDER.search(text) for text in (source, target))


def wordless(source: str, target: str) -> bool:
    """A side has neither letter nor digit: "。" against a whole sentence, or "????????"."""
    return not all(_LETTER.search(text) or _DIGIT.search(text) for text in (source, target))


def rejects(source: str, target: str) -> str | None:
    """Why the pair of *normalised* texts is to be dropped, or None: the first rule that holds, by its name."""
    if not source or not target:
        return "empty_side"
    rules = only_numerals, wordless, placeholder_numerals, numeral_table
    return next((rule.__name__ for rule in rules if rule(source, target)), None)
