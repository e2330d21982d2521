"""Training on packed lists of a constant length: the losses and gradients of batches as they come."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.decoder import attention, flex
from duplexmt.decoder.blocks import whole_block
from duplexmt.grid.cells import Cells
from duplexmt.kernels import triton_use
from duplexmt.policy.plan import SPARE
from duplexmt.training.base import COMPILED, far_apart
from tests.helpers import spoken_grid, tiny_prefix, tiny_tokenizer

from .small_run import assert_same, built_trainer, small_data, small_module, small_prefix_module

PREFIXES = {"source_prefix": "老师", "target_prefix": "The"}
WEIGHED = {"emit_loss": "regret", "lm_cells": "drawn_visits"}


def in_second_epoch(module, prefixes):
    if prefixes:
        module.tokens = stream_tokens(tiny_tokenizer(), **PREFIXES)
    module._trainer = SimpleNamespace(current_epoch=1)
    return module


def grid_module(prefixes=False, options=None, **values):
    """Of the paper's grid."""
    return in_second_epoch(small_module(spoken_grid(seed=5, **options or {}).double(), **values), prefixes)


row_module = partial(grid_module, options={"attention": "exact", "input_attends_output": False})


def prefix_module(k, prefixes=False):
    return in_second_epoch(small_prefix_module(k=k), prefixes)


def total(module, batch):
    """A batch's loss."""
    if hasattr(module, "lm_sum"):
        return module.lm_sum(batch, 1)
    loss, _ = module.losses(batch)
    assert loss.valid_cells > loss.correct > 0
    return loss.total(loss.lm_weights, loss.emit_weights)


def with_gradients(module, batch):
    module.zero_grad()
    loss = total(module, batch)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in module.named_parameters()}


def examples_of(module):
    """Pairs with what the module's tokens put before them."""
    return [module.tokens.example(e.source[:-1], e.target[1:-1]) for e in small_data(12).examples("train")]


def filled(module, batch, more=40, size=None):
    """The batch with a plan of the next multiple of 128 tokens, or of the size given."""
    sizes = [module.planner.size(pair, 1) for pair in examples_of(module)]
    tokens, wanted = map(sum, zip(*sizes, strict=True))
    plan = module.planner(batch, 1, size or (-(-(tokens + more) // 128) * 128, wanted + more // 2))
    if isinstance(plan.layout, Cells):
        assert int(plan.real.sum()) == sum(X * Y for X, Y in plan.cells.shapes)
        assert len(plan.layout) == len(plan.labels) > tokens
        return replace(batch, plan=plan)
    assert (len(plan.layout.pair), len(plan.labels)) == (len(plan.tokens), len(plan.layout.targets))
    assert int((plan.layout.pair >= 0).sum()) == tokens
    assert int(plan.real.sum()) == wanted
    return replace(batch, plan=plan)


@pytest.mark.parametrize(
    "made",
    [
        lambda: row_module(True, rows=3, **WEIGHED),
        lambda: row_module(rows=3),
        lambda: row_module(True, emit_loss="regret", lm_cells="visits"),
        lambda: prefix_module("multi", True),
        lambda: prefix_module(None),
        lambda: grid_module(),
        lambda: grid_module(True, **WEIGHED),
        lambda: grid_module(True, {"input_attends_output": False, "softmax": "separate"}, lm_cells="visits"),
        lambda: grid_module(True, {"anchor": "visible_length"}),
    ],
    ids=[
        "drawn words", "rows", "visits", "multi-path", "offline", "paper", "paper's drawn words", "I←O off",
        "visible length",
    ],
)  # fmt: skip
def test_a_packed_batch_has_the_loss_and_gradients_of_the_pairs_alone(made):
    module = made()
    batch = collate(examples_of(module))
    plain, packed = with_gradients(module, batch), with_gradients(module, filled(module, batch))
    torch.testing.assert_close(packed[0], plain[0], rtol=2e-7, atol=0)  # shares of visits are in float32
    assert_same(packed[1], plain[1], 1e-6)


def test_sizes_are_those_of_the_plan_and_their_mean_is_that_over_epochs():
    for module in (row_module(True, rows=3), row_module(True), prefix_module(2, True)):
        pairs, sums = examples_of(module), torch.zeros(2, dtype=torch.float64)
        for epoch in range(60):
            sizes = [module.planner.size(pair, epoch) for pair in pairs]
            sums += torch.tensor(sizes, dtype=torch.float64).sum(0) / 60
            if epoch < 2:
                for pair, (tokens, wanted) in zip(pairs, sizes, strict=True):
                    plan = module.planner(collate([pair]), epoch)
                    assert (len(plan.layout), len(plan.labels)) == (tokens, wanted)
        means = torch.tensor([module.planner.mean_size(pair) for pair in pairs], dtype=torch.float64).sum(0)
        torch.testing.assert_close(sums, means, rtol=0.02, atol=0)


def spy(blocks, calls):
    """Notes the lengths of the lists that go through compiled layers, or the ends of layers."""
    name = "finish" if blocks.whole is None else "whole"
    compiled = getattr(blocks, name)
    setattr(blocks, name, lambda *inputs: calls.append(len(inputs[1])) or compiled(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "recompute"),
    [
        (lambda: row_module(rows=3, **WEIGHED), "nothing"),
        (lambda: prefix_module("multi"), "layers"),
        (lambda: grid_module(), "nothing"),
    ],
    ids=["rows", "multi-path", "paper"],
)
def test_compiled_layers_give_the_losses_and_gradients_of_plain_ones_and_are_compiled_once(
    made, recompute, monkeypatch
):
    """Up to the graphs; code of them is made in `decoder/test_model.py`."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    module, calls = made().train(), []
    batch = filled(module, collate(examples_of(module)))
    module._trainer = SimpleNamespace(current_epoch=2)
    cells, paper = len(batch.plan.labels), isinstance(batch.plan.layout, Cells)
    size = (cells, len(batch.plan.layout.x) - SPARE) if paper else (len(batch.plan.tokens), cells)
    other = filled(module, collate(examples_of(module)[::-1]), size=size)
    expected = [with_gradients(module, one) for one in (batch, other)]
    module.model.recompute(recompute)
    module.model.compile_blocks(constant=True)
    spy(module.model.blocks, calls)
    for number, one in enumerate((batch, other)):
        with torch._dynamo.config.patch(error_on_recompile=number > 0):
            loss, found = with_gradients(module, one)
        torch.testing.assert_close(loss, expected[number][0], rtol=1e-7, atol=0)  # cosines are in float32
        assert_same(found, expected[number][1], 1e-5)
    assert set(calls) == ({cells, 2 * cells} if paper else {len(batch.plan.tokens)})
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        total(module.eval(), collate(examples_of(module)[:3]))  # as in a validation, whose lists have any length


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_layers_by_blocks_are_compiled_once_whatever_pairs_a_list_has(monkeypatch):
    """As on a GPU, where each step has a mask of its own; on a CPU PyTorch has no gradients of this kernel."""
    torch._dynamo.reset()
    monkeypatch.setattr(flex, "kernel", flex_attention)
    module = prefix_module(2).float().eval()
    batches = [filled(module, collate(examples_of(module)[::order])) for order in (1, -1)]
    expected = [total(module, one) for one in batches]
    monkeypatch.setattr(attention, "_takes_blocks", lambda *_: True)
    for one, loss in zip(batches, expected, strict=True):
        torch.testing.assert_close(total(module, one), loss, rtol=1e-5, atol=0)
    blocks = module.model.blocks
    blocks.whole = torch.compile(whole_block, dynamic=False, backend="eager", fullgraph=True)
    for number, (one, loss) in enumerate(zip(batches, expected, strict=True)):
        with torch._dynamo.config.patch(error_on_recompile=number > 0):
            torch.testing.assert_close(total(module, one), loss, rtol=1e-5, atol=0)


def trained(folder, batch_tokens=None, compiled=None):
    """A run of two steps of a small wait-k model, and its last loss."""
    module = small_prefix_module(tiny_prefix(2, vocab_size=len(tiny_tokenizer()), seed=5).float())
    data = small_data(12)
    data.batch_tokens, data.planner = batch_tokens, module.planner
    if compiled is not None:
        module.model.blocks.whole, module.model.blocks.unproven = compiled, True
    trainer = built_trainer(folder, max_epochs=2, limit_val_batches=0)
    trainer.fit(module, data)
    return module.model.blocks, trainer.callback_metrics["train/lm_loss"].item()


@pytest.mark.usefixtures("no_verdicts")
def test_a_run_compares_what_is_compiled_with_what_is_not_and_goes_on_without_what_differs(tmp_path, caplog):
    def broken(*inputs):
        raise RuntimeError("no compiler")

    _, unpacked = trained(tmp_path / "unpacked")
    _, expected = trained(tmp_path / "plain", 512)
    assert expected == pytest.approx(unpacked, rel=1e-5)
    blocks, loss = trained(tmp_path / "right", 512, whole_block)
    assert (blocks.whole, blocks.unproven) == (whole_block, False)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert COMPILED not in caplog.text
    for name, wrong, why in (
        ("wrong", lambda *inputs: whole_block(*inputs) * 1.1, "differ from the plain ones by"),
        ("broken", broken, "RuntimeError: no compiler"),
    ):
        triton_use.refused.clear()
        caplog.clear()
        blocks, loss = trained(tmp_path / name, 512, wrong)
        assert (blocks.whole, blocks.unproven) == (None, False)
        assert loss == pytest.approx(expected, rel=1e-6)
        (told,) = [record.message for record in caplog.records if COMPILED in record.message]
        assert why in told


def test_what_differs_by_more_than_rounding_is_told_and_small_gradients_are_measured_by_large_ones():
    losses, large, small = torch.ones(5), torch.ones(100), torch.zeros(3)
    assert far_apart([losses, large * 1.005, small + 1e-6], [losses, large, small], half=False) is None
    assert "0.02" in far_apart([losses, large * 1.02, small], [losses, large, small], half=False)
    assert far_apart([losses, large * 1.02, small], [losses, large, small], half=True) is None
    assert far_apart([losses, large, small + 0.01], [losses, large, small], half=True) is not None
    assert "nan" in far_apart([losses, large * float("nan"), small], [losses, large, small], half=True)


def fit(folder, accumulate=1, resume=False, **limits):
    """A packed run with dropout-free multi-path training and a checkpoint at each step: its weights."""
    module = small_prefix_module(k="multi")
    data = small_data(12)
    data.batch_tokens, data.planner = 256, module.planner
    trainer = built_trainer(folder, resumed=resume, accumulate_grad_batches=accumulate, limit_val_batches=0, **limits)
    last = folder / "checkpoints" / "last.ckpt" if resume else None
    trainer.fit(module, data, ckpt_path=last, weights_only=True)
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}, len(data.loader)


def test_a_packed_run_that_was_stopped_goes_on_exactly(tmp_path):
    whole, batches = fit(tmp_path / "whole", max_steps=5, max_epochs=-1)
    assert 1 < batches < 4, "the test wants several batches an epoch, and to stop in the second one"
    for stop in (1, batches + 1):
        fit(tmp_path / f"{stop}", max_steps=stop, max_epochs=-1)
        resumed, _ = fit(tmp_path / f"{stop}", resume=True, max_steps=5, max_epochs=-1)
        assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())
