"""Cleaning a text that is still arriving: what of `clean_side`'s result no later character can change.

Each rule of `rules.py` looks a little ahead. What it might still look at is held back: an escape that may go on, a
letter that may take an accent, a space that punctuation may close up or that goes before a Chinese character, white
space at the end.
"""

import re
import unicodedata
from functools import cache

from data_prep.rules import NAMED, SPACE_AFTER_WIDE, space, unescape
from duplexmt.common.text import UNSPACED, check_language, without_invisible

_BEGUN = "|".join(sorted({name[:size] for name in NAMED for size in range(1, len(name) + 1)}, key=len, reverse=True))
# From an "&" on: names, numbers, and what stands between their parts, up to the end of the text. Escapes nest, and
# consist of nothing else, so any other character after an "&" settles it. One pass will do: all there is to choose is
# where hexadecimal digits end and a name begins ("#xaamp;"), and what follows them says it; and an "&" within a match,
# being a part of it, cannot lead further than the match does.
_PART = rf"[\s;&#]|{'|'.join(NAMED)}"
_NUMBER = rf"#\s*+(?:x\s*+[0-9a-f]{{0,6}}(?={_PART}|(?:{_BEGUN})?\Z)|[0-9]{{0,7}}+)"
_ESCAPE_PARTS = re.compile(rf"&(?>{_NUMBER}|{_PART})*+(?:(?:{_BEGUN})?\Z)?", re.IGNORECASE)
# From a space on: what `space` would look at before it decides about that space.
_OPEN_SPACE = re.compile(r" +(?:[,.!?…]*|[;:]|%.{0,2}|['’].{0,4})\Z", re.DOTALL)


def settled_side(text: str, language: str) -> str:
    """The longest prefix of `clean_side(text + …, language)` that holds whatever follows; ValueError: no language."""
    check_language(language)
    text = without_invisible(text, language)
    if "&" in text:
        text = without_invisible(unescape(text[: _open_escape(text)]), language)
    text = composed(text)
    ends_in_space = text[-1:].isspace()
    text = " ".join(text.split()) + (" " if ends_in_space else "")
    if language in UNSPACED:  # first the spaces of which what follows them does not matter
        text = SPACE_AFTER_WIDE.sub("", text)
        if ends_in_space and text[-1:] != " ":
            text = composed(text)  # with a mark that follows
    if open_space := _OPEN_SPACE.search(text):
        text = text[: open_space.start()]
    return space(text, language)


def _open_escape(text: str) -> int:
    """Where what may go on as an escape begins."""
    return next((parts.start() for parts in _ESCAPE_PARTS.finditer(text) if parts.end() == len(text)), len(text))


def composed(text: str) -> str:
    """NFC of the longest prefix that no later character can compose with or reorder."""
    firsts, seconds = _composing()
    end = len(text)
    while end and (text[end - 1] in seconds or unicodedata.combining(text[end - 1])):
        end -= 1
    if end and text[end - 1] in firsts:
        end -= 1
    return unicodedata.normalize("NFC", text[:end])


@cache
def _composing() -> tuple[frozenset[str], frozenset[str]]:
    """Characters that may begin, and that may go on, a canonical composition."""
    firsts: set[str] = set()
    seconds: set[str] = set()
    characters = [chr(code) for code in range(0xC0, 0x30000)]
    for whole in characters:
        parts = unicodedata.decomposition(whole).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            firsts |= {chr(int(parts[0], 16)), whole}  # ế is ê and a further accent
            seconds.add(chr(int(parts[1], 16)))
    firsts |= {each for each in characters if unicodedata.normalize("NFC", each) in firsts}  # Å in its second code
    firsts |= {chr(code) for block in (range(0x1100, 0x1113), range(0xAC00, 0xD7A4, 28)) for code in block}
    seconds |= {chr(code) for block in (range(0x1161, 0x1176), range(0x11A8, 0x11C3)) for code in block}
    return frozenset(firsts), frozenset(seconds)
