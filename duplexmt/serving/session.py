"""One session: its text, its key, and the frames of events that its client may still ask for."""

import hmac
import secrets
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from ..protocol.bucket import Bucket
from ..protocol.messages import Close, as_json
from .limits import Refused
from .open_text import OpenText
from .settings import Limits


class Client(Protocol):
    """Who is connected to a session (`connection.Connection`)."""

    address: str

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message, in its turn."""

    def tell_frame(self, frame: "Frame") -> None:
        """Send a frame of events."""

    def finish(self) -> None:
        """Everything has been translated."""

    def leave(self, refused: Refused) -> None:
        """Say why, and close."""


@dataclass(slots=True)
class Frame:
    """A message of events."""

    seq: int
    text: str
    events: int


class Session:
    """A text, its translation so far, and who is connected.

    Attributes:
        name: what a client comes back with, and its key.
        model: the name of its model.
        open_text: what another engine would have to know.
        received: code points of the text that have arrived.
        replaced: replacements that were made.
        channel: on which others watch it.
        done: whether everything has been translated.
        connection: of its client; None while it is away.
        heard: when the client was last heard; while it is away, when it left.
        texted: when the last text arrived.
        told: when the engine last had something to tell of it.
    """

    def __init__(
        self,
        limits: Limits,
        address: str,
        model: str,
        theta: float | None,
        source_length: int | None,
        channel: str | None = None,
    ) -> None:
        self.limits, self.address, self.model, self.channel = limits, address, model, channel
        self.name = secrets.token_urlsafe(12)
        self._keys = [secrets.token_hex(16)]  # all that were given
        self._used = 0  # the first so many of them may not be used again
        self.open_text = OpenText(self.name, model, theta, source_length)
        self.received = self.replaced = 0
        self.characters = Bucket(limits.characters_per_second, limits.characters_burst)
        self.credit_told = float(limits.characters_burst)
        self.seq, self.acknowledged = 0, 0
        self.frames: deque[Frame] = deque()
        self._kept_bytes = self._kept_events = 0
        self._text: list[str] = []  # the translation
        self._source = self._sentence = self._boundary = 0
        self.done = False
        self.connection: Client | None = None
        self.began = self.heard = self.texted = self.answered = monotonic()
        self._arrived: deque[tuple[int, float]] = deque()  # ends of the messages not yet read, and when they came

    # --- the client --------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """What a client comes back with, another one at each connect."""
        return self._keys[-1]

    @property
    def has_begun(self) -> bool:
        """Whether text has arrived, though a replacement may have left none of it."""
        return self.received > 0 or self.replaced > 0

    def is_active(self, now: float) -> bool:
        """Whether it has the engine at work, or has had it a moment ago: a speaker who is silent has not."""
        if self.done or not self.received:
            return False
        return now - max(self.texted, self.answered) < self.limits.active_seconds

    def attach(self, connection: Client, key: str | None) -> bool:
        """Have a connection go on; False where the key has been used, and the session has to end.

        Raises:
            Refused: for a key that is none of this session's.
        """
        if key is not None:
            same = [hmac.compare_digest(key.encode(), given.encode()) for given in self._keys]
            if True not in same:
                raise Refused(Close.UNKNOWN_SESSION, "no such session, or not its key: start anew")
            if (place := same.index(True)) < self._used:
                return False
            self._used = place
            self._keys[place + 1 :] = [secrets.token_hex(16)]  # in place of one that has not arrived
        if self.connection is not None:
            self.connection.leave(Refused(Close.REPLACED, "another connection goes on with this session"))
        self.connection = connection
        return True

    def confirm(self) -> None:
        """The client has the key: those before may not be used again."""
        self._used = len(self._keys) - 1

    def take(self, at: int, text: str) -> dict[str, Any] | None:
        """Take text that begins at a position: what of it is new, for the engine; None where nothing is.

        Raises:
            Refused: for more than the client has credit for.
        """
        new = text[self.received - at :] if at <= self.received else ""
        if not new:
            return None
        self._spend(len(new))
        self.received += len(new)
        self.texted = monotonic()
        self._arrived.append((self.received, self.texted))
        return self.open_text.add(new)

    def _spend(self, characters: int) -> None:
        if not self.characters.take(characters):
            held = self.characters.held
            told = f"{characters} characters, where {int(held)} were allowed: wait for credit"
            raise Refused(Close.RATE, told, max(0.0, characters - held) / self.characters.rate)

    def replace(self, at: int, position: int, text: str) -> dict[str, Any] | None:
        """Other text from a position on, for the engine, as far as is known here; None where it is asked already.

        It costs what the engine has to take anew: all characters since the last boundary, the new ones among them; but
        no more than a client can ever have.

        Raises:
            Refused: for a message that is none, and for more than the client has credit for.
        """
        if self.open_text.replacing == (position, text):
            return None  # by a client that was away when it was answered
        self.check_answered()
        if at != self.received:
            told = f"at={at} of a replacement: the text has {self.received} characters"
            raise Refused(Close.BAD_MESSAGE, told)
        if position > at:
            raise Refused(Close.BAD_MESSAGE, f"replace={position}: more than at={at}, where the text ends")
        self._spend(min(self.limits.characters_burst, max(0, position - self.open_text.position) + len(text)))
        return self.open_text.replace(position, text)

    def check_answered(self) -> None:
        """Refuse what may not follow a replacement before it is answered.

        Raises:
            Refused: it is not.
        """
        if self.open_text.replacing is not None:
            position, _ = self.open_text.replacing
            raise Refused(Close.BAD_MESSAGE, f"wait for the answer to replace={position} before more is sent")

    def has_replaced(self) -> None:
        """The engine has made the replacement."""
        self.received = self.open_text.position + len(self.open_text.text)
        self.replaced += 1
        self.texted = monotonic()
        while self._arrived and self._arrived[-1][0] >= self.received:
            self._arrived.pop()
        self._arrived.append((self.received, self.texted))

    def refusal(self, earliest: int) -> dict[str, Any]:
        """What a client is told whose replacement came too late."""
        told = f"replace: what is before {earliest} has been translated: give a position from {earliest} on"
        return {"type": "error", "code": "replace", "fatal": False, "message": told, "earliest": earliest}

    def ack(self) -> dict[str, Any]:
        """How far the text has arrived, and how much more may come."""
        self.credit_told = self.characters.held
        told = {"type": "ack", "at": self.received, "credit": int(self.credit_told)}
        return told | {"replaced": self.replaced} if self.replaced else told

    # --- its frames --------------------------------------------------------------------------------------------------

    def add(self, events: list[dict[str, Any]]) -> tuple[Frame, list[float]]:
        """Make the next frame of events; also, for each message whose text is now read, when it came."""
        self.seq += 1
        self.answered = monotonic()
        message = {"type": "events", "seq": self.seq, "events": events}
        frame = Frame(self.seq, as_json(message), len(events))
        self.frames.append(frame)
        self._kept_bytes += len(frame.text)
        self._kept_events += frame.events
        while self._kept_bytes > self.limits.kept_bytes or self._kept_events > self.limits.kept_events:
            self._drop()
        arrived = []
        for event in events:
            self._text.append(event["text"])
            self._source = event["source"]
            self._sentence = event.get("sentence", self._sentence)
            if event["event"] in ("end", "line"):
                self._boundary = event["source"]
            if event["event"] == "read":
                while self._arrived and self._arrived[0][0] <= self._source:
                    arrived.append(self._arrived.popleft()[1])
        return frame, arrived

    def acknowledge(self, seq: int) -> None:
        """The client has these frames; they need not be kept.

        Raises:
            Refused: for frames that were never sent.
        """
        if seq > self.seq:
            raise Refused(Close.BAD_MESSAGE, f"seq={seq}: the last frame is {self.seq}")
        self.acknowledged = max(seq, self.acknowledged)
        while self.frames and self.frames[0].seq <= seq:
            self._drop()

    def _drop(self) -> None:
        frame = self.frames.popleft()
        self._kept_bytes -= len(frame.text)
        self._kept_events -= frame.events

    def snapshot(self, seq: int) -> dict[str, Any] | None:
        """All that was written so far, where not all frames after `seq` are kept."""
        first = self.frames[0].seq if self.frames else self.seq + 1
        if seq >= first - 1:
            return None
        self._text = ["".join(self._text)]
        place = {"source": self._source, "sentence": self._sentence, "boundary": self._boundary}
        return {"seq": self.seq, "text": self._text[0], **place}
