"""The command line around Hydra: a run that goes on, names of runs, and errors for users."""

import errno
import json
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from .common.arguments import in_quotes, last_of, without_quotes
from .common.files import check_writable
from .corpus.corpus_settings import CorpusSettings
from .corpus.repository import located

if not sys.stderr.isatty():  # each state of a progress bar stays in a log
    os.environ.setdefault("TQDM_MININTERVAL", "10")


def check_first(check: Callable[[DictConfig, Path], Any], arguments: list[str], conf: Path) -> None:
    """Refuse what can be known to be wrong before Hydra makes a folder: one that cannot be written to, and a sweep of
    which a job is refused.

    Args:
        check: raises ValueError for the configuration of a job, or its folder.
        conf: the folder of configurations, with one of the program's name.
    """
    options = {argument for argument in arguments if argument.startswith("-")}
    if options - {"-m", "--multirun"}:
        return  # something is shown
    setting = "hydra.sweep.dir" if options else "hydra.run.dir"
    check_writable(setting, Path(without_quotes(last_of(arguments, setting) or "runs")))
    name = Path(sys.argv[0]).stem
    with initialize_config_dir(str(conf), version_base="1.3", job_name=name) if options else nullcontext():
        for job in jobs_of(name, arguments) if options else ():
            check(job, Path(job.hydra.sweep.dir, str(job.hydra.sweep.subdir)))


def jobs_of(name: str, arguments: list[str]) -> Iterator[DictConfig]:
    """The configurations of a sweep's jobs as Hydra composes them; none where it refuses one or another sweeps."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    task = [argument for argument in arguments if not argument.startswith("-")]
    with suppress(HydraException):
        sweep = hydra.compose_config(name, task, run_mode=RunMode.MULTIRUN, with_log_configuration=False)
        if not sweep.hydra.sweeper._target_.endswith(BasicSweeper.__name__):
            return
        parser = OverridesParser.create(hydra.config_loader)
        params = [f"{key}={value}" for key, value in (sweep.hydra.sweeper.params or {}).items()]
        (jobs,) = BasicSweeper.split_arguments(parser.parse_overrides([*params, *task]), None)
        for number, job in enumerate(jobs):
            config = hydra.config_loader.load_sweep_config(sweep, job)
            with open_dict(config):
                config.hydra.job.num, config.hydra.job.id = number, str(number)
            yield config


def write_record(folder: Path, cfg: DictConfig) -> None:
    """Keep with a run what it was started with, once nothing is refused any more: for `resume`, and for people."""
    if first_process():
        (folder / ".hydra").mkdir(exist_ok=True)
        OmegaConf.save(cfg, folder / ".hydra" / "config.yaml")
        OmegaConf.save(HydraConfig.get().overrides.task, folder / ".hydra" / "overrides.yaml")


def as_given(arguments: Any) -> list[str]:
    """Recorded arguments as they were given: what `${…}` in one stands for is for Hydra to say."""
    return [str(argument) for argument in OmegaConf.to_container(arguments)]  # type: ignore[union-attr]


def given_anew(folder: Path) -> list[str]:
    """The arguments that a run which goes on was not begun with."""
    known = as_given(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    return [one for one in as_given(HydraConfig.get().overrides.task) if one not in known]


def remove_unused(folder: Path) -> None:
    """Remove the folder that Hydra has made for a run, where nothing is in it but an empty record, and those around it
    that are empty then."""
    logs = {*folder.glob(f"{HydraConfig.get().job.name}*.log")}
    if not {*folder.iterdir()} <= logs:
        return
    for log in logs:
        log.unlink()
    for path in (folder, *folder.parents):
        around, sweep = path.is_relative_to(Path.cwd()) and path != Path.cwd(), path / "multirun.yaml"
        if {*path.iterdir()} - {sweep} or not (around or path == folder or sweep.is_file()):
            break
        sweep.unlink(missing_ok=True)
        path.rmdir()


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
    """Work in a folder that no other run works in meanwhile; the processes that a run starts are its own. A run that is
    refused, or interrupted, before it has written anything leaves no folder.

    Raises:
        ValueError: if another one does.
    """
    from .common.files import locked

    with locked(folder, wait=False) if first_process() else nullcontext():
        try:
            yield
        except (ValueError, OSError, KeyboardInterrupt):
            if first_process():
                remove_unused(folder)
            raise


def check_data(data: CorpusSettings) -> None:
    """Refuse pairs that are not there, before anything is loaded.

    Raises:
        ValueError: for a file, folder or pattern that leads nowhere.
        FileNotFoundError: for one of the repository, where there is none.
    """
    for name in ("path", "train_path", "validation_path", "test_path"):  # of raw files what is prepared may be left
        given = getattr(data, name)
        if given is not None and not located(given).exists() and not glob(given):
            raise ValueError(f"data.{name}={given}: there is no such file or folder, and nothing matches it")


def check_new(folder: str) -> None:
    """Refuse to train into a folder that holds another training's checkpoint or model, which would be lost, or an
    evaluation, whose record would be.

    Raises:
        ValueError: if it does.
    """
    if kept := training_in(folder):
        raise ValueError(
            f"{os.path.relpath(folder)} holds a training already ({kept}): go on with "
            f"resume={os.path.relpath(folder)}, or give a new one another folder"
        )
    if Path(folder, "decoding.json").is_file():
        raise ValueError(f"{os.path.relpath(folder)} holds an evaluation: give a training another folder")


def training_in(folder: str | Path) -> str | None:
    """What a folder holds of a training; None for nothing."""
    kept = ("checkpoints/last.ckpt", "model/duplexmt.json")
    return next((name for name in kept if Path(folder, name).is_file()), None)


def check_no_training(folder: str | Path) -> None:
    """Refuse to write an evaluation's record over a training's.

    Raises:
        ValueError: there is one.
    """
    if kept := training_in(folder):
        raise ValueError(f"{os.path.relpath(folder)} holds a training ({kept}): give hydra.run.dir=ANOTHER_FOLDER")


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
    own = (argument for argument in as_given(hydra.overrides.task) if not argument.startswith("resume="))
    return sweep, number, [argument for argument in own if argument.lower() not in known]


def sweep_arguments(folder: Path) -> list[str]:
    """What a sweep was started with, all values of what is swept included; nothing where Hydra has left no record."""
    saved = folder / "multirun.yaml"
    if not saved.is_file():
        return []
    return as_given(OmegaConf.load(saved).hydra.overrides.task)


def resume_arguments(arguments: list[str], needs: str = "checkpoints/last.ckpt") -> list[str]:
    """Command-line arguments with `resume=FOLDER` replaced by those the run was started with, and its folder.

    Args:
        needs: the file in the folder that there is something to go on from.

    Raises:
        ValueError: if the folder holds no run that can be resumed.
    """
    if "resume=" in arguments:
        raise ValueError("resume=: give the folder a run was started in, or leave it out")
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
    known = as_given(OmegaConf.load(saved))
    kept = but_for(known, arguments, "resume", *(["model_folder"] if begun else []))
    return options_first([*kept, *but_for(begun, arguments), *arguments, run_dir])


def options_first(arguments: list[str]) -> list[str]:
    """Command-line arguments with Hydra's options before all settings, as it wants them: `--cfg job`."""
    return sorted(arguments, key=lambda one: one[:1] != "-" and ("=" in one or one[:1] == "~"))


def follower_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments of a process that `torchrun` starts beside the first: it leaves nothing behind where its
    folder would be named by the second in which it begins, be it another than the first one's."""
    named = any(argument.startswith("hydra.run.dir=") for argument in arguments)
    if os.environ.get("RANK", "0") == "0" or named:
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
    folders did, but for what is given anew or was swept, and writes into that folder, whose record stays as it is."""
    given = last_of(arguments, "rescore")
    if given is None or given.startswith("[") or any(argument.startswith("hydra.run.dir=") for argument in arguments):
        return arguments
    folder = without_quotes(given)
    if not Path(folder).is_dir():
        raise ValueError(f"rescore={folder}: there is no such folder")
    saved = Path(folder) / ".hydra" / "overrides.yaml"
    if saved.is_file():
        known = as_given(OmegaConf.load(saved))
    else:
        parser = OverridesParser.create()
        known = [one for one in sweep_arguments(Path(folder)) if not parser.parse_override(one).is_sweep_override()]
    if not any(Path(folder).glob("decoding.json")) and not any(Path(folder).glob("*/decoding.json")):
        others = last_of(known, "rescore")
        if others is None:
            raise ValueError(f"rescore={folder}: no evaluation there (no decoding.json); give a folder of evaluate.py")
        arguments = [*but_for(arguments, [], "rescore"), f"rescore={others}"]
    kept = but_for(known, arguments, "resume", "rescore", "target_al")
    return options_first([*kept, *arguments, f"hydra.run.dir={in_quotes(folder)}"])


class Terminated(KeyboardInterrupt):
    """SIGTERM, where it ends a command as Ctrl-C does."""


def _terminated(*_: Any) -> None:
    raise Terminated


@contextmanager
def user_errors(begun: Path | None = None, sweep: str | None = None, *, stops: bool = False) -> Iterator[None]:
    """Show a user's mistake as one line; the traceback only where HYDRA_FULL_ERROR=1 asks for it.

    Args:
        begun: a folder that can be gone on with after Ctrl-C or SIGTERM, once its `decoding.json` is there.
        sweep: the folder of the sweep it is a job of.
        stops: whether SIGTERM ends it as Ctrl-C does; with `begun` it always does.
    """
    free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if ours := (begun is not None or stops) and free:
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
            where = error.filename or os.getcwd()
            error = OSError(f"no space left on the disk of {where}: make room; resume=FOLDER goes on with a run begun")
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
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
