"""All that a run, its model and their evaluations hold, gathered for the report (`python -m duplexmt.report`).

What is missing leaves a note that says so, and what to run; what is damaged is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.pair import Pair
from ..corpus.evaluation_files import clean_source
from ..decoder.schedules import shown_delay
from ..drawing.training_figure import read_run_curves
from ..evaluation.decoding import DECODING, TOLD_LENGTH, Setting, model_digest
from ..evaluation.results import evaluations_in
from ..evaluation.scores import run_of
from ..evaluation.translation import Record, translate_pairs
from ..model_folder.artifact import ModelFolder, corpus_name, load_model_folder
from ..model_folder.manifest import MANIFEST, read_manifest
from ..policy.decoding_options import TARGET_TOKENS, recorded_theta, rule_in
from ..streaming.systems import build_system
from .evaluated import Evaluated, holds_evaluations, model_of, point_for_examples, read_evaluation
from .examples import Example, examples
from .page import Report
from .thresholds import THETAS, viewer_of

HELD_OUT = 60  # sentences translated where there is no evaluation


@dataclass
class ReportFolder:
    """What a folder is: a run, a model, an evaluation, or several of these."""

    folder: Path
    run: Path | None = None
    model: Path | None = None
    evaluations: list[Path] = field(default_factory=list)


def report_folder(folder: Path) -> ReportFolder:
    """What there is in a folder.

    Raises:
        ValueError: for a folder that is missing, or is none of the three.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r}: there is no such folder; give the folder of a run, a model or an evaluation"
        )
    found = ReportFolder(folder)
    if (folder / MANIFEST).is_file():
        found.model = folder
        own = folder.resolve()  # given as ".", a folder has no name
        if own.name == "model" and _is_run(own.parent):
            found.run = own.parent
    elif _is_run(folder):
        found.run = folder
        if (folder / "model" / MANIFEST).is_file():
            found.model = folder / "model"
        if holds_evaluations(folder):
            found.evaluations = evaluations_in([folder])
    elif holds_evaluations(folder):
        found.evaluations = [folder]
    else:
        raise ValueError(
            f"{str(folder)!r} is neither a run (metrics/, model/), nor a model ({MANIFEST}), nor an evaluation "
            f"({DECODING}): give a folder of train.py or evaluate.py, such as runs/latest"
        )
    return found


def gather(
    folder: Path,
    results: Sequence[Path] = (),
    *,
    sentences: Sequence[tuple[str, str]] = (),
    pairs: Path | None = None,
    each: int = 3,
    thetas: Sequence[float] = THETAS,
    max_target_tokens: int | None = None,
    device: str = "cpu",
) -> Report:
    """The report of a run, a model or an evaluation.

    Args:
        folder: of one of them.
        results: folders of evaluations, or of sweeps of them.
        sentences: source and reference of sentences to show in the viewer before all others; sources are cleaned as
            the model's training cleaned its own.
        pairs: file of pairs to take examples from, where there is no evaluation.
        each: number of best, of worst and of random examples.
        thetas: thresholds of the viewer, rising.
        max_target_tokens: length at which a translation is stopped; None for that of the evaluation.

    Raises:
        ValueError: for folders that are none of these, or damaged, sentences without text, and `each` below 1.
    """
    if each < 1:
        raise ValueError(f"--examples {each}: each group needs at least 1 sentence; give 1 or more")
    found = report_folder(folder)
    for number, pair in enumerate(sentences, start=1):
        if not all(text.strip() for text in pair):
            raise ValueError(f"--sentence number {number}: {list(pair)} lacks a text; give a source and its reference")
    notes: list[str] = []
    given = {path.resolve(): path for path in [*found.evaluations, *results]}
    read = [read_evaluation(evaluation) for evaluation in given.values()]
    evaluated = [entry for _, hypotheses in read for entry in hypotheses]
    if not read:
        notes.append("No evaluation was given: run python evaluate.py, and add --results FOLDER.")
    model_folder = found.model or model_of(evaluated, notes)
    info = read_manifest(model_folder) if model_folder else None
    if model_folder is None and found.run is not None:
        notes.append("The run has no model yet: it has not finished. Its curves are those so far.")

    own = model_digest(model_folder, info) if model_folder and info else None
    point = point_for_examples(evaluated, own, notes)
    rule = point.point.options if point is not None and point.point.model == own else {}
    if max_target_tokens is None:
        max_target_tokens = rule.get("max_target_tokens", TARGET_TOKENS)
    loaded = None
    if model_folder is not None and info is not None and (info["system"] == "grid" or point is None):
        loaded = load_model_folder(model_folder, device)
    if loaded is not None and rule:  # the viewer decides as the evaluation did
        loaded = loaded.deciding(**rule_in(rule))
    chosen: list[Example] = []
    examples_of = ""
    if point is not None:
        chosen, examples_of = examples_of_point(point, evaluated, each)
    elif loaded is not None:
        chosen, examples_of = own_examples(loaded, pairs, each, notes, max_target_tokens)

    if loaded is not None:
        sentences = [(clean_source(source, loaded.info["data"]), reference) for source, reference in sentences]
    shown = shown_in_viewer(sentences, chosen)
    viewer, without = None, no_viewer(info, shown)
    if not without and loaded is not None:
        try:
            viewer = viewer_of(loaded, shown, thetas=thetas, max_target_tokens=max_target_tokens)
        except ValueError as error:  # a model that has diverged, say: all else can be shown
            without = f"{error}."
        if loaded.info["data"].get("context_tokens"):
            notes.append(
                "The viewer translates without the previous sentence, which this model was trained to look at."
            )
        unlike = {TOLD_LENGTH: "told the model each source's length", "quantize": "rounded the weights"}
        does = " and ".join(what for option, what in unlike.items() if rule.get(option))
        if viewer is not None and does:
            notes.append(f"The evaluation {does}; the viewer does not, and may translate otherwise.")
    curves = read_run_curves(found.run) if found.run else {}
    if found.run and not curves:
        notes.append("The run has logged no metrics to CSV: there are no curves.")
    if found.run is None:
        notes.append("No run was given: there are no curves of training.")
    languages = point.test if point is not None else info["data"] if info is not None else {}
    return Report(
        title=(found.run or found.folder).resolve().name,
        facts=facts(info) if info else [],
        notes=notes,
        viewer=viewer,
        no_viewer=without,
        results=[tables for tables, _ in read],
        curves=curves,
        examples=chosen,
        examples_of=examples_of,
        configuration=configuration(found.run or (found.folder if found.evaluations else None), info),
        source_language=languages.get("source_language", ""),
        target_language=languages.get("target_language", ""),
    )


def examples_of_point(point: Evaluated, evaluated: Sequence[Evaluated], each: int) -> tuple[list[Example], str]:
    """Examples of one system at one setting beside the others on its test set, and what they are."""
    alike = [entry for entry in evaluated if entry.test["digest"] == point.test["digest"]]

    def name(entry: Evaluated) -> str:
        folders = {other.folder for other in alike if other.name == entry.name}
        return f"{entry.name} ({run_of(entry.folder, folders)})" if len(folders) > 1 else entry.name

    systems = {name(entry): {record["id"]: record for record in entry.records} for entry in alike}
    chosen = examples(point.records, point.test["target_language"], each, systems=systems)
    return chosen, f"{name(point)} on {point.test['name']}, {point.test['sentences']} sentences."


def own_examples(
    loaded: ModelFolder, pairs: Path | None, each: int, notes: list[str], max_target_tokens: int
) -> tuple[list[Example], str]:
    """Examples translated now, where there is no evaluation, and what they are."""
    texts, what = held_out(loaded, pairs, notes)
    if not texts:
        return [], ""
    name, records = translated(loaded, texts, max_target_tokens)
    systems = {name: {record["id"]: record for record in records}}
    chosen = examples(records, loaded.info["data"]["target_language"], each, systems=systems)
    return chosen, f"{name} on {what}, {len(texts)} sentences, translated for this report."


def shown_in_viewer(sentences: Sequence[tuple[str, str]], chosen: Sequence[Example]) -> list[tuple[str, str, str]]:
    """Label, source and reference: the sentences given, then the examples."""
    by_rank = sorted(chosen, key=lambda example: example.group != "random")
    of_examples = [
        (f"{e.group}, number {e.record['id'] + 1}, chrF {e.chrf:.0f}", e.record["source"], e.record["references"][0])
        for e in by_rank
    ]
    return [*(("given", *pair) for pair in sentences), *of_examples]


def no_viewer(info: Mapping[str, Any] | None, shown: Sequence[tuple[str, str, str]]) -> str:
    """Why there is no viewer; empty where there can be one."""
    if info is None:
        return "it needs a model, and none was given or found."
    if info["system"] != "grid":
        return f"a {info['system']} model has no grid and no θ."
    if not shown:
        return "there is no sentence to show; give some with --sentence SOURCE REFERENCE or --pairs FILE."
    return ""


# --- where there is no evaluation --------------------------------------------------------------------------------


def held_out(loaded: ModelFolder, pairs: Path | None, notes: list[str]) -> tuple[list[Pair], str]:
    """Pairs to translate, and what they are: a file's, or those held out from the corpus the model was trained on.

    Raises:
        ValueError: for a file without pairs.
    """
    from ..corpus.prepared import corpus_settings, prepare_corpus
    from ..evaluation.pairs import pairs_for

    data = loaded.info["data"]
    if pairs is not None:
        return pairs_for(loaded, str(pairs))[:HELD_OUT], pairs.name
    try:
        splits = prepare_corpus(train=False, **corpus_settings(data) | {"tokenizer": loaded.tokenizer}).splits
    except (ValueError, OSError, TypeError) as error:  # moved, or a model folder of somebody else's corpus
        notes.append(f"No examples: the corpus of the model cannot be read ({error}). Give --pairs FILE.")
        return [], ""
    return splits["test"][:HELD_OUT], f"the held-out pairs of {corpus_name(data)}"


def translated(loaded: ModelFolder, pairs: Sequence[Pair], max_target_tokens: int) -> tuple[str, list[Record]]:
    """Name and records of a model's own translations."""
    setting: Setting = None
    name = system = loaded.info["system"]
    if system == "grid":
        setting = recorded_theta(loaded.info)
        name = f"grid θ={setting:g}"
    elif system == "waitk":
        setting = shown_delay(loaded.info["prefix"]["k"])
        name = f"wait-k k={setting}"
    running = build_system(loaded, system, setting, max_target_tokens=max_target_tokens, tokenizer=loaded.tokenizer)
    return name, translate_pairs(running, pairs, loaded.tokenizer, loaded.sources)


# --- the run -----------------------------------------------------------------------------------------------------


def facts(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a model is, in a few lines."""
    data, options = info["data"], info["grid" if info["system"] == "grid" else "prefix"]
    return [
        ("system", info["system"]),
        ("languages", f"{data['source_language']} → {data['target_language']}"),
        ("backbone", info["backbone"] or f"trained {'before' if info['trained_before'] else 'from random weights'}"),
        ("trained", "all weights" if info["adaptation"] == "full" else info["adaptation"]),
        *[(name.replace("_", " "), _plain(value)) for name, value in options.items()],
        *([("λ", f"{info['policy']['lam']:g}")] if info["policy"] else []),
        ("data", corpus_name(data)),
        ("licence of the data", data["licence"]),
        *[(name, f"{value:.4g}") for name, value in info["scores"].items()],
        ("written by", f"duplexmt {info['duplexmt_version']}"),
    ]


def configuration(folder: Path | None, info: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Settings by heading, as YAML: those a run or an evaluation was started with, and those its model has kept."""
    import yaml

    found = []
    for heading, name in (("Settings", "config"), ("Command line", "overrides")):
        path = folder / ".hydra" / f"{name}.yaml" if folder is not None else Path()
        if path.is_file() and (text := path.read_text(encoding="utf-8")).strip() != "[]":
            found.append((heading, text))
    if info is not None:
        kept = {name: value for name, value in info.items() if name not in ("files", "scores")}
        found.append(("Model", yaml.safe_dump(kept, allow_unicode=True, sort_keys=False)))
    return found


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_run(folder: Path) -> bool:
    return (
        any(folder.glob("metrics/*/metrics.csv"))
        or (folder / "model" / MANIFEST).is_file()
        or ((folder / ".hydra" / "config.yaml").is_file() and (folder / "corpus.json").is_file())
    )
