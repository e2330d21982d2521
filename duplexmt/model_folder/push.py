"""Give a model folder to others on the Hugging Face hub, as one commit.

    duplexmt-push models/zh-en owner/name       # then, anywhere: duplexmt-translate model_folder=owner/name

The token is that of `hf auth login`, or HF_TOKEN. Card, weights, tokenizer and manifest go; paths of this machine do
not.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HTTPError  # the HTTP library's, which has other names in other versions
from huggingface_hub.repocard import REGEX_YAML_BLOCK  # how the hub finds a card's head
from huggingface_hub.utils import disable_progress_bars

from .. import __version__
from ..common.command import command_parser, one_line_errors
from .hugging_face import KINDS, NAME
from .manifest import MANIFEST, check_content, manifest_text, read_manifest
from .pack import for_others

PERMISSIVE = re.compile(
    r"\b(CC0|CC[ -]BY|MIT|Apache|BSD|ISC|Unlicense|PDDL|ODC[ -]BY|public domain)\b", flags=re.IGNORECASE
)
LIMITED = re.compile(
    r"\b(NC|ND|(non?|not)[- ]?(for[- ])?(commercial|profit)|no[- ]?deriv\w*|research|academics?|evaluation|proprietary"
    r"|[AL]?GPL\S*|GFDL|unknown)\b",
    flags=re.IGNORECASE,
)


def push(folder: Path, name: str, any_licence: bool = False) -> str:
    """Upload a model folder; what an earlier model left at that name goes. Returns the address of the commit.

    Args:
        name: `owner/name`; it is made where there is none.
        any_licence: whether to do so whatever the licences of its data say.

    Raises:
        ValueError: for a folder that is damaged, a name that is none, data that not everybody may use, and a base that
            nobody else has.
        OSError: what the hub refuses.
    """
    from .artifact import model_card

    if not NAME.fullmatch(name):
        raise ValueError(f"{name}: must be owner/name, such as alice/zh-en")
    info = read_manifest(folder)
    check_content(folder, info)
    card = folder / "README.md"
    written = card.read_text(encoding="utf-8") if card.is_file() else model_card(info)
    if not any_licence:
        check_licences(folder, info, written)
    if (base := info["backbone"]) is not None and not NAME.fullmatch(base):
        raise ValueError(f"{folder}: its LoRA is over {base}, which others do not have; merge it first: {PACK}")
    told = info | {"data": for_others(info["data"])}
    told["trained_before"] = [for_others(data) for data in info["trained_before"]]
    contents: dict[str, str | bytes] = {file: str(folder / file) for file in info["files"]}
    contents |= {"README.md": written.encode(), MANIFEST: manifest_text(told).encode()}
    disable_progress_bars()
    api = HfApi(library_name="duplexmt", library_version=__version__)
    try:
        api.create_repo(name, exist_ok=True)
        stale = [file for file in api.list_repo_files(name) if file.endswith(KINDS) and file not in contents]
        changes: list[Any] = [CommitOperationAdd(file, content) for file, content in contents.items()]
        changes += [CommitOperationDelete(file) for file in stale]
        return api.create_commit(name, changes, commit_message=f"A model folder of duplexmt {__version__}").commit_url
    except HTTPError as error:
        if isinstance(error, OSError):  # an answer
            raise
        raise OSError(f"{api.endpoint} was not reached ({error}): look at the network, or at HF_ENDPOINT") from error


PACK = "python -m duplexmt.model_folder.pack FOLDER OTHER"


def check_licences(folder: Path, info: Mapping[str, Any], card: str) -> None:
    """Refuse (ValueError) data, of this training or the base's, whose licence does not say that everybody may use it;
    and a card that says so of the model."""
    from .artifact import corpus_name

    found = [(corpus_name(data), str(data.get("licence"))) for data in [*info["trained_before"], info["data"]]]
    if front := REGEX_YAML_BLOCK.match(card.removeprefix("\ufeff")):
        try:
            named = yaml.safe_load(front[2])
        except yaml.YAMLError:
            named = None
        if not isinstance(named, dict):
            raise ValueError(f"{folder}/README.md: between its first lines --- must be YAML, name: value; correct it")
        licence = named.get("license_name") if named.get("license") == "other" else named.get("license")
        found.append(("README.md", str(licence)))
    for what, licence in found:
        if not PERMISSIVE.search(licence) or LIMITED.search(licence):
            raise ValueError(
                f"{folder}: {what} has the licence {licence!r}, which does not say that everybody may use it; train on "
                "other data, or, if you may publish the model all the same, add --any-licence"
            )


def main() -> None:
    """Push."""
    parser = command_parser(__doc__, "duplexmt-push")
    parser.add_argument("folder", type=Path, help="a model folder, such as runs/latest/model")
    parser.add_argument("name", help="owner/name on the hub")
    parser.add_argument("--any-licence", action="store_true", help="whatever the licences of its data say")
    arguments = parser.parse_args()
    with one_line_errors():
        print(push(arguments.folder, arguments.name, arguments.any_licence))


if __name__ == "__main__":
    main()
