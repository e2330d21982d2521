"""What a person with a GPU runs: all of it in eight minutes from a cold start, figures beside their aims and anchors.

    python benchmarks/on_gpu.py [--out runs/gpu] [--more] [--only NAMES] [--list]

The most telling comes first: a training step on four rows beside Hugging Face + PEFT (padded, and packed), with its
profile, and one of wait-k; decoding beside `generate`; the paper's grid; the kernels. Each measurement runs in a
process of its own, in its own time. What was measured before is not measured again, so that the same command goes on
after an interruption, or when its minutes are over; without its NAME.json a measurement is taken anew. One that fails
or takes too long is told, what it had found counts, and the next one begins. --more takes what takes longer, too, and
as long as it takes: the paper's decoding, a whole small training. In --out: for each measurement NAME.log, what it
printed, and NAME.json, its result; and summary.md, also printed at the end.
"""

import argparse
import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from math import inf
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from duplexmt.common.files import write_whole

MINUTES, LEAST = 8, 20  # of all; seconds that are worth beginning a measurement for
ROOT = Path(__file__).resolve().parents[1]
DECODING = "benchmarks/decode_latency.py --shape qwen"
SPEED = "benchmarks/training_speed.py --shape qwen"
SMOKE = "train.py experiment=smoke trainer.precision={0} \"hydra.run.dir='{1}/smoke-{0}'\""
BESIDE = "--beside generate,generate_static --streams 1,8,64,256"
MEASUREMENTS = {  # the most telling first: seconds that each may take, and its command
    "step": (210, f"{SPEED} --seconds 15"),
    "decoding": (110, f"{DECODING} --kinds rows_bfloat16 {BESIDE} --seconds 80"),
    "grid": (90, f"{SPEED} --parts grid --seconds 10"),
    "kernels": (60, "benchmarks/triton_kernels.py --repeats 5"),
    "paper-decoding": (900, f"{DECODING} --kinds grid,grid_io_off --seconds 800"),
    "smoke-bf16-mixed": (900, SMOKE),
    "smoke-16-mixed": (900, SMOKE),
}
MORE = ("paper-decoding", "smoke-bf16-mixed", "smoke-16-mixed")
Results = Mapping[str, Mapping[str, Any]]


class Aim(NamedTuple):
    """A figure of the results, and what it should at least (≥) or at most (≤) be, if that was said; of on_gpu.csv."""

    what: str
    place: str  # keys, dotted
    over: str  # place of the figure by which it is divided, if any
    asked: str  # sign and bound
    anchor: str  # what it is compared with

    def figure(self, results: Results) -> float:
        """Its value; KeyError or TypeError where it was not measured."""
        values = [float(reduce(getitem, place.split("."), results)) for place in (self.place, self.over) if place]
        return values[0] / (*values, 1)[1]

    def verdict(self, value: float) -> str:
        """Whether a value is as it should be."""
        if not self.asked:
            return ""
        sign, bound = self.asked.split()
        return "met" if (value >= float(bound) if sign == "≥" else value <= float(bound)) else "**missed**"


def aims() -> list[Aim]:
    """In the order of the measurements."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return [Aim(**row) for row in csv.DictReader(file)]


def commands(out: Path) -> dict[str, list[str]]:
    """Of each measurement, for Python."""
    lines = {name: line.format(name.removeprefix("smoke-"), out) for name, (_, line) in MEASUREMENTS.items()}
    return {name: shlex.split(line) for name, line in lines.items()}


def run(arguments: list[str], log: Path, limit: float) -> dict[str, Any]:
    """Take one measurement, its output into a log.

    Returns:
        The object that it printed last (empty without one), with the `seconds` it took; `cut` says why it is not all.
    """
    began, cut = time.monotonic(), {}
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            if status := process.wait(limit):
                cut = {"cut": f"ended with exit status {status}: {log}"}
        except subprocess.TimeoutExpired:
            cut = {"cut": f"not done after {limit:.0f} s"}
        finally:  # after Ctrl-C, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            process.wait()
    objects = []
    for line in log.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # what is no result, or a part of one
            objects += [json.loads(line)] if line.startswith("{") else []
    if not objects and arguments[0] != "train.py":
        cut = cut or {"cut": f"it printed no result: {log}"}
    return (objects[-1] if objects else {}) | {"seconds": round(time.monotonic() - began, 1)} | cut


def summary(results: Results) -> str:
    """Figures beside aims, and what was measured where; Markdown."""
    rows = ["| figure | over that of | aim | measured | |", "| --- | --- | --- | --- | --- |"]
    for aim in aims():
        try:
            value = aim.figure(results)
            shown = f"{value:.3g} | {aim.verdict(value)}"
        except (KeyError, TypeError):  # not measured, or not a number
            shown = "– | "
        if aim.asked or "–" not in shown:
            rows.append(f"| {aim.what} | {aim.anchor or '–'} | {aim.asked or '–'} | {shown} |")
    rows += ["", "| a step of | ms | launches | GPU idle | of it, ms by kind of kernel |", f"|{' --- |' * 5}"]
    for place, part in (("step", "rows"), ("step", "waitk"), ("grid", "grid")):
        if "kinds" in (found := results.get(place, {}).get(part, {})):
            kinds = ", ".join(f"{kind} {value:.3g}" for kind, value in found["kinds"].items())
            shown = f"{found['step_ms']:.3g} | {found['launches']} | {found.get('idle', 0):.2f}"
            rows.append(f"| {part} | {shown} | {kinds} |")
    rows += ["", "| measurement | seconds | device | commit |", "| --- | --- | --- | --- |"]
    for name, found in results.items():
        whole = f"{name}, {found['cut']}" if "cut" in found else name
        rows.append(f"| {whole} | {found['seconds']:g} | {found.get('device', '–')} | {found.get('commit', '–')} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Measure what is missing; 1 if anything has failed, or was cut."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu")
    parser.add_argument("--only", default="", metavar="NAMES", help="comma-separated; default: all")
    parser.add_argument("--more", action="store_true", help="what takes longer, too")
    parser.add_argument("--list", action="store_true", help="the measurements and their commands, and nothing else")
    asked = parser.parse_args()
    out, only = asked.out.resolve(), [name for name in asked.only.split(",") if name]
    if unknown := [name for name in only if name not in MEASUREMENTS]:
        parser.error(f"--only {unknown[0]}: there are {', '.join(MEASUREMENTS)}")
    if asked.list:
        print("\n".join(f"{name:20}python {shlex.join(arguments)}" for name, arguments in commands(out).items()))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    ends = inf if asked.more else time.monotonic() + 60 * MINUTES
    before = {name: out / f"{name}.json" for name in MEASUREMENTS if (out / f"{name}.json").exists()}
    results = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in before.items()}
    for name, arguments in commands(out).items():
        wanted = name in only if only else asked.more or name not in MORE
        left = min(MEASUREMENTS[name][0], ends - time.monotonic())
        if not wanted or "cut" not in results.get(name, {"cut": ""}):
            continue
        if left < LEAST:
            results.setdefault(name, {"seconds": 0, "cut": f"the {MINUTES} minutes are over: the same command goes on"})
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        shutil.rmtree(out / name, ignore_errors=True)  # a run's folder
        results[name] = run(arguments, out / f"{name}.log", left)
        write_whole(out / f"{name}.json", f"{json.dumps(results[name])}\n")
    text = summary(results)
    (out / "summary.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return int(any("cut" in found for found in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
