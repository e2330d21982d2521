"""What decoding in int8 or bfloat16 saves on a CPU, beside float32: milliseconds of a step, and bytes of the model.

    python benchmarks/int8_speed.py [--layers 4] [--repeats 5] [--quick] [--processor-time]

A sentence of 32 → 32 tokens along the path of wait-3, by the streaming engine with exact rows and I←O off, with random
weights of the shape of Qwen2.5-0.5B's slice, and of the base of size small. The three take turns, and a step's time is
the median of all runs. The last line is JSON; ratios are of float32, below 1 is faster or smaller. On a busy machine
`OMP_NUM_THREADS=1 … --processor-time` counts the time this process computed, not what it waited.
"""

import argparse
import copy
import json
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.decode_latency import EXACT, LENGTH, Laps, backbone, decode, engine_of, grid
from benchmarks.measuring import QWEN, QWEN_VOCABULARY, SHAPES, check_counts
from duplexmt.kernels.int8 import Int8Embedding, Int8Linear, to_int8

(OPTIONS,) = EXACT.values()


def variants(shape: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """The same weights three times."""
    float32 = grid(backbone(shape, vocabulary, "cpu"), OPTIONS)
    small = grid(copy.deepcopy(float32.causal_lm), OPTIONS)
    to_int8(small.backbone)
    half = grid(copy.deepcopy(float32.causal_lm).bfloat16(), OPTIONS)
    return {"float32": float32, "int8": small, "bfloat16": half}


def model_bytes(model: Any) -> int:
    """Of the weights of a model, without the copies of its layers that decoding in other types than int8 may make."""
    total = sum(weight.nbytes for weight in model.parameters())  # each once, where two share it
    for module in model.modules():
        if isinstance(module, Int8Linear):
            total += module.in_features * module.out_features + module.scale.nbytes + module.zero.nbytes
        elif isinstance(module, Int8Embedding):
            total += module.weight.nbytes + module.scale.nbytes
    return total


def measure(shape: dict[str, Any], vocabulary: int, repeats: int) -> dict[str, Any]:
    """Of one shape."""
    models = variants(shape, vocabulary)
    engines = {name: engine_of(model, 1) for name, model in models.items()}
    steps: dict[str, list[float]] = {name: [] for name in models}
    for engine in engines.values():
        decode(engine, 1, 4, "cpu")
    for _ in range(repeats):
        for name, engine in engines.items():
            steps[name] += decode(engine, 1, LENGTH, "cpu")[0]
    times = {name: 1000 * median(seconds) for name, seconds in steps.items()}
    sizes = {name: model_bytes(model) for name, model in models.items()}
    return {
        "step_ms_p50": {name: round(value, 3) for name, value in times.items()},
        "time_ratio": {name: round(value / times["float32"], 3) for name, value in times.items()},
        "megabytes": {name: round(value / 1e6, 1) for name, value in sizes.items()},
        "size_ratio": {name: round(value / sizes["float32"], 3) for name, value in sizes.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="of the Qwen2.5-0.5B shape")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the small shape alone, once")
    parser.add_argument("--processor-time", action="store_true", help="in place of wall clock")
    arguments = parser.parse_args()
    check_counts(parser, arguments, "layers", "repeats")
    if arguments.processor_time:
        Laps.now = process_time
    result: dict[str, Any] = {
        "benchmark": "int8",
        "clock": "processor" if arguments.processor_time else "wall",
        "threads": torch.get_num_threads(),
        "layers": arguments.layers,
    }
    if not arguments.quick:
        slice_ = QWEN | {"num_hidden_layers": arguments.layers}
        result["qwen2.5-0.5b"] = measure(slice_, QWEN_VOCABULARY, arguments.repeats)
    result["small"] = measure(*SHAPES["small"], 1 if arguments.quick else 4 * arguments.repeats)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
