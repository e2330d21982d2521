"""Latency metrics over delays, of a sentence and of a corpus, in tokens or in characters and words. No torch here.

Symbols, as in SimulEval's `latency_scorer.py`:

    d_i   delay of the i-th target token (i = 1..n): source tokens read when it was written, 0 <= d_i <= S
    S     source length                R     reference length                n     hypothesis length

None of them counts end or seed tokens; having read the source's end token counts as S. Every metric of a sentence
takes `(delays, source_length, reference_length)`, all in one unit of source and one unit of target (model tokens, or
characters in and words out), and returns a float in units of source, except AP, which is a ratio, and YAAL, which some
sentences do not have. A sentence must have delays that `check_sentence` accepts; `sentence_latency` sees to that.

Computation-aware metrics, marked `_CA`, count the time of computing, too. SimulEval measures speech so, in
milliseconds; between texts it has no clock.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any, NamedTuple

from .bootstrap import Array, resampled_mean, resampled_share
from .units import Unit, check_rising, count_units, delays_in_characters_and_words, last_tokens, text_unit


def average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AL as SimulEval computes it: mean over i <= tau of `d_i - (i - 1) S / R`.

    `tau` is the first i with `d_i >= S`, or n if the source was never read to its end. An offline system scores
    exactly S. With computing time `d_1` may exceed S: AL is `d_1` then, as in SimulEval. This is not the number the
    paper prints: see `average_lagging_all`.
    """
    if delays[0] > source_length:
        return float(delays[0])
    return fmean(_lags(delays[: bisect_left(delays, source_length) + 1], source_length / reference_length))


def average_lagging_all(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AL_all, the lag of `average_lagging` over all n tokens, with no cut-off at the end of the source.

    The paper's AL (`tab:duplex-results`) fits this definition: its offline row has AL 9.39 where S is 18.06.
    """
    return fmean(_lags(delays, source_length / reference_length))


def length_adaptive_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """LAAL (arXiv 2206.05807): AL with `max(n, R)` for R, so that a long hypothesis earns no negative lag."""
    return average_lagging(delays, source_length, max(len(delays), reference_length))


def yet_another_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float | None:
    """YAAL (arXiv 2509.17349): LAAL over the tokens written before the source had ended, `d_i < S`, and no others.

    What is written after the end of a source cut into sentences comes at once, and says nothing of the policy. A
    sentence with no token before that has no YAAL; over how many the mean of a corpus is, is its `coverage`. With
    computing time a token computed after the source's end counts as one written after it.
    """
    before = delays[: bisect_left(delays, source_length)]
    return fmean(_lags(before, source_length / max(len(delays), reference_length))) if len(before) > 0 else None


def average_proportion(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AP with the reference length, as SimulEval: `sum d_i / (S R)`. A ratio; above 1 where n is well above R."""
    return float(sum(delays)) / (source_length * reference_length)


def differentiable_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """DAL (arXiv 1906.05218): `g_1 = d_1`, `g_i = max(d_i, g_{i-1} + S/n)`, mean of `g_i - (i - 1) S / n`.

    Its length is that of the hypothesis: `reference_length` plays no part.
    """
    step = source_length / len(delays)
    spaced = [float(delays[0])]
    for delay in delays[1:]:
        spaced.append(max(float(delay), spaced[-1] + step))
    return fmean(_lags(spaced, step))


def average_token_delay(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """ATD (arXiv 2211.13173) between texts, as SimulEval: how long after its partner in the source a token has ended.

    A token of either side takes one unit of time; a source token ends when it has been read, the t-th target token at
    `e_t = max(d_t, e_{t-1}) + 1`. Its partner is source token t, or an earlier one: no later than what had been read,
    and moved back by what the hypothesis was ahead of the source when this chunk (tokens of equal delay) began.

    Raises:
        ValueError: for delays that are not whole numbers of tokens.
    """
    read_before, written_before, end, lags = 0.0, 0, 0.0, []
    for index, delay in enumerate(delays):
        if delay != int(delay):
            raise ValueError(f"ATD counts tokens: delay {index} must be a whole number, got {delay}")
        if index > 0 and delay != delays[index - 1]:  # a new chunk
            read_before, written_before = float(delays[index - 1]), index
        partner = min(index + 1 - max(0.0, written_before - read_before), delay)
        end = max(float(delay), end) + 1
        lags.append(end - partner)
    return fmean(lags)


def first_response_latency(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """FRL, SimulEval's StartOffset: `d_1`, what was read of the source when the first target token was written."""
    return float(delays[0])


Metric = Callable[[Sequence[float], float, float], float | None]

SENTENCE_METRICS: dict[str, Metric] = {
    "AL": average_lagging,
    "AL_all": average_lagging_all,
    "LAAL": length_adaptive_average_lagging,
    "YAAL": yet_another_average_lagging,
    "AP": average_proportion,
    "DAL": differentiable_average_lagging,
    "ATD": average_token_delay,
    "FRL": first_response_latency,
}


def computation_aware_delays(delays: Sequence[float], elapsed: Sequence[float], units_per_second: float) -> list[float]:
    """Delays that count computing time: `d_i + elapsed_i · rate`, SimulEval's `elapsed` in units of source.

    While the system computes, a speaker goes on: seconds become units of source at the rate the source arrives.

    Args:
        delays: units of source read.
        elapsed: for each target unit, the seconds of computation spent on its sentence until it was written.

    Raises:
        ValueError: not one time for each delay, a negative or falling time, or a rate of zero or less.
    """
    if len(delays) != len(elapsed):
        raise ValueError(f"one time for each delay is needed, got {len(elapsed)} for {len(delays)}")
    _check_rate(units_per_second)
    for index, seconds in enumerate(elapsed):
        if not (isfinite(seconds) and seconds >= 0):
            raise ValueError(f"time {index} must be a number of seconds of at least 0, got {seconds}")
    check_rising(elapsed, "times")
    return [float(delay) + seconds * units_per_second for delay, seconds in zip(delays, elapsed, strict=True)]


# Over `computation_aware_delays`, which may exceed S.
COMPUTATION_AWARE_METRICS = {f"{name}_CA": SENTENCE_METRICS[name] for name in ("AL", "LAAL", "YAAL")}


def real_time_factor(seconds: Sequence[float], source_lengths: Sequence[float], units_per_second: float) -> float:
    """RTF: seconds of computation for each second of source, over a corpus. Below 1 a system keeps up.

    Args:
        seconds: of computation, one number a sentence.
        source_lengths: of the sentences, in units of source.

    Raises:
        ValueError: a rate of zero or less, or no source.
    """
    _check_rate(units_per_second)
    length = sum(source_lengths)
    if not length > 0:
        raise ValueError(f"a real-time factor needs a source, got {length} units")
    return sum(seconds) * units_per_second / length


def _check_rate(units_per_second: float) -> None:
    if not (isfinite(units_per_second) and units_per_second > 0):
        raise ValueError(f"the source must arrive at a rate above 0 units a second, got {units_per_second}")


def sentence_latency(
    delays: Sequence[Sequence[float]], source_lengths: Sequence[float], reference_lengths: Sequence[float]
) -> dict[str, list[float | None]]:
    """Each metric of `SENTENCE_METRICS` for each sentence of a corpus, `None` for empty hypotheses.

    Raises:
        ValueError: no sentences, arguments of different lengths, or a sentence that `check_sentence` refuses; the
            message names the sentence, counted from 0.
    """
    if not len(delays) == len(source_lengths) == len(reference_lengths):
        raise ValueError(
            f"one entry a sentence is needed, got {len(delays)} hypotheses, {len(source_lengths)} source lengths "
            f"and {len(reference_lengths)} reference lengths"
        )
    if len(delays) == 0:
        raise ValueError("a corpus needs at least one sentence, got none")
    result: dict[str, list[float | None]] = {name: [] for name in SENTENCE_METRICS}
    for index, (hypothesis, source_length, reference_length) in enumerate(
        zip(delays, source_lengths, reference_lengths, strict=True)
    ):
        try:
            check_sentence(hypothesis, source_length, reference_length)
            for name, metric in SENTENCE_METRICS.items():
                value = metric(hypothesis, source_length, reference_length) if len(hypothesis) > 0 else None
                result[name].append(value)
        except ValueError as error:
            raise ValueError(f"sentence {index}: {error}") from error
    return result


def words_before_end(delays: Sequence[Sequence[float]], source_lengths: Sequence[float]) -> float | None:
    """SWF, "simultaneous words fraction": tokens written before their source had ended, in % of all tokens of a corpus.

    As OmniSTEval 0.1.10 defines it beside YAAL: `100 Σ |{i: d_i < S}| / Σ n`, both sums over the sentences.

    Returns:
        0..100, or None where no sentence has a token.
    """
    written = sum(len(hypothesis) for hypothesis in delays)
    before = sum(bisect_left(hypothesis, length) for hypothesis, length in zip(delays, source_lengths, strict=True))
    return 100 * before / written if written else None


def coverage(values: Sequence[float | None]) -> float:
    """Sentences that a metric is defined for, in %: those that its mean is over."""
    return 100 * sum(value is not None for value in values) / len(values)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Mean of the values there are; `None` where there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def check_sentence(delays: Sequence[float], source_length: float, reference_length: float) -> None:
    """Refuse a sentence that no metric is defined for; an empty hypothesis has none, and is no fault.

    Raises:
        ValueError: `source_length` or `reference_length` below 1, infinite or NaN (SimulEval counts an empty
            reference as length 1); a delay outside 0..S, or smaller than the one before it.
    """
    if not (isfinite(source_length) and source_length >= 1):
        raise ValueError(f"the source length must be at least 1, got {source_length}")
    if not (isfinite(reference_length) and reference_length >= 1):
        raise ValueError(f"the reference must not be empty: its length must be at least 1, got {reference_length}")
    for index, delay in enumerate(delays):
        if not 0 <= delay <= source_length:
            raise ValueError(f"delay {index} must be within 0..{source_length} (the source length), got {delay}")
    check_rising(delays, "delays")


def _lags(delays: Sequence[float], step: float) -> list[float]:
    """`d_i - (i - 1) step`: how far each delay is behind a writer that takes `step` of the source a token."""
    return [float(delay) - index * step for index, delay in enumerate(delays)]


RESAMPLED = ("AL", "AL_all", "YAAL", "AP", "FRL")  # and SWF: those that have an interval
Values = dict[str, list[float | None]]  # a metric of each sentence, by name


class Timed(NamedTuple):
    """A corpus as latency metrics take it, in one unit of source and one of target; lengths by the first reference."""

    delays: list[list[int]]
    elapsed: list[list[float]]  # seconds of computation until each unit of target was written
    source_lengths: list[int]
    reference_lengths: list[int]
    rates: list[float]  # units of source a second

    def latency(self) -> Values:
        """Each metric for each sentence, None for empty hypotheses."""
        found = sentence_latency(self.delays, self.source_lengths, self.reference_lengths)
        for delays, elapsed, S, R, rate in zip(*self, strict=True):
            late = computation_aware_delays(delays, elapsed, rate)
            for name, metric in COMPUTATION_AWARE_METRICS.items():
                found.setdefault(name, []).append(metric(late, S, R) if late else None)
        return found

    def columns(self, latency: Values) -> dict[str, float | None]:
        """Means of `latency`; of how many sentences there is a YAAL, and of how many units SWF tells."""
        return {
            **{name: mean_of_known(values) for name, values in latency.items()},
            "YAAL %": coverage(latency["YAAL"]),
            "SWF": words_before_end(self.delays, self.source_lengths),
        }

    def resampled(self, latency: Values, weights: Array) -> dict[str, Array]:
        """What `columns` has of `RESAMPLED`, of each resample `[B]`; `weights [B, n]` from `resample_weights`."""
        each = zip(self.delays, self.source_lengths, strict=True)
        before = [100 * bisect_left(delays, length) for delays, length in each]
        found = {name: resampled_mean(latency[name], weights) for name in RESAMPLED}
        return found | {"SWF": resampled_share(before, [len(delays) for delays in self.delays], weights)}


def in_tokens(records: Sequence[Mapping[str, Any]], source_language: str, source_rate: float) -> Timed:
    """In model tokens; `source_rate` are characters (or words, as the language's code says) of the source a second."""
    unit = text_unit(source_language)
    lengths = [len(record["source_tokens"]) for record in records]
    return Timed(
        [record["delays"] for record in records],
        [record["elapsed"] for record in records],
        lengths,
        [record["reference_lengths"][0] for record in records],
        [  # the same speech, counted in tokens
            source_rate * length / max(1, count_units(record["source"], unit))
            for record, length in zip(records, lengths, strict=True)
        ],
    )


def in_units(records: Sequence[Mapping[str, Any]], source_unit: Unit, target_unit: Unit, source_rate: float) -> Timed:
    """In characters, words or pieces; a unit of target has delay and time of the token that completes it."""
    return Timed(
        [delays_in_units(record, source_unit, target_unit) for record in records],
        [
            [record["elapsed"][index] for index in last_tokens(record["text"], record["token_ends"], target_unit)]
            for record in records
        ],
        [count_units(record["source"], source_unit) for record in records],
        [count_units(record["references"][0], target_unit) for record in records],
        [source_rate] * len(records),
    )


def delays_in_units(record: Mapping[str, Any], source_unit: Unit, target_unit: Unit) -> list[int]:
    """Of one record: for each unit of the hypothesis, the units of source read when it was written."""
    source, target = (record["source"], record["source_token_ends"]), (record["text"], record["token_ends"])
    return delays_in_characters_and_words(*source, *target, record["delays"], source_unit, target_unit)
