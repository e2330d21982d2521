"""Golden losses: what the trunk's padded implementation computed, batch by batch."""

import json

import pytest
import torch

from tests.training.golden import GOLDEN, MODELS, STEPS, loss_curve


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_batches_give_the_recorded_loss_curve(name):
    """All of them where they are fast; an early difference grows."""
    steps = STEPS if name == "io_off" else 10
    recorded = json.loads(GOLDEN.read_text())[name][:steps]
    torch.testing.assert_close(torch.tensor(loss_curve(MODELS[name], steps)), torch.tensor(recorded), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("recompute", "chunk"), [("nothing", 50), ("elementwise", None), ("layers", 50)])
def test_what_is_kept_for_the_backward_pass_does_not_change_the_curve(recompute, chunk, monkeypatch):
    if chunk:  # logits of so many cells at a time, and again in the backward pass
        monkeypatch.setattr("duplexmt.policy.heatmap.cells_at_once", lambda *_: chunk)
    recorded = json.loads(GOLDEN.read_text())["approximate"][:10]
    curve = loss_curve({}, steps=10, recompute=recompute)
    torch.testing.assert_close(torch.tensor(curve), torch.tensor(recorded), rtol=0, atol=1e-6)
