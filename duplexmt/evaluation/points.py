"""The points of an evaluation: which model folders are run as which systems at which settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..data.tokenizer import SourceTokens
from ..decoder.schedules import own_delays
from ..model_folder.artifact import ModelFolder, load_without_weights
from ..model_folder.hugging_face import matching, model_at
from ..model_folder.manifest import name_of, read_manifest
from ..policy.decoding_options import TARGET_TOKENS, Adaptive, can_run, recorded_theta, trained_by
from ..streaming.lengths import check_lengths
from ..streaming.systems import asks_length, build_system
from .decoding import (
    DECODING,
    TOLD_LENGTH,
    TRAINED_AS,
    TRAINED_K,
    Decoding,
    Point,
    Setting,
    TestSet,
    digest,
    digest_by,
    model_digest,
)
from .translation import tokenise, translate


def matching_folders(names: Iterable[str]) -> list[Path]:
    """The model folders named, patterns such as `runs/sweep/*/model` filled in, those of the hub fetched.

    Raises:
        ValueError: what `matching` and `model_at` refuse.
    """
    return [model_at(name) for name in matching(names)]


def begun_points(folder: Path, asked: Sequence[Path]) -> dict[Path, list[tuple[str, Setting]]]:
    """Systems and settings by model folder whose decoding was begun, perhaps with other settings than today's; where
    such a model folder is gone, under the one asked for that holds the same model."""
    begun: dict[Path, list[tuple[str, Setting]]] = {}
    for point in Decoding.read(folder).begun() if (folder / DECODING).is_file() else []:
        home = Path(point.model_folder)
        if not home.is_dir():
            moved = (path for path in asked if model_digest(path, read_manifest(path)) == point.model)
            home = next(moved, home)
        begun.setdefault(home, []).append((point.system, point.setting))
    return begun


def points_of(
    loaded: ModelFolder,
    thetas: Sequence[float | str],
    ks: Sequence[int],
    agreements: Sequence[int],
    rivals: Mapping[str, Sequence[float]],
) -> list[tuple[str, Setting]]:
    """The systems and settings to evaluate a model folder with.

    Args:
        thetas: of the grid; `recorded` is the model folder's own.
        ks: of wait-k, on a model trained so or offline; none for those it was trained with.
        agreements: of local agreement, on an offline or multi-path model.
        rivals: of the adaptive policies, by system, on models that can be run as them.
    """
    held = loaded.info["system"]
    if held == "grid":
        recorded = recorded_theta(loaded.info)
        return [("grid", recorded if theta == "recorded" else float(theta)) for theta in thetas]
    if held == "waitk":
        trained: Any = loaded.model.k
        own = [("waitk", k) for k in ks or own_delays(trained)]
    else:
        own = [("offline", None), *(("waitk", k) for k in ks)]
    k, others = loaded.info["prefix"]["k"], {"local_agreement": agreements, **rivals}
    return [*own, *((name, value) for name, values in others.items() if can_run(name, held, k) for value in values)]


def _languages(data: Mapping[str, Any]) -> tuple[str, str]:
    return data["source_language"], data["target_language"]


def check_languages(manifests: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse models of different languages, before any of them is run."""
    pairs = {folder: _languages(info["data"]) for folder, info in manifests.items()}
    first = next(iter(pairs), None)
    for folder, own in pairs.items():
        if first is not None and own != pairs[first]:
            raise ValueError(
                f"model_folder={folder} translates {' → '.join(own)}, model_folder={first} "
                f"{' → '.join(pairs[first])}: systems are compared on one test set"
            )


def check_test_languages(folder: Path, trained: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse test pairs of other languages than a model's: the data settings asked for against those it records."""
    own, others = _languages(trained), _languages(asked)
    if own != others:
        raise ValueError(
            f"model_folder={folder} translates {' → '.join(own)}, the test set is {' → '.join(others)}: give pairs of "
            f"its languages, with data.source_language={own[0]} data.target_language={own[1]} and their columns "
            "(data.source_field, data.target_field), or leave the data settings out to test as it was trained"
        )


def check_sources(
    manifests: Mapping[Path, Mapping[str, Any]], test: TestSet, max_target_tokens: int, frames: Sequence[int]
) -> None:
    """Refuse test sentences that are longer than one of the models takes, and an f of AlignAtt (`frames`) that is
    longer than every source of a model run as it, before any of them is run."""
    for folder, info in manifests.items():
        tokenizer, tokens, config, window = load_without_weights(folder, info)
        ids = SourceTokens(tokenizer, info["data"].get("segmentation", "tokens")).ids(test.sources)
        try:
            check_lengths(ids, tokens, config, window, max_target_tokens)
            if can_run("alignatt", info["system"], info.get("prefix", {}).get("k")):
                check_frames(frames, max(map(len, ids)), test)
        except ValueError as error:
            raise ValueError(f"model_folder={folder}: {error}") from error


def check_knobs(knobs: Mapping[str, Sequence[Any]], manifests: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a knob of a system that none of the models, told by their manifests, can be run as."""
    held = [(info["system"], info.get("prefix", {}).get("k")) for info in manifests]
    for knob, given in knobs.items():
        name = {"k": "waitk", "agreement": "local_agreement"}.get(knob, knob)
        if given and not any(can_run(name, system, k) for system, k in held):
            got = ", ".join(system if k is None else f"{system} with k={k}" for system, k in held)
            raise ValueError(
                f"{knob}={given}: needs a model folder trained by {trained_by(name)}, got {got}: "
                f"add one to model_folder=[…], or leave {knob} out"
            )


def check_told(told_length: bool, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to tell lengths where no model, told by its manifest, has a use for them."""
    anchors = [(info.get("grid") or info["prefix"])["anchor"] for info in manifests]
    if told_length and "source_length" not in anchors:
        raise ValueError(
            f"told_length=true: makes no difference to models with anchor {', '.join(map(str, dict.fromkeys(anchors)))}"
            ", only to those trained with model.anchor=source_length: leave it out"
        )


def check_frames(frames: Sequence[int], longest: int, test: TestSet) -> None:
    """Refuse an f of AlignAtt beyond the longest source: nothing would be written before the source ends."""
    for f in frames:
        if f > longest:
            raise ValueError(
                f"alignatt={f}: f is more than the {longest} tokens of the longest source of {test.name}, so nothing "
                f"would be written before a source has ended; give at most {longest}, or leave it to the offline system"
            )


def rule_of(system: str, adaptive: Adaptive | None, loaded: ModelFolder) -> dict[str, Any]:
    """What a policy's decisions depend on beside model and knob, by name; nothing for most systems."""
    rule = loaded.rule.unusual()
    if loaded.model.system == "grid" or adaptive is None:
        return rule
    if system == "alignatt":
        return {"heads": loaded.info.get("alignment_heads"), **rule}
    names = {"confidence": ("k_min", "k_max"), "lsg": ("k_min", "k_max", "alpha", "divergence")}.get(system, ())
    return {name: getattr(adaptive, name) for name in names} | rule


def point_of(
    test: TestSet,
    loaded: ModelFolder,
    folder: Path,
    system: str,
    setting: Setting,
    *,
    max_target_tokens: int,
    adaptive: Adaptive | None,
    told_length: bool = False,
) -> Point:
    """A model run as one system at one setting.

    Args:
        system, setting: see `points_of`.
        told_length: whether it is told its sources' lengths, if it asks them.
    """
    info, rule = loaded.info, rule_of(system, adaptive, loaded)
    model: Any = loaded.model
    what: list[Any] = [test.digest, max_target_tokens]  # on which hypotheses depend, beside model, setting and rule
    options = {TRAINED_AS: info["system"]}
    if (k := info.get("prefix", {}).get("k")) is not None:
        options[TRAINED_K] = k
    if "quantize" in info:  # not of the folder: how it was loaded
        options["quantize"] = info["quantize"]
        what.append(info["quantize"])
    options |= rule
    if "heads" in options:  # not which: those of each training are others
        options["heads"] = "all" if options["heads"] is None else "found"
    if max_target_tokens != TARGET_TOKENS:  # another guard is named where points differ in it
        options["max_target_tokens"] = max_target_tokens
    if asks_length(system, model.anchor, model.k):
        options[TOLD_LENGTH] = told_length
        what += [] if told_length else ["untold"]
    fingerprint, seed = digest_by(info["digests"], info), info["training"].get("seed")
    key = digest([fingerprint, system, setting, [*what, rule] if rule else what])
    return Point(system, setting, str(folder.resolve()), fingerprint, options, key, name_of(folder, info), seed)


def decode_point(
    decoding: Decoding, test: TestSet, loaded: ModelFolder, point: Point, *, batch_size: int, **how: Any
) -> None:
    """Translate what is left of a point, by so many streams side by side; `how` is what `point_of` had.

    Raises:
        ValueError: where hypotheses of it were made by another model, or with other settings.
    """
    system, setting = point.system, point.setting
    running = build_system(loaded, system, setting, batch_size=batch_size, tokenizer=loaded.tokenizer, **how)
    decoding.add(point)
    missing = decoding.missing(point)
    sources, references, befores = test.sentences(missing)
    sentences = tokenise(
        sources, references, loaded.tokenizer, missing, loaded.sources, befores, copy_tokens=loaded.tokens.copy_tokens
    )
    if loaded.context_separator is None:  # trained without the sentence before
        sentences = [replace(sentence, context=[]) for sentence in sentences]
    records = decoding.decode(point, translate(running, sentences, loaded.tokenizer))
    label = system if setting is None else f"{system} {setting:g}"
    for _ in tqdm(records, desc=label, total=len(test.sources), initial=len(test.sources) - len(missing)):
        pass
