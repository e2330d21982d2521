"""What a training step on R rows of the grid costs, beside a multi-path wait-k step and one on all rows.

    python benchmarks/row_cost.py [--quick] [--shape small|slice] [--steps N] [--device cpu|cuda]

Forward, loss, path, backward and Adam on the same random pairs of X = Y tokens, by medians of steps taken in turn. On a
CPU it is the processor's time of the program itself, which other work on the machine changes least; the system's, which
hands out memory in the first steps, does not count. On CUDA it is the clock's. A batch has as many pairs as make some
1,000 tokens (`slice`: 500), the long ones as the short ones: in one of 8 short pairs the optimiser, which costs all
systems the same, is a quarter of a wait-k step. Two shapes: `small` (4 layers of width 256, 8,000 entries) and, without
--quick or --shape, `slice`: four layers of Qwen2.5-0.5B with its whole text head, by LoRA as experiment=paper (it takes
16 GB of memory). The grid is that of experiment=past_paper; `4 visits` and `all` learn words in every cell they compute
(training.lm_cells=visits).
The last line is JSON, by shape and length of the pairs; numbers at its top level are those of the first at R = 4:

ratio_vs_waitk       time of a step over that of the wait-k step
ratio_vs_all_rows    time of the step on all rows over that of this one (where all rows were affordable)
peak_memory          bytes a step takes beside weights and optimiser, over those of the wait-k step
largest_difference   of states, losses and gradients from the full grid in float64, of all rows and of some
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import (
    BASE,
    BASE_VOCABULARY,
    LORA,
    QWEN,
    QWEN_VOCABULARY,
    check_counts,
    check_device,
    growth,
    hold_memory,
    medians,
    training_step,
)
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import add_lora, random_backbone
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.cells import Cells
from duplexmt.grid.model import GridModel, build_grid
from duplexmt.kernels.allocator import keep_freed_memory
from duplexmt.policy.rows import drawn_rows, mean_cells
from duplexmt.training.module import GridTranslation
from duplexmt.training.prefix_module import PrefixTranslation

LENGTHS, ROWS = (9, 17, 33, 65), (2, 3, 4, 6)
SHAPES = {"small": (BASE, BASE_VOCABULARY), "slice": (QWEN | {"num_hidden_layers": 4}, QWEN_VOCABULARY)}
PAIRS = {"small": {9: 56, 17: 32, 33: 16, 65: 8}, "slice": {9: 28, 17: 16, 33: 8, 65: 4}}
EVERY_CELL = "4 visits"
MOST_CELLS = {"small": 16 * 33 * 33, "slice": 8 * 33 * 33}  # of a step on all rows that is worth waiting for
TOKENS = StreamTokens(end=0, seed=1)
PAST_PAPER = {"attention": "exact", "input_attends_output": False, "emit_hidden": 256}
LOSSES = {"lam": 0.03, "lm_cells": "drawn_visits", "emit_loss": "regret", "learning_rate": 1e-4, "warmup_steps": 0}


def pairs_of(shape: str, length: int) -> Batch:
    """Pairs of random tokens, `length` on either side with the end token, that four rows make a typical step of."""
    draw = torch.Generator().manual_seed(length)
    size = PAIRS[shape][length], 2, length - 1

    def unusual(batch: Batch) -> int:  # by how many cells, as fewer or more pairs are computed whole
        rows = drawn_rows(batch.keys, batch.shapes, 4, epoch=0)
        return abs(sum(map(sum, rows.columns)) - mean_cells(batch.shapes, 4))

    drawn = (torch.randint(2, SHAPES[shape][1], size, generator=draw).tolist() for _ in range(50))
    return min((collate([Example((*x, 0), (1, *y, 0)) for x, y in texts]) for texts in drawn), key=unusual)


def step_of(shape: str, kind: str, batch: Batch) -> Callable[[int], None]:
    """A whole step of `waitk`, of all rows (`all`), of so many, or `EVERY_CELL`; its turn does not matter."""
    torch.manual_seed(0)
    backbone = random_backbone(*SHAPES[shape], end_token=0)
    if shape == "slice":
        backbone = add_lora(backbone, **LORA)
    if kind == "waitk":
        waitk = DecoderModel(backbone, k="multi").train()
        module: Any = PrefixTranslation(waitk, TOKENS, learning_rate=1e-4, warmup_steps=0)
    else:
        grid = build_grid(backbone, **PAST_PAPER).train()
        words = {"lm_cells": "visits"} if kind in ("all", EVERY_CELL) else {}
        rows = None if kind == "all" else int(kind.split()[0])
        module = GridTranslation(grid, TOKENS, **(LOSSES | words), rows=rows)

    def loss_of(turn: int) -> torch.Tensor:
        if kind == "waitk":
            return module.lm_sum(batch) / module.scored(batch)
        sums, _ = module.losses(batch)
        return sums.total(sums.lm_weights, sums.emit_weights)

    return training_step(module.to(batch.source.device), loss_of)


def user_time() -> float:
    """Seconds of the processor that this process has taken outside the system's calls."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def peak_memory(shape: str, kind: str, length: int, device: str) -> int:
    """Bytes that a step takes beside weights and optimiser: allocated on CUDA, growth of the process on a CPU."""
    step = partial(step_of(shape, kind, pairs_of(shape, length).to(device)), 0)
    step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    return growth(step)


def largest_difference() -> float:
    """Of states, and of losses and gradients through the text head, between chosen rows and the full grid's."""
    torch.manual_seed(0)
    backbone, worst = random_backbone(BASE | {"num_hidden_layers": 2}, 500, end_token=0), 0.0
    # The grid first: its layers are run from outside, the decoder gives them a forward of their own.
    grid, model = GridModel(backbone, **PAST_PAPER).double(), build_grid(backbone, **PAST_PAPER).double()
    batch = collate([Example((*range(5, 5 + X), 0), (1, *range(9, 9 + Y), 0)) for X, Y in ((7, 9), (12, 5), (1, 3))])
    full = Cells.of(batch.shapes)
    source, target, labels = batch.packed()
    for chosen in ([range(X) for X, _ in batch.shapes], [(1, 4, 7), (0, 5, 12), (1,)]):
        x, pair = full.x[full.source_token].tolist(), full.source_pair[full.source_token].tolist()
        kept = [n for n, (row, own) in enumerate(zip(x, pair, strict=True)) if row in chosen[own]]
        rows = [[torch.full((Y,), x + 1) for x in own] for own, (_, Y) in zip(chosen, batch.shapes, strict=True)]
        found = []
        for states in (
            grid.states(source, target, full, batch.source_lengths)[kept],
            model.states(source, target, model.layout(batch.shapes, rows)),
        ):
            model.zero_grad()
            of_cells = full.over_columns(labels)[kept]
            losses = torch.nn.functional.cross_entropy(model.text_logits(states), of_cells, reduction="none")
            losses.sum().backward()
            gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
            found.append(torch.cat((states.detach().flatten(), losses.detach(), *gradients)))
        worst = max(worst, (found[0] - found[1]).abs().max().item())
    return worst


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one shape, R = 4, two turns")
    parser.add_argument("--shape", choices=tuple(SHAPES), help="default: both; with --quick small")
    parser.add_argument("--steps", type=int, help="turns of each step")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    check_counts(parser, arguments, "steps")
    check_device(parser, arguments.device)
    keep_freed_memory()  # as train.py does
    hold_memory(2**31)  # as a training does after its first steps
    turns, cuda = arguments.steps or (2 if arguments.quick else 9), arguments.device == "cuda"
    clock = time.perf_counter if cuda else user_time
    results: dict[str, Any] = {}
    shapes = (arguments.shape,) if arguments.shape else ("small",) if arguments.quick else tuple(SHAPES)
    for shape in shapes:
        waitk: dict[str, dict[str, float]] = {}
        every: dict[str, dict[str, float]] = {}
        peaks: dict[str, float] = {}
        for length in LENGTHS:
            batch = pairs_of(shape, length).to(arguments.device)
            kinds = ["waitk", *map(str, (4,) if arguments.quick else ROWS), EVERY_CELL]
            if PAIRS[shape][length] * length**2 <= MOST_CELLS[shape]:
                kinds.append("all")
            seconds = medians({kind: step_of(shape, kind, batch) for kind in kinds}, turns, cuda, clock)
            if "all" not in seconds and shape == "small":  # once is enough: a step of some ten seconds
                seconds |= medians({"all": step_of(shape, "all", batch)}, 1, cuda, clock)
            waitk[str(length)] = {kind: own / seconds["waitk"] for kind, own in seconds.items()}
            if "all" in seconds:
                every[str(length)] = {kind: seconds["all"] / own for kind, own in seconds.items()}
            shown = ", ".join(f"{kind} {waitk[str(length)][kind]:.2f}" for kind in seconds)
            print(f"{shape}, {length} × {length}: {1000 * seconds['waitk']:.0f} ms wait-k; over it {shown}", flush=True)
        for length in LENGTHS:
            ours, theirs = (peak_memory(shape, kind, length, arguments.device) for kind in ("4", "waitk"))
            peaks[str(length)] = ours / theirs
        results[shape] = {"ratio_vs_waitk": waitk, "ratio_vs_all_rows": every, "peak_memory": peaks}
    first = results[shapes[0]]
    result = {
        **{key: {n: own["4"] for n, own in first[key].items()} for key in ("ratio_vs_waitk", "ratio_vs_all_rows")},
        "peak_memory": first["peak_memory"],
        "largest_difference": largest_difference(),
        "shapes": results,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
