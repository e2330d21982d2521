"""The θ that meets a wanted latency."""

from math import inf

import pytest

from duplexmt.evaluation.search import OperatingPoint, find_theta


def test_the_theta_found_meets_the_target_from_below():
    found = find_theta(lambda theta: 1 + 4 * theta, 3.0)
    assert 2.95 <= found.al <= 3.0
    assert found.theta == pytest.approx(0.5, abs=0.02)


def test_the_end_where_all_is_read_is_tried_where_the_target_is_beyond_it():
    assert find_theta(lambda theta: 1 + theta, 9.0) == OperatingPoint(1.0, 2.0)


def test_theta_zero_is_tried_where_everything_else_is_too_late():
    assert find_theta(lambda theta: 2 if theta == 0 else 5, 3.0) == OperatingPoint(0.0, 2)


def test_the_best_of_all_tried_counts_where_latency_does_not_rise_with_theta():
    values = {0.5: 2.0, 0.75: 1.5}
    assert find_theta(lambda theta: values.get(theta, 4.0), 3.0) == OperatingPoint(0.5, 2.0)


def test_a_latency_that_cannot_be_met_is_refused_with_what_could():
    with pytest.raises(ValueError, match=r"at θ = 0 AL is 2\.50 already"):
        find_theta(lambda theta: 2.5 + theta, 2.0)


def test_a_theta_at_which_nothing_is_written_is_too_late():
    assert find_theta(lambda theta: 8 * theta if theta < 0.5 else inf, 3.0) == OperatingPoint(0.375, 3.0)


def test_the_search_asks_for_the_same_values_each_time():
    tried = [[], []]
    for values in tried:
        find_theta(lambda theta, values=values: values.append(theta) or 5 * theta**2, 3.0)
    assert tried[0] == tried[1]
