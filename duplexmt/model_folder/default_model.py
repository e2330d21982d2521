"""Which model runs where none is named: the latest run's, else the one that comes with the repository."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..corpus.repository import located
from .hugging_face import model_at
from .manifest import MANIFEST

LATEST = Path("runs/latest/model")
IN_THE_BOX = "repository:models/zh-en"


def chosen_model(model_folder: str | Path | None, box: Path | None = None) -> Path:
    """The model folder to load; where none is given, a line on standard error says which it is.

    Args:
        model_folder: as given, a folder or a name on the hub; or None for the latest run of the present folder, else
            the model in the box.
        box: where that lies; None for `models/zh-en` of the repository.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: what `model_at` refuses.
    """
    if model_folder is not None:
        return model_at(model_folder)
    chosen, what = LATEST, "the latest run"
    if not (chosen / MANIFEST).is_file():
        chosen, what = box or located(IN_THE_BOX), "the model in the box, as there is no run here"
        if not (chosen / MANIFEST).is_file():
            raise FileNotFoundError(
                f"model_folder=null: there is no model in {LATEST} and none in {os.path.relpath(chosen)}: train one "
                "(python train.py), or give model_folder=FOLDER"
            )
    print(f"model: {os.path.relpath(chosen)} ({what})", file=sys.stderr, flush=True)
    return chosen


def chosen_models(model_folders: Sequence[str | Path | None], box: Path | None = None) -> list[Path]:
    """The folders of several models, as `chosen_model` has each; where none is named and the box has to do, all of its
    models, the first one first."""
    chosen = [chosen_model(one, box) for one in model_folders]
    if [*model_folders] == [None] and chosen != [LATEST]:
        chosen += sorted(one.parent for one in chosen[0].parent.glob(f"*/{MANIFEST}") if one.parent != chosen[0])
    return chosen
