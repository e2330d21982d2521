"""How long decoding takes: simultaneous translation beside recomputation, `generate` and re-encoding wait-k.

    python benchmarks/decode_latency.py [--shape slice] [--kinds grid,rows] [--beside generate] [--streams 1,8,64]

Sentences of 32 → 32 tokens along the path of wait-3, through the streaming engine, with random weights: on a CPU in
float32, on a GPU in bfloat16. Many streams on a CPU have sentences of 4 tokens. The kinds of models:

    grid, grid_io_off           the paper's attention, and the same with I←O off
    rows                        exact attention, I←O off
    rows_int8, rows_bfloat16    the same with `quantize`

and beside them, in turns in the same run:

    recompute       the grid of all that is visible, at each step; on a CPU of every twelfth, for all
    generate        Hugging Face `generate` of the whole source, with its own cache (offline)
    generate_static the same with a static cache, which Hugging Face compiles on a GPU
    reencode        wait-3 on a causal LM whose prompt is encoded anew at each read (990 positions in all)

Shapes are `small` (4 layers of width 256), `mini` (3 of 128), `slice` (4 layers of Qwen2.5-0.5B) and `qwen`. What does
not fit into the seconds or the memory is left out. The last line is one JSON object; ratios are our time over theirs:

seconds             of one sentence, the least of several turns
speedup_vs_recompute, ratio_vs_generate, ratio_vs_reencode, ratio_vs_rows    by kind
tokens_per_second   by number of streams, and kind
cache_bytes         of a stream at 64 + 64 tokens; megabytes: of the weights

On a busy machine `OMP_NUM_THREADS=1 … --processor-time` counts the time this process computed, not what it waited.
"""

import copy
import json
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import SHAPES, add_shape, count, in_turns, machine, rounded, some_of
from duplexmt.common.command import command_parser
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import random_backbone
from duplexmt.decoder.cache import DecoderCache
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.cache import GridCache
from duplexmt.grid.model import build_grid
from duplexmt.kernels.int8 import Int8Embedding, Int8Linear, to_int8
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End

PAPER = {"attention": "approximate", "input_attends_output": True, "softmax": "joint", "emit_hidden": 0}
EXACT = PAPER | {"attention": "exact", "input_attends_output": False}
KINDS: dict[str, tuple[dict[str, Any], str | None]] = {  # options, and `quantize`
    "grid": (PAPER, None),
    "grid_io_off": (PAPER | {"input_attends_output": False}, None),
    "rows": (EXACT, None),
    "rows_int8": (EXACT, "int8"),
    "rows_bfloat16": (EXACT, "bfloat16"),
}
GENERATE: dict[str, dict[str, Any]] = {"generate": {}, "generate_static": {"cache_implementation": "static"}}
BESIDE = ("recompute", *GENERATE, "reencode")
LENGTH, K, TURNS = 32, 3, 10  # turns of a sentence, after one to warm up
TOKENS = StreamTokens(end=0, seed=1)
Work = Callable[[int], object]  # its turn does not matter


def backbone(shape: dict[str, Any], vocabulary: int, device: str) -> Any:
    """Random weights; nothing ends what `generate` writes."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    causal_lm = random_backbone(shape, vocabulary, end_token=None).eval().to(device, dtype)
    causal_lm.get_input_embeddings().weight.data[TOKENS.end] = 0  # the text head's, too, which never predicts it so
    return causal_lm


def made(causal_lm: Any, kind: str) -> Any:
    """A model of a kind around it, with a constant anchor."""
    options, quantize = KINDS[kind]
    # modules of its own, as it may change them; of what is rounded weights, too
    shared = {} if quantize else {id(weight): weight for weight in causal_lm.parameters()}
    model: Any = build_grid(copy.deepcopy(causal_lm, shared), **options, anchor=128)
    model.emit_head.to(causal_lm.lm_head.weight)
    if quantize == "int8":
        to_int8(model.backbone)
    elif quantize is not None:
        model.halve()
    return model.eval()


def megabytes(model: Any) -> float:
    """Of the weights, without the copies of its layers that decoding in other types than int8 may make."""
    total = sum(weight.nbytes for weight in model.parameters())  # each once, where two share it
    for module in model.modules():
        if isinstance(module, Int8Linear):
            total += module.in_features * module.out_features + module.scale.nbytes + module.zero.nbytes
        elif isinstance(module, Int8Embedding):
            total += module.weight.nbytes + module.scale.nbytes
    return total / 1e6


def cache_bytes(model: Any) -> int:
    """Of the cache that fits a model, for one stream of 64 + 64 tokens."""
    kind: Any = DecoderCache if isinstance(model, DecoderModel) else GridCache
    return int(kind(model, slots=1, length=2 * LENGTH).bytes)


def decoding(model: Any, streams: int, length: int) -> Work:
    """So many sentences of `length` → `length` tokens along wait-k: k reads ahead of the writes, to the end."""
    source = torch.randint(2, 1000, (streams, length - 1), generator=torch.Generator().manual_seed(1)).tolist()
    engine = cache(lambda: Engine(model, TOKENS, theta=0.5, max_target_tokens=length, max_streams=streams))

    def work(turn: int) -> None:
        live = [engine().open() for _ in source]
        for stream, tokens in zip(live, source, strict=True):
            stream.read(tokens)
            stream.end()
        while live:
            for stream in live:
                ahead = stream.visible - stream.prefix >= min(len(stream.written) + K, length)
                stream.theta = 0.0 if ahead else 1.0
            if any(isinstance(event, End) for event in engine().step()):
                live = [stream for stream in live if not stream.over]

    return work


def wait_k_path() -> list[tuple[int, int]]:
    """States (read, written) of wait-k, each step's."""
    last = [max(0, read - K + 1) for read in range(LENGTH)] + [LENGTH]  # written when the next token is read
    return [(read, y) for read in range(1, LENGTH + 1) for y in range(last[read - 1], last[read] + 1)]


@torch.no_grad()
def recompute(model: Any, states: list[tuple[int, int]], turn: int) -> None:
    """Steps by the grid of all that is visible, text head where it is needed."""
    for read, written in states:
        source = torch.tensor([[*range(2, LENGTH + 1), TOKENS.end][:read]], device=model.device)
        target = torch.tensor([[TOKENS.seed, *range(2, written + 2)]], device=model.device)
        hidden = model(source, target)[:, -1, -1]
        model.decide(hidden)[0].tolist()
        if written + K <= read or read == LENGTH:
            model.text_logits(hidden).argmax(-1).tolist()


def generated(causal_lm: Any, streams: int, length: int, **options: Any) -> Work:
    """Hugging Face `generate` of as many tokens from whole sources."""
    source = torch.randint(2, 1000, (streams, length), device=causal_lm.device)
    lengths = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
    return lambda turn: causal_lm.generate(source, attention_mask=torch.ones_like(source), **lengths, **options)


@torch.no_grad()
def reencode(causal_lm: Any, turn: int) -> None:
    """Wait-k that encodes source and target so far at each read, and goes on from its cache once all is read."""
    source = torch.randint(2, 1000, (1, LENGTH), device=causal_lm.device)
    target = torch.ones(1, 1, dtype=torch.int64, device=causal_lm.device)
    kept: Any = None
    for read in [*range(K, LENGTH + 1), *[LENGTH] * (K - 1)]:
        ids = torch.cat((source[:, :read], target), 1) if kept is None else target[:, -1:]
        out = causal_lm(ids, cache=kept, use_cache=read == LENGTH, logits_to_keep=1)
        kept = out.cache
        target = torch.cat((target, out.logits[:, -1].argmax(-1, keepdim=True)), 1)


def streams_of(text: str) -> list[int]:
    """Numbers of streams, as they are given."""
    counts = [int(one) if one.isdecimal() else 0 for one in text.split(",")]
    if counts[0] != 1 or min(counts) < 1:
        raise ArgumentTypeError(f"{text}: must be numbers of at least 1, with commas between them, 1 first")
    return counts


def main(given: list[str] | None = None) -> None:
    """Measure; after each number of streams all so far is printed."""
    parser = command_parser(__doc__)
    add_shape(parser)
    parser.add_argument("--kinds", type=some_of(KINDS), default="grid,grid_io_off,rows", help=f"of {', '.join(KINDS)}")
    beside = "recompute,generate,reencode"
    parser.add_argument("--beside", type=some_of(BESIDE), default=beside, help=f"of {', '.join(BESIDE)}")
    parser.add_argument("--streams", type=streams_of, default="1,8,64", help="comma-separated, the first of them 1")
    parser.add_argument("--seconds", type=count, default=900, help="for all of it")
    parser.add_argument("--processor-time", action="store_true", help="of this process, not wall clock; CPU only")
    asked = parser.parse_args(given)
    cuda, ends = torch.cuda.is_available(), time.monotonic() + asked.seconds
    if asked.processor_time and cuda:
        parser.error("--processor-time leaves out what the GPU computes: use it on a CPU")
    clock = time.process_time if asked.processor_time else time.perf_counter
    causal_lm = backbone(*SHAPES[asked.shape], "cuda" if cuda else "cpu")
    models = {kind: made(causal_lm, kind) for kind in asked.kinds}
    path = wait_k_path() if cuda else wait_k_path()[6::12]
    result = machine() | {
        "clock": clock.__name__,
        "shape": asked.shape,
        "cache_bytes": {kind: cache_bytes(model) for kind, model in models.items()},
        "megabytes": {kind: megabytes(model) for kind, model in models.items()},
        "tokens_per_second": {},
    }
    for streams in asked.streams:
        length = LENGTH if cuda or streams == 1 else 4
        works = {kind: decoding(model, streams, length) for kind, model in models.items()}
        works |= {n: generated(causal_lm, streams, length, **GENERATE[n]) for n in asked.beside if n in GENERATE}
        if streams == 1:
            works |= {"reencode": partial(reencode, causal_lm)} if "reencode" in asked.beside else {}
            for kind in asked.kinds if "recompute" in asked.beside else ():
                works[f"recompute {kind}"] = partial(recompute, models[kind], path)
        # The least of several turns, as a busy machine only ever adds.
        found = in_turns(works, TURNS if streams == 1 else 3 if cuda else 1, clock, min, ends)
        kinds = [kind for kind in asked.kinds if kind in found]
        if streams == 1:
            again = {kind: f"recompute {kind}" for kind in kinds if f"recompute {kind}" in found}
            found |= {name: found[name] * len(wait_k_path()) / len(path) for name in again.values()}
            result["seconds"] = found
            result["speedup_vs_recompute"] = {kind: found[name] / found[kind] for kind, name in again.items()}
            for name in {*GENERATE, "reencode", "rows"} & found.keys():
                result[f"ratio_vs_{name}"] = {kind: found[kind] / found[name] for kind in kinds}
        written = {name: streams * length / found[name] for name in (*kinds, *GENERATE) if name in found}
        result["tokens_per_second"][str(streams)] = written
        print(json.dumps(rounded(result)), flush=True)


if __name__ == "__main__":
    main()
