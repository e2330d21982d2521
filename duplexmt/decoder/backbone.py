"""Backbones: a pretrained Hugging Face decoder or one with random weights, trained in full or with LoRA."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .model import check_decoder, check_rotary

ALL = "all-linear"  # as PEFT calls them
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
)  # fmt: skip


def pretrained_backbone(name_or_folder: str, vocab_size: int | None = None) -> Any:
    """Load a causal language model in float32 from a folder, or by name from the hub. Safetensors weights only.

    Args:
        name_or_folder: as for `from_pretrained`.
        vocab_size: entries of the tokenizer that will be used with it, to be checked.

    Raises:
        ValueError: if there is no such model, its attention is not supported, its weights are not those its
            configuration asks for, or its vocabulary is too small.
    """
    config = backbone_config(name_or_folder)
    check_decoder(config)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name_or_folder,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,  # or Hugging Face asks, and waits for an answer
            ignore_mismatched_sizes=True,  # told below
            output_loading_info=True,
        )
    except (OSError, SafetensorError) as error:
        raise _none_there(name_or_folder, error) from error
    model, found = loaded
    # Hugging Face would go on with random weights in their place.
    wrong = sorted([*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])])
    if wrong:
        raise ValueError(
            f"model.backbone={name_or_folder!r}: {len(wrong)} of the weights its config.json asks for are missing or "
            f"of another shape, such as {wrong[0]}: give a folder as save_pretrained of a causal language model "
            "writes it"
        )
    if vocab_size is not None and vocab_size > config.vocab_size:
        raise ValueError(
            f"the tokenizer has {vocab_size} entries, the backbone {name_or_folder!r} embeds {config.vocab_size}: "
            "use the backbone's own tokenizer (data.tokenizer)"
        )
    return model


def backbone_config(name_or_folder: str) -> Any:
    """The configuration of a pretrained model, as `pretrained_backbone` finds it, without its weights.

    Raises:
        ValueError: if there is no such model.
    """
    try:
        return AutoConfig.from_pretrained(name_or_folder, trust_remote_code=False)
    except (OSError, ValueError) as error:  # ValueError: a folder without a config.json, or one of no model
        raise _none_there(name_or_folder, error) from error


def _none_there(name_or_folder: str, error: Exception) -> ValueError:
    return ValueError(
        f"model.backbone={name_or_folder!r}: no causal language model with safetensors weights could be loaded "
        f"from there ({error}); give a folder that holds one, or a Hugging Face name on a machine with network"
    )


def random_backbone(architecture: Mapping[str, Any], vocab_size: int, end_token: int) -> Any:
    """A causal language model with random weights.

    Args:
        architecture: `model_type` (qwen2, llama, gemma3_text, …) and values of its Hugging Face configuration.
        end_token: id of the end token.

    Raises:
        ValueError: for a type that is not supported, or values that do not fit together.
    """
    values = dict(architecture)
    model_type = values.pop("model_type", None)
    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError(
            f"model.architecture.model_type={model_type!r}: Hugging Face has no causal language model of that type; "
            "those with rotary positions serve, such as qwen2, qwen3, llama, mistral, gemma3_text, smollm3, phi3"
        )
    usual = AutoConfig.for_model(model_type)
    check_rotary(usual)
    for name in SIZES:
        if isinstance(size := values.get(name), int) and size < 1:
            raise ValueError(f"model.architecture.{name}={size}: must be at least 1")
    if (activation := values.get("hidden_act", "silu")) not in ACT2FN:
        raise ValueError(
            f"model.architecture.hidden_act={activation!r}: Hugging Face has no such activation; the usual one is silu"
        )
    if unknown := values.keys() - usual.to_dict().keys():
        raise ValueError(f"model.architecture.{min(unknown)}: a {model_type} configuration has no such value")
    try:
        config = AutoConfig.for_model(
            model_type, **values, vocab_size=vocab_size, bos_token_id=None, eos_token_id=end_token, pad_token_id=None
        )
    except (TypeError, KeyError, StrictDataclassError) as error:
        raise ValueError(f"model.architecture: {error}") from error
    heads = config.num_attention_heads  # Hugging Face's own where none are given
    key_heads = getattr(config, "num_key_value_heads", heads)
    if heads % key_heads:
        raise ValueError(
            f"model.architecture: num_attention_heads={heads} is no multiple of num_key_value_heads={key_heads}"
        )
    own = getattr(config, "head_dim", None)
    if own is None and config.hidden_size % heads:
        raise ValueError(f"model.architecture: hidden_size={config.hidden_size} is no multiple of {heads} heads")
    if (own or config.hidden_size // heads) % 2:
        raise ValueError(
            "model.architecture: rotary positions need an even head_dim (hidden_size / num_attention_heads)"
        )
    check_decoder(config)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def freeze_in(dtype: torch.dtype, model: nn.Module) -> None:
    """Keep frozen weights in half precision: nothing updates them, and products are in that type anyway. Quantised ones
    stay as they are; a layer norm wants its own as wide as the residual stream."""
    wide = {id(w) for part in model.modules() if isinstance(part, nn.LayerNorm) for w in part.parameters()}
    for weight in model.parameters():
        if not weight.requires_grad and weight.dtype.is_floating_point and id(weight) not in wide:
            weight.data = weight.data.to(dtype)


def add_lora(model: Any, *, rank: int, alpha: int, dropout: float, target_modules: Sequence[str]) -> nn.Module:
    """Freeze a backbone, add LoRA to the named linear layers, and train its text head in full (`tab:train-hparam`).

    A tied text head is untied: PEFT trains a copy of it, the embedding stays frozen.

    Args:
        target_modules: names of linear layers inside the decoder's; `all-linear` alone for all there are.

    Raises:
        ValueError: for a module name that matches nothing.
    """
    from peft import LoraConfig, get_peft_model

    layers = model.get_decoder().layers.named_modules()
    there = list(dict.fromkeys(name.split(".")[-1] for name, part in layers if isinstance(part, nn.Linear)))
    if unknown := [] if list(target_modules) == [ALL] else [name for name in target_modules if name not in there]:
        raise ValueError(
            f"model.lora.target_modules: the layers of a {model.config.model_type} have no {', '.join(unknown)}; they "
            f"have {', '.join(there)}: give some of these, or [{ALL}]"
        )
    (head,) = (name for name, part in model.named_modules() if part is model.get_output_embeddings())
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=there if list(target_modules) == [ALL] else list(target_modules),
        modules_to_save=[head],
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")  # untied on purpose
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")  # PEFT uses the old name
        return get_peft_model(model, config)
