"""Model folders on the Hugging Face hub: `owner/name` or `owner/name@revision` in place of a folder. No PyTorch.

Only what a model folder is made of is fetched: safetensors and texts; no code of a repository is run. What was fetched
is found again without network (`HF_HUB_OFFLINE=1`).
"""

import json
import logging
import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from .manifest import MANIFEST, read_manifest

log = logging.getLogger(__name__)
NAME = re.compile(r"([A-Za-z0-9][\w.-]*)/[A-Za-z0-9][\w.-]*")
KINDS = (".safetensors", ".json", ".txt", ".jinja", ".model", ".md")  # of files: none of them holds code
OR_ELSE = "give the folder 'model' of a finished run, such as runs/latest/model, or owner/name of a model on the hub"


def on_hub(model_folder: str | Path) -> tuple[str, str | None] | None:
    """Name and revision of what is given as `owner/name` or `owner/name@revision` (branch, tag or commit); None for a
    folder, as which a name without revision is taken whose owner is a folder here, but no folder of that name."""
    name, at, revision = str(model_folder).partition("@")
    named = NAME.fullmatch(name) if isinstance(model_folder, str) and (revision or not at) else None
    if named is None or (not at and not Path(model_folder).exists() and Path(named[1]).is_dir()):
        return None
    return name, revision or None


def matching(names: Iterable[str]) -> list[str]:
    """Names of model folders, patterns such as `runs/sweep/*/model` filled in.

    Raises:
        ValueError: for a pattern that no folder fits.
    """
    found: list[str] = []
    for name in names:
        pattern = any(character in name for character in "*?[") and not Path(name).is_dir()
        matches = sorted(glob(name)) if pattern else [name]
        if not matches:
            raise ValueError(f"model_folder={name}: no folder fits this pattern")
        found += matches
    return found


def check_here(names: Iterable[str]) -> None:
    """Refuse (ValueError) model folders of this machine that are none, before anything is loaded."""
    for name in matching(names):
        if Path(name).exists() or on_hub(name) is None:
            read_manifest(name)


def model_at(model_folder: str | Path) -> Path:
    """Where a model folder is on this machine: what is `on_hub`, and no folder here, is fetched first.

    Raises:
        ValueError: for a name that is both, and one that the hub does not have or that cannot be asked for now.
    """
    folder, named = Path(model_folder), on_hub(model_folder)
    if named is None:
        return folder
    name, revision = named
    if not folder.exists():
        return _fetched(name, revision)
    from huggingface_hub import try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, MANIFEST, revision=revision), str):
        raise ValueError(
            f"model_folder={model_folder} is both: a folder here, and a model of the hub that was fetched before; give "
            f"./{model_folder} for the folder, or {name}@{revision or 'main'} from another folder for the hub's"
        )
    return folder


def writable(model_folder: str | Path) -> Path:
    """Where a model folder is that something is to be noted in.

    Raises:
        ValueError: for one of the hub, whose copy here is no place for notes; and what `model_at` refuses.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = model_at(model_folder)
    if folder.absolute().is_relative_to(Path(HF_HUB_CACHE).absolute()):
        raise ValueError(
            f"{model_folder}: what is found is noted in the model folder, and this one is the hub's copy: make one of "
            f"your own first (python -m duplexmt.model_folder.pack {model_folder} FOLDER), and give that folder"
        )
    return folder


def base_at(name: str) -> str:
    """What a training begins with: a folder; a name Hugging Face's own loaders know; or, where the hub has a model
    folder of that name, or a revision is given, the folder it was fetched into.

    Raises:
        ValueError: what `model_at` refuses.
    """
    if "@" not in name and NAME.fullmatch(name) and not Path(name).exists():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

        try:
            hf_hub_download(name, MANIFEST)
        except (EntryNotFoundError, HfHubHTTPError):  # none there, or not to be found out
            return name
    return str(model_at(name)) if "@" in name or NAME.fullmatch(name) else name


def _fetched(name: str, revision: str | None) -> Path:
    """The folder in Hugging Face's cache that a model was fetched into, now or before."""
    from huggingface_hub import constants, hf_hub_download, snapshot_download
    from huggingface_hub.errors import (
        LocalEntryNotFoundError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    asked = f"model_folder={name}" + (f"@{revision}" if revision else "")
    disable_progress_bars()
    try:
        manifest = Path(hf_hub_download(name, MANIFEST, revision=revision))
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        if odd := [file for file in files if not file.endswith(KINDS)]:
            raise ValueError(f"{asked}: holds {odd[0]}, and only {', '.join(KINDS)} are fetched from the hub")
        log.info("%s: fetching %d files, %.1f MB", asked, len(files), sum(files.values()) / 1e6)
        wanted = [*files, MANIFEST, "README.md"]
        return Path(snapshot_download(name, revision=manifest.parent.name, allow_patterns=wanted))
    except RemoteEntryNotFoundError as error:
        raise ValueError(f"{asked} is on the hub, but no model of duplexmt's (no {MANIFEST}): {OR_ELSE}") from error
    except RevisionNotFoundError as error:
        raise ValueError(
            f"{asked}: the hub has {name}, but no revision {revision}: give a branch, tag or commit"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"{asked} is no folder here, and {constants.ENDPOINT} has no model of that name, or not for you (hf auth "
            f"login): {OR_ELSE}"
        ) from error
    except LocalEntryNotFoundError as error:
        why = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else f"{constants.ENDPOINT} cannot be reached"
        raise ValueError(
            f"{asked} is no folder here, was not fetched from the hub before, and {why}: go online, or {OR_ELSE}"
        ) from error
    except (OSError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{asked}: what the hub has could not be fetched ({error}): try again, or {OR_ELSE}"
        ) from error
