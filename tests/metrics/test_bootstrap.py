"""The bootstrap: seeded, paired, and with the coverage it promises."""

import numpy as np
import pytest

from duplexmt.metrics.bootstrap import (
    envelope_mean,
    interval,
    paired_p_value,
    quality_at_latency,
    resample_weights,
    resampled_mean,
    shared_range,
)
from duplexmt.metrics.quality import corpus_statistics


def test_weights_count_what_each_resample_drew_and_are_the_same_every_time() -> None:
    weights = resample_weights(7, resamples=50)
    assert weights.shape == (50, 7)
    assert (weights.sum(1) == 7).all()
    assert (weights == resample_weights(7, resamples=50)).all()
    with pytest.raises(ValueError, match="at least one sentence, got 0"):
        resample_weights(0, 10)


def test_resampled_bleu_and_chrf_are_those_of_the_corpus_drawn() -> None:
    hypotheses = ["the cat sat on the mat", "it rains in the north today", "a dog", ""]
    references = ["the cat sat on a mat", "it rained in the north today", "a dog barks", "nothing"]
    weights = resample_weights(4, resamples=20)
    found = corpus_statistics(hypotheses, references, "en")
    for row, bleu, chrf in zip(
        weights, found["BLEU"].resampled(weights), found["chrF"].resampled(weights), strict=True
    ):
        drawn = np.repeat(np.arange(4), row.astype(int))
        expected = corpus_statistics([hypotheses[i] for i in drawn], [references[i] for i in drawn], "en")
        assert (bleu, chrf) == pytest.approx((expected["BLEU"].score(), expected["chrF"].score()), abs=1e-9)


def test_means_leave_out_what_is_unknown() -> None:
    weights = np.array([[1.0, 1, 1], [0, 3, 0], [2, 0, 1]])
    assert resampled_mean([1.0, None, 4.0], weights).tolist() == pytest.approx([2.5, np.nan, 2.0], nan_ok=True)


def test_the_interval_of_a_mean_has_the_width_of_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=400).tolist()
    low, high = interval(resampled_mean(values, resample_weights(400, 1000)))
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.1)
    assert interval(np.array([1.0, np.nan])) is None


def test_p_values_follow_how_often_the_difference_changes_its_sign() -> None:
    assert paired_p_value(np.full(999, 2.0)) == pytest.approx(2 / 1000)
    assert paired_p_value(np.array([1.0] * 950 + [-1.0] * 49)) == pytest.approx(2 * 50 / 1000)
    assert paired_p_value(np.array([1.0, -1.0] * 50)) == 1
    assert paired_p_value(np.zeros(100)) == 1


def test_quality_is_interpolated_between_points_and_held_beyond_the_slowest() -> None:
    latency, quality = np.array([[4.0, 2.0]] * 4), np.array([[30.0, 20.0]] * 4)
    found = quality_at_latency(latency, quality, np.array([2.0, 3.0, 9.0, 1.9]))
    assert found.tolist() == pytest.approx([20, 25, 30, np.nan], nan_ok=True)


def test_no_quality_is_told_where_a_latency_is_not_known() -> None:
    known, unknown = np.array([[2.0, 4.0]]), np.array([[2.0, np.nan]])
    quality = np.array([[20.0, 30.0]])
    for latency, wanted in ((known, np.nan), (unknown, 2.5), (unknown, 9.0), (unknown[:, 1:], 9.0)):
        found = quality_at_latency(latency, quality[:, : latency.shape[1]], np.array([wanted]))
        assert np.isnan(found).all(), (latency, wanted)


def test_a_latency_that_differs_by_rounding_is_no_faster() -> None:
    latency, quality = np.array([[sum([0.1] * 3), 2.0]]), np.array([[20.0, 30.0]])
    assert quality_at_latency(latency, quality, np.array([0.3])).tolist() == [20.0]


def test_the_mean_of_an_envelope_is_the_area_below_its_lines_over_the_width() -> None:
    # Points in any order; 3 is worse than 2 and drops out, so that 10 → 20 is joined by 2 → 4 as one line.
    latency, quality = np.array([[4.0, 2.0, 3.0, 6.0]]), np.array([[20.0, 10.0, 9.0, 20.0]])
    assert envelope_mean(latency, quality, np.array([2.0]), np.array([4.0])) == [15]
    assert envelope_mean(latency, quality, np.array([3.0]), np.array([5.0])) == [(17.5 + 20) / 2]
    assert envelope_mean(latency, quality, np.array([5.0]), np.array([9.0])) == [20], "level after the best"
    assert np.isnan(envelope_mean(latency, quality, np.array([1.0]), np.array([4.0]))), "it has nothing so fast"
    assert np.isnan(envelope_mean(latency, quality, np.array([4.0]), np.array([4.0]))), "no width"


def test_the_shared_range_begins_with_the_slowest_start_and_ends_with_the_fastest_end() -> None:
    low, high = shared_range([np.array([[1.0, 5.0], [2.0, 6.0]]), np.array([[4.0, 2.0, 3.0], [9.0, 8.0, 7.0]])])
    assert (low.tolist(), high.tolist()) == ([2, 7], [4, 6])
