"""How much may be said, by server and client alike."""

from time import monotonic


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
