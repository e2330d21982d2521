"""A grid training step against a plain Transformer's on a CPU; on a GPU see training_speed.py.

    python benchmarks/train_step.py [--quick] [--steps N] [--pairs N] [--speed-only]

Forward, path, backward and optimiser of LoRA r = 64 with a full text head, on real sentence lengths (lengths.json:
how many pairs of each size the WMT news sets have under the Qwen2 tokenizer, up to 32 tokens a side, end tokens
included). The backbone has 4 layers of width 256; weights are random. All comparisons are of one run, by medians of
interleaved steps. The last line is one JSON object:

ratio_hf            positions/s of the grid step over those of a Hugging Face + PEFT step on sequences of 32, with the
                    text head and loss on half the positions, as the grid has them
gemm_share          time in matrix products over that in all operations of a step
mfu                 model FLOP/s over the rate of a large matrix product measured here
speedup_io_off      pairs/s with I←O off over those with it on; flop_ratio_io_off: the ratio of operations
padding_waste       positions the layers computed over those of valid cells, less 1
peak_memory         bytes by which the process grows at the paper's batch (4 pairs of 33 × 33) by `training.recompute`
epoch_minutes       100,000 news pairs at the measured pairs/s
scaling             X = Y from 8 on: ms and bytes of a step, exact and approximate, and attention's scores
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import (
    LORA,
    check_counts,
    growth,
    hold_memory,
    machine,
    medians,
    qwen,
    times_by_name,
    training_step,
)
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import add_lora, random_backbone
from duplexmt.decoder.decoder_options import RECOMPUTE
from duplexmt.grid.model import GridModel
from duplexmt.kernels.allocator import keep_freed_memory
from duplexmt.training.module import GridTranslation
from duplexmt.training.throughput import matmul_rate, step_flops

SMALL, VOCABULARY = qwen(256, 1024, layers=4, heads=4), 4000
TOKENS = StreamTokens(end=0, seed=1, source_prefix=(), target_prefix=())
GEMM = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear", "gemm")


class Bench:
    """Steps, and what they take."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.steps = arguments.steps or (3 if arguments.quick else 15)
        self.pairs = arguments.pairs or (3 if arguments.quick else 6)  # a batch
        self.lengths = json.loads((Path(__file__).parent / "lengths.json").read_text())

    def backbone(self) -> Any:
        """A causal LM with LoRA."""
        torch.manual_seed(0)
        return add_lora(random_backbone(SMALL, VOCABULARY, end_token=0), **LORA)

    def model(self, **options: object) -> GridModel:
        """A grid model around it."""
        return GridModel(self.backbone(), **options).train()

    def batches(self) -> list[Batch]:
        """Random pairs with the lengths of news, a batch for each step."""
        draw, pairs = random.Random(0), self.pairs
        sizes = draw.choices([(x, y) for x, y, _ in self.lengths], [n for *_, n in self.lengths], k=pairs * self.steps)
        examples = [self.pair(x, y, draw) for x, y in sizes]
        return [collate(examples[i : i + pairs]) for i in range(0, len(examples), pairs)]

    def pair(self, X: int, Y: int, draw: random.Random) -> Example:
        """A pair of random tokens."""
        source, target = ([draw.randrange(2, VOCABULARY) for _ in range(size - 1)] for size in (X, Y))
        return TOKENS.example(source, target)

    def grid_step(self, model: GridModel) -> Callable[..., None]:
        """The product's step on a batch."""
        module = GridTranslation(model, TOKENS, lam=0.1, learning_rate=1e-4, warmup_steps=0)

        def loss_of(batch: Batch) -> torch.Tensor:
            loss, _ = module.losses(batch)
            return loss.total(loss.lm_weights, loss.emit_weights)

        return training_step(model, loss_of)

    def plain_step(self) -> Callable[..., None]:
        """A Hugging Face + PEFT fine-tuning step, text head and loss on the last half of each sequence."""
        model = self.backbone().train()

        def loss_of(ids: torch.Tensor) -> torch.Tensor:
            logits = model(input_ids=ids, logits_to_keep=ids.shape[1] // 2 + 1, use_cache=False).logits[:, :-1]
            return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, ids.shape[1] // 2 :].flatten())

        return training_step(model, loss_of)

    def compare(self, *works: Callable[[int], object]) -> list[float]:
        """Median seconds of each, taking turns; each gets the number of the turn."""
        return list(medians(dict(enumerate(works)), self.steps, cuda=False).values())


def memory(work: Callable[[], None]) -> int:
    """Bytes by which the process grows while some work is done once more."""
    work()
    return growth(work)


def cells_of(batch: Batch) -> int:
    """Valid cells of a batch."""
    return sum(X * Y for X, Y in batch.shapes)


def flops_of(model: GridModel, batch: Batch) -> int:
    """Of a step on all rows that learns the cells of the mask, about half of them."""
    return step_flops(model, batch.shapes, cells_of(batch), cells_of(batch) / 2)


def against_hugging_face(bench: Bench) -> dict[str, float]:
    """`ratio_hf`, `gemm_share`, `mfu`: news pairs, 6 a batch (quick: 3), or --pairs."""
    batches = bench.batches()
    model = bench.model()
    grid, plain = bench.grid_step(model), bench.plain_step()
    ids = [torch.randint(2, VOCABULARY, (2 * cells_of(b) // 32, 32)) for b in batches]
    grid_time, plain_time = bench.compare(lambda t: grid(batches[t]), lambda t: plain(ids[t]))
    cells, pairs = statistics.median(map(cells_of, batches)), len(batches[0].shapes)
    seen: list[int] = []  # positions of the second layer
    own, second = model.blocks.finish, model.decoder.layers[1]

    def counted(layer: torch.nn.Module, states: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        if layer is second:
            seen.append(len(states))
        return own(layer, states, context)

    model.blocks.finish = counted
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for batch in batches[:5]:
            grid(batch)
    model.blocks.finish = own
    spent = times_by_name(profiled.key_averages(), cuda=False)
    gemm = sum(t for key, t in spent if any(part in key for part in GEMM))
    rate = matmul_rate(torch.device("cpu"), torch.float32)
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
    batch = collate([bench.pair(33, 33, draw) for _ in range(4)])
    peaks = {}
    for recompute in RECOMPUTE:
        model = bench.model()
        model.recompute(recompute)
        peaks[recompute] = memory(partial(bench.grid_step(model), batch))
    return peaks


def scaling(bench: Bench, sizes: list[int]) -> list[dict[str, float]]:
    """Time and memory of a step on one pair of X = Y tokens, exact and approximate, and attention's scores."""
    rows = []
    for size in sizes:
        batch = collate([bench.pair(size, size, random.Random(0))])
        row: dict[str, float] = {"X": size}
        for attention in ("approximate", "exact"):
            work = partial(bench.grid_step(bench.model(attention=attention)), batch)
            row[f"{attention}_scores"] = score_count(size, size, attention == "exact")
            (seconds,) = bench.compare(lambda _, work=work: work())  # type: ignore[misc]
            row |= {f"{attention}_ms": 1e3 * seconds, f"{attention}_bytes": memory(work)}
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
    parser.add_argument("--speed-only", action="store_true", help="without peak_memory and scaling")
    parser.add_argument("--pairs", type=int, help="news pairs a batch; default: 6, quick 3")
    arguments = parser.parse_args()
    check_counts(parser, arguments, "steps", "pairs")
    keep_freed_memory()  # as train.py does; all steps of the comparison profit
    hold_memory(3 * 2**30)  # more than the comparisons take
    bench, result = Bench(arguments), machine("cpu") | {"threads": torch.get_num_threads()}
    for part in (against_hugging_face, io_off):
        result |= part(bench)
        print(json.dumps(result), file=sys.stderr)
    if not arguments.speed_only:
        result["peak_memory"] = peak_memory(bench)
        bench.steps = min(bench.steps, 3)  # the largest take long
        result["scaling"] = scaling(bench, [8, 16] if arguments.quick else [8, 16, 32, 64, 128])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
