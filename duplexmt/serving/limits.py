"""What a client may do, and how much of it."""

from dataclasses import dataclass
from time import monotonic

from .protocol import Close


@dataclass(frozen=True)
class Limits:
    """Of the protocol (docs/protocol.md); the values are in conf/serve.yaml.

    Attributes:
        frame_bytes, message_characters: of one message.
        characters_per_second, characters_burst: of a session's text.
        messages_per_second, messages_burst: of a connection.
        unsent_bytes, unsent_events: that may wait for a slow reader.
        kept_bytes, kept_events: that a session keeps for one who comes back.
        start_seconds: until the first message.
        idle_seconds: without any message.
        grace_seconds: that a session waits for its client to come back.
        session_seconds: that a session may last.
        sessions: at a time.
        sessions_per_address: of one address that is not this machine's own.
        active_seconds: after its last text a session counts as active, of which there may be as many as streams.
        drain_seconds: to end sentences in when the server stops.
        retry_seconds: after which who was refused may try again.
    """

    frame_bytes: int
    message_characters: int
    characters_per_second: float
    characters_burst: int
    messages_per_second: float
    messages_burst: int
    unsent_bytes: int
    unsent_events: int
    kept_bytes: int
    kept_events: int
    start_seconds: float
    idle_seconds: float
    grace_seconds: float
    session_seconds: float
    sessions: int
    sessions_per_address: int
    active_seconds: float
    drain_seconds: float
    retry_seconds: float

    def told(self) -> dict[str, float]:
        """What a client is told of them."""
        names = (
            "frame_bytes", "message_characters", "characters_per_second", "characters_burst", "messages_per_second",
            "messages_burst", "idle_seconds", "grace_seconds",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


class Refused(Exception):
    """A connection has to end.

    Args:
        close: its close code.
        message: what is wrong, and the way out.
        retry_after: seconds after which it may be tried again.
        code: the error's word, where it is not the name of the close code.
    """

    def __init__(self, close: Close, message: str, retry_after: float | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.close, self.retry_after, self.code = close, retry_after, code or close.name.lower()

    def error(self) -> dict[str, object]:
        """The protocol's message."""
        told = {"type": "error", "code": self.code, "fatal": True, "message": str(self)}
        return told if self.retry_after is None else told | {"retry_after": self.retry_after}


class Bucket:
    """Fills at a rate up to a size, and is full at first."""

    def __init__(self, rate: float, size: float) -> None:
        self.rate, self.size = rate, size
        self._held, self._at = size, monotonic()

    @property
    def held(self) -> float:
        """How much it holds now."""
        now = monotonic()
        self._held = min(self.size, self._held + (now - self._at) * self.rate)
        self._at = now
        return self._held

    def take(self, amount: float) -> bool:
        """Take so much, if it holds that."""
        if amount > self.held:
            return False
        self._held -= amount
        return True
