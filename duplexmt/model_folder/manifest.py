"""The manifest of a model folder, `duplexmt.json`: read, checked against the files, written. It needs no PyTorch."""

import hashlib
import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..common.files import write_whole
from ..policy.decoding_options import a_model, can_run, trained_by

MANIFEST = "duplexmt.json"
FORMAT = 1
NEEDED = "system", "adaptation", "tokens", "data", "policy", "digests"


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a model folder, after checking that the folder is whole.

    Raises:
        ValueError: naming what is missing or damaged.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        why = f"has no {MANIFEST}" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
        hint = " (its training was interrupted while it was being written)" if partial_folder(folder).is_dir() else ""
        way_out = (
            "give the folder 'model' of a finished run, such as runs/latest/model after python train.py, or "
            "models/zh-en, which is in the repository"
        )
        if (folder / "model" / MANIFEST).is_file():
            way_out = f"give {folder / 'model'}, which is the model of that run"
        raise ValueError(f"model_folder={str(folder)!r} {why}{hint}: {way_out}")
    try:
        info = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, files = int(info["format"]), dict(info["files"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise broken(folder, f": {MANIFEST} is damaged ({error!r})") from error
    if version > FORMAT:
        raise ValueError(
            f"model_folder={str(folder)!r} has format {version}, this version reads up to {FORMAT}: upgrade"
        )
    if info.pop("checksum", None) != checksum(info):
        raise broken(folder, f": {MANIFEST} is damaged, or was edited (its checksum is another)")
    needed = *NEEDED, "grid" if info.get("system") == "grid" else "prefix"
    if lacks := [name for name in needed if name not in info]:
        raise broken(folder, f": {MANIFEST} has no {', '.join(lacks)}")
    for name, size in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts or name not in info["digests"]:
            raise broken(folder, f": {MANIFEST} names {name}, which is none of its files")
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise broken(folder, f" is incomplete: {name} {state}")
    return info


def check_runs_as(folder: str | Path, info: dict[str, Any], name: str | None) -> None:
    """Refuse (ValueError) a model folder that cannot be run as the system of a name (None: a grid), by its manifest."""
    system, k = info["system"], info.get("prefix", {}).get("k")
    if name is None and system != "grid":
        raise ValueError(
            f"model_folder={folder} holds {a_model(system)}, no grid: say what to run it as, such as run_as=waitk "
            "setting=3"
        )
    if name is not None and not can_run(name, system, k):
        raise ValueError(
            f"run_as={name}: model_folder={folder} holds {a_model(system)}, which cannot be run as that; give one "
            f"trained by python train.py {trained_by(name)}"
        )


def trained_on(backbone: str | None) -> list[dict[str, Any]]:
    """Settings of the data a backbone was trained on, its base's first, where it is a model folder that says so."""
    if not os.path.isfile(os.path.join(backbone or "", MANIFEST)):
        return []
    info = read_manifest(str(backbone))
    return [*info.get("trained_before", []), info["data"]]


def name_of(folder: str | Path, info: Mapping[str, Any]) -> str:
    """What a model is called: the name it was trained under (`train.py name=…`), of an older folder that of its run."""
    path = Path(folder).absolute()
    return info.get("name") or (path.parent if path.name == "model" else path).name


def found_out(info: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest has from after the training, of these weights: which θ, which heads, which samples."""
    return {name: info[name] for name in ("operating_point", "alignment_heads", "samples") if name in info}


def write_manifest(folder: str | Path, info: dict[str, Any]) -> None:
    """Write a manifest, with a checksum of itself: all of the old one or all of the new one is there at any time."""
    write_whole(Path(folder) / MANIFEST, manifest_text(info))


def manifest_text(info: Mapping[str, Any]) -> str:
    """A manifest as its file has it."""
    info = {name: value for name, value in info.items() if name != "checksum"}
    return json.dumps(info | {"checksum": checksum(info)}, ensure_ascii=False, indent=2)


def checksum(info: Mapping[str, Any]) -> str:
    """Of a manifest's content."""
    return blake2b(json.dumps(info, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Fingerprint of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()


def check_content(folder: Path, info: Mapping[str, Any]) -> None:
    """Read all files of a model folder, and compare them with what was saved.

    Raises:
        ValueError: naming one that has changed, or weights that were not saved and might be loaded in their place.
    """
    for path in sorted(folder.rglob("*.safetensors*")):
        if (name := str(path.relative_to(folder))) not in info["digests"]:
            raise broken(folder, f": {name} is not part of the model that was saved there; remove it")
    for name, expected in info["digests"].items():
        if file_digest(folder / name) != expected:
            raise broken(folder, f" is damaged: {name} does not hold what was saved")


def broken(folder: Path, what: str) -> ValueError:
    return ValueError(f"model_folder={str(folder)!r}{what}; copy or save the model again")


def partial_folder(folder: Path) -> Path:
    return folder.absolute().with_name(f"{folder.absolute().name}.partial")
