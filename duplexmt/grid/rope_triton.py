"""The rotation by positions as a Triton kernel, for GPUs: one pass over queries or keys, one over their gradient."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # heads of a program


@triton.jit
def _rotate(  # type: ignore[no-untyped-def]
    x, cos, sin, out, rows,
    heads: tl.constexpr, E: tl.constexpr, E_: tl.constexpr, back: tl.constexpr, precise: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """`y[e] = x[e]·cos[e] + x[e']·sin[e]` with `e' = e ± E/2`; back, of a gradient: `x[e]·cos[e] + x[e']·sin[e']`."""
    row, e = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, E_)
    other = (e + E // 2) % E
    tile = (row < rows)[:, None] & (e < E)[None, :]
    place, position = row[:, None] * E, (row // heads)[:, None] * E
    x_e = tl.load(x + place + e[None, :], mask=tile, other=0).to(precise)
    x_other = tl.load(x + place + other[None, :], mask=tile, other=0).to(precise)
    cos_e = tl.load(cos + position + e[None, :], mask=tile, other=0).to(precise)
    at_sin = other if back else e
    sin_e = tl.load(sin + position + at_sin[None, :], mask=tile, other=0).to(precise)
    tl.store(out + place + e[None, :], (x_e * cos_e + x_other * sin_e).to(out.dtype.element_ty), mask=tile)


class _Rotate(torch.autograd.Function):
    """Angles get no gradient."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
        cos, signed_sin = cos.contiguous(), signed_sin.contiguous()
        ctx.save_for_backward(cos, signed_sin)
        return _launch(states, cos, signed_sin, back=False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, signed_sin = ctx.saved_tensors
        return _launch(gradients[0], cos, signed_sin, back=True), None, None


def _launch(states: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    """One program for each few heads."""
    states = states.contiguous()
    (n, heads, E), out = states.shape, torch.empty_like(states)
    precise = tl.float64 if states.dtype == torch.float64 else tl.float32
    if n:
        with torch.cuda.device_of(states):  # Triton launches on the current device
            _rotate[(triton.cdiv(n * heads, ROWS),)](
                states, cos, sin, out, n * heads,
                heads=heads, E=E, E_=triton.next_power_of_2(E), back=back, precise=precise, ROWS=ROWS,
            )  # fmt: skip
    return out


def rotate(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """`rope.rotate` on a GPU: states `[n, heads, E]`, cosines and signed sines `[n, 1, E]`."""
    return _Rotate.apply(states, cos, signed_sin)
