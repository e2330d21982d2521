"""A grid training step against a plain Transformer's, and against the device.

    python benchmarks/train_step.py [--quick] [--device cpu|cuda] [--precision 32|bf16|fp16] [--compile]
                                    [--steps N] [--pairs N] [--speed-only | --memory-only]

Forward, path, backward and optimiser of LoRA r = 64 with a full text head, on real sentence lengths (lengths.json:
how many pairs of each size the WMT news sets have under the Qwen2 tokenizer, up to 32 tokens a side, end tokens
included). On CUDA the backbone is Qwen2.5-0.5B's shape, on a CPU 4 layers of width 256; weights are random. All
comparisons are of one run, by medians of interleaved steps. What does not fit into the memory is left out. The last
line is one JSON object:

ratio_hf            positions/s of the grid step over those of a Hugging Face + PEFT step on sequences of 32, with the
                    text head and loss on half the positions, as the grid has them
gemm_share          time in matrix products over that in all operations of a step; on CUDA of kernels, so that what the
                    device idles between them does not count (mfu counts it)
mfu                 model FLOP/s over the rate of a large matrix product measured here
speedup_io_off      pairs/s with I←O off over those with it on; flop_ratio_io_off: the ratio of operations
padding_waste       positions the layers computed over those of valid cells, less 1
peak_memory         bytes at the paper's batch (4 pairs of 33 × 33) by `training.recompute`; on a CPU memory's growth
epoch_minutes       100,000 news pairs at the measured pairs/s (on this one device)
scaling             X = Y from 8 on: ms and bytes of a step, exact and approximate, and attention's scores
"""

import argparse
import json
import platform
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from torch.autograd import DeviceType
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import (
    LORA,
    QWEN,
    QWEN_VOCABULARY,
    check_counts,
    check_device,
    commit,
    growth,
    hold_memory,
    medians,
    qwen,
    training_step,
)
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import add_lora, freeze_in, random_backbone
from duplexmt.decoder.knobs import RECOMPUTE
from duplexmt.grid.model import GridModel
from duplexmt.kernels.allocator import keep_freed_memory
from duplexmt.training.module import GridTranslation
from duplexmt.training.throughput import matmul_rate, step_flops

SMALL = qwen(256, 1024, layers=4, heads=4)
TOKENS = StreamTokens(end=0, seed=1, source_prefix=(), target_prefix=())
PRECISIONS = {"32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
GEMM = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear",
    "gemm", "gemv", "cutlass", "nvjet", "xmma", "splitK",
)  # fmt: skip
TOO_LARGE = "does not fit into the device's memory, left out; end other processes there, or take a larger device"


class Bench:
    """One device, precision and shape."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device, self.half = torch.device(arguments.device), PRECISIONS[arguments.precision]
        self.cuda, self.compile = self.device.type == "cuda", arguments.compile
        self.shape, self.vocab = (QWEN, QWEN_VOCABULARY) if self.cuda else (SMALL, 4000)
        self.steps = arguments.steps or (3 if arguments.quick else 15)
        self.pairs = arguments.pairs or (24 if self.cuda else 3 if arguments.quick else 6)  # a batch
        self.lengths = json.loads((Path(__file__).parent / "lengths.json").read_text())

    def backbone(self) -> Any:
        """A causal LM with LoRA, frozen weights in half precision where that is used."""
        torch.manual_seed(0)
        backbone = add_lora(random_backbone(self.shape, self.vocab, end_token=0), **LORA)
        if self.half is not None:
            freeze_in(self.half, backbone)
        return backbone

    def model(self, **options: object) -> GridModel:
        """A grid model around it."""
        model = GridModel(self.backbone(), **options).to(self.device).train()
        if self.compile:
            model.compile_blocks()
        return model

    def batches(self) -> list[Batch]:
        """Random pairs with the lengths of news, a batch for each step."""
        draw, pairs = random.Random(0), self.pairs
        sizes = draw.choices([(x, y) for x, y, _ in self.lengths], [n for *_, n in self.lengths], k=pairs * self.steps)
        examples = [self.pair(x, y, draw) for x, y in sizes]
        return [collate(examples[i : i + pairs]).to(self.device) for i in range(0, len(examples), pairs)]

    def pair(self, X: int, Y: int, draw: random.Random) -> Example:
        """A pair of random tokens."""
        source, target = ([draw.randrange(2, self.vocab) for _ in range(size - 1)] for size in (X, Y))
        return TOKENS.example(source, target)

    def grid_step(self, model: GridModel) -> Callable[..., None]:
        """The product's step on a batch."""
        module = GridTranslation(model, TOKENS, lam=0.1, learning_rate=1e-4, warmup_steps=0)

        def loss_of(batch: Batch) -> torch.Tensor:
            loss, _ = module.losses(batch)
            return loss.total(loss.lm_weights, loss.emit_weights)

        return training_step(model, loss_of, self.half)

    def plain_step(self) -> Callable[..., None]:
        """A Hugging Face + PEFT fine-tuning step, text head and loss on the last half of each sequence."""
        model = self.backbone().to(self.device).train()

        def loss_of(ids: torch.Tensor) -> torch.Tensor:
            logits = model(input_ids=ids, logits_to_keep=ids.shape[1] // 2 + 1, use_cache=False).logits[:, :-1]
            return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, ids.shape[1] // 2 :].flatten())

        return training_step(model, loss_of, self.half)

    def compare(self, *works: Callable[[int], object]) -> list[float]:
        """Median seconds of each, taking turns; each gets the number of the turn."""
        return list(medians(dict(enumerate(works)), self.steps, self.cuda).values())

    def memory(self, work: Callable[[], None]) -> int:
        """Peak bytes while some work is done: allocated on CUDA, `growth` on a CPU."""
        work()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            work()
            return torch.cuda.max_memory_allocated()
        return growth(work)


def cells_of(batch: Batch) -> int:
    """Valid cells of a batch."""
    return sum(X * Y for X, Y in batch.shapes)


def flops_of(model: GridModel, batch: Batch) -> int:
    """Of a step on all rows that learns the cells of the mask, about half of them."""
    return step_flops(model, batch.shapes, cells_of(batch), cells_of(batch) / 2)


def against_hugging_face(bench: Bench) -> dict[str, float]:
    """`ratio_hf`, `gemm_share`, `mfu`: news pairs, 24 a batch on CUDA, 6 (quick: 3) on a CPU, or --pairs."""
    batches = bench.batches()
    model = bench.model()
    grid, plain = bench.grid_step(model), bench.plain_step()
    ids = [torch.randint(2, bench.vocab, (2 * cells_of(b) // 32, 32), device=bench.device) for b in batches]
    grid_time, plain_time = bench.compare(lambda t: grid(batches[t]), lambda t: plain(ids[t]))
    cells, pairs = statistics.median(map(cells_of, batches)), len(batches[0].shapes)
    seen: list[int] = []  # positions of the second layer
    own, second = model.blocks.finish, model.decoder.layers[1]

    def counted(layer: torch.nn.Module, states: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        if layer is second:
            seen.append(len(states))
        return own(layer, states, context)

    model.blocks.finish = counted
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if bench.cuda else [])
    with profile(activities=activities) as profiled:
        for batch in batches[:5]:
            grid(batch)
    model.blocks.finish = own
    spent = times_by_name(profiled.key_averages(), bench.cuda)
    gemm = sum(t for key, t in spent if any(part in key for part in GEMM))
    rate = matmul_rate(bench.device, bench.half or torch.float32)
    flops = statistics.median(flops_of(model, batch) for batch in batches)
    return {
        "ratio_hf": plain_time / grid_time,
        "grid_ms": 1e3 * grid_time,
        "plain_ms": 1e3 * plain_time,
        "cells_per_second": cells / grid_time,
        "pairs_per_second": pairs / grid_time,
        "epoch_minutes": 100_000 / (pairs / grid_time) / 60,
        "gemm_share": gemm / sum(t for _, t in spent),
        "mfu": flops / grid_time / rate,
        "matmul_flops_per_second": rate,
        "padding_waste": sum(seen) / sum(2 * cells_of(batch) for batch in batches[:5]) - 1 if seen else 0.0,
    }


def times_by_name(events: Iterable[Any], cuda: bool) -> list[tuple[str, float]]:
    """What the device spent its time on: on CUDA kernels alone, as the operations that launched them show it, too, and
    so does all that has been given a name."""
    if not cuda:
        return [(event.key, event.self_cpu_time_total) for event in events]
    kernels = (event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation)
    return [(event.key, event.self_device_time_total) for event in kernels]


def io_off(bench: Bench) -> dict[str, float]:
    """`speedup_io_off` beside the ratio of operations."""
    batches = bench.batches()
    on, off = bench.model(), bench.model(input_attends_output=False)
    step_on, step_off = bench.grid_step(on), bench.grid_step(off)
    time_on, time_off = bench.compare(lambda t: step_on(batches[t]), lambda t: step_off(batches[t]))
    flops_on, flops_off = (sum(flops_of(model, batch) for batch in batches) for model in (on, off))
    return {"speedup_io_off": time_on / time_off, "flop_ratio_io_off": flops_on / flops_off}


def peak_memory(bench: Bench) -> dict[str, int]:
    """The paper's batch, 4 pairs of the largest size, by what is computed again in the backward pass."""
    draw = random.Random(0)
    batch = collate([bench.pair(33, 33, draw) for _ in range(4)]).to(bench.device)
    peaks = {}
    for recompute in RECOMPUTE:
        model = bench.model()
        model.recompute(recompute)
        try:
            peaks[recompute] = bench.memory(partial(bench.grid_step(model), batch))
        except torch.OutOfMemoryError as error:
            print(f"peak_memory, training.recompute={recompute}: {TOO_LARGE} ({error})", file=sys.stderr)
        del model
    return peaks


def scaling(bench: Bench, sizes: list[int]) -> list[dict[str, float]]:
    """Time and memory of a step on one pair of X = Y tokens, exact and approximate, and attention's scores."""
    rows = []
    for size in sizes:
        batch = collate([bench.pair(size, size, random.Random(0))]).to(bench.device)
        row: dict[str, float] = {"X": size}
        for attention in ("approximate", "exact"):
            work = partial(bench.grid_step(bench.model(attention=attention)), batch)
            row[f"{attention}_scores"] = score_count(size, size, attention == "exact")
            try:
                (seconds,) = bench.compare(lambda _, work=work: work())  # type: ignore[misc]
                row |= {f"{attention}_ms": 1e3 * seconds, f"{attention}_bytes": bench.memory(work)}
            except torch.OutOfMemoryError as error:  # what was measured before is not lost
                print(f"scaling, {attention}, {size} tokens: {TOO_LARGE} ({error})", file=sys.stderr)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    return rows


def score_count(X: int, Y: int, exact: bool) -> int:
    """Query-key pairs a head and a layer scores (`tab:complexity`, causal pairs only)."""
    causal_X, causal_Y = X * (X + 1) // 2, Y * (Y + 1) // 2
    return 2 * (causal_X * Y + X * causal_Y) if exact else causal_X + causal_Y + 2 * X * Y


def main() -> None:
    """Run what was asked for; the last line is the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, no scaling: under 90 s on two cores")
    parser.add_argument("--steps", type=int, help="of each comparison; default: 15, quick 3")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--speed-only", action="store_true", help="without peak_memory and scaling")
    parts.add_argument("--memory-only", action="store_true", help="peak_memory and scaling alone")
    parser.add_argument("--pairs", type=int, help="news pairs a batch; default: 24 on CUDA, on a CPU 6, quick 3")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--compile", action="store_true", help="torch.compile the grid's blocks")
    arguments = parser.parse_args()
    check_counts(parser, arguments, "steps", "pairs")
    check_device(parser, arguments.device)
    arguments.precision = arguments.precision or ("bf16" if arguments.device == "cuda" else "32")
    if arguments.device == "cpu":
        keep_freed_memory()  # as train.py does; all steps of the comparison profit
        hold_memory(3 * 2**30)  # more than the comparisons take
    bench = Bench(arguments)
    result: dict[str, object] = {
        "commit": commit(),
        "device": torch.cuda.get_device_name() if bench.cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "precision": arguments.precision,
        "compile": bench.compile,
    }
    try:
        for part in () if arguments.memory_only else (against_hugging_face, io_off):
            try:
                result |= part(bench)
            except torch.OutOfMemoryError as error:
                print(f"{part.__name__}: {TOO_LARGE}, or fewer --pairs ({error})", file=sys.stderr)
            print(json.dumps(result), file=sys.stderr)
        if not arguments.speed_only:
            result["peak_memory"] = peak_memory(bench)
            bench.steps = min(bench.steps, 3)  # the largest take long
            result["scaling"] = scaling(bench, [8, 16] if arguments.quick else [8, 16, 32, 64, 128])
    except KeyboardInterrupt:
        print("interrupted; what was measured before:", file=sys.stderr)
        print(json.dumps(result))
        sys.exit(130)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
