"""Evaluate trained models: `python evaluate.py model_folder=runs/latest/model policy.theta=[0.5,0.7,0.9]`."""

import json
import logging
import os
import sys
from collections.abc import Collection
from dataclasses import asdict, replace
from glob import glob
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from duplexmt.command_line import (
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
        arguments = list(hydra_cfg.overrides.task)
        checked = settings(EvaluateSettings, cfg)
        label = run_label(hydra_cfg, checked.logger.group)
        in_sweep = hydra_cfg.mode == RunMode.MULTIRUN
        folder = Path(hydra_cfg.runtime.output_dir)
        with alone_in(folder):
            return evaluate(checked, arguments, folder, *label, in_sweep=in_sweep)


def evaluate(
    cfg: EvaluateSettings, arguments: list[str], folder: Path, name: str, group: str | None, in_sweep: bool = False
) -> float:
    """One evaluation in one folder; returns BLEU of the last row for sweeps."""
    folders = [folder]
    if cfg.rescored:
        from duplexmt.evaluation.results import evaluations_in

        folders = evaluations_in([Path(rescored) for rescored in cfg.rescored])
    elif cfg.target_al is not None:
        choose_theta(cfg, arguments, folder)
    else:
        decode(cfg, arguments, folder)
    return results(cfg, folders, folder, name, group, in_sweep)


def decode(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> None:
    """Translate what is not yet translated in the folder."""
    from duplexmt.corpus.overlap import warn_of_overlap
    from duplexmt.corpus.prepared import corpus_settings
    from duplexmt.evaluation.decoding import Decoding
    from duplexmt.model_folder.artifact import load_model_folder, read_manifest
    from duplexmt.model_folder.devices import choose_device

    device, decoding, test = choose_device(cfg.device), None, None
    checked: list[dict[str, Any]] = []  # corpora whose training pairs the test set was compared with
    folders = folders_to_run(cfg, arguments, folder)
    manifests = {path: read_manifest(path) for path in folders}
    check_knobs(cfg, [info["system"] for info in manifests.values()])
    folders = [path.resolve() for path in folders]
    begun = begun_points(folder, folders)
    manifests |= {path: read_manifest(path) for path in begun}
    check_languages(manifests)
    for model_folder in dict.fromkeys([*folders, *begun]):
        loaded = load_model_folder(model_folder, device)
        if test is None:
            test, held_out_from = read_test_set(cfg, arguments, loaded, cfg.split, manifests.values())
            checked.append(held_out_from)
            decoding = Decoding.start(folder, test, folders)
        bases = [(f"the base of {model_folder}", data) for data in loaded.info.get("trained_before", [])]
        for name, data in [(str(model_folder), loaded.info["data"]), *bases]:
            corpus = corpus_settings(asdict(recorded_data(data, DataConfig(corpus="recorded"))))
            if cfg.check_overlap and corpus not in checked:
                checked.append(corpus)
                log.info("looking for test sentences in what %s was trained on (check_overlap=false: does not)", name)
                warn_of_overlap(name, corpus, loaded.tokenizer, test.sources)
        wanted = settings_of(cfg, loaded) if model_folder in folders else []
        for system, setting in dict.fromkeys([*wanted, *begun.get(model_folder, [])]):
            translate_point(cfg, loaded, model_folder, system, setting, test, decoding)
    decoding.finish()


def folders_to_run(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> list[Path]:
    """The model folders asked for; of an evaluation that is gone on with, those it was begun with, unless others are
    named: `latest` may be another run by now."""
    from duplexmt.evaluation.decoding import Decoding

    if cfg.resume and not any(argument.startswith("model_folder=") for argument in arguments):
        return list(dict.fromkeys(Path(point.model_folder) for point in Decoding.read(folder).points.values()))
    return model_folders(cfg)


def begun_points(folder: Path, asked: list[Path]) -> dict[Path, list[tuple[str, Any]]]:
    """Systems and settings by model folder whose decoding was begun, perhaps with other settings than today's; where
    such a model folder is gone, under the one asked for that holds the same model."""
    from duplexmt.evaluation.decoding import DECODING, Decoding, model_digest
    from duplexmt.model_folder.artifact import read_manifest

    begun: dict[Path, list[tuple[str, Any]]] = {}
    for point in Decoding.read(folder).begun() if (folder / DECODING).is_file() else []:
        home = Path(point.model_folder)
        if not home.is_dir():
            moved = (path for path in asked if model_digest(path, read_manifest(path)) == point.model)
            home = next(moved, home)
        begun.setdefault(home, []).append((point.system, point.setting))
    return begun


def translate_point(
    cfg: EvaluateSettings, loaded: Any, model_folder: Path, system: str, setting: Any, test: Any, decoding: Any
) -> Any:
    """Translate what is left of one system at one setting; returns its point."""
    from tqdm import tqdm

    from duplexmt.evaluation.decoding import Point
    from duplexmt.evaluation.translation import tokenise, translate
    from duplexmt.streaming.systems import build_system

    what = [test.digest, cfg.policy.max_target_tokens]
    point = Point.of(system, setting, model_folder, loaded.info, what)
    running = build_system(
        loaded, system, setting, max_target_tokens=cfg.policy.max_target_tokens, batch_size=cfg.batch_size
    )
    decoding.add(point)
    missing = decoding.missing(point)
    sources, references = ([texts[i] for i in missing] for texts in (test.sources, test.references))
    sentences = tokenise(sources, references, loaded.tokenizer, missing, loaded.sources)
    records = decoding.decode(point, translate(running, sentences, loaded.tokenizer))
    label = system if setting is None else f"{system} {setting:g}"
    for _ in tqdm(records, desc=label, total=len(test.sources), initial=len(test.sources) - len(missing)):
        pass
    return point


def settings_of(cfg: EvaluateSettings, loaded: Any) -> list[tuple[str, Any]]:
    """The systems and settings to evaluate a model folder with."""
    from duplexmt.baselines.mask import own_delays
    from duplexmt.policy.knobs import recorded_theta

    held = loaded.info["system"]
    if held == "grid":
        recorded = recorded_theta(loaded.info)
        return [("grid", recorded if theta == "recorded" else theta) for theta in cfg.policy.thetas]
    if held == "waitk":
        return [("waitk", k) for k in cfg.ks or own_delays(loaded.model.k)]
    untrained = [("waitk", k) for k in cfg.ks]
    return [("offline", None), *untrained, *[("local_agreement", n) for n in cfg.agreements]]


def check_languages(manifests: dict[Path, dict[str, Any]]) -> None:
    """Refuse models of different languages, before any of them is run."""
    pairs = {
        folder: [info["data"][f"{side}_language"] for side in ("source", "target")]
        for folder, info in manifests.items()
    }
    first = next(iter(pairs), None)
    for folder, own in pairs.items():
        if first is not None and own != pairs[first]:
            raise ValueError(
                f"model_folder={folder} translates {' → '.join(own)}, model_folder={first} "
                f"{' → '.join(pairs[first])}: systems are compared on one test set"
            )


def check_knobs(cfg: EvaluateSettings, held: list[str]) -> None:
    """Refuse a setting of a system that no model, trained as `held` says, can be run as."""
    for name, given, wanted in (("k", cfg.ks, ("waitk", "offline")), ("agreement", cfg.agreements, ("offline",))):
        if given and not set(held) & set(wanted):
            raise ValueError(
                f"{name}={given}: needs a model folder trained as {' or '.join(wanted)}, got {', '.join(held)}: "
                f"add one to model_folder=[…], or leave {name} out"
            )


def read_test_set(
    cfg: EvaluateSettings, arguments: list[str], loaded: Any, split: str, manifests: Collection[dict[str, Any]]
) -> tuple[Any, dict[str, Any]]:
    """The pairs of a split, a file's or a corpus's, and the settings of the corpus that holds them out, if one does.

    All models get the same sources: simplified, where those of one of them were in training.
    """
    from duplexmt.corpus.evaluation_files import read_evaluation_file, simplifies_sources
    from duplexmt.corpus.prepared import corpus_settings, prepare_corpus
    from duplexmt.evaluation.decoding import TestSet, further_references
    from duplexmt.model_folder.artifact import corpus_name

    other = "data.validation_path" if split == "test" else "data.test_path"  # says nothing of this split
    own = [argument for argument in arguments if not argument.startswith(f"{other}=")]
    data = recorded_data(loaded.info["data"], replace(cfg.data, **{other.removeprefix("data."): None}), own)
    settings_of_data = asdict(data)
    own_file, held_out_from = settings_of_data[f"{split}_path"], {}
    if own_file:
        names = ("source_field", "target_field", "source_language", "target_language")
        given = {name: settings_of_data[name] for name in names}
        simplified = any(simplifies_sources(info["data"]) for info in manifests)
        separator = loaded.sources.context_separator
        pairs, report = read_evaluation_file(own_file, **given, context_separator=separator, simplified=simplified)
        log.info("%s: %d pairs\n%s", own_file, len(pairs), report.summary())
        name = Path(own_file).name
    else:
        held_out_from = corpus_settings(settings_of_data)
        pairs = prepare_corpus(**held_out_from | {"tokenizer": loaded.tokenizer}).splits[split]
        name = f"{corpus_name(settings_of_data)}, {split} split"
    references = further_references([target for _, target in pairs], cfg.references)[: cfg.limit]
    sources = [source for source, _ in pairs][: cfg.limit]
    return TestSet(name, sources, references, data.source_language, data.target_language), held_out_from


def model_folders(cfg: EvaluateSettings) -> list[Path]:
    """The folders named, patterns such as `runs/sweep/*/model` filled in."""
    found: list[Path] = []
    for name in cfg.model_folders:
        pattern = any(character in name for character in "*?[") and not Path(name).is_dir()
        matches = sorted(glob(name)) if pattern else [name]
        if not matches:
            raise ValueError(f"model_folder={name}: no folder fits this pattern")
        found += [Path(match) for match in matches]
    return found


def results(
    cfg: EvaluateSettings, folders: list[Path], into: Path, name: str, group: str | None, in_sweep: bool = False
) -> float:
    """Score, write and show; what could not be scored is told at the end: by a job of a sweep without ending the jobs
    behind it, as `GatherSweep` scores all of them again and ends with it."""
    from duplexmt.evaluation.decoding import SCORED
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
        claims=cfg.claims,
        over_seeds=cfg.over_seeds,
    )
    log.info("%s\nwritten to %s", shown, os.path.relpath(into))
    if cfg.logger.wandb:
        from duplexmt.evaluation.decoding import Decoding
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


def choose_theta(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> None:
    """Find the θ whose AL on the validation pairs meets `target_al`, and record it in the model folder."""
    from duplexmt.evaluation.decoding import Decoding
    from duplexmt.evaluation.scoring import score
    from duplexmt.evaluation.search import TOLERANCE, find_theta
    from duplexmt.model_folder.artifact import load_model_folder, record_operating_point
    from duplexmt.model_folder.devices import choose_device

    (model_folder, *others) = [path.resolve() for path in folders_to_run(cfg, arguments, folder)]
    device = choose_device(cfg.device)
    loaded = load_model_folder(model_folder, device)
    if others or loaded.info["system"] != "grid":
        raise ValueError(f"target_al={cfg.target_al:g} needs one model folder of the grid: only it has a θ")
    test, _ = read_test_set(cfg, arguments, loaded, "validation", [loaded.info])
    decoding = Decoding.start(folder, test, [model_folder])

    def al_at(theta: float) -> float:
        point = translate_point(cfg, loaded, model_folder, "grid", theta, test, decoding)
        found = score(
            decoding.sorted(point.digest), test.source_language, test.target_language, source_rate=cfg.source_rate
        )
        al = found.row["AL"]
        if al is None:
            raise ValueError(f"target_al={cfg.target_al:g}: at θ = {theta:g} every hypothesis is empty")
        log.info("θ = %g: AL %.2f", theta, al)
        return al

    found = find_theta(al_at, cfg.target_al)
    for home, begun in begun_points(folder, [model_folder]).items():  # by a search for another AL
        model = loaded if home == model_folder else load_model_folder(home, device)
        for system, setting in begun:
            translate_point(cfg, model, home, system, setting, test, decoding)
    decoding.finish()
    what = {"theta": found.theta, "AL": round(found.al, 4), "target_al": cfg.target_al, "validation": test.name}
    record_operating_point(model_folder, what | {"sentences": len(test.sources)})
    log.info("θ = %g has AL %.2f on %s; recorded in %s", found.theta, found.al, test.name, model_folder)
    if found.al < cfg.target_al - TOLERANCE:
        log.warning("target_al=%g: no θ that was tried has an AL between %.2f and that", cfg.target_al, found.al)


class GatherSweep(Callback):
    """After `python evaluate.py -m …`: the results of all jobs in one table and one figure, in the sweep's folder."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Score all jobs' hypotheses together."""
        from duplexmt.evaluation.results import evaluations_in

        with user_errors():
            folder = Path(config.hydra.sweep.dir)
            own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
            checked = settings(EvaluateSettings, own)
            group = checked.logger.group or folder.name
            results(checked, evaluations_in([folder]), folder, "all jobs of the sweep", group)


if __name__ == "__main__":
    with user_errors():
        arguments = resume_arguments(quote_arguments(sys.argv[1:]), needs="decoding.json")
        sys.argv[1:] = check_arguments(EvaluateSettings, rescore_arguments(arguments), Path(__file__).parent / "conf")
        main()
