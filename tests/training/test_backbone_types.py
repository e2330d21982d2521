"""Backbones of types that nothing here knows by name: they train, are saved, and give the same logits again."""

import json

import pytest
import torch

from duplexmt.data.batch import collate
from duplexmt.decoder.backbone import add_lora, freeze_in, pretrained_backbone
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.model import build_grid
from duplexmt.model_folder.artifact import load_model_folder
from tests.commands import run, succeeded
from tests.helpers import SENTENCES, model_folder, tiny_backbone, tiny_tokenizer

from .small_run import small_data, small_module, small_prefix_module, small_trainer

ROWS = {"attention": "exact", "input_attends_output": False, "emit_hidden": 4}
# Soft caps of scores and logits, sliding windows, two rotary bases, layers without rotary positions, biases, half of a
# head rotated, projections in one; all of them shorter than the texts.
TYPES = {
    "gemma2": {"query_pre_attn_scalar": 8, "sliding_window": 6, "final_logit_softcapping": 5.0},
    "gemma3_text": {
        "query_pre_attn_scalar": 8, "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {},
}  # fmt: skip


def base_of(kind, folder):
    """A tiny model of a type on disk, with the tokenizer of the tests."""
    tiny_backbone(kind, vocab_size=len(tiny_tokenizer()), scale=0.15, **TYPES[kind]).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def logits_of(model):
    """Of a few pairs at all rows, or of the whole source."""
    source, target, _ = (batch := collate(small_data(4).examples("train")[:4])).packed()
    rows = [[torch.full((Y,), x) for x in (range(1, X + 1) if model.rows else [X])] for X, Y in batch.shapes]
    with torch.no_grad():
        states = model.eval().states(torch.cat((source, target)), model.layout(batch.shapes, rows))
        return [model.text_logits(states), *([model.emit_logits(states)] if model.rows else [])]


@pytest.mark.parametrize(
    ("kind", "system", "lora"),
    [
        ("gemma2", "rows", False), ("gemma2", "waitk", True), ("gemma3_text", "rows", True),
        ("smollm3", "waitk", False), ("phi", "rows", True), ("phi3", "waitk", True),
    ],
)  # fmt: skip
def test_steps_of_training_survive_saving_and_give_the_same_logits(kind, system, lora, tmp_path):
    base = base_of(kind, tmp_path / "base")
    backbone = pretrained_backbone(base, len(tiny_tokenizer()))
    if lora:
        backbone = add_lora(backbone, rank=4, alpha=8, dropout=0.0, target_modules=["all-linear"])
    settings = {"warmup_steps": 0, "learning_rate": 1e-2, "dropout": 0.1}
    if system == "rows":
        losses = {"rows": 3, "lm_cells": "drawn_visits", "emit_loss": "regret"}
        module = small_module(build_grid(backbone, **ROWS), **losses, **settings)
    else:
        module = small_prefix_module(DecoderModel(backbone, k="multi"), **settings)
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    trainer = small_trainer(max_steps=3, limit_val_batches=1.0)
    trainer.fit(module, small_data(6))
    assert torch.isfinite(trainer.callback_metrics["validation/lm_loss"])
    changed = {name for name, weight in module.named_parameters() if not torch.equal(weight, before[name])}
    trained = {name for name, weight in module.named_parameters() if weight.requires_grad}
    assert changed == trained
    if lora:
        layers = {name.split(".lora_")[0].split(".")[-1] for name in trained if ".lora_" in name}
        assert layers == {
            n.split(".")[-1] for n, p in module.model.decoder.layers.named_modules() if hasattr(p, "base_layer")
        }
    loaded = load_model_folder(model_folder(tmp_path / "model", module.model, backbone=base if lora else None))
    for found, expected in zip(logits_of(loaded.model), logits_of(module.model), strict=True):
        # LoRA is merged.
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * expected.abs().max().item())


def test_lora_of_layers_a_type_has_not_is_refused_with_those_it_has(tmp_path):
    for kind, there in (("phi", "q_proj, k_proj, v_proj, dense, fc1, fc2"), ("phi3", "o_proj, qkv_proj, gate_up_proj")):
        with pytest.raises(ValueError, match=f"the layers of a {kind} have no .*gate_proj.*; they have {there}"):
            add_lora(tiny_backbone(kind), rank=2, alpha=4, dropout=0.0, target_modules=["gate_proj", "o_proj", "fc2"])


@pytest.mark.parametrize("kind", ["gemma2", "phi"])
def test_frozen_weights_in_half_precision_train(kind):
    backbone = tiny_backbone(kind, vocab_size=len(tiny_tokenizer()), scale=0.15, **TYPES[kind])
    backbone = add_lora(backbone, rank=4, alpha=8, dropout=0.0, target_modules=["all-linear"])
    freeze_in(torch.bfloat16, backbone)
    module = small_module(build_grid(backbone, **ROWS), rows=3)
    trainer = small_trainer(precision="bf16-mixed", max_steps=2, limit_val_batches=1.0)
    trainer.fit(module, small_data(6))
    assert torch.isfinite(trainer.callback_metrics["validation/lm_loss"])
    matrices = {w.dtype for w in module.parameters() if not w.requires_grad and w.ndim == 2}
    assert matrices == {torch.bfloat16}


QUIET = [
    "data=pairs", "data.validation_size=3", "data.test_size=3", "trainer.max_steps=2", "trainer.accelerator=cpu",
    "training.sample_size=0", "probes.count=0", "demonstrate=0", "data.batch_size=4",
]  # fmt: skip


@pytest.mark.slow
def test_the_command_trains_what_a_folder_holds(tmp_path):
    kind, given = "gemma2", ["model.attention=exact", "model.input_attends_output=false", "training.rows=3"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES), encoding="utf-8")
    base = base_of(kind, tmp_path / "base")
    files = [f"data.path='{pairs}'", f"model.backbone='{base}'", f"data.tokenizer='{base}'", "model.architecture=null"]
    succeeded(run("train.py", *QUIET, *files, *given, f"hydra.run.dir='{tmp_path / 'run'}'"))
    loaded = load_model_folder(tmp_path / "run" / "model")
    assert loaded.model.causal_lm.config.model_type == kind
    info = json.loads((tmp_path / "run" / "model" / "duplexmt.json").read_text(encoding="utf-8"))
    assert loaded.model.options == info["grid" if info["system"] == "grid" else "prefix"]
