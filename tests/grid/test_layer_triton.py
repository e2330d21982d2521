"""The Triton kernels of a layer's norms, rotation and activation against their formulas, by Triton's interpreter."""

import os
import subprocess
import sys

import pytest

from tests.test_imports import ROOT

pytest.importorskip("triton", reason="Triton is installed on Linux only")
pytestmark = pytest.mark.slow

# A kernel's value and gradients are those of a formula in float64, rounded to its types once.
PROGRAM = """
import torch
from torch.nn import functional as F
from duplexmt.grid import norm_triton, rope, rope_triton, swiglu_triton

TOLERANCES = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 0.01, torch.float16: 0.0015}

def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)

def check(kernel, formula, inputs, dtype):
    inputs = [part.requires_grad_() for part in inputs]
    precise = [part.detach().double().requires_grad_() for part in inputs]
    found, expected = kernel(*inputs), formula(*precise)
    upstream = random(*found.shape, dtype=found.dtype, seed=9)
    ours = found, *torch.autograd.grad(found, inputs, upstream)
    exact = expected, *torch.autograd.grad(expected, precise, upstream.double())
    assert found.dtype == dtype
    assert [part.dtype for part in ours[1:]] == [part.dtype for part in inputs]
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])

for dtype in TOLERANCES:
    for rows, columns in ((0, 7), (1, 1), (5, 7), (4, 1024), (3, 1025)):
        gate, up = random(columns, rows, dtype=dtype).T, random(rows, columns, dtype=dtype, seed=1)  # one strided
        if rows:
            gate[0, 0] = -200.0  # whose exp(-gate) is infinite in float32
        check(swiglu_triton.gated, lambda gate, up: F.silu(gate) * up, [gate, up], dtype)

    for shape in ((0, 4), (7, 16), (3, 5), (2, 3, 300)):
        for stream in {torch.promote_types(dtype, torch.float32), dtype}:
            weight, states = random(shape[-1], dtype=dtype, seed=2), random(*shape, dtype=stream)
            check(
                lambda x: norm_triton.rms_norm(x, weight, 1e-2, dtype),
                lambda x: F.rms_norm(x, shape[-1:], weight.double(), 1e-2),
                [states],
                dtype,
            )

    for n, heads, E in ((0, 2, 4), (1, 1, 2), (5, 3, 6), (40, 2, 8)):
        angles = random(n, 1, E // 2, seed=3).repeat(1, 1, 2)
        wide = torch.promote_types(dtype, torch.float32)
        cos, sin = angles.cos().to(wide), rope.signed(angles.sin()).to(wide)
        check(
            lambda x: rope_triton.rotate(x, cos, sin),
            lambda x: rope.rotate(x, cos.double(), sin.double()),
            [random(n, heads, E, dtype=dtype)],
            dtype,
        )
print("equal")
"""

# A whole training step by all kernels is that of their plain twins.
STEP = """
import torch
from duplexmt.data.batch import Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.grid import norm, rope, scan, swiglu
from duplexmt.policy import heatmap
from duplexmt.training.module import GridTranslation
from tests.helpers import tiny_backbone, tiny_grid

used = set()
batch = collate([Example((5, 6, 7, 0), (1, 8, 9, 0)), Example((10, 0), (1, 11, 12, 13, 0))])
for family in ("qwen2", "qwen3"):
    outcomes = []
    for asked in (False, True):
        for module in (norm, rope, scan, swiglu, heatmap):
            module.use_triton = lambda states, name=module.__name__: asked and (used.add(name) or True)
        model = tiny_grid(tiny_backbone(family)).double().train()
        for name, weight in model.named_parameters():
            weight.requires_grad = "norm" not in name
        task = GridTranslation(model, StreamTokens(end=0, seed=1), lam=0.1, learning_rate=1e-3, warmup_steps=0)
        found, _ = task.losses(batch)
        loss = found.total(found.lm_weights, found.emit_weights)
        loss.backward()
        outcomes.append([loss.detach(), *(weight.grad for weight in model.parameters() if weight.requires_grad)])
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-9)
assert len(used) == 5
print("equal")
"""

COMPILE = """
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from duplexmt.grid import norm_triton, rope_triton, swiglu_triton

def compiled(kernel, kinds, **constants):
    constants |= {"precise": tl.float32}
    for half in ("*bf16", "*fp16", "*fp32"):
        signature = {name: "constexpr" if name in constants else kinds.get(name, half) for name in kernel.arg_names}
        compile(ASTSource(kernel, signature=signature, constexprs=constants), target=GPUTarget("cuda", 90, 32))

for kernel in (swiglu_triton._forward, swiglu_triton._backward):
    compiled(kernel, {"n": "i32"}, BLOCK=swiglu_triton.BLOCK)
norm = dict.fromkeys(("x", "d_x", "r_in", "r_out"), "*fp32") | {"epsilon": "fp32"}
for kernel in (norm_triton._forward, norm_triton._backward):
    compiled(kernel, norm, D=896, D_=1024)
for back in (False, True):
    sizes = {"heads": 14, "E": 64, "E_": 64, "ROWS": rope_triton.ROWS}
    compiled(rope_triton._rotate, {"cos": "*fp32", "sin": "*fp32", "rows": "i32"}, back=back, **sizes)
print("compiled")
"""


@pytest.mark.parametrize(
    ("program", "says", "environment"),
    [
        (PROGRAM, "equal\n", {"TRITON_INTERPRET": "1"}),
        (STEP, "equal\n", {"TRITON_INTERPRET": "1"}),
        (COMPILE, "compiled\n", {}),
    ],
)
def test_kernels_and_their_gradients_are_the_formulas_and_compile(program, says, environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == says, done.stderr
