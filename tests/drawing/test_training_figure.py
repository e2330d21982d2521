"""Curves of a run: read from its metrics, drawn as far as they were logged."""

import math

import pytest

from duplexmt.drawing.training_figure import joined, read_curves, training_figure

METRICS = """epoch,lr-Adam,step,train/area,validation/area,validation/emit_accuracy
,0.001,49,,,
0,,49,0.57,,
0,,99,0.33,,
0,,99,,0.4,0.9
"""


def test_curves_are_read_as_far_as_they_were_logged(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(METRICS)
    curves = read_curves(path)
    assert curves["train/area"] == [(49, 0.57), (99, 0.33)]
    assert curves["validation/emit_accuracy"] == [(99, 0.9)]
    assert training_figure(curves).startswith(b"<?xml")


def test_of_steps_a_resumed_run_has_taken_twice_the_later_count():
    stopped = {"train/area": [(49, 0.6), (99, 0.5), (149, 0.4)], "validation/area": [(99, 0.5)]}
    resumed = {"train/area": [(99, 0.45), (149, 0.35), (199, 0.3)], "validation/area": [(199, 0.3)]}
    assert joined([stopped, resumed]) == {
        "train/area": [(49, 0.6), (99, 0.45), (149, 0.35), (199, 0.3)],
        "validation/area": [(199, 0.3)],
    }
    assert joined([stopped]) == stopped
    assert joined([{}, stopped]) == joined([stopped, {}]) == stopped, "nothing was logged yet"


@pytest.mark.parametrize("values", [(3.0, math.inf, 2.0), (3.0, math.nan, 2.0), (math.inf, math.nan)])
def test_numbers_that_are_not_finite_leave_a_gap(values):
    curves = {"train/lm_loss": list(enumerate(values)), "train/area": [(0, 0.5), (2, 0.4)]}
    assert b"</svg>" in training_figure(curves)


@pytest.mark.parametrize("line", ["0,,99,0.3e", "0,,,0.3", "0,,99,0.3,0.2,0.1,7"])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.csv"
    path.write_text(f"{METRICS}{line}\n")
    with pytest.raises(ValueError, match=r"metrics\.csv: line 6 is damaged"):
        read_curves(path)
