"""The Triton kernels against their plain twins, on this GPU: equal, and how much faster?

    python benchmarks/triton_kernels.py [--pairs 24] [--size 32] [--repeats 20]
    TRITON_INTERPRET=1 python benchmarks/triton_kernels.py --pairs 1 --size 4 --repeats 1 --vocabulary 500   # emulated

At the shape of Qwen2.5-0.5B, of pairs of `size` × `size` tokens, forward and backward: `scan`, Hadamard attention along
rows and along columns (14 heads, 2 of keys, of 64); and `head`, the text head and its loss with a gradient for every
cell, its matrix products included. If kernels fail their trial (see `duplexmt.kernels`), it ends. The
last line is one JSON object; for each, in float32, bfloat16 and float16:

error               largest difference of outputs and of gradients from the plain twin's in float32 of the same
                    (rounded) inputs, over the largest of its values
ms, plain_ms        median of a forward and backward pass
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import QWEN_VOCABULARY, count, in_turns, machine
from duplexmt.common.command import command_parser
from duplexmt.grid import scan
from duplexmt.grid.cells import Cells, Lines
from duplexmt.kernels.triton_use import refused, triton_runs
from duplexmt.policy import heatmap

H, K, E, D = 14, 2, 64, 896
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Case(NamedTuple):
    """What a kernel and its twin compute, of inputs of some shapes."""

    shapes: Sequence[tuple[int, ...]]
    work: Callable[..., Tensor]

    def inputs(self, dtype: torch.dtype, device: str) -> list[Tensor]:
        """Random ones."""
        draw = torch.Generator().manual_seed(1)
        return [torch.randn(*shape, generator=draw).to(device, dtype).requires_grad_() for shape in self.shapes]


def cases_of(cells: Cells, vocabulary: int) -> dict[str, list[Case]]:
    """By kind: Hadamard attention along rows and columns, of queries, keys, values, and self context and log-sum-exp of
    each line; and the text head with its loss, of final states and the head's weights."""
    N, device = len(cells), cells.x.device
    labels = (torch.arange(N) * 97 % vocabulary).to(device)
    chunk = heatmap.cells_at_once(vocabulary, device)

    def scan_case(lines: Lines) -> Case:
        def along(q: Tensor, k: Tensor, v: Tensor, ctx: Tensor, lse: Tensor) -> Tensor:
            return scan.hadamard_attention(q, k, v, E**-0.5, ctx, lse, lines)

        L = len(lines.start)
        return Case([(N, H, E), (N, K, E), (N, K, E), (L, H, E), (L, H)], along)

    def loss(hidden: Tensor, weight: Tensor) -> Tensor:
        return heatmap.loss_heatmap(hidden * D**-0.5, weight, None, labels, chunk)  # logits of about 1

    return {"scan": [scan_case(cells.rows), scan_case(cells.columns)], "head": [Case([(N, D), (vocabulary, D)], loss)]}


def passes(case: Case, kernel: bool, inputs: list[Tensor]) -> list[Tensor]:
    """Output and gradients, by the kernel or by its plain twin."""
    scan.use_triton = heatmap.use_triton = lambda states: kernel  # under Triton's interpreter, too
    out = case.work(*inputs)
    return [out, *torch.autograd.grad(out, inputs, torch.ones_like(out))]


def measure(cases: Sequence[Case], dtype: torch.dtype, device: str, repeats: int) -> dict[str, float]:
    """All numbers of one kind of kernel in one precision."""
    given = [(case, case.inputs(dtype, device)) for case in cases]

    def all_passes(kernel: bool) -> Callable[[int], object]:
        return lambda turn: [passes(case, kernel, inputs) for case, inputs in given]

    medians = in_turns({"ms": all_passes(True), "plain_ms": all_passes(False)}, repeats)
    found = {"error": 0.0, **{name: 1e3 * seconds for name, seconds in medians.items()}}
    for case, inputs in given:
        precise = [part.detach().float().requires_grad_() for part in inputs]
        for ours, theirs in zip(passes(case, True, inputs), passes(case, False, precise), strict=True):
            found["error"] = max(found["error"], ((ours.float() - theirs).abs().max() / theirs.abs().max()).item())
    return found


def main() -> None:
    """Measure and print."""
    parser = command_parser(__doc__)
    parser.add_argument("--pairs", type=count, default=24)
    parser.add_argument("--size", type=count, default=32, help="tokens of each side")
    parser.add_argument("--repeats", type=count, default=20)
    parser.add_argument("--vocabulary", type=count, default=QWEN_VOCABULARY)
    arguments = parser.parse_args()
    device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
    if find_spec("triton") is None or (device == "cuda" and not (torch.cuda.is_available() and triton_runs())):
        parser.error(
            "needs a GPU, and Triton, which comes with PyTorch on Linux. TRITON_INTERPRET=1 emulates the kernels; then "
            "take --pairs 1 --size 4 --vocabulary 500"
        )
    cells = Cells.of([(arguments.size, arguments.size)] * arguments.pairs, device)
    result: dict[str, Any] = machine() | {"cells": len(cells)}
    for kind, cases in cases_of(cells, arguments.vocabulary).items():
        result[kind] = {}
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            result[kind][name] = measure(cases, dtype, device, arguments.repeats)
            if refused:
                raise SystemExit(f"{kind}, {name}: the kernel has failed its trial, see above")
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
