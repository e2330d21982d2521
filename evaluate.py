"""Evaluate trained models: `python evaluate.py model_folder=runs/latest/model policy.theta=[0.5,0.7,0.9]`."""

import json
import logging
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from duplexmt.command_line import (
    AfterSweep,
    alone_in,
    check_arguments,
    quote_arguments,
    rescore_arguments,
    resume_arguments,
    run_label,
    user_errors,
)
from duplexmt.config import DataConfig, EvaluateSettings, recorded_data, register_schemas, settings

register_schemas()
log = logging.getLogger("evaluate")


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> float:
    """Decode the held-out pairs with each system at each setting, score, and write tables and figures."""
    hydra_cfg = HydraConfig.get()
    with user_errors(begun=Path(os.path.relpath(hydra_cfg.runtime.output_dir))):
        checked, arguments = settings(EvaluateSettings, cfg), list(hydra_cfg.overrides.task)
        label = run_label(hydra_cfg, checked.logger.group)
        folder = Path(hydra_cfg.runtime.output_dir)
        with alone_in(folder):
            evaluations = decoded(checked, arguments, folder)
            return results(checked, evaluations, folder, *label, in_sweep=hydra_cfg.mode == RunMode.MULTIRUN)


def decoded(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> list[Path]:
    """The evaluations to score: this one, decoded, or those to score again."""
    from duplexmt.evaluation.aligned import check_learnt

    check_learnt(cfg.quality.alignment)
    if cfg.rescored:
        from duplexmt.evaluation.results import evaluations_in

        return evaluations_in([Path(rescored) for rescored in cfg.rescored])
    (decode if cfg.target_al is None else choose_theta)(cfg, arguments, folder)
    return [folder]


def decode(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> None:
    """Translate what is not yet translated in the folder."""
    from duplexmt.corpus.overlap import warn_of_overlap
    from duplexmt.corpus.prepared import corpus_settings
    from duplexmt.evaluation.decoding import Decoding
    from duplexmt.evaluation.points import (
        begun_points,
        check_frames,
        check_knobs,
        check_languages,
        decode_point,
        points_of,
    )
    from duplexmt.model_folder.artifact import load_model_folder, read_manifest
    from duplexmt.model_folder.devices import choose_device

    device, decoding, test = choose_device(cfg.device), None, None
    compared: list[dict[str, Any]] = []  # corpora whose training pairs the test set was compared with
    asked = folders_to_run(cfg, arguments, folder)
    manifests = {path: read_manifest(path) for path in asked}
    check_knobs({"k": cfg.ks, "agreement": cfg.agreement, **cfg.rivals}, manifests.values())
    asked = [path.resolve() for path in asked]
    begun = begun_points(folder, asked)
    manifests |= {path: read_manifest(path) for path in begun}
    check_languages(manifests)
    for model_folder in dict.fromkeys([*asked, *begun]):
        loaded = with_certainty(cfg, load_model_folder(model_folder, device, quantize=cfg.quantize))
        if test is None:
            test, held_out_from = test_pairs(cfg, arguments, loaded, cfg.split, manifests)
            compared.append(held_out_from)
            decoding = Decoding.start(folder, test, asked)
        check_frames(cfg.rivals["alignatt"], loaded, test)
        bases = [(f"the base of {model_folder}", data) for data in loaded.info.get("trained_before", [])]
        for name, data in [(str(model_folder), loaded.info["data"]), *bases]:
            corpus = corpus_settings(asdict(recorded_data(data, DataConfig(corpus="recorded"))))
            if cfg.check_overlap and corpus not in compared:
                compared.append(corpus)
                log.info("looking for test sentences in what %s was trained on (check_overlap=false: does not)", name)
                warn_of_overlap(name, corpus, loaded.tokenizer, test.sources)
        knobs = cfg.policy.thetas, cfg.ks, cfg.agreement, cfg.rivals
        wanted = points_of(loaded, *knobs) if model_folder in asked else []
        for system, setting in dict.fromkeys([*wanted, *begun.get(model_folder, [])]):
            how = limits(cfg) | {"adaptive": cfg.adaptive}
            decode_point(decoding, test, loaded, model_folder, system, setting, **how)
    decoding.finish()


def folders_to_run(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> list[Path]:
    """The model folders asked for; of an evaluation that is gone on with, those it was begun with, unless others are
    named: `latest` may be another run by now."""
    from duplexmt.evaluation.decoding import Decoding
    from duplexmt.evaluation.points import matching_folders

    if cfg.resume and not any(argument.startswith("model_folder=") for argument in arguments):
        return list(dict.fromkeys(Path(point.model_folder) for point in Decoding.read(folder).points.values()))
    return matching_folders(cfg.model_folders)


def test_pairs(cfg: EvaluateSettings, arguments: list[str], loaded: Any, split: str, manifests: dict[Path, Any]) -> Any:
    """The pairs of a split, a file's or a corpus's, as the model was trained or as is asked for now."""
    from duplexmt.evaluation.pairs import read_test_pairs

    other = "data.validation_path" if split == "test" else "data.test_path"  # says nothing of this split
    own = [argument for argument in arguments if not argument.startswith(f"{other}=")]
    given = replace(cfg.data, **{other.removeprefix("data."): None})
    data = asdict(recorded_data(loaded.info["data"], given, own))
    return read_test_pairs(data, split, loaded, manifests.values(), cfg.references, cfg.limit)


def with_certainty(cfg: EvaluateSettings, loaded: Any) -> Any:
    """The model as its decisions are asked for now: `policy.certainty` in place of what its folder records."""
    if cfg.policy.certainty is not None:
        loaded.model.certainty = cfg.policy.certainty  # only a grid reads it
    return loaded


def limits(cfg: EvaluateSettings) -> dict[str, int]:
    """Of decoding."""
    return {"max_target_tokens": cfg.policy.max_target_tokens, "batch_size": cfg.batch_size}


def choose_theta(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> None:
    """Find the θ whose AL on the validation pairs meets `target_al`, and record it in the model folder."""
    from duplexmt.evaluation.search import meet_al
    from duplexmt.model_folder.artifact import load_model_folder
    from duplexmt.model_folder.devices import choose_device

    assert cfg.target_al is not None
    (model_folder, *others) = [path.resolve() for path in folders_to_run(cfg, arguments, folder)]
    device = choose_device(cfg.device)
    loaded = with_certainty(cfg, load_model_folder(model_folder, device, quantize=cfg.quantize))
    if others or loaded.info["system"] != "grid":
        raise ValueError(f"target_al={cfg.target_al:g} needs one model folder of the grid: only it has a θ")
    test, _ = test_pairs(cfg, arguments, loaded, "validation", {model_folder: loaded.info})
    meet_al(cfg.target_al, folder, test, loaded, model_folder, device, source_rate=cfg.source_rate, **limits(cfg))


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
        omnisteval=cfg.omnisteval,
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
    own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    checked = settings(EvaluateSettings, own)
    group = checked.logger.group or folder.name
    results(checked, evaluations_in([folder]), folder, "all jobs of the sweep", group)


if __name__ == "__main__":
    with user_errors():
        arguments = resume_arguments(quote_arguments(sys.argv[1:]), needs="decoding.json")
        sys.argv[1:] = check_arguments(EvaluateSettings, rescore_arguments(arguments), Path(__file__).parent / "conf")
        AfterSweep.action = gather
        main()
