"""The experiment: pretrain a base, fine-tune grid, wait-k and offline systems from it alike, and evaluate them.

    python benchmarks/experiment.py --size small                     # conf/experiment/small_*.yaml say what that is
    python benchmarks/experiment.py --data FOLDER --size small       # pairs of your own, not those of the repository
    python benchmarks/experiment.py --data FOLDER --size mini --jobs 1 --limit 200
    python benchmarks/experiment.py --data FOLDER --size medium --jobs 1 --seeds 1,2,3   # three fine-tunings of each
    python benchmarks/experiment.py --data FOLDER --size small \\
        --variant io_off model.input_attends_output=false            # another grid beside the paper's
    python benchmarks/experiment.py --data FOLDER --size small --systems grid,wait3,offline   # only some of them

Stages: base; grid (the paper's), its variants, grid-past_paper (conf/experiment/past_paper.yaml), wait1, wait3, wait5,
wait7, waitmulti, offline (as many at a time as --jobs says); grid-after_waitk (after_waitk.yaml), which goes on from
waitmulti; evaluation; timing. With several seeds the systems are trained with each of them from one base, and evaluated
together: means, their spread, intervals over sentences and trainings. Each stage has a folder in OUT, and a log beside
it. Killed at any point, the same command goes on: what is complete is skipped, a training with a checkpoint and an
evaluation with hypotheses are resumed. Other systems, seeds, sentences or metrics are evaluated in a folder of their
own; a stage that was begun with yet other settings is not taken for this one's. Further arguments go to all trainings.
"""

import argparse
import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data_prep.cores import usable_cores

ROOT = Path(__file__).resolve().parents[1]
DELAYS = (1, 3, 5, 7, "multi")  # multi: one model for all k
SYSTEMS = {
    "grid": ["experiment=[grid_finetune,{size}_finetune]"],
    "grid-past_paper": ["experiment=[grid_finetune,{size}_finetune,past_paper]"],
    "grid-after_waitk": [
        "experiment=[grid_finetune,{size}_finetune,past_paper,after_waitk]",
        "training.learning_rate=2e-5",  # a fifth of finetune.yaml's
    ],
    **{f"wait{k}": ["experiment=[waitk_finetune,{size}_finetune]", f"system.k={k}"] for k in DELAYS},
    "offline": ["experiment=[offline_finetune,{size}_finetune]"],
}
FROM = {"grid-after_waitk": "waitmulti"}  # systems that start from another, not from the base
# The repository has fewer pairs than a base of size small takes: all of them, as often as makes about as many steps.
BASE_FROM_THE_BOX = {"small": ["data.train_size=null", "trainer.max_epochs=2"]}
SEED = 1  # the configuration's own
THETAS = "[0.1,0.2,0.3,0.5,0.6,0.7,0.8,0.9,0.95,0.99]"


@dataclass(frozen=True)
class Stage:
    """A command that fills a folder, and how it is known to be complete or begun."""

    name: str
    folder: Path
    fresh: list[str]
    resumed: list[str]
    complete: str  # a file of the folder, written last
    begun: str  # a file of the folder to go on from
    after: str | None = None  # the stage whose model it starts from, where that is not the base

    def command(self) -> list[str] | None:
        """What is left to run; None where the stage is complete."""
        if (self.folder / self.complete).is_file():
            return None
        return self.resumed if (self.folder / self.begun).is_file() else self.fresh

    @property
    def record(self) -> Path:
        """Where it is noted what it was begun with."""
        return self.folder.with_name(f".{self.folder.name}.settings.json")

    def settings(self) -> list[str]:
        """What it is begun with, wherever the experiment's folder lies."""
        return [argument.replace(str(self.folder.parent), "OUT") for argument in self.fresh]

    def refuse_other_settings(self) -> None:
        """Where it is complete, or begun, it goes on with the settings it was begun with, and no others.

        Raises:
            ValueError: naming those that differ.
        """
        if not self.record.is_file() or self.command() == self.fresh:  # nothing there to go on from
            return
        before, now = json.loads(self.record.read_text(encoding="utf-8")), self.settings()
        if before != now:
            then, here = [each for each in before if each not in now], [each for each in now if each not in before]
            raise ValueError(
                f"{self.folder} was begun with {shlex.join(then) or 'fewer settings'}, not with "
                f"{shlex.join(here) or 'fewer settings'}: give another --out, or remove that folder"
            )


def evaluation(name: str, folder: Path, fresh: list[str], resumed: Sequence[str] = ()) -> Stage:
    """A run of evaluate.py in a folder, with settings for its start and for going on."""
    start, again = quoted("hydra.run.dir", folder), quoted("resume", folder)
    commands = ["evaluate.py", *fresh, start], ["evaluate.py", again, *resumed]
    return Stage(name, folder, *commands, complete="scored.json", begun="decoding.json")


def training(folder: Path, arguments: list[str], after: str | None = None) -> Stage:
    """A run of train.py in a folder, whose name it has."""
    commands = ["train.py", *arguments, quoted("hydra.run.dir", folder)], ["train.py", quoted("resume", folder)]
    return Stage(folder.name, folder, *commands, "model/duplexmt.json", begun="checkpoints/last.ckpt", after=after)


def quoted(name: str, *values: Path) -> str:
    """A setting whose value is a path, or a list of them, in Hydra's quotes."""
    escaped = ["'" + str(value).replace("'", r"\'") + "'" for value in values]
    return f"{name}={escaped[0] if len(escaped) == 1 else '[' + ','.join(escaped) + ']'}"


def stages(out: Path, asked: argparse.Namespace) -> tuple[list[Stage], list[Stage], list[Stage]]:
    """The base, the systems trained from it, and what is made of them, as `asked`; each in the order in which they run.

    Raises:
        ValueError: for an unknown system, one without that which it starts from, or without a grid.
    """
    size, limit, seeds, systems = asked.size, asked.limit, asked.seeds, asked.systems
    variants = {name: settings for name, *settings in asked.variant}
    recipes = {"grid": SYSTEMS["grid"]}
    recipes |= {f"grid-{name}": [*SYSTEMS["grid"], *settings] for name, settings in variants.items()}
    recipes |= SYSTEMS
    if unknown := [name for name in systems if name not in recipes]:
        raise ValueError(f"--systems: there is no {', '.join(unknown)}; choose of {','.join(recipes)}")
    left_out = [name for name in recipes if systems and name not in systems]
    recipes = {name: recipe for name, recipe in recipes.items() if name not in left_out}
    if not any(name.startswith("grid") for name in recipes):
        raise ValueError(f"--systems {','.join(systems)}: one must be a grid, which the others are compared with")
    for name, first in FROM.items():
        if name in recipes and first not in recipes:
            raise ValueError(f"--systems: {name} starts from {first}; name {first}, too, or leave out {name}")
    where = ["data=permissive" if asked.data is None else quoted("data.path", asked.data.resolve()), *asked.extra]
    fewer = BASE_FROM_THE_BOX.get(size, []) if asked.data is None else []
    own_base = training(out / "base", [f"experiment=[base_pretrain,{size}_base]", *fewer, *where])
    base = asked.base.resolve() if asked.base else own_base.folder
    trainings: dict[str, list[str]] = {"": []} if not seeds else {}
    trainings |= {"" if seed == SEED else f"-seed{seed}": [f"training.seed={seed}"] for seed in seeds}
    trained = []
    for suffix, seed in trainings.items():
        for name, recipe in recipes.items():
            after = FROM[name] + suffix if name in FROM else None
            backbone = quoted("model.backbone", (out / after if after else base) / "model")
            settings = [part.format(size=size) for part in recipe] + [backbone, *where, *seed]
            trained.append(training(out / (name + suffix), settings, after))
    unusual = {
        "with": [name for name in variants if f"grid-{name}" in recipes],
        "without": [name for name in SYSTEMS if name in left_out],
        "seeds": [] if list(seeds) == [SEED] else list(map(str, seeds)),
        "quality": [] if asked.quality == "basic" else [asked.quality],
        "limit": [] if limit is None else [str(limit)],
    }
    own = "".join("-".join(["", word, *some]) for word, some in unusual.items() if some)  # -with-io_off-seeds-1-2
    evaluated, analysed = out / f"evaluation{own}", out / f"timing{own}"
    options = [] if limit is None else [f"limit={limit}"]
    options += ["over_seeds=true"] if len(seeds) > 1 else []
    options += [] if {"offline", "waitmulti"} & recipes.keys() else ["agreement=[]"]  # local agreement runs on these
    models = quoted("model_folder", *(system.folder / "model" for system in trained))
    settings = ["experiment=duplex_results", f"quality={asked.quality}", models]
    decode = evaluation("evaluation", evaluated, [*settings, f"policy.theta={THETAS}", *options])
    judged = [str(evaluated), str(trained[0].folder / "model"), "--out", str(analysed)]
    timing = ["-m", "duplexmt.analysis.timing", *judged]
    analysis = Stage("timing", analysed, timing, timing, complete="timing.md", begun="timing.md")
    return ([own_base] if asked.base is None else []), trained, [decode, analysis]


def run(stage: Stage, threads: int) -> float | None:
    """Run what is left of a stage; returns its seconds, or None where nothing was left.

    Its lock is the running process's own: where this script alone was killed, the stage may still be at work.

    Raises:
        ValueError: if it is at work already, or fails; with the end of its log.
    """
    arguments = stage.command()
    if arguments is None:
        print(f"{stage.name}: complete", flush=True)
        return None
    log = stage.folder.with_name(f"{stage.name}.log")
    with open(log, "a", encoding="utf-8") as output:
        try:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{stage.name} is still at work, from an earlier start; wait for it, or end it") from None
        stage.record.write_text(json.dumps(stage.settings()) + "\n", encoding="utf-8")  # now that none other is at work
        print(f"{stage.name}: {shlex.join(['python', *arguments])}", flush=True)
        print(f"$ {shlex.join(['python', *arguments])}", file=output, flush=True)
        begin = time.monotonic()
        with subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                process.wait()
            except KeyboardInterrupt:  # Ctrl-C has reached the stage, too: it may have a checkpoint to save
                process.wait()
                raise
    seconds = time.monotonic() - begin
    if stage.command() is not None:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise ValueError(
            f"{stage.name} ended with status {process.returncode} before it was complete; its log ({log}) ends:\n"
            f"{tail}\nThe same command goes on from here"
        )
    print(f"{stage.name}: done in {seconds:.0f} s", flush=True)
    return seconds


def names(text: str) -> list[str]:
    """Those of a list with commas."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """The same as numbers."""
    return [int(name) for name in names(text)]


@contextmanager
def told_in_one_line(out: Path) -> Iterator[None]:
    """A user's mistake, or Ctrl-C, ends the command with a line."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"interrupted; what was done is in {out}, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, as far as they can be right by themselves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of pairs, NAME.….tsv.gz each; default: our data/")
    parser.add_argument("--size", choices=("mini", "small", "medium"), default="small")
    parser.add_argument("--out", type=Path, help="default: runs/experiment-SIZE")
    parser.add_argument("--base", type=Path, help="folder of a run whose base to use, rather than pretrain one")
    parser.add_argument("--jobs", type=int, default=2, help="fine-tunings at a time (on one GPU: 1)")
    parser.add_argument("--quality", choices=("basic", "neural"), default="basic", help="neural: COMET and BLEURT, too")
    parser.add_argument("--limit", type=int, help="test sentences; default: all")
    parser.add_argument(
        "--variant", nargs="+", action="append", default=[], metavar=("NAME", "KEY=VALUE"),
        help="a further grid, grid-NAME, which differs in these settings; several times",
    )  # fmt: skip
    parser.add_argument("--seeds", type=numbers, default=[], metavar="1,2,3", help="each system is trained with each")
    parser.add_argument("--systems", type=names, default=[], metavar="grid,wait3,…", help="default: all")
    parser.add_argument("extra", nargs="*", metavar="KEY=VALUE", help="settings of all trainings")
    asked = parser.parse_args(arguments)
    for name in ("jobs", "limit"):
        value = getattr(asked, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    if len(set(asked.seeds)) < len(asked.seeds):
        parser.error(f"--seeds {','.join(map(str, asked.seeds))}: each once")
    if asked.seeds and any(argument.startswith("training.seed=") for argument in asked.extra):
        parser.error("give seeds either as --seeds 1,2,3 or as training.seed=…, not both")
    if strange := [name for name, *_ in asked.variant if not re.fullmatch(r"\w+", name)]:
        parser.error(f"--variant {strange[0]}: a name of letters, digits and _ comes first, then its settings")
    named = [name for name, *_ in asked.variant]
    if taken := [name for name in named if named.count(name) > 1 or f"grid-{name}" in SYSTEMS]:
        parser.error(f"--variant {taken[0]}: there is another grid-{taken[0]}; give each variant a name of its own")
    return asked


def main(arguments: list[str] | None = None) -> None:
    """All stages in order; one line of JSON at the end."""
    asked = parsed(arguments)
    out = (asked.out or ROOT / "runs" / f"experiment-{asked.size}").resolve()
    cores = usable_cores()
    seconds: dict[str, float | None] = {}
    with told_in_one_line(out):
        before, systems, after = stages(out, asked)
        out.mkdir(parents=True, exist_ok=True)
        for stage in (*before, *systems, *after):
            stage.refuse_other_settings()
        for stage in before:
            seconds[stage.name] = run(stage, cores)
        with ThreadPoolExecutor(asked.jobs) as pool:
            for wave in ([s for s in systems if s.after is None], [s for s in systems if s.after is not None]):
                found = pool.map(lambda stage: run(stage, max(1, cores // asked.jobs)), wave)
                seconds |= dict(zip([stage.name for stage in wave], found, strict=True))
        for stage in after:
            seconds[stage.name] = run(stage, cores)
    print((after[0].folder / "results.md").read_text(encoding="utf-8"))
    print(json.dumps({"benchmark": "experiment", "size": asked.size, "seconds": seconds, "out": str(out)}))


if __name__ == "__main__":
    main()
