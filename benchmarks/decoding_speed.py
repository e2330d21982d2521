"""Exact rows decoded along wait-3 beside Hugging Face `generate` of the whole source, of 1 to 256 streams at once.

    python benchmarks/decoding_speed.py [--seconds 90] [--streams 1,8,64,256] [--tiny]

Sentences of 32 → 32 tokens by the streaming engine, with random weights of Qwen2.5-0.5B's shape in bfloat16, exact
attention, I←O off, and heads in float32 (quantize=bfloat16); `--tiny` takes a toy shape in float32, for a CPU.
`generate` runs twice: with its own cache, and with a static one, which Hugging Face compiles on a GPU. What does not
fit into the seconds or the memory is left out.
The last line is one JSON object:

sentence_seconds, generate_seconds, ratio_vs_generate   of one sentence, the fastest of several in turns
tokens_per_second    by number of streams: `rows`, `generate`, `generate_static`
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.decode_latency import EXACT, LENGTH, backbone, decode, engine_of, grid
from benchmarks.measuring import QWEN, QWEN_VOCABULARY, check_counts, machine, qwen, seconds_of
from duplexmt.decoder.cache import NoRoom

TINY, TINY_VOCABULARY = qwen(32, 48, layers=2, heads=4), 1_200
TURNS = 3  # of each, after one to warm up


def generated(causal_lm: Any, streams: int, **options: Any) -> Callable[[], object]:
    """Whole sentences at once."""
    source = torch.randint(2, 1000, (streams, LENGTH), device=causal_lm.device)
    lengths = {"max_new_tokens": LENGTH, "min_new_tokens": LENGTH, "do_sample": False}
    return lambda: causal_lm.generate(source, attention_mask=torch.ones_like(source), **lengths, **options)


def fastest(works: dict[str, Callable[[], object]], cuda: bool, ends: float) -> dict[str, float]:
    """Least seconds of each, in turns after one to warm up; what fails or has no time left is left out, and told."""
    found: dict[str, float] = {}
    for turn in range(TURNS + 1):
        for name in [*works]:
            if time.monotonic() > ends:
                return found
            try:
                seconds = seconds_of(works[name], cuda)
            except (RuntimeError, NoRoom) as error:  # out of memory, or what a compiler raises: the others go on
                print(f"{name}: left out ({type(error).__name__}: {error})", file=sys.stderr, flush=True)
                del works[name]
                continue
            if turn:
                found[name] = min(seconds, found.get(name, seconds))
    return found


def main(given: list[str] | None = None) -> None:
    """Measure; the last line is the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=90, help="for all of it")
    parser.add_argument("--streams", default="1,8,64,256", help="comma-separated numbers")
    parser.add_argument("--tiny", action="store_true", help="a toy shape, for a CPU")
    arguments = parser.parse_args(given)
    check_counts(parser, arguments, "seconds")
    counts = [int(one) if one.isdecimal() else 0 for one in arguments.streams.split(",")]
    if min(counts) < 1:
        parser.error(f"--streams {arguments.streams}: must be numbers of at least 1, with commas between them")
    cuda, ends = torch.cuda.is_available(), time.monotonic() + arguments.seconds
    if not arguments.tiny and not cuda:
        parser.error("PyTorch sees no GPU on this machine: give --tiny to see it run on the CPU")
    device = "cuda" if cuda else "cpu"
    shape, vocabulary = (TINY, TINY_VOCABULARY) if arguments.tiny else (QWEN, QWEN_VOCABULARY)
    causal_lm = backbone(shape, vocabulary, device)
    model = grid(causal_lm, EXACT["_exact_io_off"])
    if cuda:
        model.halve()  # but for the heads it is
    dtype = str(causal_lm.dtype).removeprefix("torch.")
    result = machine(device) | {"dtype": dtype, "tokens_per_second": {}}
    for streams in counts:
        engine = engine_of(model, streams)
        works: dict[str, Callable[[], object]] = {
            "rows": lambda engine=engine, streams=streams: decode(engine, streams, LENGTH, device),
            "generate": generated(causal_lm, streams),
            "generate_static": generated(causal_lm, streams, cache_implementation="static"),
        }
        seconds = fastest(works, cuda, ends)
        if streams == 1 and {"rows", "generate"} <= seconds.keys():
            result |= {"sentence_seconds": seconds["rows"], "generate_seconds": seconds["generate"]}
            result["ratio_vs_generate"] = seconds["rows"] / seconds["generate"]
        if seconds:
            speeds = {name: streams * LENGTH / own for name, own in seconds.items()}
            result["tokens_per_second"][str(streams)] = speeds
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
