"""The largest output of a wide linear layer on a CPU, without computing them all: the next token of a text head.

With a few rows it is the reading of the weights that takes the time: half of that of a step of Qwen2.5-0.5B's first
four layers. Products in int8 read a quarter. How far they may be off is known, so what may be the largest is known,
too: some ten outputs of 151,936. Only these are computed in float32, and the answer is that of all of them. On one core
of a Xeon with AMX it takes 13 ms where the whole product takes 39; 2 rows 14 and 40, 64 rows 161 and 226.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.int8 import LARGEST, PART, Int8Linear, exact_products, rounded

SMALLEST = 2**24  # entries of a weight below which reading it is no matter
FEW = 16  # the whole product is computed where more than one output in so many may be the largest


class Likeliest:
    """Which output of a linear layer without bias is the largest.

    A row is multiplied as the sum of two rows of int8, so what it is off by is next to nothing, and what the weights of
    an output are off by, `e`, moves that output by at most |e| · |row|.

    Args:
        linear: the layer, in float32.
    """

    def __init__(self, linear: nn.Linear) -> None:
        self.linear, self.near = linear, Int8Linear(linear)
        # Of a row: what its two parts leave, and sums in float32.
        rounding = linear.in_features**0.5 / (2 * LARGEST) ** 2 + 2 * linear.in_features * torch.finfo().eps
        off = []
        for part in linear.weight.detach().split(PART):
            integers, scale = rounded(part)
            off.append((part - integers * scale).norm(dim=1) + rounding * part.norm(dim=1))
        self.off = torch.cat(off)

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> Tensor:
        """`[n, in]` → `[n]`; the first, where several are as large."""
        rows = rows.float()
        integers, scale = rounded(rows)
        near, rest = self.near(torch.cat((rows, rows - integers * scale))).chunk(2)
        off = rows.norm(dim=-1, keepdim=True) * self.off
        near += rest
        least = (near - off).amax(-1, keepdim=True)
        may_be = (near.add_(off) < least).logical_not_().any(0).nonzero().squeeze(-1)  # all, if a row is not finite
        if len(may_be) > len(self.off) // FEW:
            return self.linear(rows).argmax(-1)
        return may_be[F.linear(rows, self.linear.weight[may_be]).argmax(-1)]

    @staticmethod
    def pays(linear: Any, free: int) -> bool:
        """Whether it is known to be right, and faster, for a layer, and takes at most a quarter of the free bytes."""
        if type(linear) is not nn.Linear or linear.bias is not None:
            return False
        weight = linear.weight
        of_cpu = weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.numel() >= SMALLEST
        return of_cpu and 4 * weight.nbytes <= free and exact_products()
