"""Frozen weights in 8 or 4 bits by bitsandbytes, an optional library: LoRA is trained over them (QLoRA).

The matrices of the decoder's layers are kept so; embedding, norms and heads are not. What is trained over rounded
weights belongs to these: a model folder holds them, or says how its base is to be rounded when it is loaded.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .decoder_options import FROZEN

BLOCK = 64  # numbers that share a scale in int4


def library() -> Any:
    """bitsandbytes.

    Raises:
        ValueError: where it is not installed.
    """
    try:
        import bitsandbytes
    except ImportError as error:
        raise ValueError(
            "frozen weights in int8 or int4 need bitsandbytes, which is not installed "
            f'({error}): pip install "bitsandbytes>=0.50", or train with model.frozen=auto'
        ) from error
    return bitsandbytes


def is_quantised(weight: Tensor) -> bool:
    """Whether a weight holds codes rather than numbers."""
    return not weight.dtype.is_floating_point


def quantise(model: Any, kind: str, compute: torch.dtype = torch.float32) -> None:
    """Keep the matrices of a decoder's layers in `int8` or `int4` (NF4 with double quantisation).

    Args:
        model: a causal language model in float32, to which no LoRA was added yet.
        compute: type of products in int4; int8 multiplies integers.

    Raises:
        ValueError: without bitsandbytes, and for matrices it would round wrongly.
    """
    assert kind in FROZEN[1:], kind
    bnb = library()
    for layer in model.get_decoder().layers:
        for parent in list(layer.modules()):
            for name, linear in parent.named_children():
                if type(linear) is nn.Linear:
                    if (
                        kind == "int4" and linear.in_features % BLOCK
                    ):  # its CPU routine (0.50) lets blocks end with rows
                        raise ValueError(
                            f"model.frozen=int4: {name} has {linear.in_features} columns, which is no multiple of "
                            f"{BLOCK}: give model.frozen=int8, or auto"
                        )
                    setattr(parent, name, _quantised(bnb, linear, kind, compute))


def _quantised(bnb: Any, linear: nn.Linear, kind: str, compute: torch.dtype) -> Any:
    size, weight, biased = (linear.in_features, linear.out_features), linear.weight.data, linear.bias is not None
    with torch.device("meta"):
        if kind == "int8":
            made = bnb.nn.Linear8bitLt(*size, biased, has_fp16_weights=False)
        else:
            made = bnb.nn.Linear4bit(*size, biased, compute_dtype=compute, quant_type="nf4")
    if kind == "int8":
        made.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    else:
        made.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", module=made)
        made.support_avx512bf16_for_cpu = False  # its layout for decoding has no gradients
    made.bias = linear.bias
    return made.to(weight.device)  # which rounds


def dequantised(linear: Any) -> Tensor:
    """The weight of such a layer as numbers, in float32."""
    bnb, weight = library(), linear.weight
    if isinstance(weight, bnb.nn.Params4bit):
        return bnb.functional.dequantize_4bit(weight.data, weight.quant_state).float()  # type: ignore[no-any-return]
    scale = linear.state.SCB if weight.SCB is None else weight.SCB  # its first product moves it
    return weight.data.float() * (scale.float() / 127)[:, None]  # type: ignore[no-any-return]


def dequantise(model: Any) -> None:
    """Give a decoder whose layers are quantised plain ones of the same numbers, in float32."""
    for layer in model.get_decoder().layers:
        for parent in list(layer.modules()):
            for name, linear in parent.named_children():
                if isinstance(linear, nn.Linear) and is_quantised(linear.weight):
                    with torch.device("meta"):
                        plain = nn.Linear(linear.in_features, linear.out_features, linear.bias is not None)
                    plain.weight = nn.Parameter(dequantised(linear), requires_grad=False)
                    plain.bias = linear.bias
                    setattr(parent, name, plain)


def frozen_as(model: nn.Module) -> str | None:
    """How the matrices of a model's layers are kept: `int8`, `int4`, or None for numbers."""
    kinds = {weight.dtype for weight in model.parameters() if is_quantised(weight)}
    return {torch.int8: "int8", torch.uint8: "int4"}[kinds.pop()] if kinds else None
