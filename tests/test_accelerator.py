"""Training and decoding on a stand-in for a GPU: nothing is left on the CPU, and little waited for."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.path_loss import path_losses
from duplexmt.analysis.alignment_heads import attended, brought_by
from duplexmt.analysis.sentence_grid import sentence_grid
from duplexmt.data.batch import Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.kernels import products
from duplexmt.policy.decoding_options import Adaptive, EmitRule
from duplexmt.policy.guide import guide
from duplexmt.streaming.events import collect
from duplexmt.streaming.systems import build_system
from duplexmt.training.module import GridTranslation
from duplexmt.training.optimizers import optimizer_of
from duplexmt.training.prefix_module import PrefixTranslation
from tests.accelerator import OnDevice, accelerator, moved
from tests.helpers import spoken_grid, tiny_grid, tiny_prefix, tiny_tokenizer, trained

ADAPTIVE = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
TOKENS = StreamTokens(end=0, seed=1)
SOURCES = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]


def taken_again(step, given, pools):
    """In the place of `graphs.record`: a replay computes anew."""
    given = given.clone()
    found = step(given)
    return given, lambda: found.copy_(step(given)), found


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setenv("DUPLEXMT_TRITON", "0")
    monkeypatch.setattr("duplexmt.decoder.graphs.record", taken_again)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**30))


def train(model, device, optimizer, sources=SOURCES, **options):
    """The losses of two steps on pairs of which the target repeats the source."""
    module = GridTranslation(model.train(), TOKENS, lam=0.1, learning_rate=1e-3, warmup_steps=0, **options)
    step = optimizer_of(optimizer, module, 1e-3, (0.9, 0.98))
    batch = collate([Example((*source, 0), (1, *source[1:], 0)) for source in sources]).to(device)
    losses = []
    for _ in range(2):
        loss, _ = module.losses(batch)
        losses.append(loss.total(loss.lm_weights, loss.emit_weights))
        losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(list(module.parameters()), 1.0)
        step.step()
        step.zero_grad()
    return losses


TRAININGS = pytest.mark.parametrize(
    ("options", "training"),
    [
        ({}, {"optimizer": "adam"}),
        ({"input_attends_output": False}, {"optimizer": "muon", "lm_cells": "visits", "emit_loss": "regret"}),
        ({"attention": "exact", "emit_hidden": 8}, {"optimizer": "adam"}),
        ({"softmax": "separate"}, {"optimizer": "adam"}),
        ({"attention": "exact", "input_attends_output": False}, {"optimizer": "adam"}),
        ({"attention": "exact", "input_attends_output": False}, {"optimizer": "adam", "rows": 2}),
        (
            {"attention": "exact", "input_attends_output": False},
            {"optimizer": "adam", "rows": 2, "lm_cells": "drawn_visits", "emit_loss": "regret"},
        ),
    ],
)


@TRAININGS
def test_a_training_step_waits_once_at_most_for_its_device_and_is_that_of_the_cpu(options, training):
    expected = train(tiny_grid(**options), "cpu", **training)
    with accelerator() as waits:
        losses = train(moved(tiny_grid(**options)), "cuda", **training)
        drawn = training.get("lm_cells") == "drawn_visits"  # one or two cells of each token
        assert waits == ({} if drawn else {"nonzero": 2})  # a step each: cells whose loss has a gradient
        # Muon makes the smallest directions of a gradient as large as the others, and with them their rounding.
        rtol = 5e-5 if training["optimizer"] == "muon" else 1e-5
        torch.testing.assert_close(
            [loss.item() for loss in losses], [loss.item() for loss in expected], rtol=rtol, atol=0
        )


class Copies(TorchDispatchMode):
    """Refuses, while a step is computed, copies between the CPU and the device, and shapes that hang on values."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "bincount", "repeat_interleave")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        values = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        assert name not in self.REFUSED, f"{name} waits for the device"
        masks = [one for one in values[1:] if one.dtype == torch.bool]
        assert not (name in ("index", "index_put_") and masks), f"{name} by a mask waits for the device"
        beside = [one for one in values if not isinstance(one, OnDevice) and one.dim()]
        assert not beside, f"{name}: a tensor of the CPU within the step, {[list(one.shape) for one in beside]}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "work",
    [
        lambda one: one.sum().item(), lambda one: one.nonzero(), lambda one: one[one > 0], lambda one: int(one[0]),
        lambda one: one + torch.ones(3), lambda one: one.masked_select(one > 0),
    ],
    ids=["item", "nonzero", "mask", "int", "of the CPU", "masked_select"],
)  # fmt: skip
def test_what_waits_is_refused_within_a_step(work):
    with accelerator():
        one = OnDevice(torch.arange(3.0))
        with pytest.raises((AssertionError, RuntimeError)), Copies():
            work(one)


DRAWN = {"emit_loss": "regret", "lm_cells": "drawn_visits"}
PLANNED = pytest.mark.parametrize(
    "training",
    [
        {"rows": 3, **DRAWN},
        {"rows": 2},
        {"rows": 3, **DRAWN, "rule": EmitRule(words=torch.arange(97) % 3 == 0)},
        {"emit_loss": "regret", "lm_cells": "visits"},
        {"k": 2},
        {"k": "multi"},
    ],
    ids=lambda training: " ".join(f"{name}={value}" for name, value in training.items() if name != "rule"),
)


def planned_step(training, device, move=lambda module: module):
    """What computes the loss of a step whose plan, tokens and weights are on a device already, and its module."""
    training = dict(training)
    k = training.pop("k", None)
    model = tiny_prefix(k) if k else tiny_grid(attention="exact", input_attends_output=False)
    made, given = (PrefixTranslation, {}) if k else (GridTranslation, {"lam": 0.1} | training)
    module = made(move(model).train(), TOKENS, learning_rate=1e-3, warmup_steps=0, **given)
    move(module)._trainer = SimpleNamespace(current_epoch=0)
    batch = collate([Example((*source, 0), (1, *source[1:], 0)) for source in SOURCES])
    batch = replace(batch, plan=module.planner(batch, 0, (256, 200))).to(device)

    def loss():
        if k:
            return module.lm_sum(batch) / module.scored(batch)
        sums, _ = module.losses(batch)
        return sums.total(sums.lm_weights, sums.emit_weights)

    return loss, module


@PLANNED
def test_nothing_of_a_planned_step_waits_for_the_host(training):
    """Plan, tokens and weights are on the device before; within the step nothing comes from the CPU or goes there."""
    results = []
    for device in ("cpu", "cuda"):
        with accelerator() if device == "cuda" else nullcontext() as waits:
            step, _ = planned_step(training, device, move=moved if device == "cuda" else lambda model: model)
            step()  # the first step may copy what stays
            before = dict(waits or {})
            with Copies() if device == "cuda" else nullcontext():
                loss = step()
                loss.backward()
            assert dict(waits or {}) == before
            results.append(loss.item())
    assert results[1] == pytest.approx(results[0], rel=1e-5)


class Operators(TorchDispatchMode):
    """Names of all that is dispatched, views left out."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("training", "most"), [({"rows": 3, **DRAWN}, 585), ({"k": 2}, 370)], ids=str)
def test_a_planned_step_dispatches_few_operators(training, most, monkeypatch):
    """Forward and backward pass of two layers, with PyTorch's own products whatever the processor."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
    step, _ = planned_step(training, "cpu")
    step()
    with Operators() as seen:
        step().backward()
    assert len(seen.names) < most


def decoded(build, options, system, setting, streams, move=lambda model: model):
    """The tokens of each source's translation."""
    loaded = trained(move(build(**options)), TOKENS)
    limits = {"max_target_tokens": 6, "batch_size": streams}
    running = build_system(loaded, system, setting, adaptive=ADAPTIVE, **limits)
    return [found.tokens for found in collect(running.translate(SOURCES), len(SOURCES))]


DECODINGS = pytest.mark.parametrize(
    ("build", "options", "system", "setting"),
    [
        (tiny_grid, {}, "grid", 0.5),
        (tiny_grid, {"input_attends_output": False}, "grid", 0.5),
        (tiny_grid, {"attention": "exact"}, "grid", 0.5),
        (tiny_grid, {"attention": "exact", "input_attends_output": False}, "grid", 0.5),
        (tiny_prefix, {"k": 2}, "waitk", 2),
        (tiny_prefix, {}, "local_agreement", 2),
        (tiny_prefix, {"k": "multi"}, "confidence", 0.4),
        (tiny_prefix, {"k": "multi"}, "lsg", 0.3),
        (tiny_prefix, {}, "lsg", 0.3),
        (tiny_prefix, {}, "alignatt", 1),
    ],
)


@DECODINGS
@pytest.mark.parametrize("streams", [1, 3])
def test_decoding_is_that_of_the_cpu(build, options, system, setting, streams):
    expected = decoded(build, options, system, setting, streams)
    with accelerator():
        assert decoded(build, options, system, setting, streams, move=moved) == expected


def looked_into(grid, prefix):
    """What the commands that look into models compute of a few pairs."""
    pairs = [(source, [*source[1:], 5]) for source in SOURCES]
    examples = [TOKENS.example(*pair) for pair in pairs]
    guided = guide(grid, TOKENS, collate(examples[:1]).to(grid.device), lam=0.1)
    heatmap = guided.heatmap.view(guided.cells.shapes[0])
    rows = [path_losses(trained(model, TOKENS), examples, [0.4]) for model in (grid, prefix)]
    drops, places = brought_by(prefix, TOKENS, *pairs[0])
    return (
        heatmap.tolist(),
        sentence_grid(trained(grid, TOKENS), tiny_tokenizer(), *pairs[0], lam=0.1).emit,
        [(row["AL"], row["loss"]) for row in chain(*rows)],
        [drops.tolist(), places.tolist(), attended(prefix, TOKENS, *pairs[0]).tolist()],
    )


def test_what_looks_into_a_model_finds_what_it_does_on_the_cpu():
    grid, prefix = spoken_grid(), tiny_prefix("multi")
    expected = looked_into(grid, prefix)
    with accelerator(), torch.no_grad():
        found = looked_into(moved(grid), moved(prefix))
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-4, atol=1e-5)


def flat(nested):
    """All numbers of nested lists and tuples."""
    return [number for part in nested for number in flat(part)] if isinstance(nested, list | tuple) else [nested]


def test_a_tensor_left_on_the_cpu_is_found():
    with accelerator():
        there = torch.ones(3, device="cuda")
        assert (there + torch.tensor(1.0)).tolist() == [2.0] * 3
        with pytest.raises(RuntimeError, match="meets a tensor on CUDA"):
            there + torch.ones(3)
