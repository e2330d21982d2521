"""What a client may do, and how much of it."""

from dataclasses import dataclass
from time import monotonic

from .protocol import Close
from .protocol import Limits as Told


@dataclass(frozen=True)
class Limits:
    """Of the protocol (docs/protocol.md); the values are in conf/serve.yaml."""

    frame_bytes: int  # of one message
    message_characters: int  # of one text message
    characters_per_second: float  # of a session's text
    characters_burst: int
    messages_per_second: float  # of a connection
    messages_burst: int
    unsent_bytes: int  # that may wait for a slow reader
    unsent_events: int
    kept_bytes: int  # that a session keeps for one who comes back
    kept_events: int
    start_seconds: float  # until the first message
    idle_seconds: float  # without any message
    grace_seconds: float  # that a session waits for its client to come back
    session_seconds: float  # that a session may last
    sessions: int  # at a time
    sessions_per_address: int  # of one address that is not this machine's own
    active_seconds: float  # after its last text a session counts as active; as many may as there are streams
    drain_seconds: float  # to end sentences in when the server stops
    retry_seconds: float  # after which who was refused may try again

    def told(self) -> dict[str, float]:
        """What a client is told of them."""
        return {name: getattr(self, name) for name in Told.model_fields}


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
