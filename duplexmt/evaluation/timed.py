"""When hypotheses were written: delays and lengths of records, in model tokens or in characters and words."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.bootstrap import Array, resampled_mean, resampled_share
from ..metrics.latency import (
    COMPUTATION_AWARE_METRICS,
    computation_aware_delays,
    coverage,
    mean_of_known,
    sentence_latency,
    words_before_end,
)
from ..metrics.units import Unit, count_units, delays_in_characters_and_words, last_tokens, text_unit
from .translation import Record

RESAMPLED = ("AL", "AL_all", "YAAL", "AP", "FRL")  # and SWF
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
        before = [bisect_left(delays, length) for delays, length in zip(self.delays, self.source_lengths, strict=True)]
        found = {name: resampled_mean(latency[name], weights) for name in RESAMPLED}
        return found | {"SWF": resampled_share(before, [len(delays) for delays in self.delays], weights)}


def in_tokens(records: Sequence[Record], source_language: str, source_rate: float) -> Timed:
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


def in_units(records: Sequence[Record], source_unit: Unit, target_unit: Unit, source_rate: float) -> Timed:
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


def delays_in_units(record: Record, source_unit: Unit, target_unit: Unit) -> list[int]:
    """Of one record: for each unit of the hypothesis, the units of source read when it was written."""
    source, target = (record["source"], record["source_token_ends"]), (record["text"], record["token_ends"])
    return delays_in_characters_and_words(*source, *target, record["delays"], source_unit, target_unit)
