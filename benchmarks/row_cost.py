"""What a training step on four rows of the grid costs, beside a multi-path wait-k step and one on all rows.

    python benchmarks/row_cost.py [--shape small|slice] [--steps N]

Forward, loss, path, backward and Adam on the same random pairs of X = Y tokens, by medians of steps taken in turn: the
processor's time of the program itself, which other work on the machine changes least; the system's, which hands out
memory in the first steps, does not count. A batch has as many pairs as make some 1,000 tokens (`slice`: 500), the long
ones as the short ones: in one of 8 short pairs the optimiser, which costs all systems the same, is a quarter of a
wait-k step. `small` has 4 layers of width 256 and 8,000 entries; `slice` is four layers of Qwen2.5-0.5B with its whole
text head, by LoRA as experiment=paper (it takes 16 GB of memory). The grid is that of experiment=past_paper;
`all rows` learns words in every cell (training.lm_cells=visits). The last line is JSON, by length of the pairs:

ratio_vs_waitk       time of a step over that of the wait-k step, by kind
ratio_vs_all_rows    time of the step on all rows over that of this one, where all rows fit into memory
"""

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import LORA, SHAPES, count, in_turns, training_step
from duplexmt.common.command import command_parser
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import add_lora, random_backbone
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.model import build_grid
from duplexmt.kernels.allocator import keep_freed_memory
from duplexmt.policy.rows import drawn_rows, mean_cells
from duplexmt.training.module import GridTranslation
from duplexmt.training.prefix_module import PrefixTranslation

PAIRS = {"small": {9: 56, 17: 32, 33: 16, 65: 8}, "slice": {9: 28, 17: 16, 33: 8, 65: 4}}
HELD = 2**31  # bytes
TOKENS = StreamTokens(end=0, seed=1)
PAST_PAPER = {"attention": "exact", "input_attends_output": False, "emit_hidden": 256}
LOSSES = {"lam": 0.03, "emit_loss": "regret", "learning_rate": 1e-4, "warmup_steps": 0}
KINDS: dict[str, dict[str, Any]] = {
    "four rows": {"rows": 4, "lm_cells": "drawn_visits"}, "all rows": {"rows": None, "lm_cells": "visits"}
}  # fmt: skip


def pairs_of(shape: str, length: int) -> Batch:
    """Pairs of random tokens, `length` on either side with the end token, that four rows make a typical step of."""
    draw = torch.Generator().manual_seed(length)
    size = PAIRS[shape][length], 2, length - 1

    def unusual(batch: Batch) -> int:  # by how many cells, as fewer or more pairs are computed whole
        rows = drawn_rows(batch.keys, batch.shapes, 4, epoch=0)
        return abs(sum(map(sum, rows.columns)) - round(sum(mean_cells(X, Y, 4) for X, Y in batch.shapes)))

    drawn = (torch.randint(2, SHAPES[shape][1], size, generator=draw).tolist() for _ in range(50))
    return min((collate([Example((*x, 0), (1, *y, 0)) for x, y in texts]) for texts in drawn), key=unusual)


def step_of(shape: str, kind: str, batch: Batch) -> Callable[[int], None]:
    """A whole step of `waitk`, or of one of `KINDS`; its turn does not matter."""
    torch.manual_seed(0)
    backbone = random_backbone(*SHAPES[shape], end_token=0)
    if shape == "slice":
        backbone = add_lora(backbone, **LORA)
    if kind == "waitk":
        waitk = DecoderModel(backbone, k="multi").train()
        module: Any = PrefixTranslation(waitk, TOKENS, learning_rate=1e-4, warmup_steps=0)
    else:
        module = GridTranslation(build_grid(backbone, **PAST_PAPER).train(), TOKENS, **LOSSES | KINDS[kind])

    def loss_of(turn: int) -> torch.Tensor:
        if kind == "waitk":
            return module.lm_sum(batch) / module.scored(batch)
        sums, _ = module.losses(batch)
        return sums.total(sums.lm_weights, sums.emit_weights)

    return training_step(module, loss_of)


def main() -> None:
    """Measure, print a table and the JSON line."""
    parser = command_parser(__doc__)
    parser.add_argument("--shape", choices=PAIRS, default="small")
    parser.add_argument("--steps", type=count, default=3, help="turns of each step")
    arguments = parser.parse_args()
    keep_freed_memory()  # as train.py does
    torch.ones(HELD, dtype=torch.uint8)  # so that this process has the pages that a training has after its first steps
    shape = arguments.shape
    result: dict[str, Any] = {"shape": shape, "ratio_vs_waitk": {}, "ratio_vs_all_rows": {}}
    for length in PAIRS[shape]:
        batch = pairs_of(shape, length)
        kinds = ["waitk", "four rows", *["all rows"] * (shape == "small" or length < 65)]
        works = {kind: step_of(shape, kind, batch) for kind in kinds}
        seconds = in_turns(works, arguments.steps, lambda: resource.getrusage(resource.RUSAGE_SELF).ru_utime)
        ratios = {kind: own / seconds["waitk"] for kind, own in seconds.items()}
        result["ratio_vs_waitk"][str(length)] = ratios
        if "all rows" in seconds:
            result["ratio_vs_all_rows"][str(length)] = seconds["all rows"] / seconds["four rows"]
        shown = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
        print(f"{length} × {length}: {1000 * seconds['waitk']:.0f} ms wait-k; over it {shown}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
