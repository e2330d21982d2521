"""The fast attention against the loop-written twin, in every mode."""

import itertools

import pytest
import torch

from duplexmt.grid import step_attention
from duplexmt.grid.cells import Cells
from duplexmt.grid.dual_attention import approximate_attention, causal_attention, exact_attention
from duplexmt.grid.scan import joint_scan

from . import twin

BATCHES = [([(1, 3), (1, 1), (3, 1)], (3, 3)), ([(3, 2), (2, 3)], (4, 2)), ([(2, 3)], (4, 1))]
MODES = list(itertools.product((False, True), (True, False), ("joint", "separate")))


def random_qkv(N, H=4, K=2, E=6, seed=0):
    """q, k, v of both streams by cell, `[N, heads, E]`; softmax far from flat."""
    draw = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(N, heads, E, dtype=torch.float64, generator=draw) * 2).requires_grad_()
        for heads in (H, K, K, H, K, K)
    ]


def gradients(results, weights, inputs):
    loss = sum((result * weight).sum() for result, weight in zip(results, weights, strict=True))
    return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(("exact", "io", "softmax"), MODES)
@pytest.mark.parametrize(("shapes", "heads"), BATCHES, ids=str)
def test_fast_attention_and_its_gradients_equal_the_loop_written_twin(exact, io, softmax, shapes, heads):
    cells = Cells.of(shapes)
    inputs = random_qkv(len(cells), *heads)
    fast = (exact_attention if exact else approximate_attention)(cells, *inputs, 0.4, io, softmax)
    slow, begin = [], 0
    for X, Y in shapes:  # each pair by itself
        pair = [states[begin : begin + X * Y].unflatten(0, (X, Y)) for states in inputs]
        slow.append([ctx.flatten(0, 1) for ctx in twin.attention(*pair, 0.4, io, softmax, exact)])
        begin += X * Y
    slow = [torch.cat(ctx) for ctx in zip(*slow, strict=True)]
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    weights = [torch.randn(len(cells), heads[0], 6, dtype=torch.float64) for _ in range(2)]
    for name, a, b in zip(
        ("q_I", "k_I", "v_I", "q_O", "k_O", "v_O"),
        gradients(fast, weights, inputs),
        gradients(slow, weights, inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11, msg=lambda m, name=name: f"gradient of {name}: {m}")


@pytest.mark.parametrize(("exact", "io", "softmax"), MODES)
def test_streams_that_do_not_depend_on_the_other_index_may_come_by_token(exact, io, softmax):
    attend = exact_attention if exact else approximate_attention
    cells = Cells.of([(4, 5), (2, 3), (1, 2)])
    source, target = random_qkv(len(cells.x)), random_qkv(len(cells.y), seed=1)
    by_token = [*source[:3], *target[3:]]
    by_cell = [cells.over_rows(s) for s in source[:3]] + [cells.over_columns(s) for s in target[3:]]
    for a, b in zip(attend(cells, *by_token, 0.4, io, softmax), attend(cells, *by_cell, 0.4, io, softmax), strict=True):
        torch.testing.assert_close(cells.over_rows(a), b, rtol=0, atol=1e-12)
    ctx_I, ctx_O = attend(cells, None, *by_cell[1:], 0.4, io, softmax)
    assert ctx_I.numel() == 0
    torch.testing.assert_close(ctx_O, attend(cells, *by_cell, 0.4, io, softmax)[1], rtol=0, atol=0)


def prefix_softmax(scores, v):
    """Contexts `[T, H, E]` and log-sum-exps `[T, H]` of a growing prefix in which each key brings one score `[T, H]`,
    whoever asks, and a value `[T, K, E]` (`eq:io-hadamard`): by a triangle of weights."""
    T, H = scores.shape
    triangle = scores.T[:, None].expand(H, T, T).masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    values = v.repeat_interleave(H // v.shape[1], 1).transpose(0, 1)
    return (triangle.softmax(-1) @ values).transpose(0, 1), triangle.logsumexp(-1).T


@pytest.mark.parametrize("heads", [(4, 2), (3, 3)])
def test_the_scan_and_its_gradients_equal_prefix_softmax_and_join(heads):
    cells = Cells.of([(3, 4), (1, 1), (6, 2)])
    for lines in (cells.rows, cells.columns):
        _, _, v, scores, _, _ = random_qkv(len(cells), *heads)
        scores = scores[..., 0].detach().requires_grad_()
        own = random_qkv(len(lines.start), *heads, seed=2)[0]
        own_lse = torch.randn(len(lines.start), heads[0], dtype=torch.float64, requires_grad=True)
        inputs = scores, v, own, own_lse
        fast = joint_scan(*inputs, lines)
        slow = torch.empty_like(fast)
        for line, (start, stride, length) in enumerate(zip(lines.start, lines.stride, lines.length, strict=True)):
            at = start + stride * torch.arange(int(length))
            slow[at] = step_attention.join(own[line], own_lse[line], *prefix_softmax(scores[at], v[at]), False)[0]
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
        weights = [torch.randn(fast.shape, dtype=torch.float64)]
        for a, b in zip(gradients([fast], weights, inputs), gradients([slow], weights, inputs), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_the_scan_survives_scores_that_overflow_a_plain_exponential():
    lines = Cells.of([(1, 4)]).rows
    scores = torch.tensor([[1000.0], [-1000.0], [0.0], [2000.0]], requires_grad=True)
    values = torch.arange(1.0, 5.0).view(4, 1, 1).requires_grad_()
    own = torch.full((1, 1, 1), 7.0), torch.full((1, 1), -2000.0)
    context = joint_scan(scores, values, *own, lines)
    assert context.flatten().tolist() == [1.0, 1.0, 1.0, 4.0]
    for gradient in torch.autograd.grad(context.sum(), (scores, values)):
        assert torch.isfinite(gradient).all()


def test_prefix_softmax_survives_scores_that_overflow_a_plain_exponential():
    scores = torch.tensor([1000.0, -1000.0, 0.0, 2000.0]).view(1, 4, 1, 1).requires_grad_()
    values = torch.arange(4.0).view(1, 4, 1, 1)
    context, lse = step_attention.prefix_softmax(scores, values)
    assert context.flatten().tolist() == [0.0, 0.0, 0.0, 3.0]
    assert lse.flatten().tolist() == [1000.0, 1000.0, 1000.0, 2000.0]
    (gradient,) = torch.autograd.grad(context.sum(), scores)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_are_not_rounded_to_half_precision_where_keys_have_a_large_bias(dtype):
    """Qwen2's keys have one, which all scores share: rounded, they would lose what tells them apart."""
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(16, heads, 64, generator=draw) for heads in (4, 2, 2))
    q[..., 0] += 50
    k[..., 0] += 50  # scores of some 300
    half = [part.to(dtype) for part in (q, k, v)]
    expected = causal_attention(*(part.double() for part in half), 0.125)
    with torch.autocast("cpu", dtype=dtype):
        context, lse = causal_attention(*half, 0.125)
    assert (context.double() - expected[0]).norm() < 0.005 * expected[0].norm()
    torch.testing.assert_close(lse.double(), expected[1], rtol=0, atol=1e-3)
