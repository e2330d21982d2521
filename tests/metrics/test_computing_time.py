"""Latency with the time of computing in it, and the real-time factor, worked by hand."""

import pytest

from duplexmt.metrics.latency import (
    COMPUTATION_AWARE_METRICS,
    SENTENCE_METRICS,
    computation_aware_delays,
    real_time_factor,
)

from .test_latency import CASES


def metrics(*sentence) -> tuple[float | None, ...]:
    """AL_CA, LAAL_CA and YAAL_CA."""
    return tuple(metric(*sentence) for metric in COMPUTATION_AWARE_METRICS.values())


def test_computing_time_is_added_in_units_of_the_source() -> None:
    # Half a second until the first token, a second more until the third, while 4 characters a second arrive.
    assert computation_aware_delays([1, 2, 4], [0.5, 0.5, 1.5], 4) == [3, 4, 10]


def test_computation_aware_metrics_have_the_values_worked_by_hand() -> None:
    # S = 4, R = 2. AL: step 2, lags 3, 4 - 2; the second delay reaches the source's end, the third is not counted.
    # LAAL's step is 4/3: lags 3, 4 - 4/3. YAAL: the first alone was out before the source had ended.
    assert metrics([3, 4, 10], 4, 2) == pytest.approx((2.5, (3 + 8 / 3) / 2, 3))


def test_a_first_token_computed_after_the_source_s_end_is_the_whole_lag() -> None:
    assert metrics([6, 7], 4, 2) == (6, 6, None)


def test_without_computing_time_the_metrics_are_the_plain_ones() -> None:
    for case in CASES.values():
        delays = computation_aware_delays(case.delays, [0.0] * len(case.delays), 4)
        arguments = (delays, case.source_length, case.reference_length)
        for name, metric in COMPUTATION_AWARE_METRICS.items():
            assert metric(*arguments) == SENTENCE_METRICS[name.removesuffix("_CA")](*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [0.5], 4), "got 1 for 2"),
        (([1], [0.5], 0), "rate above 0 .* got 0"),
        (([1], [float("nan")], 4), "time 0 must be .* got nan"),
        (([1, 2], [0.5, 0.25], 4), "times must not decrease"),
    ],
)
def test_times_without_meaning_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        computation_aware_delays(*arguments)


def test_the_real_time_factor_is_seconds_of_computing_for_each_second_of_source() -> None:
    # 10 and 6 characters at 4 a second are 4 seconds of source.
    assert real_time_factor([0.5, 0.5], [10, 6], 4) == 0.25
    with pytest.raises(ValueError, match="got 0 units"):
        real_time_factor([0.5], [0], 4)
    with pytest.raises(ValueError, match=r"rate above 0 .* got nan"):
        real_time_factor([0.5], [3], float("nan"))
