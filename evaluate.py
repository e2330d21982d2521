"""Evaluate trained models: `python evaluate.py model_folder=runs/latest/model policy.theta=[0.5,0.7,0.9]`."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from duplexmt.command_line import (
    AfterSweep,
    alone_in,
    check_data,
    check_first,
    check_no_training,
    rescore_arguments,
    resume_arguments,
    run_label,
    user_errors,
    write_record,
)
from duplexmt.common.arguments import check_arguments, last_of, quote_arguments
from duplexmt.common.files import check_there
from duplexmt.config import DataConfig, EvaluateSettings, recorded_data, register_schemas, settings
from duplexmt.model_folder.hugging_face import check_here
from duplexmt.model_folder.manifest import MANIFEST
from duplexmt.policy.decoding_options import ADAPTIVE_KNOBS

if TYPE_CHECKING:
    from duplexmt.evaluation.job import Job

register_schemas()
log = logging.getLogger("evaluate")
SCORING = ("rescore", "claims", "over_seeds", "logs", "source_rate", "device", "quality", "logger")  # read by rescore=


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> float:
    """Decode the held-out pairs with each system at each setting, score, and write tables and figures."""
    hydra_cfg = HydraConfig.get()
    in_sweep = hydra_cfg.mode == RunMode.MULTIRUN
    begun, sweep = Path(os.path.relpath(hydra_cfg.runtime.output_dir)), hydra_cfg.sweep.dir if in_sweep else None
    folder = Path(hydra_cfg.runtime.output_dir)
    with user_errors(begun, sweep), alone_in(folder):
        checked, arguments = check(cfg, folder), list(hydra_cfg.overrides.task)
        label = run_label(hydra_cfg, checked.logger.group)
        evaluations = decoded(checked, arguments, folder, partial(write_record, folder, cfg))
        return results(checked, evaluations, folder, *label, in_sweep=in_sweep)


def check(cfg: DictConfig, folder: Path) -> EvaluateSettings:
    """The settings, if an evaluation with them may be in a folder; ValueError if not."""
    checked: EvaluateSettings = settings(EvaluateSettings, cfg)
    check_no_training(folder)
    if (folder / MANIFEST).is_file():
        raise ValueError(f"hydra.run.dir={folder} is a model folder: give another one")
    if not checked.rescored:  # which has all that in what was decoded
        check_here(checked.model_folders)
        check_data(checked.data)
        check_there("references", checked.references)
    return checked


def decoded(
    cfg: EvaluateSettings, arguments: list[str], folder: Path, begin: Callable[[], None] = lambda: None
) -> list[Path]:
    """The evaluations to score: this one, decoded, or those to score again; `begin` is called before anything is
    written."""
    from duplexmt.evaluation.aligned import check_learnt

    check_learnt(cfg.quality.alignment)
    if cfg.rescored:
        from duplexmt.evaluation.results import evaluations_in

        found = evaluations_in([Path(rescored) for rescored in cfg.rescored])
        if not any(folder.samefile(rescored) for rescored in cfg.rescored):  # which keep their records
            begin()
        return found
    asked = job(cfg, arguments, folder, begin)
    if cfg.target_al is None:
        asked.decode()
    else:
        check_search(cfg.target_al, arguments)
        asked.choose_theta()
    return [folder]


def check_search(target: float, arguments: list[str]) -> None:
    """Raise ValueError for a setting that a search for θ would pass over."""
    passed_over = ("policy.theta=", "split=test", *(f"{name}=" for name in ("k", "agreement", *ADAPTIVE_KNOBS)))
    for argument in arguments:
        if argument.startswith(passed_over):
            raise ValueError(f"{argument}: target_al={target:g} tries θ of its own on validation pairs; leave one out")


def check_scoring(arguments: list[str]) -> None:
    """Raise ValueError for a setting that scoring again would pass over."""
    given, decoding = last_of(arguments, "rescore"), {entry.name for entry in fields(EvaluateSettings)} - {*SCORING}
    for argument in arguments:
        if given is not None and re.split("[.=]", argument.lstrip("+~"))[0] in decoding:
            raise ValueError(f"{argument}: rescore={given} scores what is decoded already; leave one out")


def job(cfg: EvaluateSettings, arguments: list[str], folder: Path, begin: Callable[[], None] = lambda: None) -> "Job":
    """What the settings and arguments ask to decode."""
    from duplexmt.evaluation.job import Job

    def data_of(recorded: Any, split: str | None) -> dict[str, Any]:
        if split is None:
            return asdict(recorded_data(recorded, DataConfig(corpus="recorded")))
        other = "validation_path" if split == "test" else "test_path"  # says nothing of this split
        own = [argument for argument in arguments if not argument.startswith(f"data.{other}=")]
        return asdict(recorded_data(recorded, replace(cfg.data, **{other: None}), own))

    named = any(argument.startswith("model_folder=") for argument in arguments)
    return Job(cfg, folder, bool(cfg.resume) and not named, data_of, begin)


def results(
    cfg: EvaluateSettings, folders: list[Path], into: Path, name: str, group: str | None, in_sweep: bool = False
) -> float:
    """Score, write and show; returns BLEU of the last row, for sweeps. What could not be scored is told at the end:
    by a job of a sweep without ending the jobs behind it, as `gather` scores all of them again and ends with it."""
    from duplexmt.evaluation.decoding import SCORED, Decoding
    from duplexmt.evaluation.results import write_results

    scores, shown, troubles = write_results(
        folders,
        into,
        checkpoints={"COMET": cfg.quality.comet, "BLEURT": cfg.quality.bleurt},
        environment=cfg.quality.environment,
        neural_batch_size=cfg.quality.batch_size,
        device=cfg.device,
        source_rate=cfg.source_rate,
        resamples=cfg.quality.resamples,
        alignment=cfg.quality.alignment,
        claims=cfg.claims,
        over_seeds=cfg.over_seeds,
        logs=cfg.logs,
    )
    log.info("%s\nwritten to %s", shown, os.path.relpath(into))
    if cfg.logger.wandb:
        from duplexmt.tracking.artifacts import log_evaluation

        test, logger = Decoding.read(folders[0]).test, asdict(cfg.logger)
        try:
            log_evaluation(scores, into, test["name"], logger=logger, name=name, group=group, settings=asdict(cfg))
        except ValueError as error:
            troubles.append(str(error))
    if troubles and not in_sweep:
        raise ValueError("\nerror: ".join(troubles))
    for trouble in troubles:
        log.error("error: %s", trouble)
    if not troubles:
        (into / SCORED).write_text(json.dumps({"settings": len(scores)}) + "\n", encoding="utf-8")
    return float(scores[-1].row["BLEU"])


def gather(config: DictConfig) -> None:
    """After `python evaluate.py -m …`: the results of all jobs in one table and one figure, in the sweep's folder."""
    from duplexmt.evaluation.results import evaluations_in

    folder = Path(config.hydra.sweep.dir)
    checked = settings(EvaluateSettings, config)
    group = checked.logger.group or folder.name
    results(checked, evaluations_in([folder]), folder, "all jobs of the sweep", group)


if __name__ == "__main__":
    with user_errors():
        given = quote_arguments(sys.argv[1:])
        check_scoring(given)
        arguments = resume_arguments(given, needs="decoding.json")
        conf = Path(__file__).resolve().parent / "conf"
        sys.argv[1:] = check_arguments(EvaluateSettings, rescore_arguments(arguments), conf)
        check_first(check, sys.argv[1:], conf)
        AfterSweep.action = gather
        main()
