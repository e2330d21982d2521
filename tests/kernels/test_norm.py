from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from duplexmt.kernels.norm import rms_norm


def norm_of(size, dtype, generator):
    weight = torch.randn(size, dtype=dtype, generator=generator).requires_grad_()
    return SimpleNamespace(weight=weight, variance_epsilon=1e-6)


@pytest.mark.parametrize("shape", [(7, 16), (1, 4), (5, 3, 8), (0, 4)])
def test_value_and_gradients_equal_pytorchs_composite(shape):
    generator = torch.Generator().manual_seed(0)
    norm = norm_of(shape[-1], torch.float64, generator)
    states = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    upstream = torch.randn(shape, dtype=torch.float64, generator=generator)
    results = []
    for normed in (rms_norm(states, norm), F.rms_norm(states, shape[-1:], norm.weight, norm.variance_epsilon)):
        results.append((normed, *torch.autograd.grad(normed, (states, norm.weight), upstream)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_statistics_of_half_precision_are_float32():
    states = torch.full((1, 1000), 300.0, dtype=torch.float16)  # squares overflow float16
    norm = SimpleNamespace(weight=torch.ones(1000, dtype=torch.float16), variance_epsilon=1e-6)
    torch.testing.assert_close(rms_norm(states, norm), torch.ones(1, 1000, dtype=torch.float16))


def test_under_autocast_the_result_has_its_type_and_gradients_that_of_their_tensors():
    norm = norm_of(8, torch.float32, torch.Generator().manual_seed(0))
    states = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        normed = rms_norm(states, norm)
    assert normed.dtype is torch.bfloat16
    torch.testing.assert_close(normed, rms_norm(states, norm).to(torch.bfloat16))
    normed.sum().backward()
    assert states.grad.dtype is norm.weight.grad.dtype is torch.float32


def test_frozen_weights_get_no_gradient():
    norm = SimpleNamespace(weight=torch.ones(4), variance_epsilon=1e-6)
    states = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rms_norm(states, norm).sum().backward()
    assert norm.weight.grad is None
    assert states.grad is not None
