import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from duplexmt.kernels.lora import linear, plain_adapter


def lora_layer(dtype=torch.float64, bias=True, sizes=(6, 10), **options):
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(*sizes, bias=bias))
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["0"], **options)
    layer = get_peft_model(base, config).to(dtype).base_model.model[0]
    for weights in (*layer.lora_A.parameters(), *layer.lora_B.parameters()):  # B starts at 0, which hides mistakes
        nn.init.normal_(weights)
    return layer


def outcome(function, layer, states, upstream):
    """Value, and gradients of the states and of both adapter weights."""
    value = function(states)
    A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    return value, *torch.autograd.grad(value, (states, A, B), upstream)


@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients_equal_pefts(bias):
    layer = lora_layer(bias=bias)
    assert plain_adapter(layer) is not None
    states = torch.randn(7, 6, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(7, 10, dtype=torch.float64)
    ours = outcome(lambda x: linear(layer, x), layer, states, upstream)
    theirs = outcome(layer, layer, states, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_half_precision_keeps_changes_too_small_for_the_weights_own_digits():
    layer = lora_layer(torch.float32, bias=False)
    nn.init.ones_(layer.base_layer.weight)
    A, B = layer.lora_A["default"].weight.data, layer.lora_B["default"].weight.data
    A.zero_()[:, 0] = 0.01
    B.fill_(0.01)
    states = torch.tensor([[1.0, -1.0] * 3])  # all that W leaves of it is 0
    with torch.autocast("cpu", torch.bfloat16):
        result = linear(layer, states)
    # s·B·A·x = 5/3 · 3 · 0.01² = 0.0005, and 1.0005 is 1 in bfloat16.
    torch.testing.assert_close(result.float(), torch.full((1, 10), 0.0005), rtol=0.01, atol=0)


@pytest.mark.parametrize(("half", "bias", "sizes"), [(torch.bfloat16, True, (6, 10)), (torch.float16, False, (10, 6))])
def test_gradients_under_autocast_are_float32_and_about_as_near_as_pefts(sizes, bias, half):
    layer = lora_layer(torch.float32, bias, sizes)
    states = torch.randn(500, sizes[0]).requires_grad_()
    upstream = torch.randn(500, sizes[1]).to(half)

    def run(function):
        with torch.autocast("cpu", half):
            return outcome(function, layer, states, upstream)

    ours, theirs = run(lambda x: linear(layer, x)), run(layer)
    exact = outcome(layer, layer, states, upstream.float())
    assert [part.dtype for part in ours] == [half, *[torch.float32] * 3]
    for one, other, right in zip(ours, theirs, exact, strict=True):
        off, theirs_off = ((part.float() - right).square().mean().sqrt() for part in (one, other))
        assert off < 2 * theirs_off


def test_layers_that_do_anything_else_compute_themselves():
    plain = nn.Linear(6, 10).double()
    assert plain_adapter(plain) is None
    for layer in (lora_layer(lora_dropout=0.5), lora_layer(use_dora=True)):
        assert plain_adapter(layer) is None
    merged = lora_layer()
    merged.merge()
    assert plain_adapter(merged) is None
    off = lora_layer()
    off.enable_adapters(False)
    assert plain_adapter(off) is None
    states = torch.randn(2, 6, dtype=torch.float64)
    for layer in (plain, merged, off):
        assert torch.equal(linear(layer, states), layer(states))


def test_a_bias_that_is_trained_gets_its_gradient():
    layer = lora_layer()
    layer.base_layer.bias.requires_grad_()
    assert plain_adapter(layer) is None
    linear(layer, torch.randn(2, 6, dtype=torch.float64)).sum().backward()
    torch.testing.assert_close(layer.base_layer.bias.grad, torch.full((10,), 2.0, dtype=torch.float64))
