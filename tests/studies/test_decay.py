"""Fits of power laws."""

import numpy as np
import pytest

from benchmarks.studies.decay import fit_decay


def power_law(exponent, documents=40, keys=128, noise=0.3, seed=0):
    """Squared errors that scatter around `2·n^(−exponent)`."""
    scatter = np.random.default_rng(seed).normal(0, noise, (documents, keys))
    return (2 * np.arange(1, keys + 1) ** -exponent * np.exp(scatter)) ** 2


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.5, 1.0])
def test_a_known_exponent_is_found_and_lies_in_the_interval(exponent):
    fit = fit_decay(power_law(exponent), first=8)
    assert fit.exponent == pytest.approx(exponent, abs=0.03)
    assert fit.low - 0.01 < exponent < fit.high + 0.01
    assert 0 < fit.high - fit.low < 0.15
    assert (fit.first, fit.last, fit.documents) == (8, 128, 40)


def test_without_scatter_the_line_is_exact():
    fit = fit_decay(power_law(0.5, documents=2, noise=0), first=4, last=64)
    assert fit.exponent == pytest.approx(0.5)
    assert fit.size == pytest.approx(2)
    assert fit.r2 == pytest.approx(1)


def test_independent_errors_of_equal_weight_average_out_as_one_over_root_n():
    # The paper's argument with all its premises: a mean of n independent terms.
    draws = np.random.default_rng(1).normal(size=(200, 128))
    means = (draws.cumsum(1) / np.arange(1, 129)) ** 2
    fit = fit_decay(means, first=4)
    assert fit.low < 0.5 < fit.high


def test_what_cannot_be_fitted_is_refused():
    squares = power_law(0.5, keys=16)
    with pytest.raises(ValueError, match=r"from 8 to 16 keys spans less than two octaves.*at least 32 tokens"):
        fit_decay(squares, first=8)
    with pytest.raises(ValueError, match="1 document has no interval"):
        fit_decay(squares[:1], first=2)
    with pytest.raises(ValueError, match="zero or not finite"):
        fit_decay(np.zeros((3, 16)), first=2)
    squares[1, 5] = np.nan
    with pytest.raises(ValueError, match="zero or not finite"):
        fit_decay(squares, first=2)
