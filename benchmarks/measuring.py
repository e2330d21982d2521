"""What benchmarks of steps share: shapes with random weights, seconds, bytes, and who measured."""

import argparse
import ctypes
import platform
import shutil
import statistics
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.autograd import DeviceType

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
LORA = {
    "rank": 64, "alpha": 128, "dropout": 0.0,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}  # fmt: skip


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


def seconds_of(work: Callable[[], object], cuda: bool, clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of some work, until the device has done it."""
    if cuda:
        torch.cuda.synchronize()
    begin = clock()
    work()
    if cuda:
        torch.cuda.synchronize()
    return clock() - begin


def medians(
    works: Mapping[str, Callable[[int], object]], turns: int, cuda: bool, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """Median seconds of each work, taking turns after one to warm up; each is given the number of the turn."""
    for work in works.values():
        work(0)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns):
        for name, work in works.items():
            taken[name].append(seconds_of(partial(work, turn), cuda, clock))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def growth(work: Callable[[], object]) -> int:
    """Bytes by which this process grows while some work is done (Linux).

    What earlier steps left free goes back first: a step that fits into it would seem to take nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def resident(name: str, pid: int | str = "self") -> int:
    """Bytes of memory of a process, now (VmRSS) or at most (VmHWM)."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def times_by_name(events: Iterable[Any], cuda: bool) -> list[tuple[str, float]]:
    """What the device spent its time on: on CUDA kernels alone, as the operations that launched them show it, too, and
    so does all that has been given a name."""
    if not cuda:
        return [(event.key, event.self_cpu_time_total) for event in events]
    kernels = (event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation)
    return [(event.key, event.self_device_time_total) for event in kernels]


def machine(device: str) -> dict[str, Any]:
    """What a result says of where it is from."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"commit": commit(), "device": name, "torch": torch.__version__}


def commit() -> str | None:
    """Of this repository; None for a copy of it without its history, or where there is no git."""
    if shutil.which("git") is None:
        return None
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip() or None


def check_counts(parser: argparse.ArgumentParser, arguments: argparse.Namespace, *names: str) -> None:
    """End the command where one of these options was given, and is below 1."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")


def names_of(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, option: str, known: Collection[str]
) -> list[str]:
    """What stands in an option, with commas between; ends the command for a name that there is not."""
    names = [name for name in getattr(arguments, option).split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--{option} {unknown[0]}: there are {', '.join(known)}")
    return names


def rounded(value: Any) -> Any:
    """Floats in it to four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def shape_of(parser: argparse.ArgumentParser, asked: str | None) -> str:
    """The shape that was asked for, or the one for this machine; ends the command where a CPU would take hours."""
    if asked == "qwen" and not torch.cuda.is_available():
        parser.error("--shape qwen: PyTorch sees no GPU on this machine; take --shape small or slice")
    return asked or ("qwen" if torch.cuda.is_available() else "small")
