"""Golden losses: what the trunk's padded implementation computed, batch by batch."""

import json

import pytest
import torch

from tests.training.golden import GOLDEN, MODELS, loss_curve


@pytest.mark.parametrize("name", MODELS)
def test_fifty_batches_give_the_recorded_loss_curve(name):
    recorded = json.loads(GOLDEN.read_text())[name]
    torch.testing.assert_close(torch.tensor(loss_curve(MODELS[name])), torch.tensor(recorded), rtol=0, atol=1e-6)
