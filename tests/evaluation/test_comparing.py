"""Systems against each other: at equal latency, and as curves."""

import numpy as np
import pytest

from duplexmt.evaluation.comparing import comparisons, curve_means, curves

from .test_scoring import SYSTEMS, entry

# --- at equal latency --------------------------------------------------------------------------------------------


def test_systems_are_compared_where_their_latency_is_equal():
    rows = {row["against"]: row for row in comparisons(SYSTEMS) if row["system"] == "grid"}
    wait = rows["wait-k k=3"]
    # At AL 3 the grid is half way between 20 and 24.
    assert (wait["AL"], wait["metric"], wait["score"], wait["other"]) == (3, "BLEU", pytest.approx(22), 18)
    assert wait["difference"] == pytest.approx(4)
    assert wait["low"] < 4 < wait["high"]
    assert wait["p"] == "0.002", "no difference of the other sign in 1,000 resamples"
    # Offline is slower than the grid at its slowest: the grid's last point stands for it.
    assert rows["offline"]["difference"] == pytest.approx(-2)


def test_a_setting_of_nothing_but_empty_hypotheses_is_left_out_of_a_comparison():
    silent = entry("grid", 0.99, 0, 1, AL=None)
    silent.samples["AL"] = np.full(1000, np.nan)
    assert comparisons([*SYSTEMS, silent]) == comparisons(SYSTEMS) != []


def test_a_system_faster_than_the_other_at_its_fastest_is_not_compared():
    slow = [entry("grid", 0.5, 20, 5), entry("grid", 0.9, 24, 6), entry("waitk", 3, 18, 3)]
    assert comparisons(slow) == []


def test_curves_hold_values_and_intervals_and_leave_out_what_has_no_latency():
    found = curves([*SYSTEMS, entry("grid", 0.1, 0, 1, AL=None)])
    assert list(found) == ["grid", "offline", "wait-k"]
    assert [p["setting"] for p in found["grid"]] == ["θ=0.9", "θ=0.5"]
    value, (low, high) = found["grid"][0]["BLEU"]
    assert low < value == 24 < high
    assert found["grid"][0]["chrF"] == (34, None)


# --- a number for a curve ----------------------------------------------------------------------------------------


def test_a_curve_s_number_is_its_mean_quality_over_the_latencies_that_all_curves_share():
    waits = [entry("waitk", 1, 16, 1), entry("waitk", 3, 18, 3), entry("waitk", 5, 21, 5)]
    grid, wait = (row for row in curve_means([*SYSTEMS[:3], *waits]) if row["metric"] == "BLEU")
    # The grid has 2..4, wait-k 1..5: over 2..4 the grid rises from 20 to 24, wait-k from 17 by 18 to 19.5.
    assert (grid["system"], grid["AL from"], grid["AL to"], grid["mean"]) == ("grid", 2, 4, pytest.approx(22))
    assert wait["mean"] == pytest.approx((17 + 18) / 2 * 0.5 + (18 + 19.5) / 2 * 0.5)
    assert (grid["against"], wait["against"]) == ("wait-k", "grid")
    assert grid["difference"] == -wait["difference"] == pytest.approx(22 - 18.125)
    assert grid["low"] < grid["difference"] < grid["high"]
    assert grid["p"] == "0.002"
    assert 0 < grid["±"] < 1


def test_a_curve_alone_or_without_a_latency_in_common_has_no_number():
    assert curve_means(SYSTEMS) == [], "wait-k and offline are a point each"
    assert curve_means([*SYSTEMS[:2], entry("waitk", 5, 20, 5), entry("waitk", 7, 21, 6)]) == []
