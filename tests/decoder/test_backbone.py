"""Backbones with random weights: what is asked for runs, or is refused by value and rule."""

import pytest
import torch

from duplexmt.decoder.backbone import random_backbone
from duplexmt.decoder.blocks import KNOWN
from duplexmt.grid.model import GridModel

SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip


def refusal(values):
    """What is said against a shape; None where its model runs."""
    try:
        model = GridModel(random_backbone(values, 97, 0))
    except ValueError as error:
        return str(error)
    assert model(torch.ones(1, 3, dtype=torch.int64), torch.ones(1, 2, dtype=torch.int64)).isfinite().all()
    return None


@pytest.mark.parametrize("model_type", KNOWN)
@pytest.mark.parametrize("given", [{"num_key_value_heads": ...}, {"head_dim": 8}, {"head_dim": None}], ids=str)
def test_a_shape_runs_or_is_refused_whatever_is_left_out(model_type, given):
    values = {"model_type": model_type, **SHAPE}
    assert refusal(values) is None
    values = {name: value for name, value in (values | given).items() if value is not ...}
    assert (refusal(values) or "model.architecture").startswith("model.architecture")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model_type": "bert"}, "backbone of type 'bert' has no rotary positions: give one that has, such as qwen2"),
        ({"width": 3}, "model.architecture.width: a qwen2 configuration has no such value"),
        ({"num_key_value_heads": 3}, "num_attention_heads=4 is no multiple of num_key_value_heads=3"),
        ({"hidden_size": 34}, "hidden_size=34 is no multiple of 4 heads"),
        ({"hidden_size": 20}, "an even head_dim"),
        ({"num_hidden_layers": 0}, "model.architecture.num_hidden_layers=0: must be at least 1"),
        ({"hidden_size": -32}, "model.architecture.hidden_size=-32: must be at least 1"),
        ({"num_key_value_heads": 0}, "model.architecture.num_key_value_heads=0: must be at least 1"),
        ({"hidden_act": "sillu"}, "hidden_act='sillu': Hugging Face has no such activation; the usual one is silu"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "Missing required keys in `rope_"),
        ({"model_type": "qwen3", "head_dim": 7}, "even rotary dimension"),
    ],
)
def test_values_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        random_backbone({"model_type": "qwen2", **SHAPE} | given, 97, 0)
