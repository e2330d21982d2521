"""How long does a simultaneous translation take to compute, beside recomputation, `generate` and re-encoding wait-k?

    python benchmarks/decode_latency.py [--quick] [--device cpu|cuda] [--layers N] [--processor-time] [--exact]

One sentence of 32 → 32 tokens along the path of wait-3, with random weights of the shape of Qwen2.5-0.5B (its 4-layer
slice on CPU), through the streaming engine with I←O on and off, and side by side in the same run:

    recompute       the grid of all that is visible, at each step
    generate        Hugging Face `generate` of the whole source, with its own cache (offline)
    re-encode       wait-3 on a causal LM whose prompt is encoded anew at each read (990 positions in all)

then many live streams at once, and the memory of a stream. A ratio is our time over theirs. The last line is one JSON
object; the keys with `_io_off` are the same with I←O off, those with `_exact_io_off` (`--exact`) with exact
attention and I←O off, those under `small` are of a small model, of 3 layers.

On a busy machine `OMP_NUM_THREADS=1 … --processor-time` counts the time this process computed, not what it waited.
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import QWEN, QWEN_VOCABULARY, check_counts, check_device, qwen
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.backbone import random_backbone
from duplexmt.decoder.cache import DecoderCache
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.cache import GridCache
from duplexmt.grid.model import GridModel, build_grid
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.stream import Stream

SMALL = qwen(128, 384, layers=3, heads=4), 3_000
MODELS: dict[str, dict[str, Any]] = {"": {}, "_io_off": {"input_attends_output": False}}
EXACT: dict[str, dict[str, Any]] = {"_exact_io_off": {"attention": "exact", "input_attends_output": False}}
PAPER = {"attention": "approximate", "input_attends_output": True, "softmax": "joint", "emit_hidden": 0}
LENGTH, K = 32, 3
Model = GridModel | DecoderModel
TOKENS = StreamTokens(end=0, seed=1)


def backbone(shape: dict[str, Any], vocabulary: int, device: str) -> Any:
    """Random weights in float32 on CPU, in bfloat16 on CUDA; nothing ends what `generate` writes."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    causal_lm = random_backbone(shape, vocabulary, end_token=None).eval().to(device, dtype)
    causal_lm.get_input_embeddings().weight.data[TOKENS.end] = 0  # the text head's, too, which never predicts it so
    return causal_lm


def grid(causal_lm: Any, options: dict[str, Any]) -> Model:
    """The grid model around it, with a constant anchor."""
    shared = {id(weight): weight for weight in causal_lm.parameters()}  # modules of its own, as it may change them
    model: Any = build_grid(copy.deepcopy(causal_lm, shared), **PAPER | options, anchor=128)
    model.emit_head.to(causal_lm.lm_head.weight)
    return model.eval()  # type: ignore[no-any-return]


class Laps:
    """Seconds of each step of a sentence, what it asked of the device included; to `generate` it is a streamer, told of
    every token.

    Attributes:
        now: the clock, `perf_counter` or `process_time`.
    """

    now: Callable[[], float] = perf_counter

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds: list[float] = []
        self.before = self._now()

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return Laps.now()

    def put(self, tokens: Any = None) -> None:
        """A step is over."""
        now = self._now()
        self.seconds.append(now - self.before)
        self.before = now

    def end(self) -> None:
        """So is the sentence."""
        self.put()


def least(runs: Sequence[Sequence[float]]) -> list[float]:
    """Of each step the least time in several runs of the same sentence: a busy machine only ever adds."""
    return [min(times) for times in zip(*runs, strict=True)]


def sentence(runs: Sequence[Sequence[float]], device: str) -> float:
    """Seconds of a sentence: of each step the least; on CUDA of the fastest run, as `generate` is one lap there."""
    return min(map(sum, runs)) if device == "cuda" else sum(least(runs))


def direct(stream: Stream, length: int) -> None:
    """Have the next step of a stream go along the path of wait-k: k reads ahead of its writes, to the end."""
    text_read = stream.visible - stream.prefix
    ahead = text_read >= min(len(stream.written) + K, length)
    stream.theta = 0.0 if ahead else 1.0


def decode(engine: Engine, streams: int, length: int, device: str) -> tuple[list[float], list[tuple[int, bool]], int]:
    """Translate `streams` sentences of `length` → `length` tokens.

    Returns:
        Seconds of each step (the first, which only reads, belongs to the second), x + y at each, and whether it read
        the text head, and tokens written.
    """
    laps, sizes, written = Laps(device), [], 0
    source = torch.randint(2, 1000, (streams, length - 1), generator=torch.Generator().manual_seed(1)).tolist()
    live = []
    for tokens in source:
        stream = engine.open()
        stream.read(tokens)
        stream.end()
        live.append(stream)
    while live:
        for stream in live:
            direct(stream, length)
        events = engine.step()
        if not all(isinstance(event, Read) and event.emit_probability is None for event in events):
            laps.put()
            size = live[0].visible + len(live[0].target)
            sizes.append((size, not isinstance(events[0], Read)))
        written += sum(isinstance(event, Write) for event in events)
        if any(isinstance(event, End) for event in events):
            live = [stream for stream in live if not stream.over]
    return laps.seconds, sizes, written


def wait_k_path() -> list[tuple[int, int]]:
    """States (read, written) of wait-k, each step's."""
    path, written = [], 0
    for read in range(1, LENGTH + 1):
        path.append((read, written))
        while written < LENGTH and (written + K <= read or read == LENGTH):
            written += 1
            path.append((read, written))
    return path


@torch.no_grad()
def recompute(model: Model, device: str, read: int, written: int) -> float:
    """One step by the grid of all that is visible, text head where it is needed."""
    source = torch.tensor([[*range(2, LENGTH + 1), TOKENS.end][:read]], device=device)
    target = torch.tensor([[TOKENS.seed, *range(2, written + 2)]], device=device)
    laps = Laps(device)
    hidden = model(source, target)[:, -1, -1]
    p_emit, _ = model.decide(hidden)
    p_emit.tolist()
    if written + K <= read or read == LENGTH:
        model.text_logits(hidden).argmax(-1).tolist()
    laps.put()
    return laps.seconds[0]


def offline_generate(causal_lm: Any, device: str) -> list[float]:
    """Hugging Face `generate` of the same number of tokens from the whole source; on CUDA as one lap, undisturbed."""
    source = torch.randint(2, 1000, (1, LENGTH), device=device)
    laps = Laps(device)
    causal_lm.generate(
        source,
        attention_mask=torch.ones_like(source),
        max_new_tokens=LENGTH,
        min_new_tokens=LENGTH,
        do_sample=False,
        streamer=laps if device == "cpu" else None,
    )
    laps.put()
    return laps.seconds


@torch.no_grad()
def reencode_waitk(causal_lm: Any, device: str) -> list[float]:
    """Wait-k that encodes source and target so far at each read, and goes on from its cache once all is read."""
    source = torch.randint(2, 1000, (1, LENGTH), device=device)
    target = torch.ones(1, 1, dtype=torch.int64, device=device)
    laps = Laps(device)
    for read in range(K, LENGTH + 1):
        ids = torch.cat((source[:, :read], target), 1)
        out = causal_lm(ids, attention_mask=torch.ones_like(ids), use_cache=read == LENGTH, logits_to_keep=1)
        target = torch.cat((target, out.logits[:, -1].argmax(-1, keepdim=True)), 1)
        laps.put()
    while target.shape[1] < LENGTH + 1:
        out = causal_lm(target[:, -1:], cache=out.cache, use_cache=True, logits_to_keep=1)
        target = torch.cat((target, out.logits[:, -1].argmax(-1, keepdim=True)), 1)
        laps.put()
    return laps.seconds


def straight_line(sizes: list[tuple[int, bool]], seconds: list[float]) -> dict[str, float]:
    """Least squares of a step's milliseconds in x + y and in whether the text head was read, and what that explains."""
    y = 1000 * np.array(seconds)
    columns = np.array([[1.0, size, head] for size, head in sizes])
    found = np.linalg.lstsq(columns, y, rcond=None)[0]
    names = ("at_0", "per_x_plus_y", "text_head")
    return dict(zip(names, found.tolist(), strict=True)) | {"r2": float(1 - (y - columns @ found).var() / y.var())}


def cache_of_one(model: Model) -> Any:
    """The cache that fits a model, for one stream of 64 + 64 tokens."""
    kind: Any = DecoderCache if isinstance(model, DecoderModel) else GridCache
    return kind(model, slots=1, length=2 * LENGTH)


def milliseconds(seconds: list[float], share: float) -> float:
    """A quantile."""
    return round(1000 * float(np.quantile(seconds, share)), 3)


def engine_of(model: Model, streams: int, length: int = LENGTH) -> Engine:
    """An engine that writes as many tokens as it reads."""
    return Engine(model, TOKENS, theta=0.5, max_target_tokens=length, max_streams=streams)


def measure(
    causal_lm: Any,
    device: str,
    kinds: dict[str, dict[str, Any]],
    counts: list[int],
    many_length: int,
    repeats: int,
    every: int,
) -> dict[str, Any]:
    """All numbers of one backbone, for several kinds of grid model: options by the suffix of their keys.

    What is compared takes turns, so that a busy moment meets all, and is summed alike (`sentence`), ours and theirs. Of
    the recomputed steps every so many are measured.
    """
    result: dict[str, Any] = {}
    models = {suffix: grid(causal_lm, options) for suffix, options in kinds.items()}
    engines = {suffix: engine_of(model, 1) for suffix, model in models.items()}
    path = wait_k_path()[every // 2 :: every]
    for engine in engines.values():  # warm
        decode(engine, 1, LENGTH if device == "cuda" else 4, device)
    offline_generate(causal_lm, device), reencode_waitk(causal_lm, device)
    ours: dict[str, list[Any]] = {suffix: [] for suffix in models}
    recomputed: dict[str, list[list[float]]] = {suffix: [] for suffix in models}
    generate, reencode = [], []
    for _ in range(repeats):
        for suffix, engine in engines.items():
            ours[suffix].append(decode(engine, 1, LENGTH, device))
            recomputed[suffix].append([recompute(models[suffix], device, *state) for state in path])
        generate.append(offline_generate(causal_lm, device))
        reencode.append(reencode_waitk(causal_lm, device))
    theirs = {"generate": sentence(generate, device), "reencode_waitk": sentence(reencode, device)}
    result |= {f"{name}_seconds": seconds for name, seconds in theirs.items()}
    for suffix, model in models.items():
        _, sizes, written = ours[suffix][0]
        runs = [run[0] for run in ours[suffix]]
        steps, seconds = least(runs), sentence(runs, device)
        again = sentence(recomputed[suffix], device) * len(wait_k_path()) / len(path)
        result |= {
            f"sentence_seconds{suffix}": seconds,
            f"recompute_seconds{suffix}": again,
            f"speedup_vs_recompute{suffix}": again / seconds,
            f"ratio_vs_offline_generate{suffix}": seconds / theirs["generate"],
            f"ratio_vs_reencode_waitk{suffix}": seconds / theirs["reencode_waitk"],
            f"step_ms_p50{suffix}": milliseconds(steps, 0.5),
            f"step_ms_p99{suffix}": milliseconds(steps, 0.99),
            f"step_ms_line{suffix}": straight_line(sizes, steps),
            f"cache_bytes_per_stream{suffix}": cache_of_one(model).bytes,
        }
        many = {"1": row_of(written / seconds, steps, LENGTH)}
        for count in counts:
            try:
                engine = engine_of(model, count, many_length)
                if device == "cuda":
                    decode(engine, count, many_length, device)
                step_seconds, _, written = decode(engine, count, many_length, device)
            except (torch.OutOfMemoryError, ValueError) as error:  # what was measured before is not lost
                print(f"{count} streams{suffix}: left out, the memory does not hold them ({error})", file=sys.stderr)
                break
            many[str(count)] = row_of(written / sum(step_seconds), step_seconds, many_length)
        print(json.dumps(rounded(result)), file=sys.stderr, flush=True)  # progress
        result[f"tokens_per_second{suffix}"] = {name: row["tokens_per_second"] for name, row in many.items()}
        result[f"streams{suffix}"] = many
    return result


def row_of(tokens_per_second: float, step_seconds: list[float], length: int) -> dict[str, float]:
    """The numbers of one number of streams."""
    return {
        "tokens_per_second": tokens_per_second,
        "step_ms_p50": milliseconds(step_seconds, 0.5),
        "step_ms_p99": milliseconds(step_seconds, 0.99),
        "sentence_tokens": length,
    }


def formulas(config: Any, X: int, Y: int, itemsize: int) -> dict[str, int]:
    """Bytes of a stream's cache: the paper's formula, and a count of the tensors in `tab:kvcache-entries`."""
    L, H, H_k = config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads
    E = config.hidden_size // H
    shared = 2 * (X + Y) * H_k * E + 2 * (X + Y) * H * E
    return {
        "cache_bytes_paper_formula": L * (shared + 6 * (X + Y) * H) * itemsize,
        "cache_bytes_table_count": L * (shared + 4 * (X + Y) * H) * itemsize,
    }


def rounded(value: Any) -> Any:
    """Floats to four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 layers, few repeats, short sentences for many streams")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--layers", type=int, help="of the Qwen2.5-0.5B shape; by default 24 on CUDA, 4 on CPU")
    parser.add_argument("--exact", action="store_true", help="exact attention with I←O off, too")
    parser.add_argument("--processor-time", action="store_true", help="of this process, not wall clock; CPU only")
    arguments = parser.parse_args()
    check_device(parser, arguments.device)
    check_counts(parser, arguments, "layers")
    if arguments.processor_time:
        if arguments.device == "cuda":
            parser.error("--processor-time leaves out what the GPU computes: use it on CPU")
        Laps.now = process_time
    quick, device = arguments.quick, arguments.device
    layers = arguments.layers or (4 if quick or device == "cpu" else 24)
    counts = [8, 64, 256] if device == "cuda" and not quick else [8, 64]
    many_length, repeats, every = (4, 2, 12) if quick and device == "cpu" else (LENGTH, 5, 1)
    kinds = MODELS | (EXACT if arguments.exact else {})
    causal_lm = backbone(QWEN | {"num_hidden_layers": layers}, QWEN_VOCABULARY, device)
    result = {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "clock": "processor time" if arguments.processor_time else "wall clock",
        "dtype": str(causal_lm.dtype).removeprefix("torch."),
        "layers": layers,
        "sentence": f"{LENGTH} → {LENGTH}",
        **measure(causal_lm, device, kinds, counts, many_length, repeats, every),
        **formulas(causal_lm.config, 2 * LENGTH, 2 * LENGTH, causal_lm.dtype.itemsize),
    }
    del causal_lm
    # Small steps are short, so more of them fit: the least of many is steadier.
    small = 10 if quick else 20
    result["small"] = measure(backbone(*SMALL, device), device, kinds, counts, many_length, small, min(every, 4))
    print(json.dumps(rounded(result)))


if __name__ == "__main__":
    main()
