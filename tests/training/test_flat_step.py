"""The flat grid step against the padded one."""

import itertools

import pytest
import torch

from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.training.module import GridTranslation
from tests.helpers import spoken_grid, tiny_tokenizer
from tests.training.padded import padded_losses
from tests.training.small_run import small_data

MODES = list(itertools.product((True, False), ("joint", "separate"), ("source_length", 40)))


@pytest.mark.parametrize(("io", "softmax", "anchor"), MODES)
def test_losses_and_gradients_equal_the_padded_steps(io, softmax, anchor):
    model = spoken_grid(input_attends_output=io, softmax=softmax, anchor=anchor).double()
    module = GridTranslation(model, stream_tokens(tiny_tokenizer()), lam=0.05, learning_rate=1.0, warmup_steps=0)
    batch = collate(small_data(12).examples("train"))
    loss, _ = module.losses(batch)
    flat = loss.total(loss.lm_weights, loss.emit_weights)
    padded = padded_losses(model, batch, lam=0.05)
    torch.testing.assert_close(flat, padded, rtol=0, atol=1e-10)
    weights = list(model.parameters())
    got, expected = (torch.autograd.grad(total, weights, allow_unused=True) for total in (flat, padded))
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
