"""Heatmap and joint loss against the plain formulas."""

import pytest
import torch
from torch.nn import functional as F

from duplexmt.policy import heatmap
from duplexmt.policy.heatmap import cells_at_once, loss_heatmap
from duplexmt.policy.losses import grid_loss
from tests.accelerator import accelerator


def small_cells(dtype=torch.float64, bias=True):
    draw = torch.Generator().manual_seed(3)
    hidden = torch.randn(24, 5, dtype=dtype, generator=draw, requires_grad=True)
    head = torch.nn.Linear(5, 11, dtype=dtype, bias=bias)
    return hidden, head, torch.randint(11, (24,), generator=draw)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 24, 100])
def test_chunked_heatmap_and_its_gradients_equal_cross_entropy_over_full_logits(chunk, bias):
    hidden, head, labels = small_cells(bias=bias)
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    losses = loss_heatmap(hidden, head.weight, head.bias, labels, chunk)
    torch.testing.assert_close(losses, full, rtol=0, atol=1e-12)
    inputs = [hidden, *head.parameters()]
    for weights in (torch.rand(24, dtype=torch.float64), torch.rand(24).round().double(), torch.zeros(24).double()):
        expected = torch.autograd.grad((full * weights).sum(), inputs, retain_graph=True)
        got = torch.autograd.grad((losses * weights).sum(), inputs, retain_graph=True)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_frozen_head_gets_no_gradient():
    hidden, head, labels = small_cells()
    head.requires_grad_(False)
    loss_heatmap(hidden, head.weight, head.bias, labels, 5).sum().backward()
    assert head.weight.grad is None
    assert head.bias.grad is None
    assert (hidden.grad != 0).any()


@pytest.mark.parametrize("chunk", [5, 100])
def test_logits_exist_for_a_chunk_at_a_time_and_backwards_for_masked_cells_only(chunk, monkeypatch):
    hidden, head, labels = small_cells()
    sizes = []

    def watched(states, weight, *bias):
        if weight.shape == head.weight.shape:
            sizes.append(len(states))
        return F.linear(states, weight, *bias)

    monkeypatch.setattr("duplexmt.policy.heatmap.times", watched)
    mask = torch.arange(24) % 3 == 0
    loss_heatmap(hidden, head.weight, head.bias, labels, chunk)[mask].sum().backward()
    # 24 cells forward; of the 8 masked ones again where the logits were not kept.
    assert sizes == ([5, 5, 5, 5, 4, 4, 4] if chunk == 5 else [24])


@pytest.mark.parametrize(("cells", "summed"), [(1, 100), (7, 3), (100, 1)])
def test_kept_logits_may_lie_in_several_tensors_and_several_be_multiplied_at_a_time(cells, summed, monkeypatch):
    hidden, head, labels = small_cells()
    monkeypatch.setattr("duplexmt.policy.heatmap.FEWEST", 1)
    monkeypatch.setattr("duplexmt.policy.heatmap.REUSED", cells * len(head.weight))
    monkeypatch.setattr("duplexmt.policy.heatmap.SUMMED", summed * len(head.weight))
    inputs, mask = [hidden, head.weight, head.bias], torch.arange(24) % 5 == 0
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    pieces = loss_heatmap(*inputs, labels, 100)
    torch.testing.assert_close(pieces, full, rtol=0, atol=1e-12)
    expected = torch.autograd.grad(full[mask].sum(), inputs)
    for a, b in zip(torch.autograd.grad(pieces[mask].sum(), inputs), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("chunk", "learnt", "waited"), [(5, None, {"nonzero": 1}), (100, 24, {}), (5, 30, {}), (100, 8, {}), (5, 8, {})]
)
def test_where_it_is_known_how_many_are_learnt_a_gpu_is_not_waited_for(monkeypatch, chunk, learnt, waited):
    monkeypatch.setenv("DUPLEXMT_TRITON", "0")
    hidden, head, labels = small_cells()
    weights = (torch.arange(24) % 3 == 0).double() * torch.rand(24, dtype=torch.float64)
    inputs = [hidden, head.weight, head.bias]
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    expected = torch.autograd.grad((full * weights).sum(), inputs)
    with accelerator() as waits:
        there = [part.detach().to("cuda", non_blocking=True).requires_grad_() for part in inputs]
        at, upstream = (part.to("cuda", non_blocking=True) for part in (labels, weights))
        losses = loss_heatmap(*there, at, chunk, learnt)
        found = torch.autograd.grad(losses, there, upstream)
        assert waits == waited
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(one.tolist(), dtype=torch.float64), other, rtol=0, atol=1e-12)


def test_under_autocast_products_are_in_half_precision_and_losses_in_float32():
    hidden, head, labels = small_cells(torch.float32)
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        heatmap = loss_heatmap(hidden, head.weight, head.bias, labels, 7)
    assert heatmap.dtype == torch.float32
    assert 0 < (heatmap - full).abs().max() < 0.05
    inputs = [hidden, head.weight, head.bias]
    expected = torch.autograd.grad(full.sum(), inputs)
    for a, b in zip(torch.autograd.grad(heatmap.sum(), inputs), expected, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).square().mean().sqrt() < 0.02 * b.square().mean().sqrt()


def test_logits_of_a_chunk_fit_in_256_megabytes_whatever_the_vocabulary(monkeypatch):
    assert cells_at_once(3_000) == 22_369
    assert cells_at_once(151_936) == 441
    for memory, cells in ((2**34, 1_766), (80 * 2**30, 8_833)):
        monkeypatch.setattr(heatmap, "memory_of", lambda device, memory=memory: memory)
        assert cells_at_once(151_936, torch.device("cuda")) == cells
    assert cells_at_once(2**30) == 1


def test_autocast_leaves_sums_in_float32_as_half_precision_cannot_hold_them():
    draw = torch.Generator().manual_seed(3)
    heatmap, weights = 10 * torch.rand(9000, generator=draw), 5 * torch.rand(9000, generator=draw)
    logits, advantages = torch.randn(9000, 2, generator=draw), 40 * torch.randn(9000, generator=draw)
    inputs = heatmap, logits, heatmap < 5, advantages, weights
    expected = grid_loss(*inputs)
    assert min(expected.emit_sum, expected.lm_sum) > torch.finfo(torch.float16).max
    with torch.autocast("cpu", dtype=torch.float16):
        got = grid_loss(*inputs)
    torch.testing.assert_close((got.lm_sum, got.emit_sum), (expected.lm_sum, expected.emit_sum), rtol=1e-5, atol=0)


def test_joint_loss_equals_the_papers_means():
    heatmap = torch.rand(24, dtype=torch.float64)
    decisions = torch.randn(24, 2, dtype=torch.float64)
    mask = torch.arange(24) % 5 < 3
    loss = grid_loss(heatmap, decisions, mask)
    expected_lm = heatmap[mask].mean()  # eq:lm-loss
    log_p = decisions.log_softmax(-1)
    expected_emit = -torch.where(mask, log_p[:, 1], log_p[:, 0]).mean()  # eq:emit-loss
    total = loss.total(loss.lm_weights, loss.emit_weights)
    torch.testing.assert_close(total, expected_lm + expected_emit)  # eq:total-loss
    assert loss.correct == ((decisions[:, 1] > decisions[:, 0]) == mask).sum()
    assert (loss.lm_weights, loss.valid_cells) == (mask.sum(), 24)


def test_weighted_cells_count_by_their_weights_whatever_the_mask():
    heatmap = torch.tensor([1.0, 2.0, float("inf")], dtype=torch.float64)
    decisions, mask = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([False, True, True])
    loss = grid_loss(heatmap, decisions, mask, cell_weights=torch.tensor([0.5, 0.25, 0.0]))
    assert (loss.lm_sum / loss.lm_weights).item() == pytest.approx((0.5 * 1 + 0.25 * 2) / 0.75)
    assert loss.emit_weights == 3, "decisions count as before"


def test_weighted_decisions_count_by_what_they_are_worth():
    heatmap = torch.rand(3, dtype=torch.float64)
    decisions = torch.randn(3, 2, dtype=torch.float64)
    mask = torch.tensor([True, True, False])
    loss = grid_loss(heatmap, decisions, mask, torch.tensor([2.0, -6.0, 0.0], dtype=torch.float64))
    log_p = decisions.log_softmax(-1)
    expected = -(2 * log_p[0, 1] + 6 * log_p[1, 0]) / 8  # WAIT is better in cell 1, whatever the mask; cell 2 is even
    torch.testing.assert_close(loss.total(loss.lm_weights, loss.emit_weights), heatmap[mask].mean() + expected)


@pytest.mark.parametrize(("emit_weight", "loss_scale"), [(1.0, 1.0), (100.0, 2.0**24)])
def test_without_any_choice_to_make_decisions_count_nothing_and_have_no_gradient(emit_weight, loss_scale):
    heatmap, mask = torch.rand(3), torch.tensor([True, True, False])
    decisions = torch.randn(3, 2, requires_grad=True)
    loss = grid_loss(heatmap, decisions, mask, torch.zeros(3))
    total = loss.total(loss.lm_weights, loss.emit_weights, emit_weight)
    torch.testing.assert_close(total, heatmap[mask].mean())
    (total * loss_scale).backward()
    assert (decisions.grad == 0).all()
