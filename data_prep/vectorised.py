"""`cleaning.clean` over whole columns of pairs, tens of times as fast, with the same result.

Nearly all pairs of a corpus need little, and regular expressions over the column (Arrow's, which run in one pass
without backtracking) tell which ones and do it. The first one finds the texts that need nothing at all, three in four;
the others are unescaped, tidied and closed up by columns as far as the short forms of those rules go, and one by one
where they do not. A text is *known* if it consists, once normalised, of characters for which Python and Arrow agree
and which no rule but those touches; a pair of other texts, or with what may be a row of numbers, goes through `clean`
itself. So a screen can cost time but not correctness as long as it lets through too much rather than too little, and
`clean` stays the oracle of all; the tests hold both to each other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.cleaning import (
    IN_LATIN,
    LENGTH_SLACK,
    Cleaning,
    clean,
    identical_sides,
    simplify,
    strip_control,
    traditional,
    wrong_script,
)
from data_prep.rules import UNSPACED, close_up_punctuation, tidy, unescape
from data_prep.splitting import text_key

# Printable ASCII, Han characters, letters and the commonest punctuation: unchanged by NFC, visible, and letters or not
# in every version of Unicode. Single spaces between words, none around.
_HAN, _LATIN_1 = "一-鿿", "À-ÖØ-Þà-öø-ÿ"
_MARKS = "、。〈-】〔〕，！？：；（）～“”‘’–—…·°．％－→•♪♬"
_WORD = f"[!-~{_HAN}{_LATIN_1}{_MARKS}]+"
_KNOWN = f"^{_WORD}(?: {_WORD})*$"
_LETTERS = f"A-Za-z{_LATIN_1}{_HAN}"
_LETTER = f"[{_LETTERS}]"
_NOT_WORD = f"[^0-9_{_LETTERS}]"
_NUMBER_RUN = f"(?:[0-9]+[^0-9{_LETTERS}]+){{6}}[0-9]"  # that of `rules.numeral_table`
_PLACEHOLDER = (  # that of `rules.placeholder_numerals`, with what may stand before it
    f"(?:^|^[^0-9]|[^0-9][^0-9]|[0-9][_{_LETTERS}])0{{4,}}(?:{_NOT_WORD}+0{{4,}})+(?:[^0-9]|$)"
)

# Texts that need nothing, or no more than their spaces removed: no "&", no digit, a letter. What stands before the
# first letter, and after it; after a space nothing that could close up.
_SILENT = r"!-%'-/:-@\[-`{-~" + _MARKS
_SILENT_AFTER_SPACE = re.sub("[’…]", "", r'"#$(*+\-/<=>@\[\\^_`{|~' + _MARKS)
_UNTOUCHED = (
    f"^(?:[{_SILENT}]+(?: [{_SILENT_AFTER_SPACE}][{_SILENT}]*)* ?)?"
    f"{_LETTER}[{_SILENT}{_LETTERS}]*(?: [{_SILENT_AFTER_SPACE}{_LETTERS}][{_SILENT}{_LETTERS}]*)*$"
)
_UNTOUCHED_UNSPACED = (
    f"^(?:[{_SILENT}]+(?: [{_SILENT}]+)* ?)?{_LETTER}[{_SILENT}{_LETTERS}]*(?: [{_SILENT}{_LETTERS}]+)*$"
)

# Escapes as most corpora have them. `unescape` knows many more, and is asked where an "&" is left.
_ESCAPES = {"&apos;": "'", "&quot;": '"', "&lt;": "<", "&gt;": ">"}

# `close_up_punctuation` of known texts. A match here takes what stands after the punctuation with it, where the
# original only looks at it; so texts in which that is the space of the next match are left to the original.
_END_OF_CLITIC = f"(?:$|[^0-9_{_LETTERS}'’])"
_CLOSING = [(r""" ([,.!?…]+)([ "'”’)\]}]|$)| ([;:])( |$)| ([)\]}])""", r"\1\2\3\4\5")]
_CLOSING_ENGLISH = [
    *_CLOSING,
    (r"([0-9]) (%(?:$|[^ 0-9]| $| [^0-9]))", r"\1\2"),
    (rf"(?i)([0-9_{_LETTERS}]) (['’](?:s|t|re|ll|ve|d|m){_END_OF_CLITIC})", r"\1\2"),
]
_CLOSING_IN_A_ROW = r" [,.!?…;:]+ [,.!?…;:)\]}]|['’][A-Za-z]{1,2} ['’]"

Mask = np.ndarray
"""A Boolean for each pair."""


@dataclass
class CleanedColumns:
    """What became of a column of pairs, each array as long as the column.

    `dropped` holds an index into `reasons`, 0 for kept pairs; `source` and `target` of dropped pairs are without
    meaning. `rewritten` has a mask for each rewriting rule that did something.
    """

    source: pa.Array
    target: pa.Array
    dropped: np.ndarray
    reasons: list[str] = field(default_factory=lambda: [""])
    rewritten: dict[str, Mask] = field(default_factory=dict)

    def drop(self, mask: Mask, reason: str) -> None:
        """Give the pairs of `mask` that are still kept a reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.dropped[mask & (self.dropped == 0)] = self.reasons.index(reason)


@dataclass
class _Side:
    """One side, as far as it can be cleaned without the other. What is said of unknown texts means nothing."""

    plain: pa.Array  # normalised
    clean: pa.Array
    known: Mask
    letter: Mask  # has one
    digit: Mask
    placeholder: Mask
    number_run: Mask
    rewritten: dict[str, Mask]  # by each rule

    @classmethod
    def untouched(cls, text: pa.Array) -> "_Side":
        all_, none = np.ones(len(text), bool), np.zeros(len(text), bool)
        return cls(text, text, all_, all_.copy(), none, none.copy(), none.copy(), {})

    def put(self, where: Mask, part: "_Side", with_plain: bool) -> None:
        """Replace the texts of `where`; `plain` is left as it is where nobody will look at it."""
        for name in ("known", "letter", "digit", "placeholder", "number_run"):
            getattr(self, name)[where] = getattr(part, name)
        for rule, mask in part.rewritten.items():
            self.rewritten[rule] = np.zeros(len(where), bool)
            self.rewritten[rule][where] = mask
        chosen = pa.array(where)
        self.clean = pc.replace_with_mask(self.clean, chosen, part.clean)
        if with_plain:
            self.plain = pc.replace_with_mask(self.plain, chosen, part.plain)


def clean_columns(source: pa.Array, target: pa.Array, rules: Cleaning) -> CleanedColumns:
    """`clean` for each pair of two string arrays."""
    sides = [
        _clean_side(text, language, simplifies, rules)
        for text, language, simplifies in zip((source, target), rules.languages, rules.simplifies, strict=True)
    ]
    one, other = sides
    columns = CleanedColumns(one.clean, other.clean, np.zeros(len(source), np.uint8))
    for side in sides:
        for rule, mask in side.rewritten.items():
            columns.rewritten[rule] = columns.rewritten.get(rule, False) | mask
    known = one.known & other.known
    columns.drop(known & ~(one.letter | other.letter) & (one.digit | other.digit), "only_numerals")
    columns.drop(known & ~((one.letter | one.digit) & (other.letter | other.digit)), "wordless")
    columns.drop(known & (one.placeholder | other.placeholder), "placeholder_numerals")
    hard = ~known | (one.number_run & other.number_run & (columns.dropped == 0))
    _drop_strictly(columns, (one.plain, other.plain), ~hard & (columns.dropped == 0), rules)
    _clean_one_by_one(columns, source, target, hard, rules)
    return columns


def _clean_side(text: pa.Array, language: str, simplifies: bool, rules: Cleaning) -> _Side:
    side = _Side.untouched(text)
    touched = ~matches(text, _UNTOUCHED_UNSPACED if language in UNSPACED else _UNTOUCHED)
    if touched.any():
        part = _clean_touched(text.filter(pa.array(touched)), language, rules)
        side.put(touched, part, with_plain=rules.least_script is not None and language not in UNSPACED)
    if language in UNSPACED:
        side.plain, side.clean = side.clean, pc.replace_substring(side.clean, " ", "")
        side.rewritten["remove_spaces"] = differ(side.plain, side.clean)
    if simplifies:
        traditional_ = side.known & matches(side.clean, _traditional_pattern())
        side.clean, side.rewritten["simplify"] = _apply(side.clean, traditional_, one_by_one(simplify))
    side.rewritten = {rule: mask for rule, mask in side.rewritten.items() if mask.any()}
    return side


def _clean_touched(raw: pa.Array, language: str, rules: Cleaning) -> _Side:
    rewritten: dict[str, Mask] = {}
    text, rewritten["unescape"] = _apply(raw, matches(raw, "&"), unescape_column)
    known = matches(text, _KNOWN)
    text, rewritten["normalise"] = _apply(text, ~known, tidy_column)
    if rewritten["normalise"].any():
        known = matches(text, _KNOWN)
        if rules.control_characters:  # a matter of the raw text, and tidying takes some away
            known &= ~_holds(rewritten["normalise"], lambda text: strip_control(text) != text, raw)
    plain = text
    if language == "fr":
        change = one_by_one(partial(close_up_punctuation, language=language))
        text, rewritten["close_up_punctuation"] = _apply(text, known, change)
    elif language not in UNSPACED:
        change = partial(close_up_column, language=language)
        closing = "|".join(pattern for pattern, _ in _closing(language))
        text, rewritten["close_up_punctuation"] = _apply(text, known & matches(text, closing), change)
    digit = matches(plain, "[0-9]")
    numerals = matches(plain, _PLACEHOLDER, digit), matches(plain, _NUMBER_RUN, digit)
    return _Side(plain, text, known, matches(plain, _LETTER), digit, *numerals, rewritten)


def unescape_column(text: pa.Array) -> pa.Array:
    """`unescape` for each text."""
    short = text
    for escape, character in _ESCAPES.items():
        short = pc.replace_substring(short, escape, character)
    return _except(short, matches(short, "&"), one_by_one(unescape), text)


def tidy_column(text: pa.Array) -> pa.Array:
    """`tidy` for each text: only spaces to collapse, or all of it."""
    short = pc.replace_substring_regex(pc.ascii_trim(text, " "), "  +", " ")
    return _except(short, ~matches(short, _KNOWN), one_by_one(tidy), text)


def close_up_column(text: pa.Array, language: str) -> pa.Array:
    """`close_up_punctuation` for each known text of a language but French."""
    short = text
    for pattern, replacement in _closing(language):
        where = matches(short, pattern)
        short, _ = _apply(short, where, partial(pc.replace_substring_regex, pattern=pattern, replacement=replacement))
    original = one_by_one(partial(close_up_punctuation, language=language))
    return _except(short, matches(text, _CLOSING_IN_A_ROW), original, text)


def _closing(language: str) -> list[tuple[str, str]]:
    return _CLOSING_ENGLISH if language == "en" else _CLOSING


def _drop_strictly(columns: CleanedColumns, plain: tuple[pa.Array, pa.Array], easy: Mask, rules: Cleaning) -> None:
    """`rejects_strictly` for easy pairs, which are plain as they come."""
    source, target = columns.source, columns.target
    han: tuple[Mask, ...] = ()
    latin: tuple[Mask, ...] = ()
    if rules.identical_sides or rules.least_script is not None:
        han = matches(source, f"[{_HAN}]"), matches(target, f"[{_HAN}]")
        latin = matches(source, f"[A-Za-z{_LATIN_1}]"), matches(target, f"[A-Za-z{_LATIN_1}]")
    if rules.max_characters is not None:
        lengths = np.maximum(pc.utf8_length(source).to_numpy(), pc.utf8_length(target).to_numpy())
        columns.drop(easy & (lengths > rules.max_characters), "too_long")
    if rules.identical_sides:  # sides with and without Han, or with and without other letters, differ
        alike = (han[0] == han[1]) & (latin[0] == latin[1])
        columns.drop(_holds(easy & alike, identical_sides, source, target), "identical_sides")
    if rules.least_script is not None:
        for text, language, has_han, has_latin in zip(plain, rules.languages, han, latin, strict=True):
            foreign = has_latin if language in UNSPACED else has_han if language in IN_LATIN else easy
            rule = partial(wrong_script, language=language, least=rules.least_script)
            columns.drop(_holds(easy & foreign, rule, text), "wrong_script")
    if rules.length_ratio is not None:
        sizes = np.stack([pc.binary_length(source).to_numpy(), pc.binary_length(target).to_numpy()])
        columns.drop(easy & (sizes.max(0) > rules.length_ratio * sizes.min(0) + LENGTH_SLACK), "length_ratio")


def _clean_one_by_one(columns: CleanedColumns, source: pa.Array, target: pa.Array, hard: Mask, rules: Cleaning) -> None:
    if not hard.any():
        return
    chosen = pa.array(hard)
    texts = source.filter(chosen).to_pylist(), target.filter(chosen).to_pylist()
    fates = [clean(*pair, rules) for pair in zip(*texts, strict=True)]
    columns.source = pc.replace_with_mask(columns.source, chosen, pa.array([f.source for f in fates], pa.string()))
    columns.target = pc.replace_with_mask(columns.target, chosen, pa.array([f.target for f in fates], pa.string()))
    for mask in columns.rewritten.values():
        mask &= ~hard
    for index, fate in zip(np.flatnonzero(hard), fates, strict=True):
        if fate.dropped is not None and fate.dropped not in columns.reasons:
            columns.reasons.append(fate.dropped)
        columns.dropped[index] = columns.reasons.index(fate.dropped or "")
        for rule in fate.rewritten:
            columns.rewritten.setdefault(rule, np.zeros(len(hard), bool))[index] = True


def matches(text: pa.Array, pattern: str, where: Mask | None = None) -> Mask:
    """Which texts, of those of `where`, hold a match of an RE2 pattern."""
    if where is None:
        return pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)
    result = where.copy()
    result[where] = matches(text.filter(pa.array(where)), pattern)
    return result


def differ(one: pa.Array, other: pa.Array) -> Mask:
    """Which texts differ in length, as those do that only lost characters."""
    return pc.binary_length(one).to_numpy() != pc.binary_length(other).to_numpy()


def one_by_one(change: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """A function of texts as one of columns."""
    return lambda text: pa.array(map(change, text.to_pylist()), pa.string())


def _holds(where: Mask, rule: Callable[..., bool], *texts: pa.Array) -> Mask:
    """The pairs of `where` for which a rule holds."""
    result = np.zeros(len(where), bool)
    if where.any():
        chosen = [text.filter(pa.array(where)).to_pylist() for text in texts]
        result[where] = [rule(*pair) for pair in zip(*chosen, strict=True)]
    return result


def _apply(text: pa.Array, where: Mask, change: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """The column with `change` applied to the texts of `where`, and which of them that changed."""
    changed = np.zeros(len(where), bool)
    if not where.any():
        return text, changed
    before = text.filter(pa.array(where))
    after = change(before)
    changed[where] = pc.not_equal(before, after).to_numpy(zero_copy_only=False)
    return pc.replace_with_mask(text, pa.array(where), after), changed


def _except(short: pa.Array, where: Mask, change: Callable[[pa.Array], pa.Array], text: pa.Array) -> pa.Array:
    """`short`, but `change` of `text` for the texts of `where`."""
    if not where.any():
        return short
    chosen = pa.array(where)
    return pc.replace_with_mask(short, chosen, change(text.filter(chosen)))


@cache
def _traditional_pattern() -> str:
    return f"[{''.join(sorted(traditional()))}]"


# --- keys of texts ----------------------------------------------------------------------------------------------------

_KEY_PLAIN = rf"^[ -~{_HAN}{_MARKS}]*$".replace("°", "").replace("·", "")  # one byte a character, or three


def text_keys(text: pa.Array) -> pa.Array:
    """`splitting.text_key` of each text of a string array."""
    plain = matches(text, _KEY_PLAIN)
    keys = _keys_of_plain(text)
    if plain.all():
        return keys
    hard = pa.array(~plain)
    return pc.replace_with_mask(keys, hard, pa.array(map(text_key, text.filter(hard).to_pylist()), pa.string()))


def _keys_of_plain(text: pa.Array) -> pa.Array:
    """By bytes: ASCII letters and digits, the former lower-cased, and Han characters stay; all other bytes go.

    In UTF-8 the Han characters of U+4E00..U+9FFF are the three bytes that start with E4..E9, and no other character of
    `_KEY_PLAIN` starts with those. Texts with yet other characters come out wrong.
    """
    text = pa.concat_arrays([text])  # offsets from 0
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(text) + 1]
    if len(text) == 0 or data is None:
        return text
    raw = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    keep = _KEPT_BYTE[raw]
    lead = (raw >= 0xE4) & (raw <= 0xE9)
    keep |= lead
    keep[1:] |= lead[:-1]
    keep[2:] |= lead[:-2]
    kept = np.concatenate([[0], np.cumsum(keep, dtype=np.int32)])
    return pa.StringArray.from_buffers(
        len(text),
        pa.py_buffer(kept[ends - ends[0]].astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(_LOWER_BYTE[raw[keep]])),
    )


_KEPT_BYTE = np.array([byte < 128 and chr(byte).isalnum() for byte in range(256)])
_LOWER_BYTE = np.array([byte + 32 if 65 <= byte <= 90 else byte for byte in range(256)], np.uint8)
