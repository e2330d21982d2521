"""A decoder's weights in the layout oneDNN likes best: faster matrix products for a few rows at a time, on CPU.

A decoding step multiplies some 2 to 64 rows by every weight. In that range PyTorch's own float32 product takes up to
twice as long as oneDNN's on weights that were reordered for it (4864 × 896, 16 rows, one core: 3.2 against 1.9 ms).
The copies take as much memory as the weights of the layers, and do not follow later changes of them.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .model import rms_norm

FEWEST_ROWS = 2  # with one row it is the reading of the weights that takes the time
SMALLEST = 2**20  # entries of a weight below which there is nothing to gain


class PackedBlock:
    """The second half of one decoder block, from output projection to MLP, with reordered weights."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        mlp = layer.mlp
        linears = layer.self_attn.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj
        self.o, self.gate, self.up, self.down = ((reordered(linear.weight), linear.bias) for linear in linears)

    def __call__(self, states: Tensor, context: Tensor) -> Tensor:
        """As `model.finish_block`, for `[m, D]` and `[m, H, E]`."""
        states = states + product(context.flatten(-2), *self.o)
        normed = rms_norm(states, self.layer.post_attention_layernorm)
        gated = self.layer.mlp.act_fn(product(normed, *self.gate)) * product(normed, *self.up)
        return states + product(gated, *self.down)


def packed_blocks(layers: Any, free: int) -> list[PackedBlock] | None:
    """A block for each decoder layer, or None where there is nothing to gain.

    Args:
        layers: of the decoder.
        free: bytes of memory that may be taken; at most a quarter of them is.
    """
    weights = [w for layer in layers for w in (*layer.mlp.parameters(), *layer.self_attn.o_proj.parameters())]
    plain = all(w.dtype == torch.float32 and w.device.type == "cpu" for w in weights)
    unadapted = all(
        type(linear) is nn.Linear
        for layer in layers
        for linear in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj)
    )
    large = max(w.numel() for w in weights) >= SMALLEST
    fits = 4 * sum(w.nbytes for w in weights) <= free
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return [PackedBlock(layer) for layer in layers] if plain and unadapted and large and fits and known else None


def reordered(weight: Tensor) -> Tensor:
    """A copy of a weight in oneDNN's own layout, as inductor makes them for frozen models."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach())


def product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`rows [m, in]` by a reordered weight → `[m, out]`."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
