"""Frozen weights in 8 or 4 bits, by bitsandbytes: LoRA over them trains, is saved, goes on, and is loaded."""

import builtins

import pytest
import torch

from duplexmt.decoder.backbone import add_lora, freeze_in, pretrained_backbone
from duplexmt.decoder.model import DecoderModel
from duplexmt.decoder.quantised import dequantise, frozen_as, quantise
from duplexmt.grid.model import build_grid
from duplexmt.model_folder.artifact import load_model_folder
from tests.helpers import model_folder, tiny_backbone, tiny_tokenizer
from tests.training.sharded_run import LORA, ROWS, WIDE
from tests.training.small_run import built_trainer, small_data, small_module, small_sample

pytest.importorskip("bitsandbytes", reason="optional: pip install bitsandbytes")
KINDS = {"int8": 0.02, "int4": 0.2}  # how far rounding moves a weight, of the largest


def rounded(kind, **values):
    model = tiny_backbone(vocab_size=len(tiny_tokenizer()), **WIDE | values)
    quantise(model, kind)
    return model


def matrices(model):
    return {name: w for name, w in model.get_decoder().layers.named_parameters() if "proj.weight" in name}


@pytest.mark.parametrize(("kind", "model_type"), [("int8", "qwen2"), ("int4", "qwen2"), ("int4", "gemma3_text")])
def test_matrices_of_the_layers_are_rounded_and_nothing_else(kind, model_type):
    before = tiny_backbone(model_type, vocab_size=len(tiny_tokenizer()), **WIDE)
    model = rounded(kind, model_type=model_type)
    assert frozen_as(model) == kind
    assert frozen_as(before) is None
    size = {"int8": 1, "int4": 0.5}[kind]
    for name, weight in matrices(model).items():
        assert weight.nbytes == size * matrices(before)[name].numel(), name
    dequantise(model)
    assert frozen_as(model) is None
    after = dict(model.named_parameters())
    for name, weight in before.named_parameters():
        off = (after[name] - weight).abs().max() / weight.abs().max()
        inside = name.removeprefix("model.layers.") in matrices(before)
        assert 0 < off < KINDS[kind] if inside else off == 0, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recompute", ["nothing", "layers"])
def test_lora_over_rounded_weights_has_the_gradients_of_lora_over_the_same_numbers(kind, recompute):
    """int8 rounds what it multiplies, too."""

    def gradients(plain):
        base = rounded(kind)
        if plain:
            dequantise(base)
        torch.manual_seed(3)
        model = build_grid(add_lora(base, **LORA), **ROWS).train()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.1)
        model.recompute(recompute)
        draw = torch.Generator().manual_seed(4)
        model(torch.arange(5, 10)[None], torch.arange(6)[None]).mul(torch.randn(64, generator=draw)).sum().backward()
        return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}

    found, expected = gradients(False), gradients(True)
    assert found.keys() == expected.keys()
    assert len(found) == 18
    for name, gradient in expected.items():
        tolerance = {"int8": 0.1, "int4": 1e-4}[kind] * gradient.abs().max()
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=tolerance.item(), msg=name)


@pytest.mark.parametrize(("kind", "named"), [("int8", False), ("int4", True)])
def test_a_model_folder_is_what_was_trained_whether_its_base_has_a_name_or_is_saved_along(kind, named, tmp_path):
    base = tmp_path / "base"
    tiny_backbone(vocab_size=len(tiny_tokenizer()), **WIDE).save_pretrained(base)

    def module():
        model = pretrained_backbone(str(base))
        quantise(model, kind)
        torch.manual_seed(3)
        model = add_lora(model, **LORA)
        return small_module(build_grid(model, **ROWS), learning_rate=0.01)

    def fit(steps, resume=False):
        made = module()
        trainer = built_trainer(
            tmp_path / "run", small_sample(2, "grid", 0.5), max_steps=steps, max_epochs=9, resumed=resume
        )
        last = tmp_path / "run" / "checkpoints" / "last.ckpt" if resume else None
        trainer.fit(made, small_data(4), ckpt_path=last, weights_only=True)
        assert "validation/BLEU" in trainer.callback_metrics
        return made.model.eval()

    fit(3)
    model = fit(6, resume=True)
    folder = model_folder(tmp_path / "model", model, backbone=str(base) if named else None)
    loaded = load_model_folder(folder)
    assert loaded.info.get("frozen") == (kind if named else None)
    assert frozen_as(loaded.model) is None
    assert (folder / "backbone").is_dir() != named
    source, target = torch.arange(5, 10)[None], torch.arange(6)[None]
    with torch.no_grad():
        expected, states = model(source, target), loaded.model(source, target)
    tolerance = {"int8": 0.1, "int4": 1e-4}[kind] * expected.abs().max()
    torch.testing.assert_close(states, expected, rtol=0, atol=tolerance.item())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_rounded_may_be_in_half_precision(kind, tmp_path):
    model = add_lora(rounded(kind), **LORA)
    before = {name: w.clone() for name, w in model.named_parameters() if not w.is_floating_point()}
    freeze_in(torch.bfloat16, model)
    for name, weight in before.items():
        assert torch.equal(dict(model.named_parameters())[name], weight), name
    kinds = {(w.requires_grad, w.dtype) for w in model.parameters() if w.is_floating_point()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    trainer = built_trainer(tmp_path, precision="bf16-mixed", max_steps=2, limit_val_batches=0)
    trainer.fit(small_module(build_grid(model, **ROWS)), small_data(6))
    assert trainer.global_step == 2


def test_a_proof_of_an_unknown_type_holds_over_rounded_weights():
    DecoderModel(rounded("int4", model_type="gemma3_text"), anchor=16)


@pytest.mark.parametrize("shape", [{"hidden_size": 32}, {"intermediate_size": 96}])
def test_what_would_be_rounded_wrongly_is_refused(shape):
    with pytest.raises(
        ValueError, match=r"model\.frozen=int4: \w+_proj has (32|96) columns, .* give model\.frozen=int8"
    ):
        rounded("int4", **shape)


def test_without_the_library_the_way_out_is_told(monkeypatch):
    imported = builtins.__import__

    def missing(name, *arguments, **values):
        if name == "bitsandbytes":
            raise ImportError("No module named 'bitsandbytes'")
        return imported(name, *arguments, **values)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"pip install .bitsandbytes>=0\.50., or train with model\.frozen=auto"):
        rounded("int4")
