"""Optimisers of a run: which weights go to which, and that several step as each would alone."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.training import optimizers
from duplexmt.training.muon import Muon
from duplexmt.training.optimizers import Scaler, Together, optimizer_of
from tests.helpers import spoken_grid, tiny_prefix
from tests.training.small_run import small_module


def test_adam_in_one_pass_on_a_cpu_steps_as_the_plain_one():
    module = small_module()
    twin = deepcopy(module)
    optimizer = optimizer_of("adam", module, 0.1, (0.8, 0.9))
    plain = Adam(twin.parameters(), 0.1, (0.8, 0.9), foreach=False)
    assert optimizer.param_groups[0]["fused"]
    assert not optimizer.param_groups[0]["foreach"]
    for seed in range(3):
        for weights, own in ((module.parameters(), optimizer), (twin.parameters(), plain)):
            gradients(weights, seed)
            own.step()
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_muon_has_the_matrices_of_the_layers_and_adam_all_else():
    model = spoken_grid()
    groups = optimizer_of("muon", model, 0.1, (0.8, 0.9)).param_groups
    names = {id(w): name for name, w in model.named_parameters()}
    of = [{names[id(w)] for w in group["params"]} for group in groups]
    layers = {name for name in names.values() if ".layers." in name}
    assert of[0] == {name for name in layers if name.endswith("proj.weight")}
    assert of[1] == set(names.values()) - of[0]
    assert any("embed_tokens" in name for name in of[1])


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_the_emit_head_may_have_a_learning_rate_of_its_own(name):
    model = spoken_grid(emit_hidden=6)
    optimizer = optimizer_of(name, model, 0.1, (0.8, 0.9), emit_learning_rate=0.01)
    names = {id(w): name for name, w in model.named_parameters()}
    rates = {names[id(w)]: group["lr"] for group in optimizer.param_groups for w in group["params"]}
    assert set(rates) == set(names.values())
    assert {name for name, rate in rates.items() if rate == 0.01} == {n for n in rates if n.startswith("emit_head.")}
    assert len([name for name, rate in rates.items() if rate == 0.01]) == 4
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    gradients(model.parameters(), 0)
    optimizer.step()
    assert all(not torch.equal(before[name], w) for name, w in model.named_parameters())


def test_a_baseline_has_no_emit_head_to_learn_at_another_rate():
    optimizer = optimizer_of("adam", tiny_prefix(), 0.1, (0.8, 0.9), emit_learning_rate=0.01)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]


def gradients(weights, seed):
    torch.manual_seed(seed)
    for weight in weights:
        weight.grad = torch.randn_like(weight)


def test_together_they_step_as_each_alone_before_and_after_a_checkpoint():
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(4, 3)) for _ in range(4)]
    twins = deepcopy(weights)

    def parts(weights):
        return Muon(weights[:2], lr=0.1), Adam(weights[2:], lr=0.1)

    def halved(optimizer):
        return LambdaLR(optimizer, lambda step: 0.5**step)

    together, alone = Together(*parts(weights)), parts(twins)
    schedules = [halved(together), *map(halved, alone)]
    for step in range(4):
        if step == 2:  # as a resumed run does
            state = deepcopy(together.state_dict())
            together = Together(*parts(weights))
            schedules[0] = halved(together)
            together.load_state_dict(state)
            schedules[0].last_epoch = 2
        gradients(weights, step)
        gradients(twins, step)
        for optimizer in (together, *alone):
            optimizer.step()
        for schedule in schedules:
            schedule.step()
        assert all(map(torch.equal, weights, twins)), step


class NoWaits(TorchDispatchMode):
    """Refuses to read a number back."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_in_fp16_nobody_waits_to_be_told_whether_a_step_is_skipped(monkeypatch, name):
    """A gradient scaler on the CPU, whose optimisers are taken to be on CUDA; the second step overflows."""
    found = []
    for ours in (False, True):
        monkeypatch.setattr(optimizers, "skips_itself", lambda _, ours=ours: ours)
        module = small_module(spoken_grid(seed=5))
        optimizer, scaler = optimizer_of(name, module, 0.1, (0.8, 0.9)), Scaler("cpu", init_scale=4.0)
        for seed in range(4):
            scaler.scale(torch.ones(()))
            gradients(module.parameters(), seed)
            if seed == 1:
                next(module.parameters()).grad[0] = float("inf")
            before = [weight.detach().clone() for weight in module.parameters()]
            scaler.unscale_(optimizer)
            assert not optimizer._step_supports_amp_scaling if seed else True
            with NoWaits() if ours and seed else nullcontext():
                scaler.step(optimizer)
                scaler.update()
            same = map(torch.equal, before, module.parameters())
            assert all(same) if seed == 1 else not any(same)
        assert scaler.get_scale() == 2.0
        found.append(list(module.parameters()))
    for plain, own in zip(*found, strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-6, atol=1e-7)
