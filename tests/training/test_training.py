"""The training loop: gradients over devices and accumulation, resuming, precision, prefixes, LoRA, loggers."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import lightning as L
import pytest
import torch
from torch.nn import functional as F

from benchmarks.path_loss import threshold_rows
from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.decoder.backbone import add_lora, freeze_in, pretrained_backbone
from duplexmt.decoder.heads import EMIT
from duplexmt.grid.model import GridModel
from duplexmt.policy.calibration import calibration_error, calibration_sums
from duplexmt.policy.guide import guide
from duplexmt.policy.path import emit_mask
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import THETAS
from duplexmt.training.base import FROZEN, OVERFLOWS_IN_A_ROW
from duplexmt.training.checkpoint import read_checkpoint
from tests.helpers import best_path, spoken_grid, tiny_backbone, tiny_grid, tiny_tokenizer

from .small_run import (
    assert_same,
    built_trainer,
    first_gradients,
    gradients_of_two_processes,
    small_data,
    small_module,
    small_prefix_module,
    small_row_module,
    small_sample,
    small_trainer,
)

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"]}


LOSSES = [("mask", 1.0, "mask"), ("mask", 0.25, "mask"), ("regret", 1.0, "mask"), ("regret", 0.5, "visits")]


@pytest.mark.parametrize(("emit_loss", "emit_weight", "lm_cells"), LOSSES)
def test_gradients_are_those_of_the_papers_means_over_the_whole_step(tmp_path, emit_loss, emit_weight, lm_cells):
    """Worked without module, loader or heatmap: full logits, plain means (`eq:lm-loss`, `eq:emit-loss`)."""
    module, data = small_module(), small_data(12)
    batch = collate(data.examples("train"))
    hidden = module.model(batch.source, batch.target, batch.source_lengths)
    logits, decisions = module.model.text_logits(hidden), module.model.emit_logits(hidden)
    lm, emit, weights = [], [], []
    for b, (X, Y) in enumerate(zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)):
        losses = F.cross_entropy(logits[b, :X, :Y].mT, batch.labels[b, :Y].expand(X, Y), reduction="none")
        y_at = best_path(losses.detach()[None], torch.tensor([X]), torch.tensor([Y]), 0.1)
        mask = emit_mask(y_at, Y)[0]
        if lm_cells == "mask":
            lm.append(losses[mask])
        else:  # the reference's tokens along the paths of all thresholds, and of all fixed delays
            p_emit = decisions[b, :X, :Y].softmax(-1)[..., 1].tolist()
            own = [threshold_rows(p_emit, theta) for theta in THETAS]
            fixed = [[*(min(k + y, X - 1) for y in range(Y - 1)), X - 1] for k in range(X)]
            lm.append(sum(losses[rows, range(Y)] / len(ways) for ways in (own, fixed) for rows in ways) / 2)
        worth = emit_advantages(losses.detach()[None], torch.tensor([X]), torch.tensor([Y]), 0.1)[0]
        better, weight = (mask, torch.ones(X, Y)) if emit_loss == "mask" else (worth > 0, worth.abs())
        emit.append((F.cross_entropy(decisions[b, :X, :Y].mT, better.long(), reduction="none") * weight).sum())
        weights.append(weight.sum())
    (torch.cat(lm).mean() + emit_weight * sum(emit) / sum(weights)).backward()
    expected = {f"{name}": w.grad for name, w in module.named_parameters()}
    settings = {"emit_loss": emit_loss, "emit_weight": emit_weight, "lm_cells": lm_cells}
    # Shares are in float32.
    assert_same(first_gradients(tmp_path, 12, **settings), expected, 1e-12 if lm_cells == "mask" else 1e-7)


@pytest.mark.parametrize(
    ("batch_size", "accumulate", "made", "values"),
    [
        (4, 3, small_module, {}),
        (1, 12, small_module, {"emit_loss": "regret", "lm_cells": "visits"}),
        (1, 12, small_row_module, {}),
        (4, 3, small_prefix_module, {"k": "multi"}),
        (256, 3, small_prefix_module, {"k": "multi"}),
    ],
    ids=["mask", "visits", "drawn words", "multi-path", "packed"],
)
def test_accumulated_batches_give_the_gradients_of_one_large_batch(tmp_path, batch_size, accumulate, made, values):
    parts = first_gradients(tmp_path, batch_size, accumulate, made=made, **values)
    # Shares are in float32, and so are the numbers by which Lightning divides, but for packed lists.
    tolerance = 1e-9 if batch_size == 256 else 1e-6 if made is small_row_module else 1e-7
    assert_same(parts, first_gradients(tmp_path, 12, made=made, **values), tolerance)


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_one(tmp_path):
    """Of padded batches, and of packed lists, of which one process takes all pairs at once without packing."""
    multi = partial(small_prefix_module, k="multi")
    runs = {"3,2": small_module, "3,2,multi": multi, "512,1,multi": multi, "1024,1,rows": small_row_module}
    for folder, (batches, made) in zip(gradients_of_two_processes(tmp_path, *runs), runs.items(), strict=True):
        (one := folder / "one").mkdir()
        assert_same(torch.load(folder / "gradients.pt", weights_only=True), first_gradients(one, 12, made=made), 1e-8)
        two, alone = (torch.load(place / "loss.pt", weights_only=True) for place in (folder, one))
        torch.testing.assert_close(two, alone, rtol=1e-7, atol=0)
        # Where batches are padded, the first process has looked at a probe meanwhile, before the step and after it.
        looks = [path.name for path in sorted(folder.glob("probes/*"))]
        assert looks == (["step-000000", "step-000001"] if batches.startswith("3,") else [])


def fit(
    folder,
    *,
    accumulate=1,
    resume=False,
    every=1,
    sample=False,
    callbacks=(),
    optimisation=None,
    dropout=None,
    **limits,
):
    """Train in a folder as `train.py` does; returns the weights and the optimiser steps taken."""
    torch.manual_seed(1)
    model = tiny_grid(tiny_backbone(vocab_size=len(tiny_tokenizer()), layers=1, seed=5), seed=5)
    if dropout:
        model = GridModel(add_lora(model.causal_lm, **LORA | {"dropout": dropout}))
    module = small_module(model.double(), **optimisation or {})
    data = small_data(3 if accumulate == 1 else 1)
    trainer = built_trainer(
        folder,
        *([small_sample(2, "grid", 0.5), *callbacks] if sample else callbacks),
        every=every,
        resumed=resume,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=1.0,
        **limits,
    )
    checkpoint = folder / "checkpoints" / "last.ckpt" if resume else None
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return module.state_dict(), trainer.global_step


def assert_same_weights(one, other):
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights a run of given settings ends with, each trained once."""
    ended = {}

    def weights(**settings):
        if repr(settings) not in ended:
            ended[repr(settings)], _ = fit(tmp_path_factory.mktemp("whole"), **settings)
        return ended[repr(settings)]

    return weights


@pytest.mark.parametrize(
    ("accumulate", "optimizer", "stop"),  # in the first epoch, at its end (4 steps of 3 pairs), in the second
    [(1, "adam", 4), (2, "adam", 2), (1, "muon", 5)],
)
def test_a_resumed_run_ends_with_exactly_the_weights_of_an_undisturbed_one(
    tmp_path, undisturbed, accumulate, optimizer, stop
):
    settings = {"accumulate": accumulate, "optimisation": {"optimizer": optimizer}, "max_epochs": -1}
    assert fit(tmp_path, **settings, max_steps=stop)[1] == stop
    resumed, steps = fit(tmp_path, **settings, resume=True, max_steps=7)
    assert steps == 7
    assert_same_weights(undisturbed(**settings, max_steps=7), resumed)


class KillAt(L.Callback):
    """Ends a run when so many batches have been seen, as a power cut would: what the run asked for stays."""

    def __init__(self, batches):
        self.left = batches

    def on_train_batch_start(self, *_):
        if not self.left:
            raise PowerCutError
        self.left -= 1


class PowerCutError(Exception):
    pass


@pytest.mark.parametrize(("accumulate", "batches"), [(1, 6), (2, 3)])
def test_under_the_default_schedule_a_killed_run_ends_with_exactly_the_weights_of_an_undisturbed_one(
    tmp_path, undisturbed, accumulate, batches
):
    settings = {"accumulate": accumulate, "optimisation": {"schedule": "linear"}, "max_epochs": 2}
    with pytest.raises(PowerCutError):
        fit(tmp_path, **settings, callbacks=[KillAt(batches)])
    resumed, steps = fit(tmp_path, **settings, resume=True)
    assert steps == {1: 8, 2: 12}[accumulate]
    assert_same_weights(undisturbed(**settings), resumed)


def test_a_run_is_not_resumed_inside_an_epoch_of_other_batches(tmp_path):
    fit(tmp_path, max_steps=6, max_epochs=-1)
    with pytest.raises(ValueError, match=r"after 2 of an epoch's 4 batches, and .*: batches=4 \(now 12\), pairs_per"):
        fit(tmp_path, accumulate=2, resume=True, max_epochs=-1, max_steps=9)


def test_a_run_that_goes_on_keeps_the_precision_it_was_begun_with(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for fast, resumed in ((True, False), (False, True)):
        monkeypatch.setattr("duplexmt.training.precision.fast_bfloat16", lambda _, fast=fast: fast)
        trainer = built_trainer(tmp_path, precision="auto", resumed=resumed, max_steps=1)
        assert trainer.precision == "bf16-mixed"
        trainer.fit(small_module(spoken_grid(seed=5)), small_data(3))


def test_dropout_is_drawn_by_the_batch(tmp_path):
    settings = {"max_epochs": -1, "dropout": 0.5}
    whole, _ = fit(tmp_path / "whole", **settings, max_steps=4)
    fit(tmp_path / "parts", **settings, max_steps=2)
    assert_same_weights(whole, fit(tmp_path / "parts", **settings, max_steps=4, resume=True)[0])


def test_every_epoch_ends_with_a_checkpoint_from_which_more_epochs_can_follow(tmp_path, undisturbed):
    whole = undisturbed(max_epochs=3)
    fit(tmp_path / "parts", max_epochs=2, every=1000, sample=True)
    kept = torch.load(tmp_path / "parts" / "checkpoints" / "last.ckpt", weights_only=True)
    assert kept["global_step"] == 8
    resumed, steps = fit(tmp_path / "parts", max_epochs=3, every=1000, sample=True, resume=True)
    assert steps == 12
    assert_same_weights(whole, resumed)
    again, steps = fit(tmp_path / "parts", max_epochs=3, every=1000, sample=True, resume=True)  # nothing left to do
    assert steps == 12
    assert_same_weights(whole, again)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"max_epochs": 2, "max_steps": 100}, {"max_epochs": -1, "max_steps": 12}),
        ({"max_epochs": -1, "max_steps": 8}, {"max_epochs": 3}),
    ],
)
def test_a_run_goes_on_exactly_whether_epochs_or_steps_end_it(tmp_path, undisturbed, before, after):
    whole = undisturbed(max_epochs=3)
    fit(tmp_path / "parts", every=1000, **before)
    resumed, steps = fit(tmp_path / "parts", every=1000, resume=True, **after)
    assert steps == 12
    assert_same_weights(whole, resumed)


class KeepRates(L.Callback):
    """Notes learning rate and betas of each group of weights before each optimiser step."""

    def __init__(self):
        self.steps = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps.append([(group["lr"], group.get("betas")) for group in optimizer.param_groups])


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_resumed_run_trains_with_the_learning_rates_and_betas_asked_for_now(tmp_path, optimizer):
    before = {"optimizer": optimizer, "warmup_steps": 4, "learning_rate": 1e-3, "emit_learning_rate": 1e-2}
    now = before | {"learning_rate": 1e-4, "emit_learning_rate": 3e-4, "betas": (0.8, 0.9)}
    resumed, fresh = KeepRates(), KeepRates()
    fit(tmp_path / "resumed", max_steps=2, optimisation=before)
    fit(tmp_path / "resumed", max_steps=4, optimisation=now, callbacks=[resumed], resume=True)
    fit(tmp_path / "fresh", max_steps=4, optimisation=now, callbacks=[fresh])
    assert len(fresh.steps) == 4
    assert resumed.steps == fresh.steps[2:]


def test_a_linear_schedule_without_a_last_step_is_refused():
    trainer = small_trainer(max_epochs=-1)
    with pytest.raises(
        ValueError, match=r"training.schedule=linear with trainer.max_epochs=-1 and trainer.max_steps=-1"
    ):
        trainer.fit(small_module(schedule="linear"), small_data(3))


def test_checkpoints_hold_trained_weights_only_and_refuse_another_model(tmp_path):
    tiny_backbone(vocab_size=len(tiny_tokenizer()), layers=1).save_pretrained(tmp_path / "base")
    model = GridModel(add_lora(pretrained_backbone(str(tmp_path / "base")), **LORA))
    module = small_module(model)
    trainer = small_trainer(tmp_path, max_steps=1)
    trainer.fit(module, small_data(4))
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    kept = torch.load(tmp_path / "c.ckpt", weights_only=True)["state_dict"]
    assert {name for name, w in module.named_parameters() if w.requires_grad} == set(kept)
    assert not any("embed_tokens" in name for name in kept)
    other = small_module(spoken_grid())
    with pytest.raises(ValueError, match="the checkpoint does not fit this model"):
        other.on_load_checkpoint({"state_dict": kept})


def test_lora_goes_on_over_the_base_it_was_begun_with_and_no_other(tmp_path):
    def lora(seed, dtype=torch.float64):
        model = GridModel(add_lora(spoken_grid(seed=seed).causal_lm, **LORA)).double()
        freeze_in(dtype, model)
        return small_module(model)

    trainer = small_trainer(tmp_path, max_steps=1)
    trainer.fit(lora(5), small_data(4))
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    kept = torch.load(tmp_path / "c.ckpt", weights_only=True)
    lora(5).on_load_checkpoint(kept)
    with pytest.raises(ValueError, match=r"trained over another base: .*; give the model\.backbone the run was begun"):
        lora(6).on_load_checkpoint(kept)
    lora(6, torch.float32).on_load_checkpoint(kept)  # in another precision nothing can be told
    del kept[FROZEN]  # as in old checkpoints
    lora(6).on_load_checkpoint(kept)


def test_a_run_goes_on_with_the_optimizer_it_was_begun_with(tmp_path):
    trainer = small_trainer(tmp_path, max_steps=1)
    trainer.fit(small_module(emit_learning_rate=0.01), small_data(4))
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    kept = torch.load(tmp_path / "c.ckpt", weights_only=True)
    group = kept["optimizer_states"][0]["param_groups"][0]
    group |= {"fused": None, "foreach": True}  # as on a Mac's GPU
    small_module(emit_learning_rate=0.02).on_load_checkpoint(kept)
    assert (group["fused"], group["foreach"]) == (True, None), "Adam is computed as is right for this machine"
    for other in ({}, {"optimizer": "muon"}, {"optimizer": "muon", "emit_learning_rate": 0.01}):
        with pytest.raises(ValueError, match=r"training\.optimizer=.*; resume with both settings as the run was begun"):
            small_module(**other).on_load_checkpoint(kept)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OSError, r"c\.ckpt finds no memory .*end other"),
        (MemoryError(), OSError, r"c\.ckpt finds no memory \(MemoryError\)"),
        (PermissionError(13, "Permission denied"), PermissionError, "Permission denied"),
        (RuntimeError("invalid header"), ValueError, r"c\.ckpt is damaged \(invalid header\)"),
    ],
)
def test_a_checkpoint_is_called_damaged_only_where_it_is(error, kind, message, tmp_path, monkeypatch):
    torch.save({}, tmp_path / "c.ckpt")
    monkeypatch.setattr(torch, "load", Mock(side_effect=error))
    with pytest.raises(kind, match=message):
        read_checkpoint(tmp_path / "c.ckpt")


def test_states_inside_prefixes_are_not_scored():
    model = spoken_grid(seed=5).double()
    tokens = stream_tokens(tiny_tokenizer(), source_prefix="老师", target_prefix="The")
    module = small_module(model)
    module.tokens = tokens
    assert len(tokens.source_prefix) >= 1
    assert len(tokens.target_prefix) >= 1
    example = tokens.example([70, 71, 72], [80, 81])
    loss, _ = module.losses(collate([example]))
    assert loss.valid_cells == 4 * 3  # the text's own rows and columns, each with the end token
    rows, columns = len(tokens.source_prefix), len(tokens.target_prefix)
    batch = collate([example])
    hidden = model(batch.source, batch.target)[:, rows:, columns:]
    heatmap = F.cross_entropy(
        model.text_logits(hidden).movedim(-1, 1), torch.tensor([[[80, 81, 0]] * 4]), reduction="none"
    )
    mask = emit_mask(best_path(heatmap.detach(), torch.tensor([4]), torch.tensor([3]), 0.1), 3)
    torch.testing.assert_close(loss.lm_sum, heatmap[mask].sum())


def test_training_learns_a_dozen_sentences():
    module = small_module(spoken_grid(seed=2), learning_rate=3e-3, warmup_steps=5)
    batch = collate(small_data(12).examples("train"))

    def total():
        loss, _ = module.losses(batch)
        return loss.total(loss.lm_weights, loss.emit_weights).item()

    before = total()
    small_trainer(max_epochs=30).fit(module, small_data(12))
    assert total() < before / 2


def test_validation_means_run_over_all_cells_of_all_batches():
    data = small_data(3)
    module = small_module()
    trainer = small_trainer(limit_val_batches=1.0)
    trainer.validate(module, data, verbose=False)
    got = trainer.callback_metrics
    batch = collate(data.examples("validation"))
    loss, area = module.losses(replace(batch))
    torch.testing.assert_close(got["validation/lm_loss"].double(), loss.lm_sum / loss.lm_weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(got["validation/area"].double(), area.double(), rtol=0, atol=1e-6)
    accuracy = (loss.correct / loss.valid_cells).double()
    torch.testing.assert_close(got["validation/emit_accuracy"].double(), accuracy, rtol=0, atol=1e-6)
    guided = guide(module.model, module.tokens, batch, module.lam)
    sums = calibration_sums(module.model.emit_logits(guided.hidden).softmax(-1)[:, EMIT], guided.mask)
    error = calibration_error(sums)
    torch.testing.assert_close(got["validation/emit_calibration"].double(), error, rtol=0, atol=1e-6)


class Poison(L.Callback):
    """Puts a number that is none into the model for the steps named, and takes it out again."""

    def __init__(self, steps):
        self.steps, self.sound, self.weights = steps, None, []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx in self.steps:
            weight = pl_module.model.causal_lm.model.norm.weight
            self.sound = weight.data.clone()
            weight.data.fill_(float("nan"))

    def on_train_batch_end(self, trainer, pl_module, *_):
        if self.sound is not None:
            pl_module.model.causal_lm.model.norm.weight.data.copy_(self.sound)
            self.sound = None
        self.weights.append(pl_module.model.emit_head.weight.detach().clone())


def test_a_step_without_finite_gradient_is_named_and_skipped(caplog):
    poison = Poison({1})
    with caplog.at_level("WARNING", logger="train"):
        small_trainer(callbacks=[poison]).fit(small_module(warmup_steps=0), small_data(3))
    assert len(poison.weights) == 4
    assert torch.equal(poison.weights[0], poison.weights[1])  # nothing learnt from batch 1
    assert not torch.equal(poison.weights[1], poison.weights[2])
    assert all(torch.isfinite(weight).all() for weight in poison.weights)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "epoch 0, batch 1, step 1: skipped, its gradient is not finite (LM loss nan" in message


def test_a_batch_that_spoils_a_step_is_told_whichever_of_its_batches_it_is(caplog):
    """In fp16 a step under finite losses is taken for an overflow."""
    module = small_module(warmup_steps=0)
    with caplog.at_level("WARNING", logger="train"):
        small_trainer(callbacks=[Poison({0})], accumulate_grad_batches=2).fit(module, small_data(3))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "batch 1, step 0: skipped, its gradient is not finite (LM loss nan" in message
    assert all(torch.isfinite(loss) for loss in module.last_losses.values()), "the next step begins anew"


def test_training_gives_up_after_too_many_such_steps_in_a_row(monkeypatch):
    monkeypatch.setattr("duplexmt.training.base.SKIPS_IN_A_ROW", 3)
    with pytest.raises(ValueError, match=r"3 steps in a row without a finite gradient; lower training.learning_rate"):
        small_trainer(callbacks=[Poison({0, 1, 2})]).fit(small_module(), small_data(3))


def test_fp16_leaves_overflows_to_the_scaler_until_no_scale_can_be_to_blame(caplog):
    """On CPU Lightning turns 16-mixed into bf16, so the hook is called by hand here."""
    module = small_module(spoken_grid())
    module._trainer = SimpleNamespace(
        precision="16-mixed", current_epoch=0, global_step=7, fit_loop=SimpleNamespace(batch_idx=7)
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    weight = module.model.emit_head.weight

    def step(gradient):
        weight.grad = torch.full_like(weight, gradient)
        module.on_before_optimizer_step(optimizer)

    module.last_losses = {"LM": torch.tensor(2.0), "EMIT": torch.tensor(0.5)}
    for _ in range(OVERFLOWS_IN_A_ROW - 1):
        step(float("inf"))
    assert not caplog.records
    assert weight.grad is not None  # the scaler has to see it
    step(1.0)  # the count starts afresh
    for _ in range(OVERFLOWS_IN_A_ROW - 1):
        step(float("nan"))
    with pytest.raises(ValueError, match=rf"step 7: {OVERFLOWS_IN_A_ROW} steps in a row without a finite gradient"):
        step(float("nan"))
