"""What benchmarks share: their command line, shapes with random weights, seconds in turns, and who measured."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import torch

from duplexmt.decoder.cache import NoRoom
from duplexmt.training.optimizers import optimizer_of


def qwen(hidden_size: int, intermediate_size: int, *, layers: int, heads: int) -> dict[str, Any]:
    """An architecture of Qwen2's kind, for `random_backbone`."""
    return {
        "model_type": "qwen2", "hidden_size": hidden_size, "intermediate_size": intermediate_size,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }  # fmt: skip


QWEN = qwen(896, 4864, layers=24, heads=14)  # Qwen2.5-0.5B
QWEN_VOCABULARY = 151_936
SHAPES: dict[str, tuple[dict[str, Any], int]] = {  # with their vocabularies
    "tiny": (qwen(32, 48, layers=2, heads=4), 1_200),  # for tests
    "small": (qwen(256, 768, layers=4, heads=4), 8_000),  # the base of size small
    "mini": (qwen(128, 384, layers=3, heads=4), 3_000),  # 1 M parameters
    "slice": (QWEN | {"num_hidden_layers": 4}, QWEN_VOCABULARY),
    "qwen": (QWEN, QWEN_VOCABULARY),
}
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = {"rank": 64, "alpha": 128, "dropout": 0.0, "target_modules": MATRICES}


def count(text: str) -> int:
    """An option that is a number of something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, at least 1")
    return int(text)


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """An option that is some of these names, with commas between."""

    def names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]}: there are {', '.join(known)}")
        return found

    return names


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Give a command `--shape`, of `SHAPES`: by default the one for this machine, and none that takes a CPU hours."""

    def shape(text: str) -> str:
        if text == "qwen" and not torch.cuda.is_available():
            raise argparse.ArgumentTypeError("qwen: PyTorch sees no GPU on this machine; take small or slice")
        return text

    usual = "qwen" if torch.cuda.is_available() else "small"
    parser.add_argument("--shape", type=shape, choices=SHAPES, default=usual, help=f"default here: {usual}")


def training_step(
    module: torch.nn.Module, loss_of: Callable[..., torch.Tensor], half: torch.dtype | None = None
) -> Callable[..., None]:
    """A whole step of training, on what `loss_of` takes: loss, in half precision if asked to, backward, clip, Adam."""
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    device = trained[0].device.type
    optimizer = optimizer_of("adam", module, 1e-4, (0.9, 0.999))
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)

    def step(*inputs: object) -> None:
        with torch.autocast(device, half, enabled=half is not None):
            loss = loss_of(*inputs)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def now(clock: Callable[[], float] = perf_counter) -> float:
    """By a clock, once the device has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock()


def in_turns(
    works: Mapping[str, Callable[[int], object]],
    turns: int,
    clock: Callable[[], float] = perf_counter,
    of: Callable[[list[float]], float] = statistics.median,
    ends: float = inf,
) -> dict[str, float]:
    """Seconds of each work, taking turns after one to warm up; each is given the number of the turn.

    Args:
        of: what is made of a work's turns.
        ends: by `monotonic`, after which no work is begun.

    Returns:
        By name; a work that fails, or that had no turn, is left out, and the failure told.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(-1, turns):
        for name in [*taken]:
            if monotonic() >= ends:
                break
            try:
                begin = now(clock)
                works[name](max(turn, 0))
                taken[name] += [now(clock) - begin] * (turn >= 0)
            except (RuntimeError, NoRoom) as error:  # out of memory, or what a compiler raises: the others go on
                print(f"{name}: left out ({type(error).__name__}: {error})", file=sys.stderr, flush=True)
                del taken[name]
    return {name: of(seconds) for name, seconds in taken.items() if seconds}


def machine() -> dict[str, Any]:
    """What a result says of where it is from; no commit in a copy of the repository without its history."""
    found = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()}
    with suppress(OSError, subprocess.CalledProcessError):
        git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        found["commit"] = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return found | {"torch": torch.__version__}


def rounded(value: Any) -> Any:
    """Floats in it to four significant digits."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"))
