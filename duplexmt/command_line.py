"""The command line around Hydra: a run that goes on, names of runs, and errors for users."""

import copy
import errno
import itertools
import json
import os
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from data_prep.arguments import in_quotes, is_choice, last_of, without_quotes

if not sys.stderr.isatty():  # each state of a progress bar stays in a log
    os.environ.setdefault("TQDM_MININTERVAL", "10")


class Footprint:
    """What a command finds in its folder when it starts, so that one that is refused leaves the folder as it was.

    Args:
        folder: of a run, or of a sweep.
    """

    RECORDS = (".hydra", "multirun.yaml", "*.log", "wandb")  # what is written before a program has done anything
    PROGRESS = ("checkpoints/last.ckpt", "decoding.json")  # of a run that is gone on with

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self.found = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        self.missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.settings = {path: path.read_bytes() for path in self.folder.glob(".hydra/*.yaml")}
        self.progress = self._progress()

    def restore(self) -> None:
        """Give the folder's run back the record of its settings, over which Hydra has written those of this command."""
        for path, content in self.settings.items():
            path.write_bytes(content)

    def remove(self) -> None:
        """Take back what has come since, if it is records alone: whatever a program has computed stays, and so does the
        record of what it was computed with."""
        if self._progress() == self.progress:
            self.restore()
        self._remove(self.folder, self.found)
        for folder in self.missing:  # from the inside out
            if not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()

    def _progress(self) -> list[int]:
        files = (self.folder / name for name in self.PROGRESS)
        return [file.stat().st_mtime_ns for file in files if file.is_file()]

    def _remove(self, folder: Path, found: Collection[str] = ()) -> None:
        new = [path for path in folder.iterdir() if path.name not in found] if folder.is_dir() else []
        for job in (path for path in new if path.is_dir() and path.name not in self.RECORDS):  # of a sweep
            self._remove(job)
            if not any(job.iterdir()):
                job.rmdir()
        new = [path for path in new if path.exists()]
        if all(any(path.match(record) for record in self.RECORDS) for path in new):
            for path in new:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


MOST_JOBS = 1000  # of a sweep, that are looked at before the first begins
footprints: list[Footprint] = []  # of this command


class CheckFolder(Callback):
    """Before Hydra writes into the folder of a run or a sweep, refuses one that cannot be written to, or that a new
    training would take from another; and a sweep of which a job has a forbidden value."""

    check_job: Callable[[DictConfig], Any] | None = None  # ValueError for settings that are none; a program names it

    def __init__(self) -> None:
        self.records: dict[Path, bytes] = {}  # what earlier jobs of the sweep's folder were started with

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Of a single run."""
        with user_errors():
            if config.hydra.output_subdir is not None:  # else nothing is written
                footprints.append(Footprint(config.hydra.run.dir))
            check_writable("hydra.run.dir", config.hydra.run.dir)
            self.check_new_training(config, config.hydra.run.dir)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Of a sweep, and of its jobs where they are numbered."""
        with user_errors():
            if (check := type(self).check_job) is not None:
                for settings in jobs_of(config):
                    check(settings)
            footprints.append(Footprint(config.hydra.sweep.dir))
            check_writable("hydra.sweep.dir", config.hydra.sweep.dir)
            records = Path(config.hydra.sweep.dir).rglob(".hydra/*.yaml")
            self.records = {path.absolute(): path.read_bytes() for path in records}
            if OmegaConf.to_container(config.hydra.sweep)["subdir"] == "${hydra.job.num}":  # type: ignore[call-overload,index]
                for job in sorted(Path(config.hydra.sweep.dir).glob("[0-9]*")):
                    self.check_new_training(config, str(job))

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Of a job of a sweep whose folder has another name: known only now, when Hydra has put its settings there.
        One that is refused gets back the record of the training it holds."""
        folder = Path(config.hydra.runtime.output_dir)
        with user_errors():
            try:
                self.check_new_training(config, str(folder))
            except ValueError:
                for path in (folder / ".hydra").glob("*.yaml"):
                    if path in self.records:
                        path.write_bytes(self.records[path])
                raise

    def check_new_training(self, config: DictConfig, folder: str) -> None:
        """Evaluations may share a folder, and a resumed training goes on in its own. The first process looks."""
        if "trainer" in config and not config.resume and first_process():
            check_new(folder)


def jobs_of(config: DictConfig) -> Iterator[DictConfig]:
    """The configurations of a sweep's jobs, as far as values alone are swept: those of groups are composed later."""
    parser = OverridesParser.create()
    overrides = [parser.parse_override(str(one)) for one in config.hydra.overrides.task]
    swept = [one for one in overrides if one.is_discrete_sweep()]
    plain = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    names = [one.key_or_group for one in swept]
    groups = any(name == "experiment" or isinstance(OmegaConf.select(plain, name), DictConfig) for name in names)
    if groups or not all(is_choice(one) for one in swept):
        return
    combinations = itertools.product(*(one.sweep_string_iterator() for one in swept))
    for values in itertools.islice(combinations, MOST_JOBS):
        job = copy.deepcopy(plain)
        for name, value in zip(names, values, strict=True):
            OmegaConf.update(job, name, parser.parse_override(f"{name}={value}").value(), force_add=True)
        yield job


class AfterSweep(Callback):
    """Once all jobs of a sweep are done, does what the program has named: `AfterSweep.action`."""

    action: Callable[[DictConfig], None] | None = None

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Do it, with the sweep's configuration."""
        if (action := type(self).action) is not None:
            with user_errors():
                action(config)


def first_process() -> bool:
    """Whether this process is the first of its run, on all machines, as launchers tell it. Others need not know the
    run's folder (`follower_arguments`), and on another machine cannot see who works there."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"))


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in a folder that no other run works in meanwhile; the processes that a run starts are its own.

    Raises:
        ValueError: if another one does.
    """
    from data_prep.files import locked

    if not first_process():
        yield
        return
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder, wait=False))
        except ValueError:
            for footprint in footprints:
                footprint.restore()
            footprints.clear()  # what else is there is the other's
            raise
        yield


def check_writable(setting: str, folder: str) -> None:
    """Make a folder.

    Raises:
        ValueError: if nothing can be written there.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ValueError(f"{setting}={folder}: cannot be written to ({error.strerror}); give another folder") from error


def check_new(folder: str) -> None:
    """Refuse to train into a folder that holds another training's checkpoint or model, which would be lost.

    Raises:
        ValueError: if it does.
    """
    for kept in ("checkpoints/last.ckpt", "model/duplexmt.json"):
        if Path(folder, kept).is_file():
            raise ValueError(
                f"{os.path.relpath(folder)} holds a training already ({kept}): go on with "
                f"resume={os.path.relpath(folder)}, or give a new one another folder"
            )


def run_label(hydra: Any, group: str | None) -> tuple[str, str | None]:
    """Name and group of a run for W&B: a job of a sweep is named by what differs, and grouped by the sweep's folder
    unless a group is asked for; `hydra` is Hydra's own configuration."""
    sweep, number, differing = job_of_sweep(hydra)
    return (" ".join([number, *differing])[:120], group or sweep.name) if sweep else (number, group)


def model_name(hydra: Any, name: str) -> str:
    """What a trained model is called: the `name` of its run, and in a sweep what differs, but for seeds."""
    differing = job_of_sweep(hydra)[2]
    return " ".join([name, *(one for one in differing if not one.startswith(("training.seed=", "name=")))])


def job_of_sweep(hydra: Any) -> tuple[Path | None, str, list[str]]:
    """The folder of the sweep (None: it is of none) that a run is a job of, its name there, and its own settings."""
    if hydra.mode == RunMode.MULTIRUN:
        sweep, number = Path(hydra.sweep.dir), str(hydra.job.num)
    else:
        folder = Path(hydra.runtime.output_dir)
        sweep, number = folder.parent, folder.name
        if not (sweep / "multirun.yaml").is_file():  # no job of a sweep that goes on
            return None, number, []
    # A job is told False where the command said false.
    known = {argument.lower() for argument in sweep_arguments(sweep)}
    own = (argument for argument in hydra.overrides.task if not argument.startswith("resume="))
    return sweep, number, [argument for argument in own if argument.lower() not in known]


def sweep_arguments(folder: Path) -> list[str]:
    """What a sweep was started with, all values of what is swept included; nothing where Hydra has left no record."""
    saved = folder / "multirun.yaml"
    if not saved.is_file():
        return []
    overrides = OmegaConf.load(saved).hydra.overrides
    return [str(argument) for argument in OmegaConf.to_container(overrides)["task"]]  # type: ignore[call-overload,index]


def resume_arguments(arguments: list[str], needs: str = "checkpoints/last.ckpt") -> list[str]:
    """Command-line arguments with `resume=FOLDER` replaced by those the run was started with, and its folder.

    Args:
        arguments: of the command line.
        needs: the file in the folder that there is something to go on from.

    Raises:
        ValueError: if the folder holds no run that can be resumed.
    """
    given = last_of(arguments, "resume")
    if given is None:
        return arguments
    folder = Path(without_quotes(given))
    if {"-m", "--multirun"} & {*arguments}:
        raise ValueError(f"resume={folder} goes on with one run: leave -m out")
    run_dir = f"hydra.run.dir={in_quotes(str(folder))}"
    if run_dir in arguments:
        return arguments  # a process that Lightning started with what is returned below
    if any(argument.startswith("hydra.run.dir=") for argument in arguments):
        raise ValueError(f"resume={folder} goes on in that folder: leave hydra.run.dir out")
    saved = folder / ".hydra" / "overrides.yaml"
    if not saved.is_file() or not (folder / needs).is_file():
        what = "no run with a checkpoint" if needs.endswith(".ckpt") else f"nothing begun ({needs})"
        raise ValueError(f"resume={folder}: {what} there; give the folder a run was started in")
    begun = begun_with(folder / needs)
    known = [str(value) for value in OmegaConf.load(saved)]
    kept = but_for(known, arguments, "resume", *(["model_folder"] if begun else []))
    return options_first([*kept, *but_for(begun, arguments), *arguments, run_dir])


def options_first(arguments: list[str]) -> list[str]:
    """Command-line arguments with Hydra's options before all settings, as it wants them: `--cfg job`."""
    return sorted(arguments, key=lambda one: one[:1] != "-" and ("=" in one or one[:1] == "~"))


def follower_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments of a process that `torchrun` starts beside the first: it keeps no record of settings, and
    leaves nothing behind where its folder would be named by the second in which it begins, be it another than the first
    one's."""
    if os.environ.get("RANK", "0") == "0":
        return arguments
    arguments = [*arguments, "hydra.output_subdir=null"]
    if any(argument.startswith("hydra.run.dir=") for argument in arguments):
        return arguments
    return [*arguments, "hydra.run.dir=.", "hydra/job_logging=stdout"]


def begun_with(decoding: Path) -> list[str]:
    """`model_folder=[…]` of the folders that an evaluation was begun with, where its `decoding.json` says so: by now
    `latest`, or a pattern, may mean others."""
    if decoding.suffix != ".json":
        return []
    try:
        folders = json.loads(decoding.read_text(encoding="utf-8")).get("model_folders")
    except ValueError:
        folders = None  # damaged, as is told where it is read
    return [f"model_folder=[{','.join(map(in_quotes, folders))}]"] if folders else []


def but_for(known: list[str], arguments: list[str], *left_out: str) -> list[str]:
    """What a run was started with, but for what is given anew and some settings."""
    anew = {argument.partition("=")[0].lstrip("+~") for argument in arguments} | {*left_out}
    return [argument for argument in known if argument.partition("=")[0].lstrip("+~") not in anew]


def rescore_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments with which `rescore=FOLDER` scores as that evaluation, sweep or earlier scoring of other
    folders did, but for what is given anew or was swept, and writes into that folder, whose `.hydra` stays as it is."""
    given = last_of(arguments, "rescore")
    if given is None or given.startswith("[") or any(argument.startswith("hydra.run.dir=") for argument in arguments):
        return arguments
    folder = without_quotes(given)
    if not Path(folder).is_dir():
        raise ValueError(f"rescore={folder}: there is no such folder")
    saved = Path(folder) / ".hydra" / "overrides.yaml"
    if saved.is_file():
        known = [str(value) for value in OmegaConf.load(saved)]
    else:
        parser = OverridesParser.create()
        known = [one for one in sweep_arguments(Path(folder)) if not parser.parse_override(one).is_sweep_override()]
    if not any(Path(folder).glob("decoding.json")) and not any(Path(folder).glob("*/decoding.json")):
        others = last_of(known, "rescore")
        if others is None:
            raise ValueError(f"rescore={folder}: no evaluation there (no decoding.json); give a folder of evaluate.py")
        arguments = [*but_for(arguments, [], "rescore"), f"rescore={others}"]
    kept = but_for(known, arguments, "resume", "rescore", "target_al")
    return options_first([*kept, *arguments, f"hydra.run.dir={in_quotes(folder)}", "hydra.output_subdir=null"])


class Terminated(KeyboardInterrupt):
    """SIGTERM, where it ends a command as Ctrl-C does."""


def _terminated(*_: Any) -> None:
    raise Terminated


@contextmanager
def user_errors(begun: Path | None = None, sweep: str | None = None) -> Iterator[None]:
    """Show a user's mistake as one line; the traceback only where HYDRA_FULL_ERROR=1 asks for it.

    Args:
        begun: a folder that can be gone on with after Ctrl-C or SIGTERM, once its `decoding.json` is there.
        sweep: the folder of the sweep it is a job of.
    """
    free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if ours := begun is not None and free:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    except KeyboardInterrupt as stop:
        on = f"resume={begun}" if sweep is None else f"the same command and hydra.sweep.dir={sweep}"
        can_go_on = begun is not None and (begun / "decoding.json").is_file()
        print("interrupted" + f"; go on with {on}" * can_go_on, file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT))  # as a shell tells it
    except BrokenPipeError:  # the reader of our output has left, as in `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            where = error.filename or (footprints[-1].folder if footprints else os.getcwd())
            error = OSError(f"no space left on the disk of {where}: make room; resume=FOLDER goes on with a run begun")
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        for footprint in footprints:
            footprint.remove()
        sys.exit(2)
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- console scripts -----------------------------------------------------------------------------------------------


def program(name: str) -> None:
    """Run an entry point: of a wheel, which has them in `commands`, or of the repository this file is in."""
    inside = Path(__file__).parent / "commands"
    runpy.run_path(str((inside if inside.is_dir() else Path(__file__).parents[1]) / f"{name}.py"), run_name="__main__")


train, evaluate, translate, serve = (partial(program, name) for name in ("train", "evaluate", "translate", "serve"))
