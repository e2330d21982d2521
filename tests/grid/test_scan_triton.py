"""The Triton kernels against their plain twin, on the CPU by Triton's interpreter."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")
pytestmark = pytest.mark.slow

PROGRAM = """
import torch
from duplexmt.grid import scan, scan_triton
from duplexmt.grid.cells import Cells

assert scan_triton.INTERPRETED
for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-4)):
    for H, K, E in ((4, 2, 6), (3, 3, 8), (7, 1, 5)):
        for shapes in ([(1, 1)], [(3, 4), (1, 1), (5, 2)]):
          for filled in (False, True):
            cells = Cells.of(shapes)
            if filled:  # with lines that have no cells
                cells = cells.filled(14, len(cells) + 3)
            for lines in (cells.rows, cells.columns):
                for own in (True, False):
                    draw = torch.Generator().manual_seed(H)
                    def random(*shape):
                        return torch.randn(*shape, dtype=dtype, generator=draw)
                    N, L = len(cells), len(lines.start)
                    lse = random(L, H) if own else torch.full((L, H), float("-inf"), dtype=dtype)
                    inputs = [random(N, H, E), random(N, K, E), random(N, K, E), random(L, H, E) * own, lse]
                    inputs = [part.requires_grad_() for part in inputs]
                    q, k, v, ctx, lse = inputs
                    fast, slow = (
                        module.hadamard_attention(q, k, v, 0.4, ctx, lse, lines) for module in (scan_triton, scan)
                    )
                    torch.testing.assert_close(fast, slow, rtol=0, atol=tolerance)
                    weights = random(*fast.shape)
                    got, expected = (torch.autograd.grad((x * weights).sum(), inputs) for x in (fast, slow))
                    for a, b in zip(got, expected):
                        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)
print("equal")
"""


def test_kernels_and_their_gradients_equal_the_plain_scan():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "equal\n", done.stderr


COMPILE = """
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from duplexmt.grid import scan_triton

constants = {"H": 14, "K": 2, "E": 64, "G_": 8, "E_": 64, "precise": tl.float32}  # Qwen2.5-0.5B
kinds = {"scale": "fp32", "start": "*i64", "stride": "*i64", "length": "*i64"}
kinds |= dict.fromkeys(("own_lse", "c_out", "d_lse"), "*fp32") | dict.fromkeys(constants, "constexpr")
for kernel in (scan_triton._walk, scan_triton._walk_back):
    for half in ("*bf16", "*fp16"):
        signature = {name: kinds.get(name, half) for name in kernel.arg_names}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
print("compiled")
"""


def test_kernels_compile_for_a_gpu_that_is_not_here():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILE], capture_output=True, text=True)
    assert done.stdout == "compiled\n", done.stderr
