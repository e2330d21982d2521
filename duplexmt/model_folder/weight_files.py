"""Weights in files of a chosen size, as Hugging Face lays them out: shards, and an index that says what is where.

NAME.safetensors                                   one file, or
NAME-00001-of-00003.safetensors, …, NAME.safetensors.index.json
"""

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


def load_adapter(base: Any, folder: Path) -> Any:
    """A `PeftModel` around a backbone, with the adapter of a folder, sharded or not.

    Args:
        folder: whole, as the manifest of a model folder has it.
    """
    from peft import PeftConfig, get_peft_model
    from peft.utils import set_peft_model_state_dict

    weights: dict[str, Tensor] = {}
    for file in folder.glob("adapter_model*.safetensors"):
        weights |= load_file(file)
    config = PeftConfig.from_pretrained(str(folder))
    config.base_model_name_or_path = base.config._name_or_path
    model = get_peft_model(base, config)
    found: Any = set_peft_model_state_dict(model, weights)
    if found.unexpected_keys:
        raise ValueError(f"{folder}: the adapter has {found.unexpected_keys[0]!r}, which this backbone has not")
    return model
