"""The fault campaign: what a user runs is killed, starved, damaged and run twice, by the commands with their defaults.

    python benchmarks/faults.py --quick              # a few of each kind, under three minutes on two cores
    python benchmarks/faults.py                      # all; killed itself, the same command goes on
    python benchmarks/faults.py --only flip --seed 3 # cases by name, with other moments and places

After each fault the result equals the undisturbed one bit for bit, or the error is one line that names the file and
the way out; what was computed before is kept; no process and no temporary file is left. A run that is killed goes on
until it ends, so it takes several kills. The last line is JSON: cases, kills, faults, failures, skipped, seconds.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
MARK = "DUPLEXMT_FAULT"  # in the environment of all processes of a command
SMALL = [
    "experiment=smoke", "data.train_size=160", "data.validation_size=10", "data.test_size=10", "trainer.max_epochs=2",
    "training.checkpoint_every_n_steps=3", "training.sample_size=4", "probes.count=1", "demonstrate=1",
    "trainer.precision=32",  # auto takes the faster one, which may be another while other programs run
]  # fmt: skip
SYSTEMS = {
    "grid": ["system=grid"],
    "waitk": ["system=waitk", "system.k=3"],
    "offline": ["system=offline"],
    "rows": ["system=grid", "model.attention=exact", "model.input_attends_output=false", "training.rows=2"],
}
GRID = [*SMALL, *SYSTEMS["grid"]]
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TEMPORARY = ("*.partial", "*.tmp", "*.lock", ".latest-*")


class FaultError(Exception):
    """What should not have come of a fault."""


@dataclass
class Done:
    """A command that has ended, or was ended."""

    status: int
    output: str
    seconds: float
    killed: bool


@dataclass
class Case:
    """A few faults of one kind."""

    name: str  # by which `--only` finds it
    run: Callable[["Case", Path, random.Random], None]  # does it in a folder, with draws; raises `FaultError`
    counts: Counter[str] = field(default_factory=lambda: Counter(faults=0, kills=0))
    skipped: str | None = None  # why


def call(command: list[str], kill_after: float | None = None, number: int = signal.SIGKILL) -> Done:
    """Run a command from the root of the project, its processes in a session of their own; end them, if asked to.

    Raises:
        FaultError: for a process that outlives it.
    """
    mark = uuid.uuid4().hex
    around = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", MARK: mark}
    begun, killed = time.monotonic(), False
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=around, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=kill_after or 1800)
        except subprocess.TimeoutExpired:
            killed = kill_after is not None
            # A fault goes to the first process alone, as `kill` does.
            (os.kill if killed else os.killpg)(process.pid, number)
            try:
                output, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise FaultError(f"still there a minute after {signal.Signals(number).name}: {command}") from None
    limit = time.monotonic() + 5
    while left := processes_of(mark):
        if time.monotonic() > limit:
            raise FaultError(f"processes {left} outlived {command}")
        time.sleep(0.05)
    return Done(process.returncode, output, time.monotonic() - begun, killed)


def processes_of(mark: str) -> list[int]:
    """Processes that carry a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile, or is somebody else's
            if process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


def expect(truth: bool, what: str, done: Done | None = None) -> None:
    """Raise `FaultError` unless it is so."""
    if not truth:
        raise FaultError(what + (f"\n{done.output[-1500:]}" if done else ""))


def refused(done: Done, *names: str) -> None:
    """The command has ended with an error of one line that names all of these."""
    lines = [line for line in done.output.splitlines() if line.startswith("error: ")]
    expect(done.status == 2 and len(lines) == 1, f"status {done.status}, {len(lines)} error lines", done)
    expect("Traceback" not in done.output, "a traceback", done)
    expect(all(name in lines[0] for name in names), f"the error does not name {names}", done)


def succeeded(done: Done) -> Done:
    """The command has ended well."""
    expect(done.status == 0, f"status {done.status}", done)
    return done


def contents(folder: Path) -> dict[str, bytes]:
    """What must be equal bit for bit: a model's files, its manifest's scores alone and no card; an evaluation's tables,
    and of its hypotheses texts and delays; else all files."""
    model, found = folder / "model", {}
    inside = model if model.is_dir() else folder
    for path in sorted(path for path in inside.rglob("*") if path.is_file() and path.name != "README.md"):
        name, content = str(path.relative_to(inside)), path.read_bytes()
        if name == "duplexmt.json":
            content = json.dumps(json.loads(content)["scores"]).encode()
        elif name == "hypotheses.jsonl":
            rows = map(json.loads, content.splitlines())
            content = "\n".join(sorted(json.dumps([row["id"], row["tokens"], row["delays"]]) for row in rows)).encode()
        found[name] = content
    compared = ("results.csv", "hypotheses.jsonl") if "results.csv" in found else found
    return {name: found[name] for name in compared if name in found}


def same(whole: Path, parts: Path) -> None:
    """Two folders hold the same result, and the second one no temporary file."""
    one, other = contents(whole), contents(parts)
    expect(one.keys() == other.keys() and bool(one), f"{sorted(one.keys() ^ other.keys())} in one alone")
    differing = [name for name in one if one[name] != other[name]]
    expect(not differing, f"{parts}: {differing} differ from the undisturbed run's")
    nothing_left(parts)


def nothing_left(folder: Path) -> None:
    """No temporary file lies in a folder."""
    left = [str(path) for pattern in TEMPORARY for path in folder.rglob(pattern)]
    expect(not left, f"left behind: {left}")


wholes: dict[str, tuple[Path, float]] = {}  # undisturbed runs by their settings, with their time
making: dict[str, threading.Lock] = {}


def undisturbed(base: Path, command: list[str]) -> tuple[Path, float]:
    """The folder and the seconds of an undisturbed run of a command, made once."""
    key = " ".join(command)
    with making.setdefault(key, threading.Lock()):
        if key not in wholes:
            folder = base / "whole" / uuid.uuid5(uuid.NAMESPACE_URL, key).hex
            shutil.rmtree(folder, ignore_errors=True)
            wholes[key] = folder, succeeded(call([*command, f"hydra.run.dir={folder}"])).seconds
    return wholes[key]


def trained(base: Path, system: str = "grid") -> tuple[Path, float]:
    """The same of a small training."""
    return undisturbed(base, ["train.py", *SMALL, *SYSTEMS[system]])


def copied(whole: Path, folder: Path) -> None:
    """Put a copy of a folder in the place of another."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder, symlinks=True)


def going_on(folder: Path, command: list[str]) -> list[str]:
    """The command that goes on with what was begun in a folder, or begins it."""
    begun = any((folder / name).is_file() for name in ("checkpoints/last.ckpt", "decoding.json"))
    return [command[0], f"resume={folder}"] if begun else [*command, f"hydra.run.dir={folder}"]


def kill(case: Case, folder: Path, draw: random.Random, command: list[str], kills: int) -> None:
    """Kill a run at random moments, go on, and compare what it ends with; anew, until it was killed so many times."""
    whole, seconds = undisturbed(folder.parent, command)
    while case.counts["kills"] < kills:
        shutil.rmtree(folder, ignore_errors=True)
        done = None
        while done is None or done.killed:
            moment = draw.uniform(0.3, 1) * seconds if case.counts["kills"] < kills else None
            done = call(going_on(folder, command), moment, draw.choice(SIGNALS))
            if done.killed:
                case.counts.update(faults=1, kills=1)
        succeeded(done)
        same(whole, folder)


def kill_evaluate(case: Case, folder: Path, draw: random.Random, system: str, knob: str, kills: int) -> None:
    """The same of an evaluation of a trained model."""
    command = ["evaluate.py", f"model_folder={trained(folder.parent, system)[0]}/model", knob]
    kill(case, folder, draw, [*command, "batch_size=1", "check_overlap=false"], kills)


def damaged(path: Path, how: str, draw: random.Random) -> None:
    """Cut a file short, or flip a bit of one of its bytes."""
    content = bytearray(path.read_bytes())
    if not content:
        raise FaultError(f"{path} is empty")
    if how == "truncate":
        content = content[: draw.randrange(len(content))]
    else:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def damage_run(
    case: Case, folder: Path, draw: random.Random, how: str, times: int, system: str = "grid", corpus: str | None = None
) -> None:
    """The checkpoint of a run, or its corpus in a file with some ending, is cut short or has a bit flipped."""
    command, path = ["train.py", *SMALL, *SYSTEMS[system]], folder / "checkpoints" / "last.ckpt"
    if corpus is not None:
        path = folder.with_name(f"{folder.name}.tsv{corpus}")
        rows = [f"第{n}本书在{n * 7}号桌子上。\tBook {n} is on table {n * 7}, near the window.\n" for n in range(300)]
        raw = "".join(rows).encode()
        good = gzip.compress(raw, mtime=0) if corpus else raw
        path.write_bytes(good)
        command += ["data=pairs", f"data.path={path}", "data.vocab_size=400", "trainer.max_epochs=1"]
        command += ["data.train_on_relatives=true"]  # its sentences are all alike
    whole, _ = undisturbed(folder.parent, command)
    for _ in range(times):
        copied(whole, folder)
        shutil.rmtree(folder / "model")
        if corpus is not None:
            path.write_bytes(good)
        damaged(path, how, draw)
        case.counts["faults"] += 1
        done = call(["train.py", f"resume={folder}"])
        if done.status == 0:  # a byte that says nothing, such as one between two records
            same(whole, folder)
        elif corpus is None:
            refused(done, path.name, "copy")
        else:
            refused(done, path.name if "corpus or the tokenizer" not in done.output else "corpus.json")
        expect((folder / "checkpoints" / "last.ckpt").is_file(), "the checkpoint is gone")


def damage_model(case: Case, folder: Path, draw: random.Random, how: str, quick: bool) -> None:
    """Each file of a model folder likewise."""
    whole, _ = trained(folder.parent)
    names = sorted(path.name for path in (whole / "model").iterdir() if path.name != "README.md")
    for name in names[:2] if quick else names * 2:
        copied(whole / "model", folder)
        damaged(folder / name, how, draw)
        case.counts["faults"] += 1
        evaluation = f"{folder}-evaluation"
        program = draw.choice((["translate.py", "text=我看书。"], ["evaluate.py", f"hydra.run.dir={evaluation}"]))
        refused(call([*program, f"model_folder={folder}"]), name)
        expect(not Path(evaluation).exists(), "a refused evaluation left its folder")


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own in memory; ends with what is in it."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def full_disk(case: Case, folder: Path, draw: random.Random, share: float) -> None:
    """A disk is full in the middle of a training."""
    whole, _ = trained(folder.parent)
    wanted = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 1024
    with small_disk(folder, round(wanted * share) + 64):
        run = folder / "run"
        case.counts["faults"] += 1
        refused(call(["train.py", *GRID, f"hydra.run.dir={run}"]), "make room")
        nothing_left(run)
        subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)
        succeeded(call(going_on(run, ["train.py", *GRID])))
        same(whole, run)


def read_only(case: Case, folder: Path, draw: random.Random, program: str) -> None:
    """A disk cannot be written to."""
    model = trained(folder.parent)[0] / "model"
    with small_disk(folder, 64):
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        case.counts["faults"] += 1
        arguments = GRID if program == "train.py" else [f"model_folder={model}"]
        refused(call([program, *arguments, f"hydra.run.dir={folder}/run"]), str(folder), "another folder")


def twice(case: Case, folder: Path, draw: random.Random, times: int) -> None:
    """Two trainings on one folder."""
    whole, _ = trained(folder.parent)
    train = ["train.py", *GRID, f"hydra.run.dir={folder}"]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(call, train)
        limit = time.monotonic() + 60
        while not (folder / "corpus.json").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        for _ in range(times):
            case.counts["faults"] += 1
            refused(call(train), folder.name, "wait for its end")
        succeeded(first.result())
    same(whole, folder)


def clock(case: Case, folder: Path, draw: random.Random) -> None:
    """The clock is set back by a week, after a training was killed."""
    whole, seconds = trained(folder.parent)
    train = ["train.py", *GRID]
    done = call(going_on(folder, train), 0.8 * seconds)
    ahead = time.time() + 7 * 86400
    for path in folder.rglob("*"):
        os.utime(path, (ahead, ahead), follow_symlinks=False)
    case.counts.update(faults=1, kills=int(done.killed))
    succeeded(call(going_on(folder, train)))
    same(whole, folder)


def all_cases(quick: bool) -> list[Case]:
    """In the order in which they are begun: what is done, to what, and whether the quick campaign has it."""
    table: list[tuple[str, bool, Callable[..., None], dict[str, Any]]] = []
    for system, *ways in product(SYSTEMS, ("linear", "constant"), ("1", "cores"), (1, 2), (None, 512)):
        schedule, devices, accumulate, tokens = ways
        names = ("training.schedule", "trainer.devices", "trainer.accumulate_grad_batches", "data.batch_tokens")
        usual = ("linear", "1", 1, None)  # which all other cases have, too
        unusual = [f"{name}={way}" for name, way, own in zip(names, ways, usual, strict=True) if way != own]
        name = f"kill train {system} {schedule} devices={devices} accumulate={accumulate} tokens={tokens}"
        few = (schedule, accumulate, tokens) == ("linear", 1, None) and (devices == "1" or system == "grid")
        command = ["train.py", *SMALL, *SYSTEMS[system], *unusual]
        table.append((name, few, kill, {"command": command, "kills": 2 if quick else 5}))
    for system, knob in (("grid", "policy.theta=[0.3,0.5,0.7]"), ("waitk", "k=[1,3]")):
        how = {"system": system, "knob": knob, "kills": 2 if quick else 10}
        table.append((f"kill evaluate {system}", system == "grid", kill_evaluate, how))
    times = 1 if quick else 6
    for how in ("truncate", "flip"):
        own = {"how": how, "times": times}
        table += [(f"{how} checkpoint {s}", s == "grid", damage_run, own | {"system": s}) for s in SYSTEMS]
        table.append((f"{how} model folder", True, damage_model, {"how": how, "quick": quick}))
        table += [(f"{how} corpus tsv{end}", bool(end), damage_run, own | {"corpus": end}) for end in ("", ".gz")]
    table += [(f"full disk at {share:.0%}", share == 0.7, full_disk, {"share": share}) for share in (0.1, 0.4, 0.7)]
    programs = ("train.py", "evaluate.py")
    table += [(f"read-only {name}", name == "train.py", read_only, {"program": name}) for name in programs]
    table.append(("two runs on one folder", True, twice, {"times": 1 if quick else 3}))
    table.append(("clock set back", False, clock, {}))
    cases = [Case(name, partial(run, **how)) for name, few, run, how in table if few or not quick]
    for case in cases:
        if os.geteuid() and case.name.startswith(("full disk", "read-only")):
            case.skipped = "wants root, to mount a disk"
    return cases


def main() -> int:
    """Run the campaign; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--seed", type=int, default=1, help="of moments and places")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/faults"), help="folder of it all, and results.jsonl")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it, with its children
    out = asked.out.absolute() / ("quick" if asked.quick else "all") / str(asked.seed)
    out.mkdir(parents=True, exist_ok=True)
    record = out / "results.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() and not asked.quick else []
    done = [row for row in map(json.loads, lines) if row["failure"] is row["skipped"] is None]
    rows = {row["case"]: row for row in done if asked.only in row["case"]}
    begun = time.monotonic()

    def run(number: int, case: Case) -> dict[str, object]:
        folder = out / f"case-{number:03d}"
        shutil.rmtree(folder, ignore_errors=True)
        failure = None
        if case.skipped is None:
            try:
                case.run(case, folder, random.Random(f"{asked.seed}/{case.name}"))
                shutil.rmtree(folder, ignore_errors=True)
            except FaultError as error:
                failure = str(error)
        return {"case": case.name, **case.counts, "failure": failure, "skipped": case.skipped}

    cases = [(number, case) for number, case in enumerate(all_cases(asked.quick)) if asked.only in case.name]
    with ThreadPoolExecutor(asked.jobs) as pool, record.open("a", encoding="utf-8") as log:
        waiting = {pool.submit(run, number, case): case for number, case in cases if case.name not in rows}
        for future in tqdm(as_completed(waiting), total=len(waiting), unit="case", mininterval=10):
            row = future.result()
            rows[str(row["case"])] = row
            print(json.dumps(row, ensure_ascii=False), file=log, flush=True)
            if row["failure"]:
                again = f"python benchmarks/faults.py --seed {asked.seed} --only '{row['case']}'"
                tqdm.write(f"FAILED {row['case']}: {row['failure']}\n  again: {again}{' --quick' * asked.quick}")
    shutil.rmtree(out / "whole", ignore_errors=True)
    total = {name: sum(int(row[name]) for row in rows.values()) for name in ("kills", "faults")}
    failures = sum(row["failure"] is not None for row in rows.values())
    skipped = sum(row["skipped"] is not None for row in rows.values())
    seconds = round(time.monotonic() - begun)
    print(json.dumps({"cases": len(rows), **total, "failures": failures, "skipped": skipped, "seconds": seconds}))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
