"""The Triton kernels against their plain twins on the CPU, by Triton's interpreter; and what becomes of wrong ones.

TRITON_INTERPRET=1 python -m tests.kernels.interpreted

It prints, for each of `WRONG`, the warnings of steps of training and the kernels that have proved themselves.
"""

import json
import logging

import torch
from torch.nn import functional as F

from duplexmt.grid import scan, scan_triton
from duplexmt.grid.cells import Cells
from duplexmt.kernels import triton_use
from duplexmt.policy import heatmap, recurrence, recurrence_triton, softmax_triton
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import visit_shares
from tests.helpers import best_path, tiny_backbone, tiny_grid

from .one_step import losses

# Modules and kernels, and which of their results is spoilt: none (-1), or there is an exception (None).
WRONG = [
    ("scan", "_walk", -1),
    ("scan", "_walk_back", 12),  # gradients of keys
    ("softmax", "_gradient", None),
    ("path", "_steps", 1),
]
HOMES = {"scan": scan_triton, "softmax": softmax_triton, "path": recurrence_triton}


def check_scan():
    """Contexts and gradients, also of lists that are filled up with lines that have no cells."""
    for dtype, tolerance, (H, K, E), filled in (
        (torch.float64, 1e-11, (4, 2, 6), True), (torch.float64, 1e-11, (7, 1, 5), False),
        (torch.float32, 1e-4, (3, 3, 8), False),
    ):  # fmt: skip
        cells = Cells.of([(2, 3), (1, 1), (3, 2)])
        cells = cells.filled(9, len(cells) + 3) if filled else cells
        for lines, own in ((cells.rows, True), (cells.columns, False)):
            draw, N, L = torch.Generator().manual_seed(H), len(cells), len(lines.start)
            sizes = (N, H, E), (N, K, E), (N, K, E), (L, H, E), (L, H)
            q, k, v, ctx, lse = (torch.randn(*size, dtype=dtype, generator=draw) for size in sizes)
            if not own:
                ctx, lse = ctx * 0, torch.full_like(lse, float("-inf"))
            inputs = [part.requires_grad_() for part in (q, k, v, ctx, lse)]
            weights, found = torch.randn(N, H, E, dtype=dtype, generator=draw), []
            for module in (scan_triton, scan):
                contexts = module.hadamard_attention(q, k, v, 0.4, ctx, lse, lines)
                found.append([contexts, *torch.autograd.grad((contexts * weights).sum(), inputs)])
            for fast, slow in zip(*found, strict=True):
                torch.testing.assert_close(fast, slow, rtol=0, atol=tolerance)


def check_softmax():
    """Over the vocabulary, against the formula; then the whole loss."""
    types = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 0.01, torch.float16: 0.001}
    softmax_triton.BLOCK = 8
    for dtype, tolerance in types.items():
        for rows, columns in ((0, 9), (3, 8), (2, 9), (3, 33)) if dtype == torch.float64 else ((3, 33),):
            draw = torch.Generator().manual_seed(rows)
            logits = (5 * torch.randn(rows, columns, dtype=torch.float64, generator=draw)).to(dtype)
            if columns > 8:
                logits[0:1, :8] = float("-inf")  # a whole block
                logits[1:2, 3] = 80.0
            labels = torch.arange(rows) * 8 % columns
            d_losses = torch.randn(rows, 1, dtype=torch.promote_types(dtype, torch.float32), generator=draw)
            precise = logits.double().requires_grad_()
            expected = F.cross_entropy(precise, labels, reduction="none")
            (d_expected,) = torch.autograd.grad(expected, precise, d_losses.double().squeeze(1))
            log_totals = softmax_triton.log_sum_exp(logits)
            assert log_totals.dtype == torch.promote_types(dtype, torch.float32)
            exact = 1e-14 if dtype == torch.float64 else 2e-6
            torch.testing.assert_close(log_totals.double(), precise.logsumexp(1, keepdim=True), rtol=exact, atol=exact)
            finite = logits.isfinite().all(1) | (labels > 7)
            softmax_triton.gradient_(logits, log_totals, labels, d_losses)
            torch.testing.assert_close(logits.double()[finite], d_expected[finite], rtol=tolerance, atol=tolerance)
    softmax_triton.BLOCK = 16
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*size, generator=draw, requires_grad=True) for size in ((7, 5), (19, 5), (19,))]
    outcomes = []
    for asked in (False, True):
        heatmap.use_triton = lambda states, asked=asked: asked
        for chunk in (3, 100):
            found = heatmap.loss_heatmap(*inputs, torch.arange(7) * 2, chunk)
            outcomes.append((found, *torch.autograd.grad(found, inputs, torch.tensor([1.0, 0, 2, 0, -1, 1, 0]))))
    for one in outcomes[1:]:
        torch.testing.assert_close(one, outcomes[0], rtol=1e-5, atol=1e-6)


def check_recurrence():
    """Step by step; then path, worth and visits."""
    for (S, N, W), dtype in (
        ((1, 1, 1), torch.float32), ((3, 2, 7), torch.float64), ((2, 1, 64), torch.float32),
        ((2, 1, 70), torch.float32), ((2, 0, 3), torch.float32),
    ):  # fmt: skip
        gains = torch.randn(S, N, W, generator=torch.Generator().manual_seed(W)).to(dtype)
        gains[gains < -1] = float("-inf")
        found = recurrence_triton.running_best(gains, recurrence.block_of(W))
        assert torch.equal(found, recurrence.naive_running_best(gains))
    draw = torch.Generator().manual_seed(1)
    losses, p_emit = (torch.rand(2, 4, 3, generator=draw).mul(16).round() / 16 for _ in range(2))
    lengths, outcomes = (torch.tensor([4, 1]), torch.tensor([2, 3])), []
    for asked in (False, True):
        recurrence.use_triton = lambda gains, asked=asked: asked
        outcomes.append([
            best_path(losses, *lengths, 0.125), emit_advantages(losses, *lengths, 0.1),
            visit_shares(p_emit, *lengths, thetas=[0.25, 0.5]),
        ])  # fmt: skip
    assert all(map(torch.equal, *outcomes))


class Spoilt:
    """A kernel of which one result is wrong, or that fails."""

    def __init__(self, kernel, position):
        self.kernel, self.position = kernel, position

    def __getitem__(self, launch_grid):
        def launch(*given, **constants):
            if self.position is None:
                raise RuntimeError("out of resource: shared memory")
            self.kernel[launch_grid](*given, **constants)
            given[self.position].mul_(1.05)

        return launch


def told_of_wrong_kernels():
    """What is said of each of `WRONG`, and what has proved itself; each step is as without Triton."""
    asked, messages, told = False, [], []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("duplexmt").addHandler(handler)
    scan.use_triton = heatmap.use_triton = recurrence.use_triton = lambda states: asked

    def step(recompute, layers):
        model = tiny_grid(tiny_backbone("qwen3", vocab_size=16, layers=layers, num_attention_heads=2)).double()
        model.recompute(recompute)
        return losses(model, "cpu")

    expected, asked = {layers: step("nothing", layers) for layers in (1, 2)}, True
    for module, kernel, position in WRONG:
        triton_use.proven.clear()
        triton_use.refused.clear()
        messages.clear()
        right = getattr(HOMES[module], kernel)
        setattr(HOMES[module], kernel, right if position == -1 else Spoilt(right, position))
        # The trial is within a checkpoint. What is wrong shows in one layer; with others only right kernels go on.
        for recompute, layers in (("elementwise", 2), ("nothing", 2)) if position == -1 else (("layers", 1),):
            for one, other in zip(step(recompute, layers), expected[layers], strict=True):
                torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-6, atol=1e-9)
        proven = sorted({name for name, *_ in triton_use.proven})
        told.append([[module, position], [[*messages], proven]])
        setattr(HOMES[module], kernel, right)
    return told


if __name__ == "__main__":
    check_scan()
    check_softmax()
    check_recurrence()
    print(json.dumps(told_of_wrong_kernels()))
