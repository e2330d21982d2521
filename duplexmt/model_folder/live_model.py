"""What of a model folder live translation needs: the engine, and texts cleaned and cut as its training did."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.cleaning import is_foreign, simplify_as_read
from data_prep.incremental import settled_side
from data_prep.rules import clean_side

from ..common.text import UNSPACED, invisible
from ..corpus.evaluation_files import simplifies_sources
from ..policy.decoding_options import recorded_theta
from ..streaming.engine import Engine
from ..streaming.live import longest_sentence
from ..streaming.live_text import LiveText
from ..streaming.systems import build_system
from .artifact import ModelFolder, choose_device, load_model_folder
from .hugging_face import model_at
from .manifest import check_runs_as


def load_live_model(
    model_folder: str | Path,
    device: str,
    quantize: str | None = None,
    run_as: str | None = None,
) -> ModelFolder:
    """The model of a folder, or of the hub. ValueError for one that cannot translate live as it is run."""
    folder = model_at(model_folder)
    loaded = load_model_folder(folder, choose_device(device), quantize)
    check_runs_as(folder, loaded.info, run_as)
    return loaded


def live_engine(
    loaded: ModelFolder,
    max_target_tokens: int,
    max_repeats: int | None,
    *,
    max_streams: int,
    run_as: str | None = None,
    setting: Any = None,
    adaptive: Any = None,
) -> Engine:
    """The engine of a model folder: of a grid with the folder's own θ, or of another system at a setting. ValueError
    for what `build_system` refuses."""
    name = run_as or "grid"
    return build_system(
        loaded,
        name,
        recorded_theta(loaded.info) if name == "grid" else setting,
        adaptive=adaptive,
        batch_size=max_streams,
        max_target_tokens=max_target_tokens,
        max_repeats=max_repeats,
        tokenizer=loaded.tokenizer,
    )


def live_text(
    loaded: ModelFolder,
    engine: Engine,
    max_sentence_tokens: int | None,
    cut: bool,
    warn: Callable[[str], None] = lambda message: None,
) -> LiveText:
    """A text as the model's training cleaned and cut its sources; no sentence is longer than those were, or than
    `max_sentence_tokens`."""
    data = loaded.info["data"]
    language, simplified = data["source_language"], simplifies_sources(data)

    def as_trained(clean: Callable[[str, str], str]) -> Callable[[str], str]:
        return lambda text: simplify_as_read(clean(text, language)) if simplified else clean(text, language)

    room = longest_sentence(engine)
    longest = min(data["max_tokens"] or room, room)
    return LiveText(
        loaded.settled_tokens,
        as_trained(clean_side),
        as_trained(settled_side),
        language=language,
        max_sentence_tokens=longest if max_sentence_tokens is None else max_sentence_tokens,
        cut=cut,
        warn=warn,
        invisible=lambda character: invisible(character, language),
        foreign=lambda text: is_foreign(text, language),
        between="" if data["target_language"] in UNSPACED else " ",
    )
