"""The points of an evaluation: which model folders are run as which systems at which settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..baselines.mask import own_delays
from ..model_folder.artifact import ModelFolder, read_manifest
from ..policy.knobs import recorded_theta
from ..streaming.systems import build_system
from .decoding import DECODING, Decoding, Point, Setting, TestSet, model_digest
from .translation import tokenise, translate


def matching_folders(names: Iterable[str]) -> list[Path]:
    """The model folders named, patterns such as `runs/sweep/*/model` filled in.

    Raises:
        ValueError: for a pattern that no folder fits.
    """
    found: list[Path] = []
    for name in names:
        pattern = any(character in name for character in "*?[") and not Path(name).is_dir()
        matches = sorted(glob(name)) if pattern else [name]
        if not matches:
            raise ValueError(f"model_folder={name}: no folder fits this pattern")
        found += [Path(match) for match in matches]
    return found


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
    loaded: ModelFolder, thetas: Sequence[float | str], ks: Sequence[int], agreements: Sequence[int]
) -> list[tuple[str, Setting]]:
    """The systems and settings to evaluate a model folder with.

    Args:
        loaded: the model folder.
        thetas: of the grid; `recorded` is the model folder's own.
        ks: of wait-k, on a model trained so or offline; none for those it was trained with.
        agreements: of local agreement, on an offline model.
    """
    held = loaded.info["system"]
    if held == "grid":
        recorded = recorded_theta(loaded.info)
        return [("grid", recorded if theta == "recorded" else float(theta)) for theta in thetas]
    if held == "waitk":
        trained: Any = loaded.model.k
        return [("waitk", k) for k in ks or own_delays(trained)]
    return [("offline", None), *(("waitk", k) for k in ks), *(("local_agreement", n) for n in agreements)]


def check_languages(manifests: Mapping[Path, Mapping[str, Any]]) -> None:
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


def check_knobs(ks: Sequence[int], agreements: Sequence[int], held: Sequence[str]) -> None:
    """Refuse a setting of a system that no model, trained as `held` says, can be run as."""
    for name, given, wanted in (("k", ks, ("waitk", "offline")), ("agreement", agreements, ("offline",))):
        if given and not set(held) & set(wanted):
            raise ValueError(
                f"{name}={given}: needs a model folder trained as {' or '.join(wanted)}, got {', '.join(held)}: "
                f"add one to model_folder=[…], or leave {name} out"
            )


def decode_point(
    decoding: Decoding,
    test: TestSet,
    loaded: ModelFolder,
    folder: Path,
    system: str,
    setting: Setting,
    *,
    max_target_tokens: int,
    batch_size: int,
) -> Point:
    """Translate what is left of one system at one setting.

    Args:
        decoding: where hypotheses are kept.
        test: its test set.
        loaded, folder: the model, and where it is.
        system, setting: see `points_of`.
        max_target_tokens: at which a translation is cut off.
        batch_size: streams side by side.

    Raises:
        ValueError: where hypotheses of it were made by another model, or with other settings.
    """
    quantized = [loaded.info["quantize"]] if "quantize" in loaded.info else []
    point = Point.of(system, setting, folder, loaded.info, [test.digest, max_target_tokens, *quantized])
    running = build_system(loaded, system, setting, max_target_tokens=max_target_tokens, batch_size=batch_size)
    decoding.add(point)
    missing = decoding.missing(point)
    sources, references, befores = test.sentences(missing)
    sentences = tokenise(sources, references, loaded.tokenizer, missing, loaded.sources, befores)
    if loaded.context_separator is None:  # trained without the sentence before
        sentences = [replace(sentence, context=[]) for sentence in sentences]
    records = decoding.decode(point, translate(running, sentences, loaded.tokenizer))
    label = system if setting is None else f"{system} {setting:g}"
    for _ in tqdm(records, desc=label, total=len(test.sources), initial=len(test.sources) - len(missing)):
        pass
    return point
