"""The gated activation in pieces against the plain formula."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from duplexmt.kernels import swiglu
from duplexmt.kernels.swiglu import gated


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("in_cache", [1, 21, 10_000])
@pytest.mark.parametrize("activation", [ACT2FN["silu"], nn.SiLU()])
def test_value_and_gradients_are_the_formulas(activation, in_cache, dtype, monkeypatch):
    monkeypatch.setattr(swiglu, "IN_CACHE", in_cache)
    torch.manual_seed(0)
    gate, up, upstream = torch.randn(3, 5, 7, dtype=dtype)
    inputs = gate.requires_grad_(), up.requires_grad_()
    found, expected = gated(activation, *inputs), F.silu(gate) * up
    assert type(found.grad_fn).__name__ == "_SwiGLUBackward"
    assert torch.equal(found, expected)
    ours, theirs = (torch.autograd.grad(value, inputs, upstream) for value in (found, expected))
    assert all(map(torch.equal, ours, theirs))


def test_a_strided_gradient_and_no_rows():
    gate, up = torch.randn(2, 4, 6, dtype=torch.float64).requires_grad_().unbind()
    upstream = torch.randn(6, 4, dtype=torch.float64).T
    ours = torch.autograd.grad(gated(nn.SiLU(), gate, up), (gate, up), upstream)
    theirs = torch.autograd.grad(F.silu(gate) * up, (gate, up), upstream)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-15)
    assert gated(nn.SiLU(), gate[:0], up[:0]).shape == (0, 6)


def test_other_activations_are_as_they_are():
    gate, up = torch.randn(2, 4, 6)
    assert torch.equal(gated(nn.GELU(), gate, up), F.gelu(gate) * up)
