"""Kernels that are wrong on purpose are found at their first use, and training goes on as if there were none."""

import logging
from types import SimpleNamespace

import pytest
import torch

from duplexmt import grid, policy
from duplexmt.grid.scan import KERNEL as SCAN
from duplexmt.grid.scan import naive_hadamard_attention
from duplexmt.kernels import triton_use as kernels
from duplexmt.policy.heatmap import KERNELS as SOFTMAX
from duplexmt.policy.heatmap import naive_gradients_of_logits_, naive_losses_of_logits
from duplexmt.policy.recurrence import KERNEL as PATH
from duplexmt.policy.recurrence import naive_running_best
from tests.accelerator import accelerator, moved
from tests.helpers import tiny_grid

from .one_step import losses


class Scaled(torch.autograd.Function):
    """Its argument, whose gradient is a wrong one."""

    @staticmethod
    def forward(ctx, states, factor):
        ctx.factor = factor
        return states.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None


class Stand:
    """In place of each module of kernels: the naive twins, with a fault."""

    def __init__(self, fault):
        self.fault, self.calls = fault, 0

    def spoilt(self, tensor):
        self.calls += 1
        if self.fault == "exception":
            raise OSError("no such driver")
        return tensor * {"values": 1.05, "nan": float("nan")}.get(self.fault, 1)

    def hadamard_attention(self, q, *others):
        out = self.spoilt(naive_hadamard_attention(q, *others))
        return Scaled.apply(out, 1.05) if self.fault == "gradients" else out

    def losses_of_logits(self, logits, labels):
        found, log_totals = naive_losses_of_logits(logits, labels)
        return self.spoilt(found), log_totals

    def gradients_of_logits_(self, logits, *others):
        found = naive_gradients_of_logits_(logits, *others)
        return found.mul_(1.05) if self.fault == "gradients" else found

    def running_best(self, gains, block):
        return self.spoilt(naive_running_best(gains))


@pytest.fixture
def a_gpu_with_triton(monkeypatch, caplog, no_verdicts):
    """As far as it is asked for; nothing proven nor refused yet. The kernels put in are those of `Stand`."""
    monkeypatch.delenv("DUPLEXMT_TRITON", raising=False)
    monkeypatch.setattr(kernels, "triton_runs", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**30))
    caplog.set_level(logging.WARNING, logger="duplexmt")

    def put_in(wrong=None, fault=None):
        places = {SCAN: (grid, "scan_triton"), SOFTMAX: (policy, "softmax_triton"), PATH: (policy, "recurrence_triton")}
        stands = {name: Stand(fault if name == wrong else None) for name in places}
        for name, (home, module) in places.items():
            monkeypatch.setattr(home, module, stands[name], raising=False)
        return stands

    return put_in


def test_right_kernels_are_used_and_nothing_is_said(a_gpu_with_triton, caplog):
    expected = losses(tiny_grid(), "cpu")
    stands = a_gpu_with_triton()
    with accelerator():
        for _ in range(2):
            assert losses(moved(tiny_grid()), "cuda")[0] == pytest.approx(expected[0], rel=1e-6)
    assert caplog.messages == []
    assert kernels.refused == set()
    assert all(stand.calls > 2 for stand in stands.values())


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [(SCAN, "gradients"), (SCAN, "exception"), (SOFTMAX, "nan"), (SOFTMAX, "gradients"), (PATH, "values")],
)
def test_a_wrong_kernel_is_found_at_once_said_once_and_left_out(a_gpu_with_triton, caplog, wrong, fault):
    expected = losses(tiny_grid(), "cpu")
    stands = a_gpu_with_triton(wrong, fault)
    before = torch.get_rng_state()
    with accelerator():
        for _ in range(2):
            model = moved(tiny_grid())
            torch.set_rng_state(before)
            found = losses(model, "cuda")
            assert found[0] == pytest.approx(expected[0], rel=1e-6)
            for one, other in zip(found[1:], expected[1:], strict=True):
                torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-6)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{wrong}: {'OSError: no such driver' if fault == 'exception' else 'result '}")
    assert caplog.messages[0].endswith("PyTorch's own operations are used instead, which are slower")
    assert kernels.refused == {wrong}
    for name, stand in stands.items():
        assert stand.calls <= 2 if name == wrong else stand.calls > 2  # the trial: rows and columns


def test_a_kernel_is_tried_again_only_in_another_form(a_gpu_with_triton):
    tried = []

    def trial(name, form, factor):
        def fast(x):
            tried.append(form)
            return (factor * x,)

        return kernels.proves_itself(
            name, form, torch.device("cpu"), lambda draw: [torch.randn(3, generator=draw)], fast, lambda x: (x,)
        )

    assert trial("a kernel", 1, 1)
    assert trial("a kernel", 1, 1)
    assert tried == [1]
    assert not trial("a kernel", 2, 1.1)
    assert not trial("a kernel", 1, 1)  # what is wrong in one form is left out in all
    assert trial("another", 1, 1)
    assert tried == [1, 2, 1]


def test_a_trial_touches_nothing_around_it(a_gpu_with_triton):
    saved, seen = [], SimpleNamespace()

    def results(x):
        seen.gradients, seen.autocast = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        seen.inference = torch.is_inference_mode_enabled()
        return kernels.with_gradients(torch.exp, [x], torch.ones_like(x))

    before = torch.get_rng_state()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x)
    with hooks, torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        device = torch.device("cpu")
        assert kernels.proves_itself("exp", 1, device, lambda draw: [torch.randn(5, generator=draw)], results, results)
    assert saved == []
    assert torch.equal(torch.get_rng_state(), before)
    assert seen == SimpleNamespace(gradients=True, autocast=False, inference=False)
