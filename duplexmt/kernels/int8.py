"""A decoder in int8 on a CPU: a quarter of the memory to read in a step, by oneDNN's integer products.

Each output's weights have a scale of their own, and so has each row that is multiplied, as in CTranslate2's int8: a
row's result does not depend on the rows beside it, so streams decoded side by side do not meddle with each other. The
products are those PyTorch ships with (it compiles int8 models to them); sums of integers are exact.

torchao, the library for this, was tried first (0.18, torch 2.13, one row on a Xeon with AMX, 896 → 151,936): weights
in int8 alone 126 ms, activations in int8 too 10.3 ms, float32 17.6 ms; on the smaller layers both are slower than
float32. PyTorch's own dynamic quantisation is fast but has one scale for all rows, and is to be removed.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LARGEST = 127
SMALLEST_SCALE = 1e-30  # of a row of zeros
PART = 2**10  # outputs looked at together while weights are rounded
FEWEST_ROWS = 4  # fewer find no fast product in oneDNN for some shapes: one row, 256 → 8,000, 51 ms; four rows 0.1


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as int8 and the scale of each: `[n, D]` → `[n, D]`, `[n, 1]`; their product is near the rows."""
    scale = rows.abs().amax(-1, keepdim=True).div_(LARGEST).clamp_(min=SMALLEST_SCALE)
    return (rows / scale).round_().to(torch.int8), scale


class Int8Linear(nn.Module):
    """`x · Wᵀ + b` in float32, with `W` and, within, `x` in int8.

    Args:
        linear: the layer in whose place it is.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        parts = [rounded(part.float()) for part in linear.weight.detach().split(PART)]  # as caches hold them
        integers, scale = (torch.cat(both) for both in zip(*parts, strict=True))
        self.packed = torch.ops.onednn.qlinear_prepack(integers, None)  # oneDNN's layout: no buffer, cannot be saved
        self.scale, self.zero = scale.flatten(), torch.zeros(len(integers), dtype=torch.int64)
        self.bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, states: Tensor) -> Tensor:
        """`[…, in]` → `[…, out]`."""
        rows = states.flatten(0, -2)
        integers, scale = rounded(rows)
        if len(rows) < FEWEST_ROWS:
            integers = F.pad(integers, (0, 0, 0, FEWEST_ROWS - len(rows)))
        products = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, 0, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        found = products[: len(rows)].mul_(scale)
        if self.bias is not None:
            found += self.bias
        return found.unflatten(0, states.shape[:-1])


class Int8Embedding(nn.Module):
    """Rows of a table kept in int8, looked up in float32.

    Args:
        embedding: the layer in whose place it is.
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight, self.scale = rounded(embedding.weight.detach().float())

    def forward(self, tokens: Tensor) -> Tensor:
        """`[…]` → `[…, D]`."""
        return self.weight[tokens] * self.scale[tokens]


def to_int8(module: nn.Module) -> None:
    """Replace all linear layers and embeddings in a module, for decoding on a CPU; it can be trained or saved no more.

    Raises:
        ValueError: where the module is on another device, or this machine has no exact integer products.
    """
    device = next(module.parameters()).device
    if device.type != "cpu":
        raise ValueError(f"quantize=int8 is for decoding on a CPU, and the model is on {device}: add device=cpu")
    if not exact_products():
        raise ValueError(
            "quantize=int8: PyTorch has no integer products of oneDNN on this machine, or they are not exact "
            "(processors without VNNI clip sums): leave quantize out"
        )
    kinds: tuple[tuple[type, type], ...] = ((nn.Linear, Int8Linear), (nn.Embedding, Int8Embedding))
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            for kind, ours in kinds:
                if type(child) is kind:
                    setattr(parent, name, ours(child))


@cache
def exact_products() -> bool:
    """Whether oneDNN multiplies int8 here without clipping, tried on the largest sums there can be."""
    operations: Any = torch.ops.onednn
    if not (torch.backends.mkldnn.is_available() and hasattr(operations, "qlinear_pointwise")):
        return False
    linear = nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        linear.weight.fill_(1.0)[1::2] = -1.0
        rows = torch.ones(3, 64)
        return torch.allclose(Int8Linear(linear)(rows), linear(rows), rtol=1e-5)
