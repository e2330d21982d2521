"""What becomes of one pair: the paper's rules (`rules`), and the optional ones users of web-crawled corpora expect.

    control_characters   a side holds the mark of a broken decoding, or several control or
                         private-use characters                                                -> the pair is dropped
    strip_control        ... a single one                                                      -> it goes
    simplify             traditional characters become simplified ones (opencc)                -> a side is rewritten
    too_long             a side has more characters than any sentence                          -> the pair is dropped
    identical_sides      both sides say the same: nothing was translated                       -> the pair is dropped
    wrong_script         a side is for the most part in another script than its language's     -> the pair is dropped
    length_ratio         one side is several times as long as the other                        -> the pair is dropped

Duplicates, the remaining optional rule, concern more than one pair: `clean_corpus`. `Cleaning` says which
rules hold; `clean` applies them all to one pair. `data_prep.vectorised` finds by columns the many pairs that need
little, and leaves the others to it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from data_prep.rules import clean_side, rejects, space, tidy, unescape
from duplexmt.common.text import UNSPACED, check_language, text_key

# C0 and C1 controls but for white space, and private use.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ue000-\uf8ff]")

_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA, _HANGUL = "\u3040-\u30ff\uff66-\uff9d", "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
_CYRILLIC, _ARABIC, _GREEK = "\u0400-\u052f", "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff", "\u0370-\u03ff"
_LATIN = "A-Za-zªºÀ-ÖØ-öø-ʯ\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a"
_SCRIPTS = {
    "zh": _HAN, "ja": _HAN + _KANA, "ko": _HANGUL + _HAN, "ru": _CYRILLIC, "uk": _CYRILLIC, "bg": _CYRILLIC,
    "ar": _ARABIC, "fa": _ARABIC, "el": _GREEK,
}  # fmt: skip
IN_LATIN = frozenset("cs da de en es et fi fr ga hr hu id is it lt lv ms mt nl pl pt ro sk sl sv tr vi".split())  # noqa: SIM905
_SCRIPTS |= dict.fromkeys(IN_LATIN, _LATIN) | {"sr": _LATIN + _CYRILLIC}
_UNSPACED_CHARACTER = re.compile(f"[{_HAN}{_KANA}]")
_WORD = re.compile(rf"([^\W\d_{_HAN}{_KANA}])[^\s{_HAN}{_KANA}]*")  # from its first letter on, which is found

LENGTH_SLACK = 30
"""Bytes by which sides may differ whatever their ratio: "好" ↔ "All right, then, let's go."."""

DUPLICATES = ("none", "exact", "near")


@dataclass
class Cleaning:
    """Which rules hold. The paper's always do; each of the others is on where its value is neither False nor None.

    Raises:
        ValueError: an unknown language or value, or `least_script` for a language whose script is not known here.
    """

    source_language: str
    target_language: str
    control_characters: bool = False
    simplify: bool = False
    max_characters: int | None = None
    identical_sides: bool = False
    least_script: float | None = None  # share of a side's words (or unspaced characters) in its language's script
    length_ratio: float | None = None  # longest side in UTF-8 bytes over the shortest, beyond LENGTH_SLACK bytes
    duplicates: str = "none"  # none | exact | near

    def __post_init__(self) -> None:
        for language in self.languages:
            check_language(language)
            if self.least_script is not None and language not in _SCRIPTS:
                raise ValueError(
                    f"cleaning.least_script={self.least_script}: the script of {language!r} is not known here "
                    f"(known: {' '.join(sorted(_SCRIPTS))}); null turns the rule off"
                )
        if self.duplicates not in DUPLICATES:
            raise ValueError(f"cleaning.duplicates={self.duplicates!r}: must be one of {', '.join(DUPLICATES)}")
        if self.max_characters is not None and self.max_characters < 1:
            raise ValueError(f"cleaning.max_characters={self.max_characters}: must be at least 1, or null")
        if self.least_script is not None and not 0 < self.least_script <= 1:
            raise ValueError(f"cleaning.least_script={self.least_script}: must be above 0 and at most 1, or null")
        if self.length_ratio is not None and not self.length_ratio >= 1:
            raise ValueError(f"cleaning.length_ratio={self.length_ratio}: must be at least 1, or null")

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language

    @property
    def simplifies(self) -> tuple[bool, bool]:
        """Whether source and target are to be simplified: only Chinese can be."""
        return self.simplify and self.source_language == "zh", self.simplify and self.target_language == "zh"


@dataclass(frozen=True)
class Fate:
    """What became of a pair: `dropped` names the rule that dropped it; else the clean texts and what rewrote them."""

    source: str
    target: str
    dropped: str | None = None
    rewritten: tuple[str, ...] = ()


def clean(source: str, target: str, rules: Cleaning) -> Fate:
    """One pair through all rules, in order: rewrite, drop what the paper drops, drop what the optional rules drop."""
    raw = stripped = source, target
    if rules.control_characters:
        if control_characters(source) or control_characters(target):
            return Fate(*raw, "control_characters")
        stripped = strip_control(source), strip_control(target)
    unescaped = unescape(stripped[0]), unescape(stripped[1])
    plain = tidy(unescaped[0]), tidy(unescaped[1])
    if reason := rejects(*plain):
        return Fate(*stripped, reason)
    spaced = space(plain[0], rules.source_language), space(plain[1], rules.target_language)
    both = rules.simplifies
    clean = simplify(spaced[0]) if both[0] else spaced[0], simplify(spaced[1]) if both[1] else spaced[1]
    if reason := rejects_strictly(plain, clean, rules):
        return Fate(*stripped, reason)
    spacing = ("remove_spaces" if language in UNSPACED else "close_up_punctuation" for language in rules.languages)
    steps = [
        ("strip_control", raw, stripped), ("unescape", stripped, unescaped), ("normalise", unescaped, plain),
        *zip(spacing, plain, spaced, strict=True), ("simplify", spaced, clean),
    ]  # fmt: skip
    rewritten = dict.fromkeys(rule for rule, before, after in steps if before != after)
    return Fate(*clean, rewritten=tuple(rewritten))


def clean_context(before: str, rules: Cleaning) -> str:
    """The sentence before a source, rewritten as the source is; where it is damaged, none."""
    if rules.control_characters:
        before = "" if control_characters(before) else strip_control(before)
    before = clean_side(before, rules.source_language)
    return simplify(before) if rules.simplifies[0] else before


def rejects_strictly(plain: tuple[str, str], clean: tuple[str, str], rules: Cleaning) -> str | None:
    """Why a pair is to be dropped by an optional rule, or None: the first rule that holds.

    Takes the pair as normalised and as clean, since words are told by their spaces and lengths without.
    """
    if rules.max_characters is not None and max(map(len, clean)) > rules.max_characters:
        return "too_long"
    if rules.identical_sides and identical_sides(*clean):
        return "identical_sides"
    if rules.least_script is not None:
        for text, language in zip(plain, rules.languages, strict=True):
            if wrong_script(text, language, rules.least_script):
                return "wrong_script"
    if rules.length_ratio is not None and length_ratio(*clean, rules.length_ratio):
        return "length_ratio"
    return None


def control_characters(text: str) -> bool:
    """A *raw* text holds U+FFFD, the mark of a failed decoding, or two control or private-use characters: "caf\ufffd".

    One alone is no damage: in TVsub 45 of 50 texts with such a character had a private ellipsis at their end, and were
    right otherwise.
    """
    return "\ufffd" in text or len(_CONTROL.findall(text)) > 1


def strip_control(text: str) -> str:
    """A text without its control and private-use characters: "Good\ue4d1" is "Good"."""
    return _CONTROL.sub("", text)


def identical_sides(source: str, target: str) -> bool:
    """Both sides have the same letters and digits: "iPhone 4" ↔ "iPhone 4", an untranslated line."""
    return text_key(source) == text_key(target)


def wrong_script(text: str, language: str, least: float) -> bool:
    """Less than the share `least` of a *normalised* text's words is in the script of its language.

    Han characters and kana count one by one, other words by their spaces, and by their first letter: "使用
    :c:func:`Py_DECREF` 宏" is 3 of 4 Han. False for a text without any letter.
    """
    in_script, foreign = _in_script(language)
    if not foreign.search(text):
        return False
    letters = [*_UNSPACED_CHARACTER.findall(text), *_WORD.findall(text)]
    return len(in_script.findall("".join(letters))) < least * len(letters)


def is_foreign(text: str, language: str) -> bool:
    """Less than a tenth of a text's words, four or more, is in its language's script; False if that is not known."""
    words = len(_UNSPACED_CHARACTER.findall(text)) + len(_WORD.findall(text))
    return language in _SCRIPTS and words >= 4 and wrong_script(text, language, 0.1)


def is_in_script(text: str, language: str) -> bool:
    """Whether a *cleaned* text has letters, of a script that is its language's or is not known here."""
    return any(map(str.isalpha, text)) and not (language in _SCRIPTS and wrong_script(text, language, 0.5))


def check_order(
    name: str,
    pairs: Sequence[tuple[str, ...]],
    source_language: str,
    target_language: str,
    fields: tuple[str, str] = ("source_field", "target_field"),
) -> None:
    """Refuse *cleaned* pairs most of which are the wrong way round, or in other languages, as told by their scripts.

    The first thousand say it. A language whose script is not known here cannot be told. `fields` are what the settings
    that choose the sides are called.

    Raises:
        ValueError: one side of over half of the pairs is in another script than its language's.
    """
    first = pairs[:1000]
    for side, language in enumerate((source_language, target_language)):
        foreign = [pair[side] for pair in first if language in _SCRIPTS and wrong_script(pair[side], language, 0.5)]
        if 2 * len(foreign) > len(first):
            which = ("source", "target")[side]
            raise ValueError(
                f"{name}: {len(foreign)} of the first {len(first)} {which} texts are not in the script of {language} "
                f"({which}_language={language}), such as {foreign[0][:40]!r}: if the columns are swapped, exchange "
                f"{fields[0]} and {fields[1]}; else give the language they are in as {which}_language, or another "
                f"{fields[side]}"
            )


def length_ratio(source: str, target: str, most: float) -> bool:
    """One side has over `most` times the UTF-8 bytes of the other, `LENGTH_SLACK` bytes aside.

    Bytes, because a Han character takes three and says about as much as three Latin letters: without a factor for each
    language the usual ratio of Chinese to English is near 1.
    """
    shorter, longer = sorted((len(source.encode()), len(target.encode())))
    return longer > most * shorter + LENGTH_SLACK


def simplify(text: str) -> str:
    """Traditional characters as simplified ones, by phrase and character (opencc `t2s`), if the text has any.

    Only then: opencc takes all text for traditional, and made "坏主意" into "坯主意", "覆写" into "复写".
    """
    return _converter().convert(text) if traditional().intersection(text) else text


def simplify_as_read(text: str) -> str:
    """`simplify` for a text that is still arriving, where no later character may change what has been read.

    From the first character on that only traditional text has, each by itself: what stands before it stays, and
    phrases are not known ("乾隆" becomes "干隆").
    """
    if traditional().isdisjoint(text):
        return text
    first = next(place for place, character in enumerate(text) if character in traditional())
    return text[:first] + "".join(map(_simplified, text[first:]))


@cache
def _simplified(character: str) -> str:
    return _converter().convert(character)


@cache
def traditional() -> frozenset[str]:
    """Characters that only traditional text has: opencc changes them, and GB 2312, the simplified set, lacks them."""
    converter = _converter()
    return frozenset(
        character
        for character in map(chr, range(0x4E00, 0xA000))
        if converter.convert(character) != character and not character.encode("gb2312", "ignore")
    )


@cache
def _converter() -> Any:
    import opencc

    return opencc.OpenCC("t2s")


@cache
def _in_script(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Characters in the script of a language; and what a text all in it has not, the quicker test."""
    script = f"[{_SCRIPTS[language]}]"
    return re.compile(script), re.compile(rf"(?!{script})(?:[^\W\d_]|[{_HAN}{_KANA}])")
