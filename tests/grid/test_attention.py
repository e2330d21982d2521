"""The fast attention against the loop-written twin, in every mode."""

import itertools

import pytest
import torch

from duplexmt.grid.attention import approximate_attention, exact_attention
from duplexmt.grid.prefix import causal_attention, merge, prefix_softmax

from . import twin

SHAPES = [(1, 1), (1, 5), (4, 1), (3, 4), (5, 2)]
MODES = list(itertools.product((False, True), (True, False), ("joint", "separate")))


def random_qkv(X, Y, H=4, K=2, E=6, seed=0):
    """q, k, v of both streams for one pair, `[1, X, Y, heads, E]`; softmax far from flat."""
    draw = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(1, X, Y, heads, E, dtype=torch.float64, generator=draw) * 2).requires_grad_()
        for heads in (H, K, K, H, K, K)
    ]


@pytest.mark.parametrize(("exact", "io", "softmax"), MODES)
@pytest.mark.parametrize(("X", "Y"), SHAPES)
@pytest.mark.parametrize("heads", [(4, 2), (3, 3), (4, 1)])
def test_fast_attention_and_its_gradients_equal_the_loop_written_twin(exact, io, softmax, X, Y, heads):
    states = random_qkv(X, Y, *heads)
    fast = (exact_attention if exact else approximate_attention)(*states, 0.4, io, softmax)
    slow = twin.attention(*(s[0] for s in states), 0.4, io, softmax, exact)
    weights = [torch.randn(1, X, Y, heads[0], 6, dtype=torch.float64) for _ in range(2)]
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a[0], b, rtol=0, atol=1e-12)
    fast_loss = sum((a * w).sum() for a, w in zip(fast, weights, strict=True))
    slow_loss = sum((b * w[0]).sum() for b, w in zip(slow, weights, strict=True))
    for name, a, b in zip(
        ("q_I", "k_I", "v_I", "q_O", "k_O", "v_O"),
        torch.autograd.grad(fast_loss, states, allow_unused=True, materialize_grads=True),
        torch.autograd.grad(slow_loss, states, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11, msg=lambda m, name=name: f"gradient of {name}: {m}")


@pytest.mark.parametrize(("exact", "io", "softmax"), MODES)
def test_a_stream_that_is_the_same_along_a_dimension_may_have_size_one_there(exact, io, softmax):
    attend = exact_attention if exact else approximate_attention
    q_I, k_I, v_I, q_O, k_O, v_O = random_qkv(4, 5)
    thin = [states[:, :, :1] for states in (q_I, k_I, v_I)] + [states[:, :1] for states in (q_O, k_O, v_O)]
    whole = [states.expand(1, 4, 5, -1, -1) for states in thin]
    for a, b in zip(attend(*thin, 0.4, io, softmax), attend(*whole, 0.4, io, softmax), strict=True):
        torch.testing.assert_close(a.expand_as(b), b, rtol=0, atol=1e-12)
    ctx_I, ctx_O = attend(*whole, 0.4, io, softmax, target_only=True)
    assert ctx_I.numel() == 0
    torch.testing.assert_close(ctx_O, attend(*whole, 0.4, io, softmax)[1], rtol=0, atol=0)


def test_joint_softmax_is_one_softmax_over_both_sets_of_keys():
    q, k, v = (torch.randn(5, 2, 4, dtype=torch.float64) for _ in range(3))
    k2, v2 = (torch.randn(5, 2, 4, dtype=torch.float64) for _ in range(2))
    joint = merge(*causal_attention(q, k, v, 0.5), *causal_attention(q, k2, v2, 0.5), "joint")
    for t in range(5):
        keys, values = torch.cat((k[: t + 1], k2[: t + 1])), torch.cat((v[: t + 1], v2[: t + 1]))
        weights = (0.5 * torch.einsum("he,she->hs", q[t], keys)).softmax(-1)
        torch.testing.assert_close(joint[t], torch.einsum("hs,she->he", weights, values))


def test_prefix_softmax_survives_scores_that_overflow_a_plain_exponential():
    scores = torch.tensor([[1000.0], [-1000.0], [0.0], [2000.0]], requires_grad=True)
    values = torch.arange(4.0).view(4, 1, 1)
    context, lse = prefix_softmax(scores, values)
    assert context.flatten().tolist() == [0.0, 0.0, 0.0, 3.0]
    assert lse.flatten().tolist() == [1000.0, 1000.0, 1000.0, 2000.0]
    (gradient,) = torch.autograd.grad(context.sum(), scores)
    assert torch.isfinite(gradient).all()


def test_half_precision_statistics_are_kept_in_float32():
    q, k, v = (torch.randn(3, 2, 4, dtype=torch.float16) for _ in range(3))
    context, lse = causal_attention(q, k, v, 0.5)
    assert (context.dtype, lse.dtype) == (torch.float16, torch.float32)
