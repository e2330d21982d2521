"""training.dropout: what of the residual stream it zeroes, and when."""

import pytest
import torch

from duplexmt.data.batch import collate
from duplexmt.decoder.backbone import add_lora
from duplexmt.grid.model import GridModel
from duplexmt.kernels.lora import linear
from duplexmt.training.module import weights_of
from tests.helpers import spoken_grid

from .small_run import small_data, small_module, small_prefix_module, small_trainer

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["o_proj", "down_proj"]}


def with_lora():
    return GridModel(add_lora(spoken_grid(seed=5).causal_lm, **LORA)).double()


def losses(module, draws=1):
    """The loss sum of one batch, drawn so many times."""
    examples = small_data(12).examples("train")
    batch = collate(examples)
    compute = module.lm_sum if hasattr(module, "lm_sum") else lambda b: module.losses(b)[0].lm_sum
    torch.manual_seed(1)
    return torch.stack([compute(batch).detach() for _ in range(draws)])


@pytest.mark.parametrize("made", [small_module, small_prefix_module])
def test_it_changes_a_training_step_each_time_and_nothing_else(made):
    plain, dropping = made(), made(dropout=0.2)
    assert torch.equal(losses(plain, 2), losses(plain.eval(), 2)), "without it, training is as evaluation"
    assert len(set(losses(dropping, 4).tolist())) == 4
    assert torch.equal(losses(dropping.eval()), losses(plain))


@pytest.mark.parametrize("lora", [False, True])
def test_a_share_of_what_a_layer_adds_is_zero_and_the_rest_is_scaled_up(lora):
    model = with_lora() if lora else spoken_grid(seed=5).double()
    layer = model.causal_lm.model.layers[0]
    if lora:
        torch.nn.init.normal_(layer.mlp.down_proj.lora_B["default"].weight)
    states = torch.randn(4000, layer.mlp.down_proj.in_features, dtype=torch.float64)
    whole = linear(layer.mlp.down_proj, states).detach()
    small_module(model, dropout=0.25)
    dropped = linear(layer.mlp.down_proj, states).detach()
    kept = dropped != 0
    assert 1 - kept.double().mean() == pytest.approx(0.25, abs=0.01)
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)


def test_weights_of_accumulated_batches_are_known_beforehand_as_they_come_to_be(monkeypatch):
    module = small_module(dropout=0.3, emit_loss="regret", lm_cells="visits")
    losses, found = module.losses, []

    def kept(batch):
        loss, area = losses(batch)
        if loss.lm_sum.requires_grad:  # the batch's own step
            found.append(weights_of(loss))
        return loss, area

    monkeypatch.setattr(module, "losses", kept)
    small_trainer(accumulate_grad_batches=4, max_steps=1).fit(module, small_data(3))
    assert len(found) == 4
    torch.testing.assert_close(torch.stack(found).sum(0), module.weights_of_step, rtol=0, atol=1e-9)
