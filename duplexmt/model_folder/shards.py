"""Weights in files of a chosen size, as Hugging Face lays them out: shards, and an index that says what is where.

NAME.safetensors                                   one file, or
NAME-00001-of-00003.safetensors, …, NAME.safetensors.index.json
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from torch import Tensor


def split_file(path: Path, max_shard_size: str) -> None:
    """Replace a safetensors file by shards of at most `max_shard_size`, and an index, where it is larger than that.

    A tensor is never cut up: one that is larger has a shard of its own.

    Args:
        path: NAME.safetensors.
        max_shard_size: such as 40MB.
    """
    weights = load_file(path)
    path.unlink()
    save_torch_state_dict(
        weights, path.parent, filename_pattern=f"{path.stem}{{suffix}}.safetensors", max_shard_size=max_shard_size
    )


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of NAME.safetensors, or of its shards.

    Raises:
        ValueError: naming a shard that is missing or damaged, or a file that is not there at all.
    """
    index = path.with_name(path.name + ".index.json")
    if not index.is_file():
        if not path.is_file():
            raise ValueError(f"{path} is missing, and so is {index.name}: copy or save the model again")
        return load_file(path)
    try:
        where: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{index} is damaged ({error!r}): copy or save the model again") from error
    weights: dict[str, Tensor] = {}
    for name in sorted(set(where.values())):
        shard = path.with_name(name)
        if not shard.is_file():
            raise ValueError(
                f"{shard} is missing, one of {len(set(where.values()))} shards of {path.name}: copy it again"
            )
        weights |= load_file(shard)
    if lost := sorted(where.keys() - weights.keys()):
        raise ValueError(f"{path.parent}: the shards of {path.name} lack {lost[0]!r}: copy or save the model again")
    return weights


def load_adapter(base: Any, folder: Path) -> Any:
    """A `PeftModel` around a backbone, with the adapter of a folder, sharded or not."""
    from peft import PeftConfig, PeftModel, get_peft_model
    from peft.utils import set_peft_model_state_dict

    if (folder / "adapter_model.safetensors").is_file():
        return PeftModel.from_pretrained(base, str(folder))
    weights = load_weights(folder / "adapter_model.safetensors")
    config = PeftConfig.from_pretrained(str(folder))
    config.base_model_name_or_path = base.config._name_or_path
    model = get_peft_model(base, config)
    found: Any = set_peft_model_state_dict(model, weights)
    if found.unexpected_keys:
        raise ValueError(f"{folder}: the adapter has {found.unexpected_keys[0]!r}, which this backbone has not")
    return model
