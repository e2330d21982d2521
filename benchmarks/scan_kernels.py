"""The Triton kernels of Hadamard attention against their plain twin, on this GPU: equal, and how much faster?

    python benchmarks/scan_kernels.py [--pairs 24] [--size 32] [--repeats 20]
    TRITON_INTERPRET=1 python benchmarks/scan_kernels.py --pairs 1 --size 4 --repeats 1     # without one, by emulation

Heads of Qwen2.5-0.5B (14 and 2, of 64), pairs of `size` × `size` tokens, along rows and along columns, forward and
backward. The last line is one JSON object; for each of float32, bfloat16 and float16:

error               largest difference of outputs and of gradients from the plain twin's in float32 of the same
                    (rounded) inputs, over the largest of its values
ms, plain_ms        median of a forward and backward pass, rows and columns together
bytes_per_second    what the kernels must read and write at least, over `ms`
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from duplexmt.grid import scan, scan_triton
from duplexmt.grid.cells import Cells, Lines

H, K, E = 14, 2, 64
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def random_inputs(cells: Cells, lines: Lines, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Queries, keys, values, and self context and log-sum-exp of each line."""
    draw = torch.Generator().manual_seed(1)
    shapes = [(len(cells), H, E), (len(cells), K, E), (len(cells), K, E), (len(lines.start), H, E)]
    parts = [torch.randn(*shape, generator=draw).to(device, dtype) for shape in shapes]
    parts.append(torch.randn(len(lines.start), H, generator=draw).to(device))
    return [part.requires_grad_() for part in parts]


def passes(module: ModuleType, inputs: list[Tensor], lines: Lines) -> list[Tensor]:
    """Outputs and gradients of one form of the attention."""
    q, k, v, ctx, lse = inputs
    if module is scan:  # whose `hadamard_attention` would take the kernels on a GPU
        out = scan.joint_scan(scan.hadamard_scores(q, k, E**-0.5), v, ctx, lse, lines)
    else:
        out = module.hadamard_attention(q, k, v, E**-0.5, ctx, lse, lines)
    return [out, *torch.autograd.grad(out, inputs, torch.ones_like(out))]


def error(cells: Cells, lines: Lines, dtype: torch.dtype, device: str) -> float:
    """Largest relative difference of the kernels from the plain twin."""
    inputs = random_inputs(cells, lines, dtype, device)
    precise = [part.detach().float().requires_grad_() for part in inputs]
    pairs = zip(passes(scan_triton, inputs, lines), passes(scan, precise, lines), strict=True)
    return max(((ours.float() - theirs).abs().max() / theirs.abs().max()).item() for ours, theirs in pairs)


def median_ms(work: Any, repeats: int, device: str) -> float:
    """Milliseconds of some work, after a warm-up."""
    times = []
    for _ in range(repeats + 1):
        wait(device)
        begin = time.perf_counter()
        work()
        wait(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


def wait(device: str) -> None:
    """Until the device has nothing to do."""
    if device == "cuda":
        torch.cuda.synchronize()


def measure(cells: Cells, dtype: torch.dtype, device: str, repeats: int) -> dict[str, float]:
    """All numbers of one precision."""
    both = [(lines, random_inputs(cells, lines, dtype, device)) for lines in (cells.rows, cells.columns)]

    def work(module: ModuleType) -> None:
        for lines, inputs in both:
            passes(module, inputs, lines)

    ms, plain_ms = (median_ms(lambda module=module: work(module), repeats, device) for module in (scan_triton, scan))
    # forward: q, k, v read, out and c written; backward: these and d_out read, d_q, d_k, d_v written
    moved = dtype.itemsize * E * (2 * H + 2 * K + 4 * H + 4 * K) + 2 * 4 * H
    return {
        "error": max(error(cells, lines, dtype, device) for lines, _ in both),
        "ms": ms,
        "plain_ms": plain_ms,
        "bytes_per_second": 2 * len(cells) * moved / ms * 1e3,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--size", type=int, default=32, help="tokens of each side")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    for name in ("pairs", "size", "repeats"):
        if (value := getattr(arguments, name)) < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    device = "cpu" if scan_triton.INTERPRETED else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU: TRITON_INTERPRET=1 runs the kernels by Triton's emulation; take --pairs 1 --size 4 then")
    cells = Cells.of([(arguments.size, arguments.size)] * arguments.pairs, device)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result: dict[str, Any] = {
        "commit": git.stdout.strip() or None,
        "device": torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter",
        "torch": torch.__version__,
        "cells": len(cells),
    }
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        result[name] = measure(cells, dtype, device, arguments.repeats)
        print(json.dumps({name: result[name]}), file=sys.stderr, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
