"""A session's client within the server: other protocols than ours are spoken to whoever is behind it."""

import asyncio
import json
from math import inf
from typing import Any

from ..common.text import check_text
from ..protocol.messages import Start
from .hub import Hub
from .limits import Refused
from .session import Frame, Session

LANGUAGES = "source_language", "target_language"


def from_json(text: str | bytes) -> Any:
    """What JSON of other protocols stands for; ValueError for what is none, and for half a character, which nothing
    could send on."""
    value = json.loads(text)
    check_text(json.dumps(value, ensure_ascii=False))
    return value


def model_for(hub: Hub, languages: tuple[str | None, str | None]) -> str | None:
    """The first model that is for these languages; None where there is no engine yet.

    Raises:
        LookupError: there is none, with the way out.
    """
    asked = [language if language is None else language.split("-")[0].lower() for language in languages]
    for name, model in hub.models.items():
        if all(one in (None, model[key]) for one, key in zip(asked, LANGUAGES, strict=True)):
            return name
    if hub.models:
        raise LookupError(f"this server translates from {', '.join(f'{a} to {b}' for a, b in pairs(hub))}")
    return None


def pairs(hub: Hub) -> list[tuple[str, str]]:
    """Source and target language of each model."""
    return [(model["source_language"], model["target_language"]) for model in hub.models.values()]


class InnerClient:
    """A session of its own, whose text is given and whose translation is collected here.

    Args:
        address: of who is behind it, as `limits.whose` has it.
        languages: of the source and the target, as somebody may have named them (`zh-Hans`); None for any.

    Raises:
        LookupError: there is no model for these.

    Attributes:
        lines: the translation so far; the last one goes on.
        changed: is set whenever there is more of it, or the session has ended.
        done: whether everything has been translated.
        refused: why the session has ended, if not of itself.
    """

    def __init__(self, hub: Hub, address: str, languages: tuple[str | None, str | None] = (None, None)) -> None:
        self.hub, self.address = hub, address
        self.lines, self.done = [""], False
        self.changed = asyncio.Event()
        self.refused: Refused | None = None
        self._earliest = 0  # position that can be replaced, as last told
        self.session: Session = hub.begin(self, Start(type="start", model=model_for(hub, languages)))
        self.session.heard = inf  # it does not have to send pings
        hub.connections.add(self)

    def give(self, text: str) -> None:
        """Have more text translated.

        Raises:
            Refused: it is more than may come at once, there is no room for one who begins, or the session has ended.
        """
        if self.refused is not None:
            raise self.refused
        if not self.session.received:
            self.hub.check_streams()
        if asked := self.session.take(self.session.received, text):
            self.hub.link.ask(**asked)

    async def replace(self, position: int, text: str) -> int | None:
        """Have the text from a position on be another one.

        Returns:
            None; or the earliest position that could be replaced, where this one is before it: all stays then.

        Raises:
            Refused: see `give`.
        """
        if self.refused is not None:
            raise self.refused
        session, before = self.session, self.session.replaced
        if position < session.open_text.position:
            return session.open_text.position
        self.hub.link.ask(**session.replace(session.received, position, text))  # type: ignore[arg-type]
        while session.open_text.replacing is not None:
            await self.more()
        return None if session.replaced > before else self._earliest

    def end(self) -> None:
        """That was all the text."""
        self.hub.link.ask(**self.session.open_text.end())

    async def more(self) -> None:
        """Wait until there is more of the translation, or all of it.

        Raises:
            Refused: the session has ended before.
        """
        await self.changed.wait()
        self.changed.clear()
        if self.refused is not None:
            raise self.refused

    def close(self) -> None:
        """Whoever was behind it has gone."""
        self.hub.connections.discard(self)
        self.hub.forget(self.session)

    # What a session has to tell.

    def tell(self, message: dict[str, Any]) -> None:
        """Whether a replacement came in time; nothing else that anybody here waits for."""
        self._earliest = message.get("earliest", self._earliest)
        self.changed.set()

    def tell_frame(self, frame: Frame) -> None:
        """More of the translation."""
        for event in json.loads(frame.text)["events"]:
            if event["event"] == "line":
                self.lines.append("")
            else:
                self.lines[-1] += event["text"]
        self.session.acknowledge(frame.seq)
        self.changed.set()

    def finish(self) -> None:
        """Everything has been translated."""
        self.done = True
        self.changed.set()

    def leave(self, refused: Refused) -> None:
        """The session ends."""
        self.hub.metrics.rejected.labels(refused.code).inc()
        self.refused = self.refused or refused
        self.changed.set()
