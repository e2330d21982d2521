"""The Triton kernels where there is no GPU: by Triton's interpreter, and compiled for one."""

import json
import os
import subprocess
import sys

import pytest

from duplexmt.grid.scan import KERNEL as SCAN
from duplexmt.policy.heatmap import KERNELS as SOFTMAX
from duplexmt.policy.recurrence import KERNEL as PATH
from tests.test_imports import ROOT

pytest.importorskip("triton", reason="Triton is installed on Linux only")
pytestmark = pytest.mark.slow
NAMES = {"scan": SCAN, "softmax": SOFTMAX, "path": PATH}


def test_kernels_equal_their_twins_are_used_if_right_and_left_out_if_wrong():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.interpreted"],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for (module, position), (messages, proven) in json.loads(done.stdout):
        wrong = position != -1
        assert proven == sorted(name for key, name in NAMES.items() if key != module or not wrong)
        assert len(messages) == wrong
        if wrong:
            says = "RuntimeError: out of resource: shared memory. " if position is None else "result "
            assert messages[0].startswith(f"{NAMES[module]}: {says}")


def compiled(kernel, kinds, usual, **options):
    """Compile a kernel for an H100, whose arguments are `usual` but for some and for constants."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    constants = {name: value for name, value in kinds.items() if not isinstance(value, str)}
    named = {name: "constexpr" if name in constants else kinds.get(name, usual) for name in kernel.arg_names}
    return compile(
        ASTSource(kernel, signature=named, constexprs=constants), target=GPUTarget("cuda", 90, 32), options=options
    )


def test_kernels_compile_for_a_gpu_that_is_not_here():
    import triton.language as tl

    from duplexmt.grid import scan_triton
    from duplexmt.policy import recurrence_triton, softmax_triton

    kinds = {"H": 14, "K": 2, "E": 64, "G_": 8, "E_": 64, "precise": tl.float32}  # Qwen2.5-0.5B
    kinds |= {"scale": "fp32", "start": "*i64", "stride": "*i64", "length": "*i64"}
    kinds |= dict.fromkeys(("own_lse", "c_out", "d_lse"), "*fp32")
    for kernel, half in ((scan_triton._walk, "*bf16"), (scan_triton._walk_back, "*bf16"), (scan_triton._walk, "*fp16")):
        assert compiled(kernel, kinds, half, num_warps=2).asm["ptx"]
    kinds = {"BLOCK": softmax_triton.BLOCK, "precise": tl.float32, "V": "i32", "labels": "*i64"}
    kinds |= dict.fromkeys(("out", "log_totals", "d_losses"), "*fp32")
    for kernel, half in ((softmax_triton._log_sum_exp, "*bf16"), (softmax_triton._gradient, "*fp32")):
        assert compiled(kernel, kinds, half, num_warps=8).asm["ptx"]
    for block, warps in ((64, 1), (2048, 8)):
        kinds = {"BLOCK": block} | dict.fromkeys("SNW", "i32")
        assert compiled(recurrence_triton._steps, kinds, "*fp32", num_warps=warps).asm["ptx"]
