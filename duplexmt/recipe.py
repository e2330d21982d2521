"""What models were trained from and with: which are one system but for their seeds, and in what others differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluation import Point

# What a manifest records that makes no other kind of model: seeds, what is held out, how memory is saved, what is kept
# and shown; and what `telling_apart` has already, of a grid.
ASIDE = {
    "data": ("seed", "licence", "prepared", "validation_path", "test_path", "validation_size", "test_size", "held_out"),
    "training": (
        "seed", "typical_source_length", "recompute", "compile", "sample_size", "checkpoint_every_n_steps", "snapshots",
        "max_shard_size", "lm_cells", "emit_loss", "emit_weight", "emit_learning_rate",
    ),
}  # fmt: skip
SHAPE = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SHAPES = {  # files of a model folder, and what of them tells models apart
    "config.json": SHAPE,
    "backbone/config.json": SHAPE,
    "adapter_config.json": ("r", "lora_alpha", "lora_dropout"),
}
PATHS = ("path", "train_path", "root")  # of the corpus
MOST_NAMED = 3  # entries of a recipe in a name


def recipe_of(folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """What a model was trained from and with, by name: all that its folder records but seeds and what matters to no
    model. Empty and absent values are left out alike; a tokenizer is known by the last part of its name, as bases of
    other seeds lie in other folders."""
    found: dict[str, Any] = {name: info.get(name) for name in ("backbone", "adaptation")}
    for part, aside in ASIDE.items():
        found |= {name: value for name, value in info.get(part, {}).items() if name not in aside}
    if found.get("tokenizer"):
        found["tokenizer"] = Path(found["tokenizer"]).name
    for name, wanted in SHAPES.items():
        if name in info["files"]:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            found |= {key: content.get(key) for key in wanted}
    return {name: value for name, value in found.items() if value not in (None, "", 0, [])}


def with_recipe(point: "Point", info_of: Any) -> "Point":
    """A point that says what its model was trained with, as far as that can be known: evaluations of before did not
    record it, but their model folder may still be there (`check_models` has seen that it holds no other model)."""
    folder = Path(point.model_folder)
    return point if point.recipe or not folder.is_dir() else replace(point, recipe=recipe_of(folder, info_of(folder)))


def named_apart(points: Sequence["Point"]) -> list["Point"]:
    """Points to be named: to their options is added in what the recipes of a system's models differ. Where that is more
    than `MOST_NAMED` settings, names would be too long, and runs tell models apart."""
    found = []
    for point in points:
        recipes = [other.recipe for other in points if other.system == point.system and other.recipe]
        names = dict.fromkeys(name for recipe in recipes for name in recipe)
        differing = [name for name in names if any(recipe.get(name) != recipes[0].get(name) for recipe in recipes)]
        shown = {
            name: _shown(name, point.recipe[name], [recipe.get(name) for recipe in recipes])
            for name in differing
            if name in point.recipe and len(differing) <= MOST_NAMED
        }
        found.append(replace(point, options=point.options | shown))
    return found


def _shown(name: str, value: Any, among: Sequence[Any]) -> Any:
    """Of a list its members, of a path its last part, where that tells it from the others."""
    if isinstance(value, list | dict):
        return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
    others = {other for other in among if other and other != value} if name in PATHS else set()
    alone = name in PATHS and Path(value).name not in {Path(other).name for other in others}
    return Path(value).name if alone else value
