"""Everything that waits for a GPU, in one command: each measurement in a process of its own, figures beside the aims.

    python benchmarks/on_gpu.py [--out runs/gpu] [--only NAMES] [--limit SECONDS] [--list]

What was measured before is not measured again, so that the same command goes on after an interruption; --again NAMES
measures them anew. A measurement that fails or exceeds its limit is told and the next one begins. In --out: for each
measurement NAME.log, what it printed, and NAME.json, its result; and summary.md, also printed at the end.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from data_prep.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
Results = Mapping[str, Mapping[str, Any]]


class Measurement(NamedTuple):
    """A command whose last line is a JSON object, or which has none and only must succeed."""

    name: str
    command: tuple[str, ...]
    json: bool = True
    needs: tuple[str, ...] = ()  # packages
    folder: Path | None = None  # of a run, emptied before it


class Aim(NamedTuple):
    """A figure of the results, and what it should at least (≥) or at most (≤) be."""

    what: str
    sign: str
    bound: float
    place: str  # keys, dotted
    over: str | float = 1  # by which it is divided: another figure's place, or a unit

    def figure(self, results: Results) -> float:
        """Its value; KeyError or TypeError where it was not measured."""

        def at(place: str) -> float:
            value: Any = reduce(getitem, place.split("."), results)
            return float(value)

        return at(self.place) / (at(self.over) if isinstance(self.over, str) else self.over)

    def met_by(self, value: float) -> bool:
        """Whether a value is as it should be."""
        return value >= self.bound if self.sign == "≥" else value <= self.bound


def measurements(out: Path) -> list[Measurement]:
    """All of them, the shortest and the most telling first."""

    def script(name: str, *arguments: str) -> tuple[str, ...]:
        return sys.executable, f"benchmarks/{name}.py", *arguments

    def smoke(precision: str) -> Measurement:
        folder = out / f"smoke-{precision}"
        settings = ("experiment=smoke", f"trainer.precision={precision}", f"hydra.run.dir='{folder}'")
        needs = ("hydra", "datasets", "opencc")
        return Measurement(folder.name, (sys.executable, "train.py", *settings), json=False, needs=needs, folder=folder)

    # With more pairs, Hugging Face's step does not fit into 80 GB.
    speed = ("--device", "cuda", "--speed-only", "--pairs", "12", "--precision")
    return [
        Measurement("kernels", script("triton_kernels")),
        Measurement("step-bf16", script("train_step", *speed, "bf16")),
        Measurement("step-fp16", script("train_step", *speed, "fp16")),
        Measurement("step-bf16-compiled", script("train_step", *speed, "bf16", "--compile")),
        Measurement("memory", script("train_step", "--device", "cuda", "--memory-only")),
        Measurement("decoding", script("decode_latency", "--device", "cuda")),
        smoke("bf16-mixed"),
        smoke("16-mixed"),
    ]


def aims() -> list[Aim]:
    """What the figures should be, in the order of `measurements`."""
    found = []
    for kind in ("scan", "head"):
        half = f"kernels.{kind}.bfloat16"
        found += [
            Aim(f"kernels: relative error of {kind}, float32", "≤", 1e-4, f"kernels.{kind}.float32.error"),
            Aim(f"kernels: relative error of {kind}, bfloat16", "≤", 0.02, f"{half}.error"),
            Aim(f"kernels: {kind} × as fast as plain, bfloat16", "≥", 1, f"{half}.plain_ms", over=f"{half}.ms"),
        ]
    for name in ("step-bf16", "step-fp16", "step-bf16-compiled"):
        promise = f"{name}.flop_ratio_io_off"
        found += [
            Aim(f"{name}: `mfu`", "≥", 0.5, f"{name}.mfu"),
            Aim(f"{name}: `ratio_hf`", "≥", 1.25, f"{name}.ratio_hf"),
            Aim(f"{name}: I←O off of its promise", "≥", 0.9, f"{name}.speedup_io_off", over=promise),
            Aim(f"{name}: `padding_waste`", "≤", 0.05, f"{name}.padding_waste"),
            Aim(f"{name}: `epoch_minutes`", "≤", 8, f"{name}.epoch_minutes"),
        ]
    return [
        *found,
        Aim("peak memory, GB", "≤", 18, "memory.peak_memory.nothing", over=1e9),
        Aim("… layers recomputed, GB", "≤", 8, "memory.peak_memory.layers", over=1e9),
        Aim("decoding: `speedup_vs_recompute`", "≥", 8, "decoding.speedup_vs_recompute"),
        Aim("… with I←O off", "≥", 8, "decoding.speedup_vs_recompute_io_off"),
    ]


def run(measurement: Measurement, out: Path, limit: float) -> dict[str, Any]:
    """Take one measurement, its output into a log.

    Returns:
        Its last line's object (empty without one), with the `seconds` it took.

    Raises:
        RuntimeError: where it failed, ran out of time, or its last line is no object.
    """
    if measurement.folder is not None:
        shutil.rmtree(measurement.folder, ignore_errors=True)
    log = out / f"{measurement.name}.log"
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            measurement.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True
        )
        try:
            printed, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"not done after {limit:g} s (--limit)") from error
        finally:
            if process.poll() is None:  # the limit, or Ctrl-C: with all that it has started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        file.write(printed)
    if process.returncode:
        raise RuntimeError(f"ended with exit status {process.returncode}: {log}")
    result: dict[str, Any] = {}
    if measurement.json:
        try:
            result = json.loads(printed.splitlines()[-1])
        except (IndexError, json.JSONDecodeError) as error:
            raise RuntimeError(f"its last line is no JSON object: {log}") from error
    return result | {"seconds": round(time.monotonic() - began, 1)}


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    """What was measured before, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(out.glob("*.json"))}


def summary(results: Results, failed: Mapping[str, str]) -> str:
    """Figures beside aims, what was measured where, and what failed; Markdown."""
    rows = ["| figure | aim | measured | |", "| --- | --- | --- | --- |"]
    for aim in aims():
        try:
            value = aim.figure(results)
        except (KeyError, TypeError):  # not measured, or not a number
            rows.append(f"| {aim.what} | {aim.sign} {aim.bound:g} | – | |")
            continue
        verdict = "met" if aim.met_by(value) else "**missed**"
        rows.append(f"| {aim.what} | {aim.sign} {aim.bound:g} | {value:.3g} | {verdict} |")
    lines = ["", "| measurement | seconds | device | commit |", "| --- | --- | --- | --- |"]
    for name, result in results.items():
        lines.append(f"| {name} | {result['seconds']:g} | {result.get('device', '–')} | {result.get('commit', '–')} |")
    lines += [f"| {name} | – | {why} | |" for name, why in failed.items()]
    return "\n".join([*rows, *lines]) + "\n"


def chosen(names: str | None, known: Sequence[str], option: str) -> list[str]:
    """The names of an option, all where it is not given.

    Raises:
        ValueError: for a name that is not known.
    """
    given = list(known) if names is None else [name for name in names.split(",") if name]
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{option} {unknown[0]}: no such measurement; there are {', '.join(known)}")
    return given


def main() -> int:
    """Measure what is missing; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated; default: all")
    parser.add_argument("--again", metavar="NAMES", default="", help="comma-separated: measured anew")
    parser.add_argument("--limit", type=float, default=900, help="seconds for each measurement")
    parser.add_argument("--list", action="store_true", help="the measurements and their commands, and nothing else")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    every = measurements(out)
    known = [each.name for each in every]
    try:
        only, again = chosen(arguments.only, known, "--only"), chosen(arguments.again, known, "--again")
    except ValueError as error:
        parser.error(str(error))
    if not arguments.limit > 0:
        parser.error(f"--limit {arguments.limit:g}: must be above 0")
    if arguments.list:
        for each in every:
            print(f"{each.name:20}{' '.join(('python', *each.command[1:]))}")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for each in every:
        done = out / f"{each.name}.json"
        if each.name not in only or (done.exists() and each.name not in again):
            continue
        if missing := [package for package in each.needs if find_spec(package) is None]:
            failed[each.name] = f"needs {missing[0]}: make setup"
            continue
        print(f"{each.name} …", file=sys.stderr, flush=True)
        try:
            result = run(each, out, arguments.limit)
        except RuntimeError as error:
            failed[each.name] = str(error)
            print(f"{each.name}: {error}", file=sys.stderr, flush=True)
            continue
        write_whole(done, f"{json.dumps(result)}\n")
    text = summary(results_in(out), failed)
    (out / "summary.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
