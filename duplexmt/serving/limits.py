"""What ends a connection, and how much of something a client may do."""

from time import monotonic

from .protocol import Close


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
