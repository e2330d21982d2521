"""Calibration of the EMIT head: worked by hand, and 0 where probabilities are true."""

import pytest
import torch

from duplexmt.policy.calibration import BINS, calibration_error, calibration_sums


def test_bins_and_error_are_those_worked_by_hand():
    p = torch.tensor([0.0, 0.05, 0.72, 0.78, 1.0])
    mask = torch.tensor([False, True, True, False, True])
    sums = calibration_sums(p, mask)
    assert sums.shape == (BINS, 3)
    torch.testing.assert_close(sums[0], torch.tensor([2.0, 0.05, 1.0]))
    torch.testing.assert_close(sums[7], torch.tensor([2.0, 1.5, 1.0]))
    torch.testing.assert_close(sums[9], torch.tensor([1.0, 1.0, 1.0]))
    assert calibration_error(sums).item() == pytest.approx((0.95 + 0.5 + 0) / 5)


def test_true_probabilities_have_almost_no_error_and_sums_add_up():
    draw = torch.Generator().manual_seed(1)
    p = torch.rand(40_000, generator=draw)
    mask = torch.rand(40_000, generator=draw) < p
    sums = calibration_sums(p, mask)
    assert calibration_error(sums) < 0.01
    assert calibration_error(calibration_sums(p, ~mask)) > 0.4
    parts = sum(calibration_sums(a, b) for a, b in zip(p.split(999), mask.split(999), strict=True))
    torch.testing.assert_close(parts, sums, rtol=1e-5, atol=1e-2)


def test_half_precision_is_counted_in_whole():
    p = torch.full((5000,), 0.5, dtype=torch.bfloat16)
    assert calibration_sums(p, torch.ones(5000, dtype=torch.bool))[5, 0] == 5000
