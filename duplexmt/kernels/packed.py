"""A decoder's weights as decoding likes them: few products, and on CPU in the layout that is fastest for a few rows.

A step of a small model is the launching of small operations, so what reads the same input is joined into one product:
queries, keys and values, and the two halves of the gated MLP. A step of a large model multiplies some 2 to 64 rows by
every weight, and in that range PyTorch's own float32 product takes up to twice as long as oneDNN's on weights that were
reordered for it (4864 × 896, 16 rows, one core: 3.2 against 1.9 ms). The copies take as much memory as the weights of
the layers, and do not follow later changes of them; where they find no room, or a layer is no plain matrix (LoRA that
was not merged), the layers are used as they are.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .products import has_onednn

FEWEST_ROWS = 2  # with one row it is the reading of the weights that takes the time
SMALLEST = 2**20  # entries of a layer's largest weight below which reordering gains nothing
APART, JOINED, REORDERED = "apart", "joined", "reordered"


class Product:
    """Linear layers of one input, their outputs side by side: `[m, in]` → `[m, out]`.

    Args:
        how: as they are, joined to one weight, or that weight reordered for oneDNN.
    """

    def __init__(self, linears: Sequence[Any], how: str) -> None:
        self.linears, self.how = linears, how
        if how != APART:
            weight = torch.cat([linear.weight.detach() for linear in linears])
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight) if how == REORDERED else weight.T
            biases = [linear.bias for linear in linears if linear.bias is not None]
            assert len(biases) in (0, len(linears)), "layers of one input have a bias, all or none of them"
            self.bias = torch.cat([bias.detach() for bias in biases]) if biases else None

    def __call__(self, rows: Tensor) -> Tensor:
        """The product with some rows."""
        if self.how == JOINED:
            return rows @ self.weight if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        if self.how == REORDERED and len(rows) >= FEWEST_ROWS:
            return torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return torch.cat([linear(rows) for linear in self.linears], -1)


class PackedLayer:
    """One decoder layer without its attention: what comes before it, and what after.

    Args:
        how: its weights are kept, see `Product`.
    """

    def __init__(self, layer: Any, how: str, dtype: torch.dtype) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.E, self.scale = attention.head_dim, attention.scaling
        self.H, self.K = (linear.out_features // self.E for linear in (attention.q_proj, attention.k_proj))
        self.qkv = Product((attention.q_proj, attention.k_proj, attention.v_proj), how)
        self.o, self.down = Product((attention.o_proj,), how), Product((mlp.down_proj,), how)
        self.gate_and_up, self.act = Product((mlp.gate_proj, mlp.up_proj), how), mlp.act_fn
        self.before, self.after = (Norm(n, dtype) for n in (layer.input_layernorm, layer.post_attention_layernorm))
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self.head_norms = [Norm(norm, dtype) for norm in norms if norm is not None]

    def project(self, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated queries and keys, and values, one after the other: `[m, D]` → `[m, H + 2K, E]`.

        Args:
            states: of `m` cells.
            cos, sin: of their positions `[m, 1, E]`; the first half of the sines negated.
        """
        heads = self.qkv(self.before(states)).unflatten(-1, (-1, self.E))
        if self.head_norms:
            q, k = heads[:, : self.H], heads[:, self.H : self.H + self.K]
            for part, norm in zip((q, k), self.head_norms, strict=True):
                part.copy_(norm(part))
        rotated = heads[:, : self.H + self.K]
        swapped = rotated.roll(self.E // 2, -1)
        rotated.mul_(cos).addcmul_(swapped, sin)
        return heads

    def split(self, heads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[…, K, G, E]`, keys and values `[…, K, E]` of `[…, H + 2K, E]`."""
        q, k, v = heads.split_with_sizes((self.H, self.K, self.K), -2)
        return q.unflatten(-2, (self.K, -1)), k, v

    def finish(self, states: Tensor, context: Tensor) -> Tensor:
        """Output projection and MLP, with residuals: `[m, D]` and `[m, H·E]` → `[m, D]`."""
        states = states + self.o(context)
        gate, up = self.gate_and_up(self.after(states)).chunk(2, -1)
        return self.down(self.act(gate).mul_(up)).add_(states)


class Norm:
    """`kernels.norm.rms_norm`, with all that does not change looked up once.

    `F.rms_norm` is one kernel on CUDA, but some ten operations on CPU; there `x / hypot(|x|, √(D·ε))` is three.
    """

    def __init__(self, norm: Any, dtype: torch.dtype) -> None:
        self.weight, self.epsilon = norm.weight.detach().to(dtype), norm.variance_epsilon
        self.shape = self.weight.shape
        self.by_length = self.weight.device.type == "cpu" and dtype in (torch.float32, torch.float64)
        self.scaled = self.weight * self.weight.numel() ** 0.5
        self.least = torch.tensor((self.weight.numel() * self.epsilon) ** 0.5, dtype=dtype)

    def __call__(self, states: Tensor) -> Tensor:
        """Over the last dimension, with statistics in at least float32."""
        if self.by_length:
            length = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
            return (states * self.scaled).div_(length.hypot_(self.least))
        return F.rms_norm(states, self.shape, self.weight, self.epsilon)


def packed_layers(layers: Any, free: int, dtype: torch.dtype) -> list[PackedLayer]:
    """Every layer of a decoder, its weights kept as is best here.

    Args:
        free: bytes of memory that may be taken; at most a quarter of them is.
    """
    linears = [
        linear
        for layer in layers
        for block in (layer.self_attn, layer.mlp)
        for linear in block.children()
        if hasattr(linear, "in_features")
    ]
    weights = [linear.weight for linear in linears if type(linear) is nn.Linear and linear.weight.dtype == dtype]
    if len(weights) < len(linears) or 4 * sum(w.nbytes for w in weights) > free:
        how = APART
    elif reordering_helps(weights):
        how = REORDERED
    else:
        how = JOINED
    return [PackedLayer(layer, how, dtype) for layer in layers]


def reordering_helps(weights: Sequence[Tensor]) -> bool:
    """Whether oneDNN's layout is to be had, and the faster one."""
    float32 = all(w.dtype == torch.float32 for w in weights)
    known = has_onednn(weights[0].device) and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return float32 and known and max(w.numel() for w in weights) >= SMALLEST
