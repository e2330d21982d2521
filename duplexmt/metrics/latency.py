"""Latency metrics over token delays, and their conversion to characters and words. No torch here.

Symbols, as in SimulEval's `latency_scorer.py`:

    d_i   delay of the i-th target token (i = 1..n): source tokens read when it was written, 0 <= d_i <= S
    S     source length                R     reference length                n     hypothesis length

None of them counts end or seed tokens; having read the source's end token counts as S. Every metric of a sentence
takes `(delays, source_length, reference_length)`, all in one unit of source and one unit of target (model tokens, or
characters in and words out), and returns a float in units of source, except AP, which is a ratio.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from statistics import fmean
from typing import Literal

Unit = Literal["character", "word"]

UNSPACED_LANGUAGES = frozenset({"ja", "zh"})  # written without spaces: their unit is the character


def average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AL as SimulEval computes it: mean over i <= tau of `d_i - (i - 1) S / R`.

    `tau` is the first i with `d_i >= S`, or n if the source was never read to its end. An offline system scores
    exactly S. This is not the number the paper prints: see `average_lagging_all`.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses. (SimulEval's case `d_1 > S` is one of them.)
    """
    check_sentence(delays, source_length, reference_length)
    return fmean(_lags(_until_source_end(delays, source_length), source_length / reference_length))


def average_lagging_all(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AL_all, the lag of `average_lagging` over all n tokens, with no cut-off at the end of the source.

    The paper's AL (`tab:duplex-results`) fits this definition: its offline row has AL 9.39 where S is 18.06.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses.
    """
    check_sentence(delays, source_length, reference_length)
    return fmean(_lags(delays, source_length / reference_length))


def length_adaptive_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """LAAL (arXiv 2206.05807): AL with `max(n, R)` for R, so that a long hypothesis earns no negative lag.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses.
    """
    check_sentence(delays, source_length, reference_length)
    target_length = max(len(delays), reference_length)
    return fmean(_lags(_until_source_end(delays, source_length), source_length / target_length))


def average_proportion(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AP with the reference length, as SimulEval: `sum d_i / (S R)`. A ratio; above 1 where n is well above R.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses.
    """
    check_sentence(delays, source_length, reference_length)
    return float(sum(delays)) / (source_length * reference_length)


def differentiable_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """DAL (arXiv 1906.05218): `g_1 = d_1`, `g_i = max(d_i, g_{i-1} + S/n)`, mean of `g_i - (i - 1) S / n`.

    Its length is that of the hypothesis, so the value of `reference_length` plays no part; it is still checked.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses.
    """
    check_sentence(delays, source_length, reference_length)
    step = source_length / len(delays)
    spaced = [float(delays[0])]
    for delay in delays[1:]:
        spaced.append(max(float(delay), spaced[-1] + step))
    return fmean(_lags(spaced, step))


def first_response_latency(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """FRL, SimulEval's StartOffset: `d_1`, what was read of the source when the first target token was written.

    Raises:
        ValueError: for the inputs that `check_sentence` refuses.
    """
    check_sentence(delays, source_length, reference_length)
    return float(delays[0])


SENTENCE_METRICS = {
    "AL": average_lagging,
    "AL_all": average_lagging_all,
    "LAAL": length_adaptive_average_lagging,
    "AP": average_proportion,
    "DAL": differentiable_average_lagging,
    "FRL": first_response_latency,
}


def corpus_latency(
    delays: Sequence[Sequence[float]], source_lengths: Sequence[float], reference_lengths: Sequence[float]
) -> dict[str, float | None]:
    """Mean of each metric over the sentences of a corpus.

    Empty hypotheses have no latency: they are left out of the means and counted.

    Returns:
        One mean per name in `SENTENCE_METRICS`, `None` where every hypothesis is empty; `sentences`, their number,
        empty hypotheses included; `empty_hypotheses`.

    Raises:
        ValueError: no sentences, arguments of different lengths, or a sentence that `check_sentence` refuses for
            more than an empty hypothesis; the message names the sentence, counted from 0.
    """
    if not len(delays) == len(source_lengths) == len(reference_lengths):
        raise ValueError(
            f"one entry a sentence is needed, got {len(delays)} hypotheses, {len(source_lengths)} source lengths "
            f"and {len(reference_lengths)} reference lengths"
        )
    if len(delays) == 0:
        raise ValueError("a corpus needs at least one sentence, got none")
    scored = []
    for index, sentence in enumerate(zip(delays, source_lengths, reference_lengths, strict=True)):
        hypothesis, source_length, reference_length = sentence
        try:
            if len(hypothesis) > 0:
                check_sentence(hypothesis, source_length, reference_length)
                scored.append(sentence)
            else:
                check_lengths(source_length, reference_length)
        except ValueError as error:
            raise ValueError(f"sentence {index}: {error}") from error
    result: dict[str, float | None] = {
        name: fmean(metric(*sentence) for sentence in scored) if scored else None
        for name, metric in SENTENCE_METRICS.items()
    }
    result["sentences"] = len(delays)
    result["empty_hypotheses"] = len(delays) - len(scored)
    return result


def check_lengths(source_length: float, reference_length: float) -> None:
    """Refuse lengths that no metric is defined for.

    Raises:
        ValueError: `source_length` or `reference_length` below 1, infinite or NaN. (SimulEval counts an empty
            reference as length 1.)
    """
    if not (isfinite(source_length) and source_length >= 1):
        raise ValueError(f"the source length must be at least 1, got {source_length}")
    if not (isfinite(reference_length) and reference_length >= 1):
        raise ValueError(f"the reference must not be empty: its length must be at least 1, got {reference_length}")


def check_sentence(delays: Sequence[float], source_length: float, reference_length: float) -> None:
    """Refuse a sentence that no metric is defined for.

    Raises:
        ValueError: what `check_lengths` refuses; no delays (an empty hypothesis); a delay outside 0..S, or smaller
            than the one before it.
    """
    check_lengths(source_length, reference_length)
    if len(delays) == 0:
        raise ValueError("an empty hypothesis has no latency: got no delays")
    for index, delay in enumerate(delays):
        if not 0 <= delay <= source_length:
            raise ValueError(f"delay {index} must be within 0..{source_length} (the source length), got {delay}")
    _check_rising(delays, "delays")


def text_unit(language: str) -> Unit:
    """The unit a language is counted in: the character for zh and ja, else the word.

    Raises:
        ValueError: `language` is no language code (see `primary_language`).
    """
    return "character" if primary_language(language) in UNSPACED_LANGUAGES else "word"


def primary_language(code: str) -> str:
    """The language of a code, without script or region: `zh-Hant` and `zh_TW` give `zh`.

    Raises:
        ValueError: not a two- or three-letter code; a language's name, say, would silently be none of those known.
    """
    language = re.split("[-_]", code)[0].lower()
    if not re.fullmatch("[a-z]{2,3}", language):
        raise ValueError(f"a language code such as 'en' or 'zh' is needed, got {code!r}")
    return language


def count_units(text: str, unit: Unit) -> int:
    """Length of a text in characters (code points, white space left out) or in words (separated by white space).

    Raises:
        ValueError: an unknown unit.
    """
    return len(_unit_ends(text, unit))


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
        source_text: the source sentence.
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
            target token, fall, or exceed the number of source tokens; an unknown unit.
    """
    source_unit_ends = _unit_ends(source_text, source_unit)
    target_unit_ends = _unit_ends(target_text, target_unit)
    _check_token_ends(source_token_ends, source_text, source_unit_ends, "source")
    _check_token_ends(target_token_ends, target_text, target_unit_ends, "target")
    if len(token_delays) != len(target_token_ends):
        raise ValueError(f"got {len(token_delays)} delays for {len(target_token_ends)} target tokens")
    for index, delay in enumerate(token_delays):
        if not 0 <= delay <= len(source_token_ends):
            raise ValueError(f"delay {index} must be within 0..{len(source_token_ends)} source tokens, got {delay}")
    _check_rising(token_delays, "delays")

    units_read = [0] + [bisect_right(source_unit_ends, end) for end in source_token_ends]
    return [units_read[token_delays[bisect_left(target_token_ends, end)]] for end in target_unit_ends]


def _lags(delays: Sequence[float], step: float) -> list[float]:
    """`d_i - (i - 1) step`: how far each delay is behind a writer that takes `step` of the source a token."""
    return [float(delay) - index * step for index, delay in enumerate(delays)]


def _until_source_end(delays: Sequence[float], source_length: float) -> Sequence[float]:
    """The delays up to and with the first that reaches the end of the source."""
    return delays[: bisect_left(delays, source_length) + 1]


def _unit_ends(text: str, unit: Unit) -> list[int]:
    """End position in `text` of each of its characters or words, white space left out."""
    patterns = {"character": r"\S", "word": r"\S+"}
    if unit not in patterns:
        raise ValueError(f"the unit must be 'character' or 'word', got {unit!r}")
    return [match.end() for match in re.finditer(patterns[unit], text)]


def _check_rising(values: Sequence[float], name: str) -> None:
    for index, (before, after) in enumerate(pairwise(values), start=1):
        if after < before:
            raise ValueError(f"{name} must not decrease, got {after} after {before} at position {index}")


def _check_token_ends(token_ends: Sequence[int], text: str, unit_ends: Sequence[int], side: str) -> None:
    for index, end in enumerate(token_ends):
        if not 0 <= end <= len(text):
            raise ValueError(f"{side} token {index} must end within 0..{len(text)} characters, got {end}")
    _check_rising(token_ends, f"the ends of {side} tokens")
    reached = token_ends[-1] if len(token_ends) > 0 else 0
    if unit_ends and reached < unit_ends[-1]:
        raise ValueError(
            f"the {side} tokens reach character {reached} of a text that ends at {unit_ends[-1]}: {text!r}"
        )
