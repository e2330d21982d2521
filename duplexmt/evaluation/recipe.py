"""What models were trained from and with: which are one system but for their seeds, and in what others differ."""

import json
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

# What a manifest records that makes no other kind of model: seeds, what is held out, how memory is saved, what is kept
# and shown; and what `telling_apart` has already, of a grid.
ASIDE = {
    "data": ("seed", "licence", "prepared", "validation_path", "test_path", "validation_size", "test_size", "held_out"),
    "training": (
        "seed", "typical_source_length", "recompute", "compile", "sample_size", "checkpoint_every_n_steps", "snapshots",
        "max_shard_size", "lm_cells", "emit_loss", "emit_weight", "emit_learning_rate", "rows",
    ),
}  # fmt: skip
SHAPE = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SHAPES = {  # files of a model folder, and what of them tells models apart
    "config.json": SHAPE,
    "backbone/config.json": SHAPE,
    "adapter_config.json": ("r", "lora_alpha", "lora_dropout", "target_modules"),
}
# So were most models trained whose folders do not record it.
USUAL = {"max_steps": -1, "accumulate_grad_batches": 1, "gradient_clip_val": 1.0, "whole_batches": 1}


def recipe_of(folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """What a model was trained from and with, by name: all that its folder records but seeds and what matters to no
    model. The data and training of its bases are among it (`base 1 path`), their seeds are not. Empty and absent values
    are left out alike; a tokenizer is known by the last part of its name, as bases of other seeds lie in other
    folders."""
    found: dict[str, Any] = {name: info.get(name) for name in ("backbone", "adaptation")}
    trainings = info.get("trainings_before", [])  # older folders have none
    before: Any = zip_longest(info.get("trained_before", []), trainings, fillvalue={})
    for number, (data, training) in enumerate(before, start=1):
        found |= {f"base {number} {name}": value for name, value in _of(data, training).items()}
    found |= _of(info.get("data", {}), info.get("training", {}))
    for name, wanted in SHAPES.items():
        if name in info["files"]:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            values = {key: content.get(key) for key in wanted}
            found |= {key: sorted(value) if isinstance(value, list) else value for key, value in values.items()}
    return {name: value for name, value in found.items() if value not in (None, "", 0, [])}


def _of(data: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Of one training's settings what makes a model of another kind. Its `batch_size` is that of all devices together:
    two with 16 pairs each train as one with 32 does; `batch_tokens` likewise."""
    found = {name: value for name, value in data.items() if name not in ASIDE["data"]}
    if found.get("tokenizer"):
        found["tokenizer"] = Path(found["tokenizer"]).name
    found |= {name: value for name, value in training.items() if name not in ASIDE["training"]}
    if found.get("batch_tokens") in ("auto", None):
        found.pop("batch_tokens", None)
    size = "batch_tokens" if "batch_tokens" in found else "batch_size"
    if size == "batch_tokens":
        found.pop("batch_size", None)  # which nothing looked at
    if found.get(size) and not found.get("batch_cells"):
        found[size] *= found.pop("whole_batches", 1)
    return {name: value for name, value in found.items() if value not in (None, "", 0, [], USUAL.get(name))}
