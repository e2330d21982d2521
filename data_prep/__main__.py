"""`python -m data_prep root=FOLDER`: clean and sample a parallel corpus.

python -m data_prep root=wmt21                          clean, and draw the paper's sample
python -m data_prep root=wmt21 cleaning=strict sample.train_size=null
python -m data_prep -m root=wmt21 clean_only=true 'sources=[paracrawl],[un],[wikimatrix]' hydra/launcher=submitit_slurm
python -m data_prep root=wmt21 'sources=[paracrawl,un,wikimatrix]'      once the jobs of the line above are done
"""

import logging
import os
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from data_prep.preparation import CONF, Preparation
from data_prep.prepare import clean, prepare, workers
from data_prep.sources import find_files
from data_prep.tokens import token_counter
from duplexmt.common.arguments import check_arguments, quote_arguments
from duplexmt.common.command import one_line_errors
from duplexmt.common.cores import usable_cores

log = logging.getLogger("data_prep")


@dataclass
class Command(Preparation):
    """`conf/prepare.yaml`. ValueError: those of `Preparation`."""

    clean_only: bool
    tokenizer: str | None
    processes: int | None


ConfigStore.instance().store(name="prepare_schema", node=Command)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="prepare")
def main(cfg: DictConfig) -> None:
    """Clean, and draw the sample."""
    with one_line_errors(OmegaConfBaseException):
        if OmegaConf.is_missing(cfg, "root"):
            raise ValueError("no value for root: say where the corpus's files are with root=FOLDER")
        plan: Command = OmegaConf.to_object(cfg)  # type: ignore[assignment]
        processes = usable_cores() if plan.processes is None else plan.processes
        tqdm.monitor_interval = 0  # a thread of its own, which would keep the workers from being forks
        for name, source in plan.chosen.items():  # what is missing is said before a tokenizer is looked for on the hub
            find_files(name, source, plan.root)
        if plan.clean_only:
            with workers(processes) as pool:
                clean(plan, pool, processes)
            return
        counter = token_counter(plan.tokenizer) if plan.tokenizer and plan.sample.max_tokens is not None else None
        os.environ["RAYON_NUM_THREADS"] = str(processes)  # of the tokenizer
        manifest = prepare(plan, counter, processes=processes)
        sizes = ", ".join(f"{split['pairs']:,} {name}" for name, split in manifest["splits"].items())
        log.info("%s pairs in %s", sizes, plan.output / "splits")


class _NoPandas(MetaPathFinder):
    """Arrow would import it only to ask whether a value is of its kinds: 0.3 s and 50 MB in each process."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)


def start() -> None:
    """`python -m data_prep`, and the console script."""
    sys.meta_path.insert(0, _NoPandas())
    with one_line_errors(OmegaConfBaseException):
        sys.argv[1:] = check_arguments(Command, quote_arguments(sys.argv[1:]))
    main()


if __name__ == "__main__":
    start()
