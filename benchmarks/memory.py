"""Memory of a training step by size, adaptation and devices, counted on models without weights.

    python benchmarks/memory.py [--size 0.5B|1.5B|7B] [--pairs 16] [--tokens 33] [--check]

Wait-k steps of Qwen2.5's shapes in bfloat16 on pairs of so many tokens a side, for each device. Weights, gradients and
Adam's moments are counted on the meta device; activations are what steps of one layer and two of that width save for
their backward pass. Not counted: what kernels need for a moment, and the allocator's slack, some tenth. `--check`
compares with what a small step takes on this CPU. The last line is one JSON object: GB by size, adaptation, devices.
"""

import ctypes
import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import LORA, QWEN, QWEN_VOCABULARY, count, qwen
from duplexmt.common.command import command_parser
from duplexmt.data.batch import Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import add_lora, random_backbone
from duplexmt.decoder.decoder_options import FROZEN
from duplexmt.decoder.model import DecoderModel
from duplexmt.training.prefix_module import PrefixTranslation

GROWN = {"num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 152_064}
SIZES = {
    "0.5B": QWEN,
    "1.5B": qwen(1536, 8960, layers=28, heads=12),
    "7B": qwen(3584, 18944, layers=28, heads=28) | GROWN,
}
FULL = "full"
MOMENTS = 8  # bytes of Adam's two
BYTES = {"auto": 2, "int8": 1, "int4": 0.5 + (1 + 4 / 256) / 64}  # of a frozen matrix's number; int4: and its scales
GB = 1e9
WIDTHS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
WIDEST = 2_048  # of which two layers are trained here; wider ones are taken a quarter as wide
FEW = 1_000  # entries of a vocabulary, where its size is not the point


def model_of(shape: dict[str, Any], adaptation: str) -> DecoderModel:
    """A wait-k model of a shape, on the default device."""
    values = dict(shape)
    backbone = random_backbone(values, values.pop("vocab_size", QWEN_VOCABULARY), end_token=0)
    return DecoderModel(backbone if adaptation == FULL else add_lora(backbone, **LORA), k=3, anchor=128)


def module_of(shape: dict[str, Any], adaptation: str, recompute: str = "nothing") -> PrefixTranslation:
    """What trains it."""
    model = model_of(shape, adaptation)
    model.recompute(recompute)
    return PrefixTranslation(model, StreamTokens(end=0, seed=1), learning_rate=1e-4, warmup_steps=0)


def batch_of(pairs: int, tokens: int) -> Any:
    """Pairs of so many tokens a side."""
    return collate([Example([1] * tokens, [1] * (tokens + 1)) for _ in range(pairs)])


def saved(module: PrefixTranslation, batch: Any, half: torch.dtype | None) -> int:
    """Bytes that a step saves for its backward pass, weights left out and each storage counted once."""
    own = {weight.untyped_storage()._cdata for weight in module.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in own:
            kept[tensor.untyped_storage()._cdata] = tensor  # held, or its place would be taken by the next
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", half, enabled=half is not None):
        module.lm_sum(batch)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def activations(shape: dict[str, Any], adaptation: str, recompute: str, pairs: int, tokens: int) -> int:
    """Bytes saved in bfloat16 by all layers and the text head, from steps of one layer and two on one pair and two.

    Copies of trained weights in bfloat16 are among them: they grow with the layers, not with the pairs.
    """
    few: dict[str, Any] = {"vocab_size": FEW, "tie_word_embeddings": True}
    narrower = 4 if shape["hidden_size"] > WIDEST else 1  # what is saved of a position is in proportion to the width
    few |= {name: shape[name] // narrower for name in WIDTHS}

    def step(layers: int, some: int, entries: int = FEW, how: str = recompute) -> int:
        made = module_of(shape | few | {"num_hidden_layers": layers, "vocab_size": entries}, adaptation, how)
        return saved(made, batch_of(some, tokens), torch.bfloat16)

    one, two = (step(1, some) for some in (1, 2)), (step(2, some) for some in (1, 2))
    (one_1, one_2), (two_1, two_2) = one, two
    layer_pair, outside_pair = (two_2 - two_1) - (one_2 - one_1), 2 * (one_2 - one_1) - (two_2 - two_1)
    layer_copies = ((two_1 - one_1) - layer_pair) * (narrower**2 if adaptation == FULL else narrower)
    entry_pair = (step(1, 2, 2 * FEW) - step(1, 1, 2 * FEW) - (one_2 - one_1)) / FEW
    vocabulary = shape.get("vocab_size", QWEN_VOCABULARY)
    head = 2 * vocabulary * shape["hidden_size"]  # its copy
    every = shape["num_hidden_layers"] * (layer_pair * narrower * pairs + layer_copies)
    if recompute == "layers":  # the one at hand is whole
        every += (step(1, 2, how="nothing") - step(1, 1, how="nothing") - outside_pair) * narrower * pairs
    return int(every + (outside_pair + entry_pair * (vocabulary - FEW)) * pairs + head)


def numbers(module: nn.Module) -> Counter[str]:
    """How many numbers are trained, frozen in matrices of the layers, and frozen elsewhere; and outside of layers."""
    found: Counter[str] = Counter()
    for name, weight in module.named_parameters():
        inside = ".layers." in name
        kind = "trained" if weight.requires_grad else "matrices" if inside and weight.ndim == 2 else "rest"
        found[kind] += weight.numel()
        if not inside:
            found.update(outside=weight.numel(), trained_outside=weight.numel() * weight.requires_grad)
    return found


def counted(shape: dict[str, Any], frozen: str, devices: int, act: int, count: dict[str, int]) -> dict[str, float]:
    """GB on each device of its parts: shared out by FSDP where there are several."""
    weights = 4 * count["trained"] + 2 * count["rest"]
    matrices = BYTES["auto" if frozen == FULL else frozen] * count["matrices"]
    rounded = frozen in ("int8", "int4")  # such matrices stay whole
    kept = weights / devices + matrices / (1 if rounded else devices)
    gathered = 0.0
    if devices > 1:  # embedding and heads, with their gradients, and two layers: the one at hand and the next
        outside = 4 * count["trained_outside"] + 2 * (count["outside"] - count["trained_outside"])
        inside = (0 if rounded else matrices) + weights - outside
        gathered = outside + 4 * count["trained_outside"] + 2 * inside / shape["num_hidden_layers"]
    parts = {
        "weights": kept, "gathered": gathered, "gradients": 4 * count["trained"] / devices,
        "moments": MOMENTS * count["trained"] / devices,
        "activations": act,  # with the copies of trained weights in half precision
    }  # fmt: skip
    return {name: round(value / GB, 2) for name, value in parts.items()} | {"all": round(sum(parts.values()) / GB, 1)}


def check(pairs: int, tokens: int) -> float:
    """Bytes counted over bytes taken, of what a small step in float32 saves for its backward pass on this CPU."""
    shape = qwen(512, 1536, layers=6, heads=8) | {"vocab_size": 8_000}
    module, batch = module_of(shape, FULL), batch_of(pairs, tokens)
    kept = saved(module, batch, None)
    ctypes.CDLL(None).malloc_trim(0)  # or the next step would fit into what this one has left free
    before = psutil.Process().memory_info().rss
    loss = module.lm_sum(batch)
    taken = psutil.Process().memory_info().rss - before
    del loss  # which held them
    print(f"activations: {kept / 1e6:.0f} MB counted, {taken / 1e6:.0f} MB taken")
    return round(kept / taken, 2)


def main() -> None:
    """Count, print, check."""
    parser = command_parser(__doc__)
    parser.add_argument("--size", choices=SIZES, nargs="*", default=list(SIZES))
    parser.add_argument("--pairs", type=count, default=16)
    parser.add_argument("--tokens", type=count, default=33)
    parser.add_argument("--check", action="store_true", help="compare with a small step on this CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pairs = arguments.pairs, arguments.tokens
    found: dict[str, Any] = {"counted_over_taken": check(*pairs)} if arguments.check else {}
    for size, adaptation in product(arguments.size, (FULL, "lora")):
        shape = SIZES[size]
        kept = {how: activations(shape, adaptation, how, *pairs) for how in ("nothing", "layers")}
        with torch.device("meta"):
            weights = numbers(model_of(shape, adaptation))
        for frozen, devices, how in product((FULL,) if adaptation == FULL else FROZEN, (1, 4), kept):
            parts = counted(shape, frozen, devices, kept[how], weights)
            name = f"{size} {'full' if frozen == FULL else f'LoRA {frozen}'} recompute={how}"
            shown = ", ".join(f"{part} {gb}" for part, gb in parts.items())
            print(f"{name:36} {devices} GPU: {shown}", flush=True)
            found[f"{name} on {devices}"] = parts["all"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
