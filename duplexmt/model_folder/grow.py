"""A larger base out of a model that computes the same: wider and deeper, ready to be trained on.

    python -m duplexmt.model_folder.grow models/zh-en runs/grown --hidden 384 --layers 8

The new model, a Qwen2, gives the same logits (its norms' ε apart): what is new only reads. New channels of the residual
stream are read by random weights and written by zeros, and the embedding has zeros there; new heads, units and layers
write nothing yet. What writes has a gradient from the first step on, what reads from the second. A norm divides by the
root mean square over all channels, hence its old weights times √(old/new width). Function-preserving growth: Net2Net
(Chen et al., 2016), bert2BERT (Chen et al., 2022). Heads keep their size, and as many of them share a key as before.
"""

import copy
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..common.command import command_parser
from ..decoder.model import DecoderModel
from .artifact import load_model_folder, save_model_folder

WRITES = ("o_proj.weight", "down_proj.weight")  # what writes to the residual stream


def widened(old: Tensor, new: Tensor, name: str) -> Tensor:
    """`new`, random, with the values of `old` in its first rows and columns, and zeros where it would add to what the
    old model computes."""
    if "norm" in name:
        old = old * (len(old) / len(new)) ** 0.5
    elif name.endswith((*WRITES, "embed_tokens.weight", "bias")):
        new = torch.zeros_like(new)
    new[tuple(slice(n) for n in old.shape)] = old
    return new


@torch.no_grad()
def grown(model: PreTrainedModel, hidden: int, layers: int, seed: int = 0) -> PreTrainedModel:
    """A model of `layers` layers of width `hidden` whose logits are those of `model`.

    Raises:
        ValueError: If it is no larger, or if `hidden` is no whole number of groups of heads.
    """
    config = copy.deepcopy(model.config)
    head = config.hidden_size // config.num_attention_heads
    group = head * config.num_attention_heads // config.num_key_value_heads
    if hidden % group or hidden < config.hidden_size or layers < config.num_hidden_layers:
        raise ValueError(
            f"--hidden {hidden} --layers {layers}: must be a multiple of {group} (a key's heads) from "
            f"{config.hidden_size} on, and {config.num_hidden_layers} layers or more"
        )
    config.intermediate_size = config.intermediate_size * hidden // config.hidden_size
    config.num_attention_heads = hidden // head
    config.num_key_value_heads = hidden // group
    config.hidden_size, config.num_hidden_layers = hidden, layers
    config.layer_types = None  # one a layer; full attention by default
    config = type(config)(**{k: v for k, v in config.to_dict().items() if v is not None})
    torch.manual_seed(seed)
    new = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    old = model.state_dict()
    for name, values in new.state_dict().items():
        if name in old:
            values.copy_(widened(old[name].float(), values.clone(), name))
        elif name.endswith(WRITES):  # of a new layer
            values.zero_()
    return new


def main() -> None:
    """Write the grown model to a model folder, an offline one, which says what data the small one has seen."""
    parser = command_parser(__doc__)
    parser.add_argument("model", help="a model folder")
    parser.add_argument("into", type=Path)
    parser.add_argument("--hidden", type=int, required=True, help="channels")
    parser.add_argument("--layers", type=int, required=True)
    asked = parser.parse_args()
    try:
        small = load_model_folder(asked.model)
        new = grown(small.model.causal_lm, asked.hidden, asked.layers)
        offline = DecoderModel(new, anchor=small.model.anchor)
        kept = {name: small.info[name] for name in ("data", "training", "trained_before")}
        how = {"backbone": None, "policy": {}, "scores": {}, "name": "grown"} | kept
        save_model_folder(asked.into, offline, small.tokenizer, small.tokens, **how)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{asked.into}: {new.num_parameters() / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
