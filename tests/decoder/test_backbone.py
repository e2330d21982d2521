"""Backbones with random weights: what is asked for runs, or is refused by value and rule."""

import pytest
import torch

from duplexmt.decoder.backbone import deepened, random_backbone
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


@pytest.mark.parametrize("model_type", [*KNOWN, "gemma3_text", "smollm3"])
def test_a_deeper_decoder_computes_the_same_at_first_and_trains_all_its_layers(model_type):
    torch.manual_seed(0)
    shallow = random_backbone({"model_type": model_type, **SHAPE, "num_hidden_layers": 2}, 97, 0).eval()
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    deep = deepened(shallow, 5).eval()
    assert deep.config.num_hidden_layers == len(deep.get_decoder().layers) == 5
    torch.testing.assert_close(deep(tokens).logits, shallow(tokens).logits, rtol=0, atol=0)
    for _ in range(2):  # what comes before an output that is zero learns from the second step on
        deep.zero_grad()
        deep(tokens, labels=tokens).loss.backward()
        for weight in deep.parameters():
            weight.data -= 0.1 * weight.grad
    assert all(weight.grad.any() for weight in deep.parameters())


def test_a_deeper_decoder_has_at_least_the_layers_there_are():
    shallow = random_backbone({"model_type": "qwen2", **SHAPE, "num_hidden_layers": 2}, 97, 0)
    with pytest.raises(ValueError, match=r"model\.layers=1: the backbone has 2, .*give at least 2"):
        deepened(shallow, 1)


def test_layers_whose_outputs_have_other_names_get_no_copies():
    shallow = random_backbone({"model_type": "starcoder2", **SHAPE, "num_hidden_layers": 2}, 97, 0)
    with pytest.raises(ValueError, match=r"model\.layers=3: a starcoder2 has no o_proj and down_proj to put out zeros"):
        deepened(shallow, 3)


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
