"""Training of wait-k and offline: gradients, resuming, LoRA, saving, decoding."""

import json
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.decoder.backbone import add_lora, pretrained_backbone
from duplexmt.decoder.model import DecoderModel
from duplexmt.decoder.schedules import drawn_delays, visible_source
from duplexmt.grid.model import GridModel
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.streaming.events import collect
from duplexmt.streaming.systems import build_system
from tests.decoder.oracle import hugging_face_logits
from tests.helpers import SENTENCES, float64, model_folder, tiny_backbone, tiny_prefix, tiny_tokenizer

from . import small_run
from .small_run import built_trainer, small_data, small_module, small_prefix_module, small_sample, small_trainer

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "v_proj", "up_proj"]}
SOURCES = token_ids(tiny_tokenizer(), [source for source, _ in SENTENCES[:4]])


first_gradients = partial(small_run.first_gradients, made=small_prefix_module)
assert_same = partial(small_run.assert_same, tolerance=1e-8)  # Lightning logs, and so divides, in float32


# --- one optimiser step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", ["multi", None])
def test_gradients_are_those_of_the_mean_over_the_target_tokens_of_the_step(tmp_path, k):
    """Worked pair by pair, without batch or loader, by Hugging Face's own model under a dense mask."""
    lm, losses = float64(tiny_backbone(vocab_size=len(tiny_tokenizer()), seed=5)), []
    lm.config._attn_implementation = "sdpa"
    for example in small_data(12).examples("train"):
        source, target = torch.tensor(example.source), torch.tensor(example.target)
        own = drawn_delays([example.key], [example.shape], 0) if k == "multi" else k
        sees = visible_source(own, torch.tensor([len(source)]), len(target) - 1)[0].tolist()
        logits = hugging_face_logits(lm, source, target[:-1], sees, len(source))
        losses.append(F.cross_entropy(logits, target[1:], reduction="none"))
    torch.cat(losses).mean().backward()
    expected = {f"model.backbone.{name}": weight.grad for name, weight in lm.named_parameters()}
    assert_same(first_gradients(tmp_path, 12, k=k), expected)


def test_positions_inside_prefixes_are_not_scored_and_the_source_prefix_is_always_seen():
    module = small_prefix_module(k=1)
    module.tokens = stream_tokens(tiny_tokenizer(), source_prefix="老师", target_prefix="The")
    rows, columns = len(module.tokens.source_prefix), len(module.tokens.target_prefix)
    assert min(rows, columns) >= 1
    batch = collate([module.tokens.example([70, 71, 72], [80, 81])])
    assert module.scored(batch) == 3
    sees = torch.tensor([rows + 1] * (columns + 1) + [rows + 2, rows + 3])
    layout = module.model.layout(batch.shapes, [[sees]])
    hidden = module.model.states(torch.cat((batch.source[0], batch.target[0])), layout)[columns:]
    expected = F.cross_entropy(module.model.text_logits(hidden), torch.tensor([80, 81, 0]), reduction="sum")
    torch.testing.assert_close(module.lm_sum(batch), expected)


# --- a run -----------------------------------------------------------------------------------------------------------


def fit(folder, *, k=2, resume=False, accumulate=2, **limits):
    """Train wait-k in a folder as `train.py` does, with the sample that is translated after each validation."""
    module = small_prefix_module(tiny_prefix(k, vocab_size=len(tiny_tokenizer()), layers=1, seed=5).double())
    trainer = built_trainer(
        folder, small_sample(4, "waitk", 2), accumulate_grad_batches=accumulate, gradient_clip_val=1.0, **limits
    )
    checkpoint = folder / "checkpoints" / "last.ckpt" if resume else None
    trainer.fit(module, small_data(1), ckpt_path=checkpoint, weights_only=True)
    return module.state_dict(), trainer


def test_a_resumed_run_ends_with_exactly_the_weights_of_an_undisturbed_one(tmp_path):
    whole, _ = fit(tmp_path / "whole", k="multi", max_epochs=-1, max_steps=9)
    fit(tmp_path / "parts", k="multi", max_epochs=-1, max_steps=7)  # in the second epoch
    resumed, trainer = fit(tmp_path / "parts", k="multi", resume=True, max_epochs=-1, max_steps=9)
    assert trainer.global_step == 9
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_validation_means_run_over_all_tokens_of_all_batches():
    module, data = small_prefix_module(), small_data(3)
    trainer = small_trainer(limit_val_batches=1.0)
    trainer.validate(module, data, verbose=False)
    batch = collate(data.examples("validation"))
    expected = (module.lm_sum(batch) / module.scored(batch)).detach()
    got = trainer.callback_metrics["validation/lm_loss"].double()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("system", ["grid", "waitk"])
def test_frozen_weights_in_half_precision_train_and_the_sample_is_translated_in_whole_precision(system):
    backbone = add_lora(tiny_backbone(vocab_size=len(tiny_tokenizer())), **LORA)
    frozen = [weight for weight in backbone.parameters() if not weight.requires_grad]
    for weight in frozen:
        weight.data = weight.data.bfloat16()
    grid = system == "grid"
    made, model = (small_module, GridModel(backbone)) if grid else (small_prefix_module, DecoderModel(backbone, k=2))
    module = made(model, warmup_steps=0)
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    sample = small_sample(4, system, 0.5 if grid else 2)
    trainer = small_trainer(precision="bf16-mixed", max_steps=2, limit_val_batches=1.0, callbacks=[sample])
    trainer.fit(module, small_data(6))
    changed = {name for name, weight in module.named_parameters() if not torch.equal(weight, before[name])}
    trained = ("lora_", "lm_head.modules_to_save", "emit_head")
    assert changed == {name for name in before if any(part in name for part in trained)}
    assert "validation/AL" in trainer.callback_metrics
    assert {weight.dtype for weight in frozen} == {torch.bfloat16}, "as they were"
    assert all(weight.dtype == torch.float32 for weight in module.parameters() if weight.requires_grad)


# --- a model folder --------------------------------------------------------------------------------------------------


def translations(trained, name, setting):
    system = build_system(trained, name, setting, max_target_tokens=8)
    return collect(system.translate(SOURCES), len(SOURCES))


@pytest.mark.parametrize(
    ("k", "systems", "lora"),
    [(3, [("waitk", 3), ("waitk", 1)], False), (None, [("offline", None), ("local_agreement", 2), ("waitk", 2)], True)],
)
def test_a_step_of_training_survives_saving_and_decodes_as_before(tmp_path, k, systems, lora):
    """A tiny tied Qwen2 on disk goes through from_pretrained, (LoRA,) a training step, save, load and decoding."""
    base = tiny_backbone(vocab_size=len(tiny_tokenizer()), scale=0.15, tie_word_embeddings=True)
    base.save_pretrained(tmp_path / "base")
    backbone = pretrained_backbone(str(tmp_path / "base"), len(tiny_tokenizer()))
    module = small_prefix_module(
        DecoderModel(add_lora(backbone, **LORA) if lora else backbone, k=k, anchor=12),
        warmup_steps=0,
        learning_rate=1e-2,
    )
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    small_trainer(max_steps=2).fit(module, small_data(6))
    changed = {name for name, weight in module.named_parameters() if not torch.equal(weight, before[name])}
    trained = {name for name in before if not lora or "lora_" in name or "lm_head.modules_to_save" in name}
    assert changed == trained
    folder = model_folder(tmp_path / "model", module.model, backbone=str(tmp_path / "base") if lora else None)
    info = json.loads((folder / "duplexmt.json").read_text(encoding="utf-8"))
    assert (info["system"], info["prefix"]["k"]) == ("waitk" if k else "offline", k)
    assert not (folder / "emit_head.safetensors").exists()
    loaded = load_model_folder(folder)
    module.eval()
    for name, setting in systems:
        assert translations(loaded, name, setting) == translations(module, name, setting)
        assert any(hypothesis.tokens for hypothesis in translations(loaded, name, setting))
    with pytest.raises(ValueError, match="system='grid' cannot be run on a"):
        translations(loaded, "grid", 0.5)
