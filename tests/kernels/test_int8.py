"""int8: what a naive product of the rounded numbers gives, row by row, and a decoder that still decodes."""

import copy

import pytest
import torch
from torch import nn

from duplexmt.data.tokenizer import token_ids
from duplexmt.grid.model import build_grid
from duplexmt.kernels import int8
from duplexmt.kernels.int8 import Int8Embedding, Int8Linear, exact_products, rounded, to_int8
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.streaming.systems import build_system

from ..helpers import SENTENCES, spoken_grid, tiny_backbone, tiny_tokenizer
from ..model_folder.test_artifact import outputs, save

pytestmark = pytest.mark.skipif(not exact_products(), reason="this processor has no exact integer products")


def linear_of(inputs, outputs, bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs, bias)


def naive(linear, rows):
    """The product of the rounded numbers, in integers."""
    (w, w_scale), (x, x_scale) = rounded(linear.weight.detach()), rounded(rows)
    exact = (x.long() @ w.long().T).double() * x_scale.double() * w_scale.double().T
    return exact if linear.bias is None else exact + linear.bias.detach().double()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (2, 3, 40), (0, 40)])
def test_a_layer_is_the_integer_product_of_rounded_rows_and_weights(shape, bias):
    linear = linear_of(40, 24, bias)
    rows = torch.randn(shape) * torch.logspace(-3, 3, 40)
    found = Int8Linear(linear)(rows)
    assert found.shape == (*shape[:-1], 24)
    torch.testing.assert_close(found.double(), naive(linear, rows), rtol=1e-5, atol=1e-5)


def test_rounding_errs_by_half_a_step_at_most_and_leaves_zeros_alone():
    rows = torch.cat((torch.randn(5, 30), torch.zeros(1, 30)))
    integers, scale = rounded(rows)
    assert bool(((integers * scale - rows).abs() <= scale / 2 * 1.001).all())
    assert integers.abs().max() == 127
    assert not integers[-1].any()


@pytest.mark.parametrize(
    ("options", "tied"), [({}, False), ({"attention": "exact", "input_attends_output": False}, True)]
)
def test_a_loaded_model_in_bfloat16_keeps_its_heads_and_positions_in_float32(tmp_path, options, tied):
    backbone = tiny_backbone(vocab_size=len(tiny_tokenizer()), seed=5, tie_word_embeddings=tied)
    folder = save(tmp_path / "model", build_grid(backbone, **options))
    plain, small = load_model_folder(folder), load_model_folder(folder, quantize="bfloat16")
    assert small.info["quantize"] == "bfloat16"
    model = small.model
    heads = {id(weight) for head in (model.text_head, model.emit_head) for weight in head.parameters()}
    kinds = {weight.dtype for weight in model.parameters() if id(weight) not in heads}
    assert (model.dtype, kinds) == (torch.bfloat16, {torch.bfloat16})
    assert {weight.dtype for weight in model.parameters() if id(weight) in heads} == {torch.float32}
    assert model.decoder.rotary_emb.inv_freq.dtype == torch.float32
    for ours, theirs in zip(outputs(model), outputs(plain.model), strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 0.1
    sources = token_ids(tiny_tokenizer(), [pair[0] for pair in SENTENCES])
    for streams in (1, 4):
        system = build_system(small, "grid", 0.5, max_target_tokens=8, batch_size=streams)
        assert len(list(map(str, system.translate(sources[:4])))) > 8


@pytest.mark.parametrize("options", [{}, {"attention": "exact", "input_attends_output": False}])
def test_a_loaded_model_in_int8_is_near_the_one_in_float32_by_grid_and_by_cache(tmp_path, options):
    folder = save(tmp_path / "model", spoken_grid(**options))
    plain, small = load_model_folder(folder), load_model_folder(folder, quantize="int8")
    assert small.info["quantize"] == "int8"
    assert "quantize" not in plain.info
    kinds = {type(module) for module in small.model.backbone.modules()}
    assert {Int8Linear, Int8Embedding} <= kinds
    assert not kinds & {nn.Linear, nn.Embedding}
    for ours, theirs in zip(outputs(small.model), outputs(plain.model), strict=True):
        assert not torch.equal(ours, theirs)
        assert float((ours - theirs).norm() / theirs.norm()) < 0.1
    sources = token_ids(tiny_tokenizer(), [pair[0] for pair in SENTENCES])
    together = build_system(small, "grid", 0.5, max_target_tokens=8)
    assert list(map(str, together.translate(sources[:1])))  # decodes


def test_int8_is_refused_where_it_cannot_be(monkeypatch):
    model = copy.deepcopy(spoken_grid())
    monkeypatch.setattr(int8, "exact_products", lambda: False)
    with pytest.raises(ValueError, match="not exact"):
        to_int8(model.backbone)
    with pytest.raises(ValueError, match=r"for decoding on a CPU, and the model is on meta"):
        to_int8(nn.Linear(2, 2, device="meta"))
