"""What ends a connection, and how much of something a client, or all of an address, may do."""

import hmac
import ipaddress
from collections import Counter

from ..common.addresses import ip_address, is_loopback
from ..protocol.bucket import Bucket
from ..protocol.messages import Close


class Refused(Exception):
    """A connection has to end.

    Args:
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


GUESSES, GUESS_SECONDS = 5, 10.0  # wrong tokens of an address at once; seconds after which there may be one more
MOST_GUESSERS = 4096  # addresses of which these are remembered


class Guesses:
    """Wrong tokens by address. While an address has had too many, no token of it is looked at, not even the right one:
    else who guesses would only have to be quick."""

    def __init__(self) -> None:
        self._left: dict[str, Bucket] = {}

    def look_at(self, address: str, given: str | None, token: str | None, way: str) -> None:
        """Compare a token with the server's, if it has one.

        Args:
            way: in which it has to be given.

        Raises:
            Refused: it is another one, or not looked at.
        """
        if token is None:
            return
        left = self._left.get(address)
        if left is not None and left.held < 1:
            told = f"too many wrong tokens from {address}: try again in {GUESS_SECONDS:g} s"
            raise Refused(Close.RATE, told, GUESS_SECONDS)
        if not hmac.compare_digest((given or "").encode(), token.encode()):
            left = self._left.pop(address, None) or Bucket(1 / GUESS_SECONDS, GUESSES)
            left.take(1)
            self._left[address] = left  # at the end
            if len(self._left) > MOST_GUESSERS:
                del self._left[next(iter(self._left))]
            raise Refused(Close.TOKEN, f"the server's token is missing or wrong: give it {way}")


class Shares:
    """How many of something each address has. This machine's own may have any number: a proxy's clients all have it."""

    def __init__(self, most: int) -> None:
        self.most, self._of = most, Counter[str]()

    def take(self, address: str) -> bool:
        """One more, if there may be one."""
        if self._of[address] >= self.most and not is_loopback(address):
            return False
        self._of[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """One less."""
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]


def whose(name: str) -> str:
    """What an address is counted as: one of IPv6 as its network of 64 bits, all of which one customer has."""
    address = ip_address(name)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return name if address is None else str(address)
