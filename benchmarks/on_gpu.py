"""What a person with a GPU runs: all of it in eight minutes from a cold start, figures beside their aims and anchors.

    python benchmarks/on_gpu.py [--out runs/gpu] [--minutes 8] [--more] [--only NAMES] [--again NAMES] [--list]

The most telling comes first: a training step on four rows beside Hugging Face + PEFT (padded, and packed), with its
profile, and one of wait-k; decoding beside `generate`; the paper's grid; the kernels. Each measurement runs in a
process of its own, in its own time. What was measured before is not measured again, so that the same command goes on
after an interruption, or when its minutes are over; --again NAMES measures them anew. A measurement that fails or takes
too long is told, what it had found counts, and the next one begins. --more takes what takes longer, too: the paper's
decoding, a whole small training. In --out: for each measurement NAME.log, what it
printed, and NAME.json, its result; and summary.md, also printed at the end.
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
from math import inf
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from duplexmt.common.files import write_whole

MINUTES, LEAST = 8, 20  # of all; seconds that are worth beginning a measurement for
ROOT = Path(__file__).resolve().parents[1]
Results = Mapping[str, Mapping[str, Any]]


class Measurement(NamedTuple):
    """A command whose last line is a JSON object, or which has none and only must succeed."""

    name: str
    command: tuple[str, ...]
    json: bool = True
    needs: tuple[str, ...] = ()  # packages
    folder: Path | None = None  # of a run, emptied before it
    limit: float = 900  # seconds
    more: bool = False  # only measured with --more


class Aim(NamedTuple):
    """A figure of the results, and what it should at least (≥) or at most (≤) be, if that was said."""

    what: str
    sign: str
    bound: float | None
    place: str  # keys, dotted
    over: str | float = 1  # by which it is divided: another figure's place, or a unit
    anchor: str = "–"  # what it is compared with

    def figure(self, results: Results) -> float:
        """Its value; KeyError or TypeError where it was not measured."""

        def at(place: str) -> float:
            value: Any = reduce(getitem, place.split("."), results)
            return float(value)

        return at(self.place) / (at(self.over) if isinstance(self.over, str) else self.over)

    def met_by(self, value: float) -> bool:
        """Whether a value is as it should be."""
        assert self.bound is not None
        return value >= self.bound if self.sign == "≥" else value <= self.bound

    @property
    def asked(self) -> str:
        """In words."""
        return "–" if self.bound is None else f"{self.sign} {self.bound:g}"


def measurements(out: Path) -> list[Measurement]:
    """All of them, the most telling first."""

    decoding = "decode_latency --shape qwen --kinds rows_bfloat16 --beside generate,generate_static"
    scripts = {  # with the seconds that each may take
        "step": (210, "training_speed --shape qwen --seconds 15"),
        "decoding": (110, f"{decoding} --streams 1,8,64,256 --seconds 80"),
        "grid": (90, "training_speed --shape qwen --parts grid --seconds 10"),
        "kernels": (60, "triton_kernels --repeats 5"),
        "paper-decoding": (900, "decode_latency --shape qwen --kinds grid,grid_io_off --seconds 800"),
    }
    every = []
    for name, (limit, line) in scripts.items():
        script, *arguments = line.split()
        needs = ("hydra", "opencc") if script == "training_speed" else ()
        command = (sys.executable, f"benchmarks/{script}.py", *arguments)
        every.append(Measurement(name, command, needs=needs, limit=limit, more=name == "paper-decoding"))
    for precision in ("bf16-mixed", "16-mixed"):
        folder, needs = out / f"smoke-{precision}", ("hydra", "datasets", "opencc")
        settings = ("experiment=smoke", f"trainer.precision={precision}", f"hydra.run.dir='{folder}'")
        command = (sys.executable, "train.py", *settings)
        every.append(Measurement(folder.name, command, json=False, needs=needs, folder=folder, more=True))
    return every


def aims() -> list[Aim]:
    """What the figures should be, in the order of `measurements`."""
    product, hugging_face = "a large matrix product here", "Hugging Face + PEFT"
    rows, found = "step.rows", []
    first = [
        Aim("rows (R = 4): MFU", "≥", 0.35, f"{rows}.mfu", anchor=product),
        Aim("wait-k: MFU", "≥", 0.35, "step.waitk.mfu", anchor=product),
        Aim("rows: positions/s", "≥", 1.25, "step.hugging_face.ratio_padded", anchor=f"{hugging_face}, padded"),
        Aim("rows: positions/s", "≥", None, "step.hugging_face.ratio_packed", anchor=f"{hugging_face}, packed"),
        Aim("rows: minutes of 100,000 pairs of 18 + 25 tokens, extrapolated", "≤", 4, f"{rows}.minutes"),
        Aim("wait-k: the same", "≤", None, "step.waitk.minutes"),
        Aim("rows: launches of a step", "≤", 1500, f"{rows}.launches"),
        Aim("rows: share of a step in which the GPU idles", "≤", None, f"{rows}.idle"),
        Aim(
            "exact rows: time of a sentence",
            "≤",
            0.6,
            "decoding.ratio_vs_generate.rows_bfloat16",
            anchor="`generate`, offline",
        ),
    ]
    for streams in ("1", "8", "64", "256"):
        speeds = f"decoding.tokens_per_second.{streams}"
        compiled, own = "`generate`, static cache, compiled", "`generate`"
        for anchor, over in ((own, f"{speeds}.generate"), (compiled, f"{speeds}.generate_static")):
            first.append(Aim(f"… tokens/s of {streams} streams", "≥", None, f"{speeds}.rows_bfloat16", over, anchor))
        first.append(Aim(f"… tokens/s of {streams} streams", "≥", None, f"{speeds}.rows_bfloat16"))
    first += [
        Aim("the paper's grid: minutes of 100,000 pairs", "≤", 20, "grid.grid.minutes"),
        Aim("… launches of a step", "≤", None, "grid.grid.launches"),
        Aim("… MFU", "≥", None, "grid.grid.mfu", anchor=product),
    ]
    for kind in ("scan", "head"):
        half = f"kernels.{kind}.bfloat16"
        plain = "PyTorch's operations"
        found += [
            Aim(f"kernels: relative error of {kind}, float32", "≤", 1e-4, f"kernels.{kind}.float32.error"),
            Aim(f"kernels: relative error of {kind}, bfloat16", "≤", 0.02, f"{half}.error"),
            Aim(f"kernels: speed of {kind}, bfloat16", "≥", 1, f"{half}.plain_ms", f"{half}.ms", plain),
        ]
    recomputing = "recomputing all at each step"
    return [
        *first,
        *found,
        Aim("the paper's decoding: speed", "≥", 8, "paper-decoding.speedup_vs_recompute.grid", anchor=recomputing),
        Aim("… with I←O off", "≥", 8, "paper-decoding.speedup_vs_recompute.grid_io_off", anchor=recomputing),
    ]


def run(measurement: Measurement, out: Path, limit: float) -> dict[str, Any]:
    """Take one measurement, its output into a log.

    Returns:
        Its last line's object (empty without one), with the `seconds` it took; `cut` says why it is not all.

    Raises:
        RuntimeError: where it failed or ran out of time with nothing found, or its last line is no object.
    """
    if measurement.folder is not None:
        shutil.rmtree(measurement.folder, ignore_errors=True)
    log = out / f"{measurement.name}.log"
    began, cut = time.monotonic(), None
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            measurement.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True
        )
        try:
            printed, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            printed, _ = process.communicate()
            cut = f"not done after {limit:.0f} s"
        finally:
            if process.poll() is None:  # Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        file.write(printed)
    if cut is None and process.returncode:
        cut = f"ended with exit status {process.returncode}: {log}"
    result: dict[str, Any] = {}
    if measurement.json:
        objects = [line for line in printed.splitlines() if line.startswith("{")]
        if not objects or (cut is None and not printed.splitlines()[-1].startswith("{")):
            raise RuntimeError(cut or f"its last line is no JSON object: {log}")
        result = json.loads(objects[-1])
    elif cut is not None:
        raise RuntimeError(cut)
    return result | {"seconds": round(time.monotonic() - began, 1)} | ({} if cut is None else {"cut": cut})


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    """What was measured before, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(out.glob("*.json"))}


def summary(results: Results, failed: Mapping[str, str]) -> str:
    """Figures beside aims, what was measured where, and what failed; Markdown."""
    rows = ["| figure | over that of | aim | measured | |", "| --- | --- | --- | --- | --- |"]
    for aim in aims():
        try:
            value = aim.figure(results)
        except (KeyError, TypeError):  # not measured, or not a number
            if aim.bound is not None:
                rows.append(f"| {aim.what} | {aim.anchor} | {aim.asked} | – | |")
            continue
        verdict = "" if aim.bound is None else "met" if aim.met_by(value) else "**missed**"
        rows.append(f"| {aim.what} | {aim.anchor} | {aim.asked} | {value:.3g} | {verdict} |")
    rows += profile_lines(results)
    lines = ["", "| measurement | seconds | device | commit |", "| --- | --- | --- | --- |"]
    for name, result in results.items():
        whole = name if "cut" not in result else f"{name}, {result['cut']}"
        lines.append(f"| {whole} | {result['seconds']:g} | {result.get('device', '–')} | {result.get('commit', '–')} |")
    lines += [f"| {name} | – | {why} | |" for name, why in failed.items()]
    return "\n".join([*rows, *lines]) + "\n"


def profile_lines(results: Results) -> list[str]:
    """Where the time of one step goes, for each kind of step that was looked at."""
    lines = []
    for place, part in (("step", "rows"), ("step", "waitk"), ("grid", "grid")):
        found = results.get(place, {}).get(part, {})
        if "kinds" in found:
            kinds = ", ".join(f"{kind} {value:.3g}" for kind, value in found["kinds"].items())
            shown = f"{found['step_ms']:.3g} | {found['launches']} | {found.get('idle', 0):.2f}"
            lines.append(f"| {part} | {shown} | {kinds} |")
    head = ["", "| a step of | ms | launches | GPU idle | of it, ms by kind of kernel |"]
    head.append("| --- | --- | --- | --- | --- |")
    return [*head, *lines] if lines else []


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
    parser.add_argument("--minutes", type=float, help="for all of it; default: 8, with --more no limit")
    parser.add_argument("--more", action="store_true", help="what takes longer, too")
    parser.add_argument("--list", action="store_true", help="the measurements and their commands, and nothing else")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    every = measurements(out)
    known = [each.name for each in every]
    try:
        only, again = chosen(arguments.only, known, "--only"), chosen(arguments.again, known, "--again")
    except ValueError as error:
        parser.error(str(error))
    if arguments.minutes is not None and not arguments.minutes > 0:
        parser.error(f"--minutes {arguments.minutes:g}: must be above 0")
    if arguments.list:
        for each in every:
            print(f"{each.name:20}{' '.join(('python', *each.command[1:]))}")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    cut = False
    minutes = arguments.minutes or (inf if arguments.more else MINUTES)
    ends = time.monotonic() + 60 * minutes
    before = results_in(out)
    for each in every:
        done = out / f"{each.name}.json"
        asked = each.name in (only if arguments.only else again) or arguments.more or not each.more
        whole = each.name in before and "cut" not in before[each.name]
        if each.name not in only or not asked or (whole and each.name not in again):
            continue
        left = ends - time.monotonic()
        if left < min(each.limit, LEAST):
            failed[each.name] = f"the {minutes:g} minutes are over: the same command goes on"
            continue
        if missing := [package for package in each.needs if find_spec(package) is None]:
            failed[each.name] = f"needs {missing[0]}: make setup"
            continue
        print(f"{each.name} …", file=sys.stderr, flush=True)
        try:
            result = run(each, out, min(each.limit, left))
        except RuntimeError as error:
            failed[each.name] = str(error)
            print(f"{each.name}: {error}", file=sys.stderr, flush=True)
            continue
        write_whole(done, f"{json.dumps(result)}\n")
        if "cut" in result:
            cut = True
            print(f"{each.name}: {result['cut']}; what was found before counts", file=sys.stderr, flush=True)
    text = summary(results_in(out), failed)
    (out / "summary.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if failed or cut else 0


if __name__ == "__main__":
    raise SystemExit(main())
