"""The Triton kernels of the softmax over the vocabulary against the formula, on the CPU by Triton's interpreter."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux only")
pytestmark = pytest.mark.slow

PROGRAM = """
import torch
from torch.nn import functional as F
from duplexmt.policy import heatmap, softmax_triton

for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 2e-6), (torch.bfloat16, 0.01), (torch.float16, 0.001)):
    for block in (8, 32):
        softmax_triton.BLOCK = block
        for rows, columns in ((0, 9), (1, 1), (3, 8), (2, 9), (3, 33)):
            draw = torch.Generator().manual_seed(rows)
            logits = (5 * torch.randn(rows, columns, dtype=torch.float64, generator=draw)).to(dtype)
            if columns > 8:
                logits[0:1, :8] = float("-inf")  # a whole block of 8
                logits[1:2, 3] = 80.0
            labels = torch.arange(rows) * 8 % columns
            d_losses = torch.randn(rows, 1, dtype=torch.promote_types(dtype, torch.float32), generator=draw)
            precise = logits.double().requires_grad_()
            expected = F.cross_entropy(precise, labels, reduction="none")
            (d_expected,) = torch.autograd.grad(expected, precise, d_losses.double().squeeze(1))

            log_totals = softmax_triton.log_sum_exp(logits)
            assert log_totals.dtype == torch.promote_types(dtype, torch.float32)
            close = dict(rtol=tolerance, atol=tolerance)
            exact = 1e-14 if dtype == torch.float64 else 2e-6
            torch.testing.assert_close(
                log_totals.double(), precise.logsumexp(1, keepdim=True), rtol=exact, atol=exact
            )
            finite = logits.isfinite().all(1) | (labels > 7)
            softmax_triton.gradient_(logits, log_totals, labels, d_losses)
            torch.testing.assert_close(logits.double()[finite], d_expected[finite], **close)

# The whole loss, its kernels asked for where there is no GPU.
softmax_triton.BLOCK = 16
draw = torch.Generator().manual_seed(0)
hidden, weight = torch.randn(7, 5, generator=draw), torch.randn(19, 5, generator=draw)
bias, labels = torch.randn(19, generator=draw), torch.arange(7) * 2
inputs = [part.requires_grad_() for part in (hidden, weight, bias)]
outcomes = []
for asked in (False, True):
    heatmap.use_triton = lambda states: asked
    for chunk in (3, 100):
        losses = heatmap.loss_heatmap(hidden, weight, bias, labels, chunk)
        outcomes.append((losses, *torch.autograd.grad(losses, inputs, torch.tensor([1.0, 0, 2, 0, -1, 1, 0]))))
for one in outcomes[1:]:
    torch.testing.assert_close(one, outcomes[0], rtol=1e-5, atol=1e-6)
print("equal")
"""

COMPILE = """
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from duplexmt.policy import softmax_triton

constants = {"BLOCK": softmax_triton.BLOCK, "precise": tl.float32}
kinds = {"V": "i32", "labels": "*i64"} | dict.fromkeys(("out", "log_totals", "d_losses"), "*fp32")
kinds |= dict.fromkeys(constants, "constexpr")
for kernel in (softmax_triton._log_sum_exp, softmax_triton._gradient):
    for half in ("*bf16", "*fp16", "*fp32"):
        signature = {name: kinds.get(name, half) for name in kernel.arg_names}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
print("compiled")
"""


@pytest.mark.parametrize(
    ("program", "says", "environment"), [(PROGRAM, "equal\n", {"TRITON_INTERPRET": "1"}), (COMPILE, "compiled\n", {})]
)
def test_kernels_are_the_formulas_and_compile(program, says, environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.stdout == says, done.stderr
