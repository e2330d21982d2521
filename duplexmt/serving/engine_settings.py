"""What server and engine both know of the engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineSettings:
    """What the engine is and how it steps.

    Attributes:
        model_folder, device, quantize: see `load_live_model`.
        threads: of torch; None for one a core.
        max_streams: sentences translated side by side.
        max_target_tokens, max_repeats: see `Engine`.
        max_sentence_tokens, cut: see `live_text`.
        text_seconds, park_after: see `LiveDriver`.
    """

    model_folder: str
    device: str
    quantize: str | None
    threads: int | None
    max_streams: int
    max_target_tokens: int
    max_repeats: int | None
    max_sentence_tokens: int | None
    cut: bool
    text_seconds: float
    park_after: float
