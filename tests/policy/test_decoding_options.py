"""θ and the rule that goes with it: where each is recorded."""

import pytest

from duplexmt.policy.decoding_options import EmitRule, recorded_rule, recorded_theta


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
        ({"policy": {"theta": 0.5, "k_max": 8}}, {"k_max": 8}),
        ({"policy": {"theta": 0.5, "beam": 4, "lookahead": 1}}, {"beam": 4, "lookahead": 1}),
        ({"policy": {"theta": 0.5, "words": True}}, {"words": True}),
        ({"policy": {"theta": 0.5, "words": True}, "operating_point": {"theta": 0.8, "words": False}}, {}),
    ],
)
def test_decisions_are_by_the_rule_that_goes_with_the_recorded_theta(info, rule):
    usual = {"certainty": 0, "k_min": 0, "k_max": 0, "words": False, "beam": 1, "lookahead": 0}
    assert recorded_rule(info) == usual | rule


def test_a_lag_has_its_bounds_in_order():
    assert EmitRule(k_min=3).k_max == 0, "no bound"
    assert EmitRule(k_min=3, k_max=3).recorded()["k_max"] == 3
    with pytest.raises(ValueError, match=r"policy\.k_min=4, policy\.k_max=3: .*k_max must be at least k_min, or 0"):
        EmitRule(k_min=4, k_max=3)
