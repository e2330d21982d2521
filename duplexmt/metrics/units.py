"""Texts in the field's units: characters of languages whose words no spaces part, words of others. No torch here.

SimulEval splits a source on spaces, so that raw Chinese would be one unit: Chinese is counted in characters. So are
Thai, Lao, Khmer, Burmese, Tibetan and Dzongkha, whose spaces part phrases. A space is no unit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import regex

from ..common.text import UNPARTED

Unit = Literal["character", "word", "piece"]  # piece: a word or a mark, as word aligners want texts cut
# `regex`, since to Python's `re` a vowel sign is no \w: it would cut a Hindi word at each.
PATTERNS: dict[Unit, str] = {"character": r"\S", "word": r"\S+", "piece": r"\w+|[^\w\s]"}
_SHORTER = {
    "zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km",
    "mya": "my", "bur": "my", "bod": "bo", "tib": "bo", "dzo": "dz",
}  # fmt: skip


def text_unit(language: str) -> Unit:
    """The unit a language is counted in: the character for those of `UNPARTED`, else the word.

    Raises:
        ValueError: `language` is no language code (see `primary_language`).
    """
    return "character" if primary_language(language) in UNPARTED else "word"


def primary_language(code: str) -> str:
    """The language of a code, without script or region: `zh-Hant`, `zh_TW` and `zho` give `zh`.

    Raises:
        ValueError: not a two- or three-letter code; a language's name, say, would silently be none of those known.
    """
    language = regex.split("[-_]", code)[0].lower()
    if not regex.fullmatch("[a-z]{2,3}", language):
        raise ValueError(f"a language code such as 'en' or 'zh' is needed, got {code!r}")
    return _SHORTER.get(language, language)


def count_units(text: str, unit: Unit) -> int:
    """Length of a text in characters (code points, white space left out) or in words (separated by white space)."""
    return len(split_units(text, unit))


def split_units(text: str, unit: Unit) -> list[str]:
    """A text's characters, words or pieces, in order."""
    return regex.findall(PATTERNS[unit], text)


def delays_in_characters_and_words(
    source_text: str,
    source_token_ends: Sequence[int],
    target_text: str,
    target_token_ends: Sequence[int],
    token_delays: Sequence[int],
    source_unit: Unit = "character",
    target_unit: Unit = "word",
) -> list[int]:
    """Delays in the field's units, by default characters in and words out, from delays in model tokens.

    A unit of the target has the delay of its last token: the first one at whose end the whole unit is written. That
    delay counts the units of the source which are complete once so many of its tokens have been read.

    Args:
        source_token_ends: for each source token, the length of the prefix `source_text[:end]` complete once it has
            been read (white space included). The end token may stand last; it adds nothing.
        target_text: the hypothesis.
        target_token_ends: likewise for each target token. A token that stops inside a character has not completed it.
        token_delays: for each target token, the number of source tokens read when it was written, at most
            `len(source_token_ends)`.
        source_unit: unit of the returned values; `text_unit` gives a language's.
        target_unit: unit of which the result has one value each.

    Returns:
        One delay for each of the `count_units(target_text, target_unit)` units of the target, in units of the
        source; S is `count_units(source_text, source_unit)`.

    Raises:
        ValueError: ends that fall, leave their text, or do not reach its last unit; delays that are not one for each
            target token, fall, or exceed the number of source tokens.
    """
    source_unit_ends = _unit_ends(source_text, source_unit)
    _check_token_ends(source_token_ends, source_text, source_unit_ends, "source")
    last = last_tokens(target_text, target_token_ends, target_unit)
    if len(token_delays) != len(target_token_ends):
        raise ValueError(f"got {len(token_delays)} delays for {len(target_token_ends)} target tokens")
    for index, delay in enumerate(token_delays):
        if not 0 <= delay <= len(source_token_ends):
            raise ValueError(f"delay {index} must be within 0..{len(source_token_ends)} source tokens, got {delay}")
    check_rising(token_delays, "delays")

    units_read = [0] + [bisect_right(source_unit_ends, end) for end in source_token_ends]
    return [units_read[token_delays[index]] for index in last]


def last_tokens(text: str, token_ends: Sequence[int], unit: Unit) -> list[int]:
    """For each unit of a hypothesis, the index of its last token: the first at whose end the whole unit is written.

    Raises:
        ValueError: `token_ends` (as in `delays_in_characters_and_words`) that fall, leave the text, or do not reach its
            last unit.
    """
    unit_ends = _unit_ends(text, unit)
    _check_token_ends(token_ends, text, unit_ends, "target")
    return [bisect_left(token_ends, end) for end in unit_ends]


def _unit_ends(text: str, unit: Unit) -> list[int]:
    """End position in `text` of each of its units."""
    return [match.end() for match in regex.finditer(PATTERNS[unit], text)]


def check_rising(values: Sequence[float], name: str) -> None:
    """Refuse values that fall.

    Raises:
        ValueError: naming them, and the place.
    """
    for index, (before, after) in enumerate(pairwise(values), start=1):
        if after < before:
            raise ValueError(f"{name} must not decrease, got {after} after {before} at position {index}")


def _check_token_ends(token_ends: Sequence[int], text: str, unit_ends: Sequence[int], side: str) -> None:
    for index, end in enumerate(token_ends):
        if not 0 <= end <= len(text):
            raise ValueError(f"{side} token {index} must end within 0..{len(text)} characters, got {end}")
    check_rising(token_ends, f"the ends of {side} tokens")
    reached = token_ends[-1] if len(token_ends) > 0 else 0
    if unit_ends and reached < unit_ends[-1]:
        raise ValueError(
            f"the {side} tokens reach character {reached} of a text that ends at {unit_ends[-1]}: {text!r}"
        )
