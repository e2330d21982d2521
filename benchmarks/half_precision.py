"""Training in half precision beside float32, at the paper's settings: does it overflow, and where does its loss go?

    python benchmarks/half_precision.py [--precision fp16|bf16] [--steps 2000] [--device cpu|cuda]

A small backbone with random weights (`train_step.SMALL`: 4 layers of width 256), LoRA r = 64 and a full text head, on
the built-in corpus: batches of 4 pairs, Adam with a learning rate of 1e-4 after 3,000 steps of warm-up, λ = 0.1
(`tab:train-hparam`), gradients clipped at 1. The same steps are taken in float32 and in half precision, which keeps the
frozen weights in half precision, too, and in fp16 scales its gradients; outside the Trainer, which on a CPU turns
16-mixed into bf16. The last line is one JSON object:

steps, skipped      steps taken, and how many of them the gradient scaler left out for want of a finite gradient
not_finite          steps whose loss was not finite: must be 0
scale               of the gradients at the end
loss, loss_32       mean language model and EMIT loss of the last tenth of the steps, and the same in float32
first_loss          of the first tenth, in half precision
furthest            largest difference between the two curves' tenths, over float32's
"""

import argparse
import json
import math
import platform
import random
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from tqdm import tqdm
from train_step import LORA, PRECISIONS, SMALL

from duplexmt.data.batch import Batch, collate
from duplexmt.data.grammar import generate
from duplexmt.data.tokenizer import StreamTokens, stream_tokens, token_ids, train_bpe
from duplexmt.grid.backbone import add_lora, freeze_in, random_backbone
from duplexmt.grid.model import GridModel
from duplexmt.training.module import GridTranslation
from duplexmt.training.optimizers import optimizer_of

PAIRS, LAM, LEARNING_RATE, WARMUP = 4, 0.1, 1e-4, 3000
TENTHS = 10


class Curve(NamedTuple):
    """Losses of all steps, and what the gradient scaler did."""

    losses: list[float]
    skipped: int
    scale: float


class Task(NamedTuple):
    """The batches of a run, in their order."""

    batches: list[Batch]
    tokens: StreamTokens
    vocab_size: int


def task(steps: int, device: str) -> Task:
    """The built-in corpus in random batches."""
    pairs = generate(PAIRS * steps, seed=1)
    tokenizer = train_bpe((text for pair in pairs[:2000] for text in (pair.source, pair.target)), 3000)
    tokens = stream_tokens(tokenizer)
    texts = ([pair.source for pair in pairs], [pair.target for pair in pairs])
    examples = [tokens.example(*sides) for sides in zip(*(token_ids(tokenizer, side) for side in texts), strict=True)]
    random.Random(1).shuffle(examples)
    batches = [collate(examples[i : i + PAIRS]).to(device) for i in range(0, len(examples), PAIRS)]
    return Task(batches, tokens, len(tokenizer))


def train(given: Task, half: torch.dtype | None, device: str) -> Curve:
    """One run from the same weights, in float32 where `half` is None."""
    torch.manual_seed(1)
    backbone = add_lora(random_backbone(SMALL, given.vocab_size, given.tokens.end), **LORA)
    if half is not None:
        freeze_in(half, backbone)
    model = GridModel(backbone).to(device).train()
    module = GridTranslation(model, given.tokens, lam=LAM, learning_rate=LEARNING_RATE, warmup_steps=WARMUP)
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = optimizer_of("adam", module, LEARNING_RATE, module.betas)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)
    losses, skipped = [], 0
    for batch in tqdm(given.batches, desc=str(half or torch.float32).removeprefix("torch."), mininterval=5):
        with torch.autocast(device, half, enabled=half is not None):
            found, _ = module.losses(batch)
            loss = found.total(found.lm_weights, found.emit_weights)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if scaler.get_scale() >= before:
            warmup.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return Curve(losses, skipped, scaler.get_scale())


def tenths(losses: list[float]) -> list[float]:
    """Mean loss of each tenth of the steps."""
    ends = [len(losses) * tenth // TENTHS for tenth in range(TENTHS + 1)]
    return [statistics.fmean(losses[start:end]) for start, end in pairwise(ends)]


def main() -> None:
    """Train twice; the last line is the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=[name for name in PRECISIONS if name != "32"], default="fp16")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    if arguments.steps < TENTHS:
        parser.error(f"--steps {arguments.steps}: must be at least {TENTHS}, as the curves are compared by tenths")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU on this machine; take --device cpu")
    given = task(arguments.steps, arguments.device)
    half, whole = (train(given, PRECISIONS[name], arguments.device) for name in (arguments.precision, "32"))
    curve, expected = tenths(half.losses), tenths(whole.losses)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "commit": git.stdout.strip() or None,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "precision": arguments.precision,
        "steps": arguments.steps,
        "skipped": half.skipped,
        "not_finite": sum(not math.isfinite(loss) for loss in half.losses),
        "scale": half.scale,
        "first_loss": curve[0],
        "loss": curve[-1],
        "loss_32": expected[-1],
        "furthest": max(abs(a - b) / b for a, b in zip(curve, expected, strict=True)),
    }
    finite = {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in result.items()}
    print(json.dumps(finite))


if __name__ == "__main__":
    main()
