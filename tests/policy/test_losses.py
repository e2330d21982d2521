"""Heatmap and joint loss against the plain formulas."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from duplexmt.kernels import triton_use as kernels
from duplexmt.policy import heatmap
from duplexmt.policy.heatmap import cells_at_once, loss_heatmap, use_fused
from duplexmt.policy.losses import grid_loss


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


@pytest.mark.parametrize("cells", [1, 7, 24, 100])
@pytest.mark.parametrize("summed", [1, 3, 100])
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


def test_of_however_many_entries_hundreds_of_cells_are_multiplied_at_a_time(monkeypatch):
    """A vocabulary of which one cell has more logits than are to be reused or summed."""
    hidden, head, labels = torch.randn(600, 8, requires_grad=True), torch.nn.Linear(8, 30), torch.arange(600) % 30
    for name in ("REUSED", "SUMMED"):
        monkeypatch.setattr(f"duplexmt.policy.heatmap.{name}", 1)
    sizes = []
    for name in ("times", "weight_gradient"):
        product = getattr(heatmap, name)
        watched = lambda a, *rest, of=product: (sizes.append(len(a)), of(a, *rest))[1]  # noqa: E731
        monkeypatch.setattr(heatmap, name, watched)
    loss_heatmap(hidden, head.weight, head.bias, labels, 1000).sum().backward()
    assert len(sizes) == 3 * 3, "logits (kept), gradients of the states and of the weight"
    assert set(sizes) <= {200, 208}, "where oneDNN computes them, to a multiple of 16"


def test_a_fused_kernel_gives_the_losses_and_the_gradients_stay_ours(monkeypatch):
    hidden, head, labels = small_cells(torch.float32, bias=False)

    def linear_cross_entropy(states, weight, targets, reduction):
        assert states.is_contiguous()
        assert weight.is_contiguous()
        return F.cross_entropy(states @ weight.T, targets, reduction=reduction)

    package = SimpleNamespace(linear_cross_entropy=linear_cross_entropy)  # its kernels need a GPU
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", package)
    monkeypatch.setattr("duplexmt.policy.heatmap.use_fused", lambda states, bias: bias is None)
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    fused = loss_heatmap(hidden, head.weight, None, labels, 7)
    torch.testing.assert_close(fused, full, rtol=0, atol=1e-6)
    mask, inputs = torch.arange(24) % 3 == 0, [hidden, head.weight]
    expected = torch.autograd.grad(full[mask].sum(), inputs)
    for a, b in zip(torch.autograd.grad(fused[mask].sum(), inputs), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fault", ["values", "exception"])
def test_a_fused_kernel_that_is_wrong_is_left_out_and_said_once(monkeypatch, caplog, fault):
    hidden, head, labels = small_cells(torch.float32, bias=False)

    def linear_cross_entropy(states, weight, targets, reduction):
        if fault == "exception":
            raise RuntimeError("no kernel image")
        return 1.01 * F.cross_entropy(states @ weight.T, targets, reduction=reduction)

    monkeypatch.setitem(sys.modules, "cut_cross_entropy", SimpleNamespace(linear_cross_entropy=linear_cross_entropy))
    monkeypatch.setattr("duplexmt.policy.heatmap.use_fused", lambda states, bias: bias is None)
    monkeypatch.setattr(kernels, "refused", set())
    monkeypatch.setattr(kernels, "proven", set())
    full = F.cross_entropy(head(hidden), labels, reduction="none")
    for _ in range(2):
        torch.testing.assert_close(loss_heatmap(hidden, head.weight, None, labels, 7), full, rtol=0, atol=1e-6)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("Apple's cut-cross-entropy: ")


def test_a_fused_kernel_is_for_a_gpu_with_the_package():
    hidden, _, _ = small_cells()
    assert not use_fused(hidden, None)


def test_nothing_is_kept_where_there_is_no_backward_pass():
    hidden, head, labels = small_cells()
    with torch.no_grad():
        assert not loss_heatmap(hidden, head.weight, head.bias, labels, 100).requires_grad
    frozen = loss_heatmap(hidden.detach(), head.weight.detach(), None, labels, 100)
    assert frozen.grad_fn is None


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


def test_logits_of_a_chunk_fit_in_256_megabytes_whatever_the_vocabulary():
    assert cells_at_once(3_000) == 22_369
    assert cells_at_once(151_936) == 441
    assert cells_at_once(151_936, on_gpu=True) == 1_766
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
