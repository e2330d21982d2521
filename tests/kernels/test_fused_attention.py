"""Attention of training steps is computed in float32 on a CPU, whatever autocast takes the rest to."""

import torch
from torch.nn import functional as F

from duplexmt.kernels import fused_attention as module
from duplexmt.kernels.fused_attention import fused_attention


def test_under_autocast_contexts_and_gradients_are_those_of_float32() -> None:
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(3, heads, 7, 16, generator=draw).bfloat16().requires_grad_() for heads in (4, 2, 2))
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    exact = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, enable_gqa=True)
    with torch.autocast("cpu", torch.bfloat16):
        context = fused_attention(q, k, v, mask)
        half = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    assert torch.equal(context, exact)
    assert not torch.equal(half.float(), exact), "else this test could not fail"
    weights = torch.randn(exact.shape, generator=draw)
    for got, want in zip(
        torch.autograd.grad((context * weights).sum(), (q, k, v)),
        torch.autograd.grad((exact * weights).sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.equal(got, want)


def test_where_a_mask_and_shared_heads_exclude_each_other_heads_are_repeated(monkeypatch) -> None:
    q, k, v = (torch.randn(2, heads, 5, 8, dtype=torch.float64, requires_grad=True) for heads in (6, 2, 2))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    asked = []

    def attended(*given, **further):
        asked.append((given[1].shape[1], further["enable_gqa"]))
        return attend(*given, **further)

    attend = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", attended)
    expected = fused_attention(q, k, v, mask)
    monkeypatch.setattr(module, "MASK_OR_SHARED_HEADS", {"cpu"})
    found = fused_attention(q, k, v, mask)
    fused_attention(q, k, v, is_causal=True)
    assert asked == [(2, True), (6, False), (2, True)]
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    for got, want in zip(*(torch.autograd.grad(out, (q, k, v), weights) for out in (found, expected)), strict=True):
        torch.testing.assert_close(got, want)


def test_float64_stays_float64() -> None:
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    assert fused_attention(q, q, q, is_causal=True).dtype == torch.float64


def test_new_shapes_cost_no_plan_of_cudnn() -> None:
    assert not torch.backends.cuda.cudnn_sdp_enabled()
