"""How fast `train.py` trains: its own steps, as it takes them with its default settings, beside Hugging Face + PEFT.

    python benchmarks/training_speed.py [--parts rows,hugging_face,waitk] [--seconds 20] [--shape small] [NAME=VALUE …]

Pairs of 18 + 25 tokens, end tokens included, go through `train.py` itself until a part's seconds are over; only what
looks at the model is left out. `rows` is experiment=[paper,past_paper] (four rows), `waitk` is experiment=paper with
system=waitk and a drawn k, `grid` is experiment=paper. Weights are random, with LoRA r = 64 and the full head: on a GPU
of Qwen2.5-0.5B's shape, else `small`, 4 layers of width 256 and 8,000 entries; `slice` is 4 of Qwen's layers.
NAME=VALUE are further settings, such as training.compile=false. On a busy CPU compare ratios, on one thread.
Where batches are packed by default (`data.batch_tokens`), their sizes are its; else they have some 8,000 positions.
After each part a line is printed: one JSON object of all parts so far. Of each part:

pairs_per_second, positions_per_second, step_ms   over all steps after the first few; positions are no padding
minutes             of 100,000 pairs, extrapolated
mfu                 model FLOP/s over the rate of a large matrix product measured here
launches            of one step: kernels and graphs that the host launches; on a CPU operators
idle                of that step the share of `step_ms` in which the GPU does not compute
kinds               ms of it by kind of kernel

`hugging_face` takes batches of as many pairs of these lengths by the backbone's own forward, padded and packed (one
list with position ids), text head and loss on the target alone; `ratio_padded` and `ratio_packed` are positions/s of
the part before over its.
"""

import gc
import json
import random
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import lightning as L
import torch
from torch.autograd import DeviceType
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import LORA, SHAPES, add_shape, count, in_turns, machine, now, some_of, training_step
from duplexmt.common.command import command_parser
from duplexmt.decoder.backbone import add_lora, freeze_in, random_backbone
from duplexmt.training.precision import half_precision
from duplexmt.training.throughput import cells_of, matmul_rate

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TARGET, PAIRS = 18, 25, 20_000  # tokens of a pair, pairs of a run
WARM = 5  # steps that are not counted: they compile, prove and ask for memory
PACKED = "data.batch_tokens=auto"  # which experiment=paper turns off
PARTS = {
    "rows": ("experiment=[paper,past_paper]", "data.batch_size=96", PACKED),
    "waitk": ("experiment=paper", "system=waitk", "system.k=multi", "data.batch_size=192", PACKED),
    "grid": ("experiment=paper", "data.batch_size=24", PACKED),
}
HUGGING_FACE = "hugging_face"
KINDS = {
    "products": "gemm gemv cutlass nvjet xmma splitK aten::mm aten::addmm _linear aten::bmm",
    "attention": "attention flash fmha flex _walk",
    "head": "_log_sum_exp _gradient softmax cross_entropy",
    "copies": "memcpy memset copy cat index gather scatter",
    "reductions": "reduce norm sum scan _steps",
    "fused": "triton",
    "elementwise": "elementwise aten::mul aten::add aten::sub",
}  # the first that fits
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")


class Measured(Exception):
    """What was to be measured is, and the run may end."""


class Measure(L.Callback):
    """Counts steps for so many seconds after the first few, looks at one more, and ends the run by `Measured`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.found: dict[str, Any] = {}
        self.shapes: list[tuple[tuple[int, int], ...]] = []  # of the batches that count
        self.positions = self.flops = self.steps = 0
        self.profiled: profile | None = None

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        """Begin to count, or to look."""
        if self.steps == WARM:
            self.begun = now()
        if self.found:
            now()
            cuda = module.device.type == "cuda"
            self.profiled = profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda])
            self.profiled.__enter__()

    def on_train_batch_end(self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Count a step, or end."""
        self.steps += 1
        if self.profiled is not None:
            now()
            self.profiled.__exit__(None, None, None)
            self.found |= profile_of(self.profiled, self.found["step_ms"], module.device.type == "cuda")
            raise Measured
        if self.steps <= WARM:
            return
        self.shapes.append(batch.shapes)
        self.positions += positions_of(module, batch.shapes)
        self.flops += module.step_flops(batch)
        is_last = self.steps == int(trainer.num_training_batches) - 1  # if another is to be looked at
        if is_last or now() - self.begun >= self.seconds:
            seconds, pairs, steps = now() - self.begun, sum(map(len, self.shapes)), len(self.shapes)
            rate = matmul_rate(module.device, half_precision(str(trainer.precision)) or torch.float32)
            self.found = {
                "pairs": pairs / steps,
                "step_ms": 1e3 * seconds / steps,
                "pairs_per_second": pairs / seconds,
                "positions_per_second": self.positions / seconds,
                "minutes": 100_000 / (pairs / seconds) / 60,
                "mfu": self.flops / seconds / rate,
                "precision": str(trainer.precision),
            }


def positions_of(module: Any, shapes: tuple[tuple[int, int], ...]) -> int:
    """States that a step's layers compute: of all streams, without what is filled in."""
    source, target = sum(X for X, _ in shapes), sum(Y for _, Y in shapes)
    if not hasattr(module, "rows"):
        return source + target
    cells = cells_of(shapes, module.rows)
    return 2 * cells if module.model.input_attends_output else source + cells


def profile_of(profiled: profile, step_ms: float, cuda: bool) -> dict[str, Any]:
    """Launches of a step, and what its device did, by kind."""
    kinds: Counter[str] = Counter()
    for event in profiled.key_averages():
        # On CUDA of kernels alone, as what launched them shows their time, too, and so does all that has a name.
        if not cuda or (event.device_type == DeviceType.CUDA and not event.is_user_annotation):
            name = event.key.lower()
            fits = (kind for kind, parts in KINDS.items() if any(part.lower() in name for part in parts.split()))
            kinds[next(fits, "others")] += (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3
    starts = LAUNCHES if cuda else ("aten::",)
    launches = sum(event.count for event in profiled.key_averages() if event.key.startswith(starts))
    idle = {"idle": max(0.0, 1 - kinds.total() / step_ms)} if cuda else {}
    return {"launches": launches, "kinds": dict(kinds.most_common()), **idle}


def corpus(folder: Path, vocabulary: int) -> None:
    """A file of random pairs, and a tokenizer that has a word for each entry of the vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"eos_token": "<|endoftext|>", "bos_token": "<|im_start|>"}
    words = [*special.values(), *(f"w{number}" for number in range(2, vocabulary))]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[-1]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder / "tokenizer")
    draw = random.Random(0)
    with (folder / "pairs.tsv").open("w", encoding="utf-8") as file:
        for _ in range(PAIRS):
            sides = (" ".join(draw.choices(words[2:], k=size - 1)) for size in (SOURCE, TARGET))
            print(*sides, sep="\t", file=file)


def trained(part: str, folder: Path, arguments: Namespace) -> Measure:
    """A part, by `train.py`, with a backbone of random weights."""
    from hydra import compose, initialize_config_dir

    import train
    from duplexmt.config import TrainSettings, settings

    given = [
        *PARTS[part], f"data.path={folder}/pairs.tsv", f"data.tokenizer={folder}/tokenizer", "data.source_language=de",
        "data.train_size=null", "data.validation_size=8", "data.test_size=8", "logger=csv", "demonstrate=0",
        "trainer.devices=1", "trainer.strategy=auto", "trainer.precision=auto", "trainer.enable_progress_bar=false",
        *arguments.settings,
    ]  # fmt: skip
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        cfg = settings(TrainSettings, compose("train", given))
    cfg = replace(cfg, model=replace(cfg.model, backbone=None, architecture=SHAPES[arguments.shape][0]))
    measure, looks_of = Measure(arguments.seconds), train.looks_of
    train.looks_of = lambda *_: (measure,)  # type: ignore[assignment,return-value]
    (run := folder / part).mkdir()
    try:
        train.train(cfg, run, part, None)
    except Measured:
        return measure
    finally:
        train.looks_of = looks_of
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    raise RuntimeError(f"{part}: the epoch of {PAIRS} pairs ended before {WARM + 2} steps")


def hugging_face(before: Measure, arguments: Namespace) -> dict[str, Any]:
    """The backbone's own step on batches of as many pairs, padded and packed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    half = half_precision(before.found["precision"])
    shape, vocabulary = SHAPES[arguments.shape]
    backbone = add_lora(random_backbone(shape, vocabulary, end_token=0), **LORA)
    if half is not None:
        freeze_in(half, backbone)
    backbone = backbone.to(device).train()
    causal_lm: Any = backbone.get_base_model()

    def loss_of(inputs: dict[str, torch.Tensor], at: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        states = causal_lm.model(**inputs, use_cache=False).last_hidden_state.flatten(0, 1)
        return F.cross_entropy(causal_lm.lm_head(states[at]).float(), labels)

    step = training_step(backbone, loss_of, half)
    pairs = [len(shapes) for shapes in before.shapes[:8]]
    works = {}
    for name in ("padded", "packed"):
        given = [inputs_of(count, vocabulary, name == "packed", device) for count in pairs]
        works[name] = lambda turn, given=given: step(*given[turn % len(given)])
    once, found = in_turns(works, 1), {}
    if len(once) < len(works):
        raise RuntimeError("see above")
    for name, seconds in in_turns(works, max(3, round(arguments.seconds / sum(once.values())))).items():
        speed = mean(pairs) * (SOURCE + TARGET) / seconds
        found |= {f"{name}_ms": 1e3 * seconds, f"{name}_positions_per_second": speed}
        found[f"ratio_{name}"] = before.found["positions_per_second"] / speed
    return found


def inputs_of(pairs: int, vocabulary: int, packed: bool, device: torch.device) -> tuple[Any, ...]:
    """Pairs as rows, or as one list which position ids divide; where the loss is taken, and its labels."""
    ids = torch.randint(2, vocabulary, (pairs, SOURCE + TARGET), device=device)
    places = torch.arange(SOURCE + TARGET, device=device).expand_as(ids)
    at = (places >= SOURCE).flatten().nonzero().squeeze(1)
    labels = torch.randint(2, vocabulary, at.shape, device=device)
    if packed:
        return {"input_ids": ids.reshape(1, -1), "position_ids": places.reshape(1, -1)}, at, labels
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, at, labels


def main(given: Iterable[str] | None = None) -> None:
    """Measure; the last line is the result."""
    parser = command_parser(__doc__)
    known = [*PARTS, HUGGING_FACE]
    usual = "rows,hugging_face,waitk"
    parser.add_argument("--parts", type=some_of(known), default=usual, help=f"of {', '.join(known)}")
    parser.add_argument("--seconds", type=count, default=20, help="of the steps that count, of each part")
    add_shape(parser)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="of train.py")
    arguments = parser.parse_args(None if given is None else list(given))
    if HUGGING_FACE in arguments.parts[:1]:
        parser.error(f"--parts {HUGGING_FACE}: it compares with the part before it, so give one first")
    result = machine() | {"shape": arguments.shape, "pair": f"{SOURCE} + {TARGET} tokens"}
    before: Measure | None = None
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus(folder, SHAPES[arguments.shape][1])
        for part in arguments.parts:
            try:
                if part == HUGGING_FACE:
                    result[part] = before and hugging_face(before, arguments)
                else:
                    before = None
                    before = trained(part, folder, arguments)
                    result[part] = before.found
            except RuntimeError as error:  # out of memory, say: the other parts go on
                failed.append(part)
                print(f"{part}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            print(json.dumps(result), flush=True)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}, see above")


if __name__ == "__main__":
    main()
