"""Latency that counts the time of computing, and how that time compares with the source's own. No torch here.

Symbols as in `latency.py`. SimulEval measures speech so, in milliseconds; between texts it has no clock.
"""

from collections.abc import Callable, Sequence
from math import isfinite

from duplexmt.metrics.latency import check_lengths, lagging, lagging_before_end
from duplexmt.metrics.units import check_rising


def computation_aware_delays(delays: Sequence[float], elapsed: Sequence[float], units_per_second: float) -> list[float]:
    """Delays that count computing time: `d_i + elapsed_i · rate`, SimulEval's `elapsed` in units of source.

    While the system computes, a speaker goes on: seconds become units of source at the rate the source arrives.

    Args:
        delays: units of source read.
        elapsed: for each target unit, the seconds of computation spent on its sentence until it was written.
        units_per_second: rate of the source.

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


def computation_aware_average_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """AL over `computation_aware_delays`, which may exceed S: where `d_1 > S` it is `d_1`, as in SimulEval.

    Raises:
        ValueError: for lengths that `check_lengths` refuses, no delays, and negative or falling ones.
    """
    _check_times(delays, source_length, reference_length)
    return lagging(delays, source_length, reference_length)


def computation_aware_laal(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """LAAL over `computation_aware_delays`; otherwise as `computation_aware_average_lagging`.

    Raises:
        ValueError: what `computation_aware_average_lagging` refuses.
    """
    _check_times(delays, source_length, reference_length)
    return lagging(delays, source_length, max(len(delays), reference_length))


def computation_aware_yaal(delays: Sequence[float], source_length: float, reference_length: float) -> float | None:
    """YAAL over `computation_aware_delays`: a token computed after the source's end counts as written after it.

    Raises:
        ValueError: what `computation_aware_average_lagging` refuses.
    """
    _check_times(delays, source_length, reference_length)
    return lagging_before_end(delays, source_length, max(len(delays), reference_length))


COMPUTATION_AWARE_METRICS: dict[str, Callable[[Sequence[float], float, float], float | None]] = {
    "AL_CA": computation_aware_average_lagging,
    "LAAL_CA": computation_aware_laal,
    "YAAL_CA": computation_aware_yaal,
}


def real_time_factor(seconds: Sequence[float], source_lengths: Sequence[float], units_per_second: float) -> float:
    """RTF: seconds of computation for each second of source, over a corpus. Below 1 a system keeps up.

    Args:
        seconds: of computation, one number a sentence.
        source_lengths: of the sentences, in units of source.
        units_per_second: rate of the source.

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


def _check_times(delays: Sequence[float], source_length: float, reference_length: float) -> None:
    check_lengths(source_length, reference_length)
    if len(delays) == 0:
        raise ValueError("an empty hypothesis has no latency: got no delays")
    for index, delay in enumerate(delays):
        if not (isfinite(delay) and delay >= 0):
            raise ValueError(f"delay {index} must be a number of at least 0, got {delay}")
    check_rising(delays, "delays")
