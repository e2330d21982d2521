"""Settings of the server, which the schema of conf/serve.yaml knows too: of its engine, and what a client may do."""

from dataclasses import dataclass
from typing import Any


@dataclass
class EngineOptions:
    """How the engine loads a model and steps."""

    device: str  # auto, cpu, cuda, …
    quantize: str | None  # int8, on a CPU, or bfloat16; null: weights as they are
    threads: int | None  # of torch; null: one a core
    max_streams: int  # sentences translated side by side
    max_target_tokens: int  # at which a translation is stopped
    max_repeats: int | None  # how often in a row the same tokens may be written; null: as often as it likes
    max_sentence_tokens: int | None  # of the source, at which it is cut; null: as the model was trained
    cut: bool  # whether sentences end at full stops too, not at line ends only
    text_seconds: float  # of each step, for cutting text into tokens
    park_after: float  # seconds without text after which a stream is lent to a sentence that waits


@dataclass
class EngineSettings(EngineOptions):
    """The same of the models in folders, and what they are run as: see `build_system`."""

    model_folders: list[str]
    run_as: str | None = None
    setting: Any = None
    adaptive: Any = None


@dataclass
class Limits:
    """Of the protocol (docs/reference/protocol.md); the values are in conf/serve.yaml."""

    frame_bytes: int  # of one message
    message_characters: int  # of a message's text
    characters_per_second: float  # of a session's text
    characters_burst: int  # that may come at once, where none came before
    messages_per_second: float  # of a connection
    messages_burst: int  # likewise
    unsent_bytes: int  # that may wait for a slow reader
    unsent_events: int  # likewise
    kept_bytes: int  # that a session keeps for one who comes back
    kept_events: int  # likewise
    request_seconds: float  # until a connection has asked for something
    start_seconds: float  # until the first message
    idle_seconds: float  # without any message
    grace_seconds: float  # that a session waits for its client to come back
    session_seconds: float  # that a session may last
    sessions: int  # at a time
    sessions_per_address: int  # of one address (of IPv6: 64 bits of it) that is not this machine's own
    connections: int  # at a time, of HTTP and WebSocket
    connections_per_address: int  # likewise
    active_seconds: float  # since its last text or event: a session counts as at work; at most engine.max_streams are
    drain_seconds: float  # to end sentences in when the server stops
    retry_seconds: float  # after which who was refused may try again

    def published(self) -> dict[str, float]:
        """What a client is told of them."""
        names = (
            "frame_bytes", "message_characters", "characters_per_second", "characters_burst", "messages_per_second",
            "messages_burst", "idle_seconds", "grace_seconds",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
