"""`python -m data_prep root=FOLDER`: download, clean and sample a parallel corpus.

python -m data_prep root=wmt21 step=download            what can be had without a registration
python -m data_prep root=wmt21                          clean, and draw the paper's sample
python -m data_prep root=wmt21 cleaning=strict sample.train_size=null
python -m data_prep -m root=wmt21 step=clean 'sources=[paracrawl],[un],[wikimatrix]' hydra/launcher=submitit_slurm
python -m data_prep root=wmt21 step=sample              once the jobs of the line above are done
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from data_prep.clean_corpus import cleaned
from data_prep.preparation import CONF, Preparation
from data_prep.prepare import clean, prepare, workers
from data_prep.sources import find_files
from data_prep.tokens import token_counter
from duplexmt.common.arguments import check_arguments, quote_arguments
from duplexmt.common.cores import usable_cores

log = logging.getLogger("data_prep")

STEPS = ("all", "download", "clean", "sample")
_IRRELEVANT = ("processes", "step", "output", "hydra")  # to what comes out


@dataclass
class Command(Preparation):
    """`conf/prepare.yaml`.

    Raises:
        ValueError: an unknown step; those of `Preparation`.
    """

    step: str
    tokenizer: str | None
    processes: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step not in STEPS:
            raise ValueError(f"step={self.step!r}: must be one of {', '.join(STEPS)}")


ConfigStore.instance().store(name="prepare_schema", node=Command)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="prepare")
def main(cfg: DictConfig) -> None:
    """Do the step that is asked for."""
    with one_line_errors():
        run(cfg)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A user's mistake is one line; its traceback comes with HYDRA_FULL_ERROR=1."""
    try:
        yield
    except (ValueError, OSError, OmegaConfBaseException) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def run(cfg: DictConfig) -> None:
    """One step."""
    if OmegaConf.is_missing(cfg, "root"):
        raise ValueError("no value for root: say where the corpus's files are, or are to go, with root=FOLDER")
    plan: Command = OmegaConf.to_object(cfg)  # type: ignore[assignment]
    if plan.step == "download":
        from data_prep.download import download  # its network modules would slow the start of every other step

        download(plan.chosen, plan.root)
        return
    processes = usable_cores() if plan.processes is None else plan.processes
    tqdm.monitor_interval = 0  # a thread of its own, which would keep the workers from being forks
    with tqdm(unit=" lines", unit_scale=True, disable=None) as bar:

        def progress(name: str, lines: int) -> None:
            bar.set_description(name, refresh=False)
            bar.update(lines)

        if plan.step == "clean":
            with workers(processes) as pool:
                clean(plan, pool, processes, progress)
            return
        for name, source in plan.chosen.items():  # what is missing is said before a tokenizer is looked for on the hub
            if plan.step == "sample":
                cleaned(plan.clean(name))
            else:
                find_files(name, source, plan.root)
        counter = token_counter(plan.tokenizer) if plan.tokenizer and plan.sample.max_tokens is not None else None
        os.environ["RAYON_NUM_THREADS"] = str(processes)  # of the tokenizer
        asked = command(HydraConfig.get().overrides.task)
        cleans = plan.step == "all"
        manifest = prepare(plan, counter, processes=processes, command=asked, cleans=cleans, progress=progress)
    sizes = ", ".join(f"{split['pairs']:,} {name}" for name, split in manifest["splits"].items())
    log.info("%s pairs in %s", sizes, plan.output / "splits")


def command(overrides: list[str]) -> str:
    """The command, without what has no bearing on the result."""
    names = (each.lstrip("+~").replace("/", ".").partition("=")[0].partition(".")[0] for each in overrides)
    relevant = [each for each, name in zip(overrides, names, strict=True) if name not in _IRRELEVANT]
    return " ".join(["python -m data_prep", *relevant])


class _NoPandas(MetaPathFinder):
    """Arrow would import it only to ask whether a value is of its kinds: 0.3 s and 50 MB in each process."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)


def start() -> None:
    """`python -m data_prep`, and the console script."""
    sys.meta_path.insert(0, _NoPandas())
    with one_line_errors():
        sys.argv[1:] = check_arguments(Command, quote_arguments(sys.argv[1:]))
    main()


if __name__ == "__main__":
    start()
