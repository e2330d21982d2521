"""What server and engine both know of the engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineSettings:
    """What the engine is and how it steps."""

    model_folder: str  # this and the next two: see `load_live_model`
    device: str
    quantize: str | None
    threads: int | None  # of torch; None for one a core
    max_streams: int  # sentences translated side by side
    max_target_tokens: int  # see `Engine`
    max_repeats: int | None  # see `Engine`
    max_sentence_tokens: int | None  # see `live_text`
    cut: bool  # see `live_text`
    text_seconds: float  # see `LiveDriver`
    park_after: float  # see `LiveDriver`
