"""Training on drawn rows: loss and gradients from the definition, over batches and devices, and by the command."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from duplexmt.data.batch import collate
from duplexmt.policy.decoding_options import PAPER_RULE, EmitRule
from duplexmt.policy.path import emit_mask
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.rows import drawn_points, stretches
from duplexmt.policy.visits import GOLDEN, decoding_shares
from duplexmt.policy.words import going_on
from tests.helpers import best_path, spoken_grid, tiny_tokenizer

from .small_run import assert_same, small_data, small_module


def exact_module(**values):
    return small_module(spoken_grid(seed=5, attention="exact", input_attends_output=False).double(), **values)


LOSSES = [("mask", "mask"), ("regret", "visits"), ("regret", "drawn_visits")]


WORDS = EmitRule(words=going_on(tiny_tokenizer(), len(tiny_tokenizer()), "en"))  # whose tokens are characters


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize(("emit_loss", "lm_cells"), LOSSES)
def test_loss_and_gradients_on_drawn_rows_follow_from_the_full_grid(emit_loss, lm_cells, by_words):
    """The full grid by `forward` (padded exact attention), of which the drawn rows' cells alone are read."""
    module = exact_module(emit_loss=emit_loss, lm_cells=lm_cells, rows=3, rule=WORDS if by_words else PAPER_RULE)
    batch = collate(small_data(12).examples("train"))
    rows = module.planner.drawn(batch, 0)
    assert max(rows.stand_for.flatten().tolist()) > 2, "the test wants stretches of several rows"
    cut = [min(own) < Y for own, Y in zip(rows.columns, batch.target_lengths.tolist(), strict=True)]
    seldom = [
        min(own[: len(at)]) < Y for own, at, Y in zip(rows.common.tolist(), rows.at, batch.target_lengths, strict=True)
    ]
    assert any(cut), "and a pair that is cut"
    assert any(may and not is_cut for may, is_cut in zip(seldom, cut, strict=True)), "and one that might have been"
    hidden = module.model(batch.source, batch.target, batch.source_lengths)
    logits, decisions = module.model.text_logits(hidden), module.model.emit_logits(hidden)
    drawn = drawn_points(batch.keys, 0)
    lm, emit, lm_weights, emit_weights = [], [], [], []
    for b, (at, X, Y) in enumerate(
        zip(rows.at, batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
    ):
        R, parts, ends = len(at), stretches(X, 3), rows.columns[b]
        losses = F.cross_entropy(logits[b, list(at), :Y].mT, batch.labels[b, :Y].expand(R, Y), reduction="none")

        def between(values, beyond, at=at, X=X, Y=Y, parts=parts, ends=ends):  # [R, Y] -> [X, Y]
            grid = torch.full((1, X, Y), beyond, dtype=torch.float64)
            for part, end in zip(parts, ends, strict=True):
                for y in range(end):
                    there = [next(j for j in range(i, len(at)) if y < ends[j]) for i in range(len(at))]
                    grid[0, list(part), y] = torch.tensor(np.interp(part, at, values.detach()[there, y]))
            return grid

        grid = between(losses, 1e6), torch.tensor([X]), torch.tensor([Y])
        inner = torch.zeros(1, Y, dtype=torch.bool)
        if by_words:
            inner[0, 1:] = WORDS.words[batch.labels[b, 1:Y]]
        ending = [next(end for end in range(y + 1, Y + 1) if end == Y or not inner[0, end]) for y in range(Y)]
        decided = torch.tensor([[not inner[0, y] and ending[y] <= end for y in range(Y)] for end in ends])
        mask = emit_mask(best_path(*grid, 0.1, inner), Y)[0]
        cells = mask.double()
        if lm_cells != "mask":
            p_emit = decisions[b, list(at), :Y].softmax(-1)[..., 1]
            p_emit = between(p_emit, 0.0)
            for part, own in zip(parts, decided, strict=True):
                p_emit[0, list(part)] *= own if by_words else 1
            cells = decoding_shares(p_emit, *grid[1:], inner)[0].double()
        weights = torch.stack([cells[list(part)].sum(0) for part in parts])
        if lm_cells == "drawn_visits":  # of each column the rows in which the running sum of its shares passes a point
            shares, weights = weights, torch.zeros_like(weights)
            for y in range(Y):
                first, sums = (drawn[b].item() + y * GOLDEN) % 1, shares[:, y].cumsum(0)
                for point in (first / 2, (first + 1) / 2):
                    row = int((sums <= point).sum())
                    assert y < ends[row], "no token falls to a cell that is not computed"
                    weights[row, y] += 0.5
        lm.append((losses * weights).sum())
        lm_weights.append(weights.sum())
        worth = emit_advantages(*grid, 0.1, inner)[0, list(at)]
        better, weight = (mask[list(at)], torch.ones(R, Y)) if emit_loss == "mask" else (worth > 0, worth.abs())
        weight = weight * torch.tensor([[len(part)] for part in parts])
        columns = torch.arange(Y)
        weight = weight * decided if by_words else weight
        weight = weight * (columns < torch.tensor(ends)[:, None]) * (1 + 7 * (columns >= rows.common[b, :R, None]))
        emit.append((F.cross_entropy(decisions[b, list(at), :Y].mT, better.long(), reduction="none") * weight).sum())
        emit_weights.append(weight.sum())
    expected = sum(lm) / sum(lm_weights) + sum(emit) / sum(emit_weights)
    expected.backward()
    by_definition = {name: weight.grad for name, weight in module.named_parameters()}
    module.zero_grad()
    loss, _ = module.losses(batch)
    found = loss.total(loss.lm_weights, loss.emit_weights)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)  # shares are in float32
    assert_same({name: weight.grad for name, weight in module.named_parameters()}, by_definition, 1e-6)


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize(("emit_loss", "lm_cells"), LOSSES)
def test_as_many_rows_as_there_are_train_as_all_rows(emit_loss, lm_cells, by_words):
    batch = collate(small_data(12).examples("train"))
    losses, gradients = [], []
    for rows in (None, int(batch.source_lengths.max())):
        rule = WORDS if by_words else PAPER_RULE
        module = exact_module(emit_loss=emit_loss, lm_cells=lm_cells, rows=rows, rule=rule)
        loss, area = module.losses(batch)
        total = loss.total(loss.lm_weights, loss.emit_weights)
        total.backward()
        losses.append(torch.stack((total.detach(), area, loss.correct / loss.valid_cells)))
        gradients.append({name: weight.grad for name, weight in module.named_parameters()})
    torch.testing.assert_close(*losses, rtol=0, atol=1e-9)
    assert_same(*gradients, 1e-9)


def test_validation_computes_all_rows_and_draws_no_words():
    batch = collate(small_data(12).examples("train"))
    sums = []
    for settings in ({"lm_cells": "drawn_visits", "rows": 2}, {"lm_cells": "visits", "rows": None}):
        module = exact_module(emit_loss="regret", **settings)
        module.on_validation_epoch_start()
        module.validation_step(batch, 0)
        sums.append(module.validation_sums)
    torch.testing.assert_close(*sums)


def test_each_epoch_draws_other_words_and_a_token_counts_once():
    batch = collate(small_data(12).examples("train"))
    module = exact_module(emit_loss="regret", lm_cells="drawn_visits")  # of all rows, which are the same in each epoch
    losses = []
    for epoch in (0, 1, 1):
        module._trainer = SimpleNamespace(current_epoch=epoch)
        losses.append(module.losses(batch)[0])
    assert losses[0].lm_sum != losses[1].lm_sum
    assert losses[1].lm_sum == losses[2].lm_sum
    assert losses[0].lm_weights == batch.target_lengths.sum()
