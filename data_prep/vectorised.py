"""`cleaning.clean`, and `text_key`, over whole columns, faster and with the same result.

Nearly all pairs of a corpus need nothing but their spaces removed or their characters simplified. One regular
expression over a column (Arrow's, in one pass without backtracking) tells which texts are *plain*: they consist of
characters for which Python and Arrow agree, and no rule of the paper touches them. Pairs of two plain texts are done by
columns, all others by `clean` itself, one by one. So a screen that finds too few texts plain costs time, and only one
that finds too many would cost correctness; the tests hold it to `clean`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.cleaning import IN_LATIN, LENGTH_SLACK, Cleaning, clean, simplify, traditional
from duplexmt.common.text import UNSPACED, WIDE_OR_CLOSING, WIDE_OR_OPENING, text_key

# Han characters, letters, digits and the commonest punctuation: unchanged by NFC, visible, and letters or not in every
# version of Unicode.
_HAN, _LATIN = "一-鿿", "A-Za-zÀ-ÖØ-Þà-öø-ÿ"
_MARKS = "、。〈-】〔〕，！？：；（）～“”‘’–—…·°．％－→•♪♬"
_LETTERS = _LATIN + _HAN
_SILENT = r"!-%'-@\[-`{-~" + _MARKS  # no letter, and no "&", which may escape something
_SILENT_AFTER_SPACE = re.sub("[’…]", "", r'"#$(*+\-/0-9<=>@\[\\^_`{|~' + _MARKS)  # nothing that could close up


def _plain(after_space: str) -> str:
    """Texts with a letter, single spaces, and after each space such silent characters, or letters."""
    return (
        f"^(?:[{_SILENT}]+(?: [{after_space}][{_SILENT}]*)* ?)?"
        f"[{_LETTERS}][{_SILENT}{_LETTERS}]*(?: [{after_space}{_LETTERS}][{_SILENT}{_LETTERS}]*)*$"
    )


_PLAIN, _PLAIN_UNSPACED = _plain(_SILENT_AFTER_SPACE), _plain(_SILENT)
_SPACES_BESIDE_WIDE = f"([{WIDE_OR_OPENING}]) +", f" +([{WIDE_OR_CLOSING}])"
_MAY_CLOSE_UP = f"[^{WIDE_OR_OPENING}] [^{re.sub('[”’…]', '', _SILENT_AFTER_SPACE)}{_LETTERS}{WIDE_OR_CLOSING}]"
_NUMERALS = f"0000|(?:[0-9]+[^0-9{_LETTERS}]+){{6}}[0-9]"  # may be placeholders, or a row of a table

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


def clean_columns(source: pa.Array, target: pa.Array, rules: Cleaning) -> CleanedColumns:
    """`clean` for each pair of two string arrays."""
    easy = plain(source, rules.source_language) & plain(target, rules.target_language)
    if rules.least_script is not None and not {*rules.languages} <= UNSPACED | IN_LATIN:
        easy[:] = False
    rewritten: dict[str, Mask] = {}
    one, other = (
        _rewrite(text, language, simplifies, easy, rewritten)
        for text, language, simplifies in zip((source, target), rules.languages, rules.simplifies, strict=True)
    )
    columns = CleanedColumns(one, other, np.zeros(len(source), np.uint8))
    for code, (reason, mask) in enumerate(_rejected((source, target), (one, other), easy, rules), 1):
        columns.reasons.append(reason)
        columns.dropped[mask & easy & (columns.dropped == 0)] = code
    columns.rewritten = {rule: mask & easy & (columns.dropped == 0) for rule, mask in rewritten.items()}
    _clean_one_by_one(columns, source, target, ~easy, rules)
    return columns


def plain(text: pa.Array, language: str) -> Mask:
    """Which texts no rule of the paper touches, but for spaces of a language without."""
    found = matches(text, _PLAIN_UNSPACED if language in UNSPACED else _PLAIN) & ~matches(text, _NUMERALS)
    return found & ~matches(text, _MAY_CLOSE_UP) if language in UNSPACED else found


def _rewrite(text: pa.Array, language: str, simplifies: bool, easy: Mask, rewritten: dict[str, Mask]) -> pa.Array:
    """Plain texts without spaces beside their characters, and simplified, as the language wants it."""

    def rewrite(rule: str, where: Mask, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
        if not where.any():
            return text
        chosen = pa.array(where)
        before = text.filter(chosen)
        after = change(before)
        where[where] = pc.not_equal(before, after).to_numpy(zero_copy_only=False)
        rewritten[rule] = rewritten.get(rule, False) | where
        return pc.replace_with_mask(text, chosen, after)

    if language in UNSPACED:
        text = rewrite("remove_spaces", easy & pc.match_substring(text, " ").to_numpy(False), _without_spaces)
    if simplifies:
        simplified = easy & matches(text, f"[{''.join(sorted(traditional()))}]")
        text = rewrite("simplify", simplified, lambda texts: pa.array(map(simplify, texts.to_pylist()), pa.string()))
    return text


def _without_spaces(text: pa.Array) -> pa.Array:
    for spaces in _SPACES_BESIDE_WIDE:
        text = pc.replace_substring_regex(text, spaces, r"\1")
    return text


def _rejected(
    raw: Sequence[pa.Array], clean: Sequence[pa.Array], easy: Mask, rules: Cleaning
) -> Iterator[tuple[str, Mask]]:
    """`cleaning.rejects_strictly` for plain pairs, raw and clean: each rule in order, and which pairs it would drop."""
    if rules.max_characters is not None:
        yield "too_long", np.maximum(*(pc.utf8_length(text).to_numpy() for text in clean)) > rules.max_characters
    if rules.identical_sides or rules.least_script is not None:
        han, latin = ([matches(text, f"[{script}]") for text in raw] for script in (_HAN, _LATIN))
    if rules.identical_sides:  # sides with and without Han, or with and without other letters, differ
        likely = easy & (han[0] == han[1]) & (latin[0] == latin[1])
        keys = [text_keys(text.filter(pa.array(likely))) for text in clean]
        likely[likely] = pc.equal(*keys).to_numpy(False)
        yield "identical_sides", likely
    if rules.least_script is not None:
        wrong = np.zeros(len(easy), bool)
        for text, language, *both in zip(raw, rules.languages, han, latin, strict=True):
            mixed = easy & both[language in UNSPACED]
            some, patterns = text.filter(pa.array(mixed)), (f"[{_HAN}]", f"[{_LATIN}][^ {_HAN}]*")
            unspaced, words = (pc.count_substring_regex(some, pattern).to_numpy() for pattern in patterns)
            right = unspaced if language in UNSPACED else words
            wrong[mixed] |= right < rules.least_script * (unspaced + words)
        yield "wrong_script", wrong
    if rules.length_ratio is not None:
        sizes = [pc.binary_length(text).to_numpy() for text in clean]
        yield "length_ratio", np.maximum(*sizes) > rules.length_ratio * np.minimum(*sizes) + LENGTH_SLACK


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


def text_keys(text: pa.Array) -> pa.Array:
    """`text_key` of each text of a string array; by columns where plain texts may have all its characters."""
    keys = pc.utf8_lower(pc.replace_substring_regex(text, f"[^0-9{_LETTERS}]+", ""))
    odd = pa.array(~matches(text, f"^[ {_SILENT}{_LETTERS}]*$"))
    return pc.replace_with_mask(keys, odd, pa.array(map(text_key, text.filter(odd).to_pylist()), pa.string()))
