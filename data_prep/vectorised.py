"""`cleaning.clean` over whole columns of pairs, tens of times as fast, with the same result.

Nearly all pairs of a corpus need nothing: a few regular expressions over the column (Arrow's, which run in one pass
without backtracking) tell which pairs these are. They may err to one side only. A pair is *easy* if both sides consist,
once normalised, of characters for which Python and Arrow are known to agree and which no rule touches, have a letter
each, and hold no row of numbers; what is left to do for easy pairs are the spaces, a search for one character, a
comparison of lengths.
Every other pair, one in a hundred, goes through `clean` itself. So a rule stands in one place, and a screen can cost
time but not correctness as long as it lets through too much rather than too little; the tests hold both to each other.
"""

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
_MARKS = "、。〈-】〔〕，！？：；（）～“”‘’–—…·°"
_WORD = f"[!-~{_HAN}{_LATIN_1}{_MARKS}]+"
_PLAIN = f"^{_WORD}(?: {_WORD})*$"
_LETTER = f"[A-Za-z{_LATIN_1}{_HAN}]"
_NUMERALS = f"0000|(?:[0-9]+[^0-9A-Za-z{_LATIN_1}{_HAN}]+){{6}}[0-9]"  # what the two numeral rules may look at
_MAY_CLOSE_UP = r" [,.!?…;:)\]}%'’]"

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

    def rewrite(self, mask: Mask, rule: str) -> None:
        if mask.any():
            self.rewritten[rule] = self.rewritten.get(rule, False) | mask


def clean_columns(source: pa.Array, target: pa.Array, rules: Cleaning) -> CleanedColumns:
    """`clean` for each pair of two string arrays."""
    raw = source, target
    source, source_easy, source_rewritten = _normalised(source, rules)
    target, target_easy, target_rewritten = _normalised(target, rules)
    easy = source_easy & target_easy & ~(matches(source, _NUMERALS) | matches(target, _NUMERALS))
    columns = CleanedColumns(source, target, np.zeros(len(source), np.uint8))
    for rule, one, other in zip(("unescape", "normalise"), source_rewritten, target_rewritten, strict=True):
        columns.rewrite(easy & (one | other), rule)
    for side, language, simplifies in zip(("source", "target"), rules.languages, rules.simplifies, strict=True):
        text = getattr(columns, side)
        if language in UNSPACED:
            spaced = easy & matches(text, " ")
            columns.rewrite(spaced, "remove_spaces")
            text = pc.replace_substring(text, " ", "") if spaced.any() else text
        else:
            text, changed = _apply(text, easy & matches(text, _MAY_CLOSE_UP), _closing(language))
            columns.rewrite(changed, "close_up_punctuation")
        if simplifies:
            text, changed = _apply(text, easy & matches(text, _traditional_pattern()), simplify)
            columns.rewrite(changed, "simplify")
        setattr(columns, side, text)
    _drop_strictly(columns, (source, target), easy, rules)
    _clean_one_by_one(columns, *raw, ~easy, rules)
    return columns


def _normalised(text: pa.Array, rules: Cleaning) -> tuple[pa.Array, Mask, tuple[Mask, Mask]]:
    """`normalise` for one side; which texts are easy then; and which were unescaped, and which tidied."""
    raw = text
    text, unescaped = _apply(text, matches(text, "&"), unescape)
    plain = matches(text, _PLAIN)
    text, tidied = _apply(text, ~plain, tidy)
    if tidied.any():
        plain[tidied] = matches(text.filter(pa.array(tidied)), _PLAIN)
    if rules.control_characters and tidied.any():  # a matter of the raw text, and tidying takes some away
        plain &= ~_holds(tidied, lambda text: strip_control(text) != text, raw)
    return text, plain & matches(text, _LETTER), (unescaped, tidied)


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
    for index, fate in zip(np.flatnonzero(hard), fates, strict=True):
        if fate.dropped is not None and fate.dropped not in columns.reasons:
            columns.reasons.append(fate.dropped)
        columns.dropped[index] = columns.reasons.index(fate.dropped or "")
        for rule in fate.rewritten:
            columns.rewritten.setdefault(rule, np.zeros(len(hard), bool))[index] = True


def matches(text: pa.Array, pattern: str) -> Mask:
    """Which texts hold a match of an RE2 pattern."""
    return pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)


def _holds(where: Mask, rule: Callable[..., bool], *texts: pa.Array) -> Mask:
    """The pairs of `where` for which a rule holds."""
    result = np.zeros(len(where), bool)
    if where.any():
        chosen = [text.filter(pa.array(where)).to_pylist() for text in texts]
        result[where] = [rule(*pair) for pair in zip(*chosen, strict=True)]
    return result


def _apply(text: pa.Array, where: Mask, change: Callable[[str], str]) -> tuple[pa.Array, Mask]:
    """The column with `change` applied to the texts of `where`, and which of them that changed."""
    changed = np.zeros(len(where), bool)
    if not where.any():
        return text, changed
    before = text.filter(pa.array(where)).to_pylist()
    after = [change(each) for each in before]
    changed[where] = [one != other for one, other in zip(before, after, strict=True)]
    return pc.replace_with_mask(text, pa.array(where), pa.array(after, pa.string())), changed


def _closing(language: str) -> Callable[[str], str]:
    return lambda text: close_up_punctuation(text, language)


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
