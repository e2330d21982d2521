"""Matrix products of training steps: on a CPU in float32 by oneDNN, which is faster there than PyTorch's own BLAS.

A step multiplies thousands of positions by matrices of a few hundred columns. On one core of an AMD EPYC oneDNN does 81
to 104 GFLOP/s on such shapes (2,460 positions, 64 to 1,024 columns) where `mm` does 49 to 91.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`rows · weightᵀ + bias`, `[n, D]` and `[D', D]` → `[n, D']`: `F.linear` without a gradient of its own.

    For the inside of an autograd function; the weight may be a transposed view.
    """
    if len(rows) and rows.dtype == weight.dtype == torch.float32 and has_onednn(rows.device):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")  # type: ignore[no-any-return]
    return F.linear(rows, weight, bias)


def has_onednn(device: torch.device) -> bool:
    """Whether oneDNN's linear layer is there for tensors of a device."""
    mkldnn = torch.backends.mkldnn
    return device.type == "cpu" and mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def matrix_products() -> list[Any]:
    """The operations that a step's products are, as PyTorch dispatches them."""
    onednn = [torch.ops.mkldnn._linear_pointwise.default] if has_onednn(torch.device("cpu")) else []
    return [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, *onednn]
