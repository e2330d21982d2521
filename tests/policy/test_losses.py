"""Heatmap and joint loss against the plain formulas."""

import torch
from torch.nn import functional as F

from duplexmt.policy.heatmap import cells_at_once, loss_heatmap, valid_cells
from duplexmt.policy.losses import grid_loss


def small_grid(dtype=torch.float64):
    draw = torch.Generator().manual_seed(3)
    hidden = torch.randn(2, 3, 4, 5, dtype=dtype, generator=draw, requires_grad=True)
    head = torch.nn.Linear(5, 11, dtype=dtype)
    labels = torch.randint(11, (2, 4), generator=draw)
    valid = valid_cells(torch.tensor([3, 2]), torch.tensor([2, 4]), 3, 4)
    return hidden, head, labels, valid


def test_valid_cells_are_the_rectangles_of_the_pairs():
    assert valid_cells(torch.tensor([1, 2]), torch.tensor([2, 1]), 2, 2).tolist() == [
        [[True, True], [False, False]],
        [[True, False], [True, False]],
    ]


def test_chunked_heatmap_and_its_gradients_equal_cross_entropy_over_full_logits():
    hidden, head, labels, valid = small_grid()
    full = F.cross_entropy(head(hidden).movedim(-1, 1), labels[:, None].expand(2, 3, 4), reduction="none") * valid
    weights = torch.rand(2, 3, 4, dtype=torch.float64)
    for chunk in (1, 3, 100):
        heatmap = loss_heatmap(hidden, head, labels, valid, chunk=chunk)
        torch.testing.assert_close(heatmap, full, rtol=0, atol=1e-12)
        inputs = [hidden, *head.parameters()]
        expected = torch.autograd.grad((full * weights).sum(), inputs, retain_graph=True)
        for a, b in zip(torch.autograd.grad((heatmap * weights).sum(), inputs), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_full_logits_of_all_cells_never_exist_at_once():
    hidden, head, labels, valid = small_grid()
    sizes = []

    def watched(states):
        sizes.append(len(states))
        return head(states)

    loss_heatmap(hidden, watched, labels, valid, chunk=5).sum().backward()
    assert max(sizes) == 5
    assert sum(sizes) == 2 * valid.sum()  # forward, and once more in the backward pass


def test_logits_of_a_chunk_fit_in_256_megabytes_whatever_the_vocabulary():
    assert cells_at_once(3_000) == 22_369
    assert cells_at_once(151_936) == 441
    assert cells_at_once(2**30) == 1


def test_padding_gets_no_loss_and_no_gradient():
    hidden, head, labels, valid = small_grid()
    poisoned = hidden.detach().clone()
    poisoned[~valid] = float("nan")
    poisoned.requires_grad_()
    heatmap = loss_heatmap(poisoned, head, labels, valid, chunk=100)
    mask = torch.ones_like(valid)
    logits = torch.nn.functional.linear(poisoned, torch.randn(2, 5, dtype=torch.float64))
    loss = grid_loss(heatmap, logits, mask, valid)
    loss.total(loss.emit_cells, loss.valid_cells).backward()
    assert torch.isfinite(heatmap).all()
    assert (poisoned.grad[~valid] == 0).all()
    assert (poisoned.grad[valid] != 0).any()


def test_joint_loss_equals_the_papers_means():
    hidden, head, labels, valid = small_grid()
    heatmap = loss_heatmap(hidden, head, labels, valid, chunk=100)
    decisions = torch.randn(2, 3, 4, 2, dtype=torch.float64)
    mask = torch.rand(2, 3, 4) < 0.5
    loss = grid_loss(heatmap, decisions, mask, valid)
    both = mask & valid
    expected_lm = heatmap[both].mean()  # eq:lm-loss
    log_p = decisions.log_softmax(-1)
    expected_emit = -torch.where(mask, log_p[..., 1], log_p[..., 0])[valid].mean()  # eq:emit-loss
    total = loss.total(loss.emit_cells, loss.valid_cells)
    torch.testing.assert_close(total, expected_lm + expected_emit)  # eq:total-loss
    agreement = ((decisions[..., 1] > decisions[..., 0]) == mask)[valid].sum()
    assert loss.correct == agreement
