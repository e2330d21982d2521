"""The Triton kernels of the gated activation against the formula, on the CPU by Triton's interpreter."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")
pytestmark = pytest.mark.slow

PROGRAM = """
import torch
from torch.nn import functional as F
from duplexmt.grid import swiglu_triton

for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 0.01), (torch.float16, 0.001)):
    for rows, columns in ((0, 7), (1, 1), (5, 7), (4, 1024), (3, 1025)):
        draw = torch.Generator().manual_seed(rows)
        gate, up, upstream = (torch.randn(rows, columns, dtype=dtype, generator=draw) for _ in range(3))
        if rows:
            gate[0, 0] = -200.0  # whose exp(-gate) is infinite in float32
        gate, up = gate.T.contiguous().T.requires_grad_(), up.requires_grad_()  # strided
        precise = [part.detach().double().requires_grad_() for part in (gate, up)]
        found, expected = swiglu_triton.gated(gate, up), F.silu(precise[0]) * precise[1]
        ours = found, *torch.autograd.grad(found, (gate, up), upstream)
        exact = expected, *torch.autograd.grad(expected, precise, upstream.double())
        for one, other in zip(ours, exact, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)
print("equal")
"""

COMPILE = """
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from duplexmt.grid import swiglu_triton

constants = {"BLOCK": swiglu_triton.BLOCK, "precise": tl.float32}
kinds = {"n": "i32"} | dict.fromkeys(constants, "constexpr")
for kernel in (swiglu_triton._forward, swiglu_triton._backward):
    for half in ("*bf16", "*fp16", "*fp32"):
        signature = {name: kinds.get(name, half) for name in kernel.arg_names}
        compile(ASTSource(kernel, signature=signature, constexprs=constants), target=GPUTarget("cuda", 90, 32))
print("compiled")
"""


@pytest.mark.parametrize(
    ("program", "says", "environment"), [(PROGRAM, "equal\n", {"TRITON_INTERPRET": "1"}), (COMPILE, "compiled\n", {})]
)
def test_kernels_and_their_gradients_are_the_formulas_and_compile(program, says, environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.stdout == says, done.stderr
