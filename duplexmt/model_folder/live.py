"""What of a model folder live translation needs: the engine, and texts cleaned and cut as its training did."""

from collections.abc import Callable
from typing import Any

from data_prep import clean_side
from data_prep.cleaning import simplify_as_read
from data_prep.live import settled_side
from data_prep.rules import invisible

from ..corpus.evaluation_files import simplifies_sources
from ..policy.knobs import recorded_theta
from ..streaming.engine import Engine
from ..streaming.live import longest_sentence
from ..streaming.live_text import LiveText
from ..streaming.prefix_engine import PrefixEngine
from ..streaming.prefix_systems import PrefixSystem
from ..streaming.systems import build_system
from .artifact import ModelFolder, choose_device, load_model_folder
from .box import chosen_model
from .manifest import check_is_grid


def load_live_model(
    model_folder: str | None,
    device: str,
    anchor: Any = None,
    any_anchor: bool = False,
    quantize: str | None = None,
    run_as: str | None = None,
) -> ModelFolder:
    """The model of a folder (None: `chosen_model`). ValueError for one that cannot translate live as it is run."""
    folder = chosen_model(model_folder)
    loaded = load_model_folder(folder, choose_device(device), anchor, any_anchor, quantize)
    if run_as in (None, "grid"):
        check_is_grid(folder, loaded.info)
    return loaded


def live_engine(
    loaded: ModelFolder, theta: float | None, max_target_tokens: int, max_repeats: int | None, *, max_streams: int
) -> Engine:
    """The engine of a grid; θ None is the model folder's own."""
    model: Any = loaded.model
    assert model.system == "grid"  # of `load_live_model`
    return Engine(
        model,
        loaded.tokens,
        theta=recorded_theta(loaded.info) if theta is None else theta,
        max_target_tokens=max_target_tokens,
        max_streams=max_streams,
        max_repeats=max_repeats,
        typical_source_length=loaded.typical_source_length,
        tokenizer=loaded.tokenizer,
    )


def prefix_engine(
    loaded: ModelFolder, system: str, setting: Any, adaptive: Any, max_target_tokens: int, max_repeats: int | None
) -> PrefixEngine:
    """The engine of another system, at a setting of its knob; see `build_system`."""
    running = build_system(
        loaded, system, setting, max_target_tokens=max_target_tokens, batch_size=1, adaptive=adaptive
    )
    assert isinstance(running, PrefixSystem)
    return PrefixEngine(
        running,
        max_repeats=max_repeats,
        typical_source_length=loaded.typical_source_length,
        tokenizer=loaded.tokenizer,
    )


def live_text(
    loaded: ModelFolder,
    engine: Engine | PrefixEngine,
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
        max_sentence_tokens=longest if max_sentence_tokens is None else max_sentence_tokens,
        cut=cut,
        warn=warn,
        invisible=lambda character: invisible(character, language),
    )
