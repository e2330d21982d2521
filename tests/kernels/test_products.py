"""Products of training steps against `F.linear`, whichever library computes them."""

import pytest
import torch
from torch.nn import functional as F

from duplexmt.kernels import products
from duplexmt.kernels.products import on_rounded, product, weight_gradient, without_autocast


@pytest.fixture(params=[True, False], ids=["onednn", "blas"])
def faster_by_onednn(request, monkeypatch):
    """Both kinds of processor."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: request.param)
    return request.param


@pytest.mark.parametrize(
    ("capabilities", "intel", "faster"),
    [
        ({"avx512_f": True}, False, True), ({"avx512_f": True}, True, False), ({"avx512_f": False}, False, False),
        ({}, False, True),
    ],
)  # fmt: skip
def test_intels_processors_and_those_without_avx512_multiply_by_their_blas(monkeypatch, capabilities, intel, faster):
    monkeypatch.setattr(products, "cpu_capabilities", lambda: capabilities)
    monkeypatch.setattr(products, "of_intel", lambda: intel)
    assert products.onednn_is_faster.__wrapped__() is faster


@pytest.mark.usefixtures("faster_by_onednn")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 37])
def test_values_are_those_of_a_linear_layer(rows, transposed, bias):
    torch.manual_seed(0)
    states, shift = torch.randn(rows, 24), torch.randn(40) if bias else None
    weight = torch.randn(24, 40).T if transposed else torch.randn(40, 24)
    found = product(states, weight, shift)
    expected = F.linear(states.double(), weight.double(), None if shift is None else shift.double())
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-5)


def test_products_without_autocast_keep_their_type():
    rows = torch.ones(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert (rows @ rows.T).dtype == torch.bfloat16
        with without_autocast("cpu"):
            assert (rows @ rows.T).dtype == torch.float32
        assert (rows @ rows.T).dtype == torch.bfloat16
    with without_autocast("cpu"):
        assert (rows @ rows.T).dtype == torch.float32


@pytest.mark.usefixtures("faster_by_onednn")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("n", "D_out", "D_in"), [(0, 4, 8), (300, 64, 24), (300, 24, 64)])
def test_gradients_of_weights_are_those_of_autograd(n, D_out, D_in, dtype):
    torch.manual_seed(0)
    inputs, outputs = torch.randn(n, D_in).to(dtype), torch.randn(n, D_out).to(dtype)
    weight = torch.zeros(D_out, D_in, dtype=torch.float64, requires_grad=True)
    F.linear(inputs.double(), weight).backward(outputs.double())
    found = weight_gradient(outputs, inputs)
    assert found.dtype == dtype
    rtol = 1e-2 if dtype == torch.bfloat16 else 0
    torch.testing.assert_close(found.double(), weight.grad, rtol=rtol, atol=rtol + 1e-4)


def test_the_time_of_bfloat16_is_that_of_the_fastest_product_of_each_type(monkeypatch):
    seconds = {torch.float32: iter([9.0, 2.0, 3.0]), torch.bfloat16: iter([1.0, 50.0, 7.0])}
    clock = [0.0]

    def linear(rows, weight):
        assert rows.dtype == weight.dtype
        clock[0] += next(seconds[rows.dtype])

    monkeypatch.setattr(products.F, "linear", linear)
    monkeypatch.setattr(products, "perf_counter", lambda: clock[0])
    assert products.time_of_bfloat16.__wrapped__(4, times=3) == 0.5


@pytest.mark.usefixtures("faster_by_onednn")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_layer_on_a_round_number_of_rows_has_the_values_and_gradients_of_the_rows_alone(dtype):
    torch.manual_seed(0)
    half = dtype == torch.bfloat16  # by autocast
    own = torch.float32 if half else dtype
    layer, states = torch.nn.Linear(24, 40, dtype=own), torch.randn(37, 24, dtype=own, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found, expected = on_rounded(layer, states), layer(states)
    assert found.dtype == expected.dtype == dtype
    torch.testing.assert_close(found, expected)
    inputs, d_outputs = (states, *layer.parameters()), torch.randn_like(expected)
    for ours, plain in zip(
        *(torch.autograd.grad(outputs, inputs, d_outputs) for outputs in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, plain, **({"rtol": 0.02, "atol": 0.02} if half else {}))
