"""λ and θ: their rules, and where each is recorded."""

import pytest

from duplexmt.policy.knobs import (
    check_certainty,
    check_k_min,
    check_lam,
    recorded_rule,
    recorded_theta,
)


@pytest.mark.parametrize(
    ("info", "theta"),
    [
        ({"policy": {"lam": 0.1, "theta": 0.5}}, 0.5),
        ({"policy": {"lam": 0.1, "theta": 0.5}, "operating_point": {"theta": 0.8, "target_al": 3}}, 0.8),
        ({"policy": {"lam": 0.1, "theta": 0.5}, "operating_point": {"theta": 0.0}}, 0.0),
    ],
)
def test_a_model_is_run_at_the_operating_point_found_for_it_else_at_the_theta_of_its_training(info, theta):
    assert recorded_theta(info) == theta


@pytest.mark.parametrize(
    ("info", "rule"),
    [
        ({"policy": {}}, {}),  # of a baseline
        ({"policy": {"lam": 0.1, "theta": 0.5}}, {}),
        ({"policy": {"lam": 0.1, "theta": 0.5, "certainty": 0.25}}, {"certainty": 0.25}),
        ({"policy": {"theta": 0.5, "certainty": 1, "k_min": 3}, "operating_point": {"theta": 0.8}}, {}),
        ({"policy": {"theta": 0.5, "k_min": 3}, "operating_point": {"theta": 0.8, "k_min": 1}}, {"k_min": 1}),
        ({"policy": {"theta": 0.5, "words": True}}, {"words": True}),
        ({"policy": {"theta": 0.5, "words": True}, "operating_point": {"theta": 0.8, "words": False}}, {}),
    ],
)
def test_decisions_are_by_the_rule_that_goes_with_the_recorded_theta(info, rule):
    assert recorded_rule(info) == {"certainty": 0, "k_min": 0, "words": False} | rule


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf"), True, "1"])
def test_bad_weights_of_certainty_are_refused_by_value_and_rule(weight):
    with pytest.raises(ValueError, match=r"policy\.certainty=.*at least 0"):
        check_certainty(weight)


@pytest.mark.parametrize("k", [-1, 1.5, True, "1"])
def test_bad_least_lags_are_refused_by_value_and_rule(k):
    with pytest.raises(ValueError, match=r"policy\.k_min=.*at least 0"):
        check_k_min(k)


@pytest.mark.parametrize("lam", [-0.1, float("nan"), float("inf")])
def test_bad_lambda_is_refused_by_value_and_rule(lam):
    with pytest.raises(ValueError, match=r"policy\.lam=.*at least 0"):
        check_lam(lam)
