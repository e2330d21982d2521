"""The server's end of WhisperLiveKit's remote translation (its `--translation-backend alignatt`), version 1.

The client sends `init`, and then `update`s: the words of an utterance that its recogniser has committed, all of them
each time, and whether the utterance has ended. The answer, `translation`, has the utterance's translation so far, which
only grows. Words that have changed since they were committed take the place of what they were, but for those whose
sentence is over. The tail that the recogniser has not committed is passed over: our policy, not a draft, decides when
to write.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ..common.text import UNSPACED
from ..protocol.bucket import Bucket
from ..protocol.messages import Close, as_json
from .hub import Hub
from .inner_client import InnerClient, from_json
from .limits import Refused

VERSION = 1
QUIET = 0.2  # seconds without more of a translation after which an update that ends no utterance is answered


class Wrong(Exception):
    """A message that is none: the protocol's code, and what is wrong."""


def in_common(one: str, other: str) -> int:
    """With how many characters both begin."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


class Recogniser:
    """A recogniser that is connected.

    Args:
        websocket: accepted.
        address: of the client, as `limits.whose` has it.
    """

    def __init__(self, websocket: WebSocket, hub: Hub, address: str) -> None:
        self.websocket, self.hub, self.address = websocket, hub, address
        self.messages = Bucket(hub.limits.messages_per_second, hub.limits.messages_burst)
        self.client: InnerClient | None = None
        self.languages: tuple[str | None, str | None] = (None, None)
        self.utterance: Any = None  # the client's number of the one at hand
        self.words: list[str] = []  # of it, that were given
        self.lines = 0  # given that are over: the number of the line that the utterance is
        self.begin = 0  # position in the session's text where it begins

    async def run(self, check_token: Callable[[str | None], None]) -> None:
        """Serve the client until either side ends it.

        Args:
            check_token: raises `Refused` for a token that is not the server's.
        """
        close = Close.NORMAL
        try:
            async with asyncio.timeout(self.hub.limits.start_seconds):
                first = await self._message()
            check_token(self.websocket.query_params.get("token"))  # its messages have no place for one
            self._begin(first)
            await self._say(type="init_ok", protocol_version=VERSION)
            while True:
                await self._update(await self._message())
        except TimeoutError:
            await self._say(type="error", code="timeout", message="no init has come: send it first")
        except Wrong as wrong:
            code, told = wrong.args
            self.hub.metrics.rejected.labels(code).inc()
            await self._say(type="error", code=code, message=told)
            close = Close.BAD_MESSAGE
        except Refused as refused:
            if self.client is None or refused is not self.client.refused:  # which counted it
                self.hub.metrics.rejected.labels(refused.code).inc()
            await self._say(**refused.error())
            close = refused.close
        except WebSocketDisconnect:
            return
        finally:
            if self.client is not None:
                self.client.close()
        with suppress(RuntimeError, WebSocketDisconnect):
            await self.websocket.close(close)

    async def _message(self) -> dict[str, Any]:
        received = await self.websocket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1006))
        if not self.messages.take(1):
            rate = self.hub.limits.messages_per_second
            raise Refused(Close.RATE, f"more than {rate:g} messages a second", 1 / rate)
        try:
            message = from_json(received.get("text") or "")  # nothing of a binary frame
        except (ValueError, RecursionError) as error:
            raise Wrong("bad_message", f"a message is a JSON object, in a text frame: {error}") from None
        if not isinstance(message, dict):
            raise Wrong("bad_message", "a message is a JSON object")
        return message

    async def _say(self, **message: Any) -> None:
        with suppress(RuntimeError, WebSocketDisconnect):  # it may be gone, as `_message` will tell
            await self.websocket.send_text(as_json(message))

    def _begin(self, init: dict[str, Any]) -> None:
        """Begin a session as `init` asks for it."""
        if init.get("type") != "init" or init.get("protocol_version") != VERSION:
            raise Wrong("bad_message", f"begin with init, protocol_version {VERSION}")
        source, target = init.get("source_lang"), init.get("target_lang")
        self.languages = None if source == "auto" else str(source), None if target == "auto" else str(target)
        self._begin_session()

    def _begin_session(self) -> None:
        try:
            self.client = InnerClient(self.hub, self.address, self.languages)
        except LookupError as error:
            source, target = (one or "auto" for one in self.languages)
            told = f"source_lang={source}, target_lang={target}: {error.args[0]}"
            raise Wrong("unsupported_language", told) from None
        model = self.hub.models[self.client.session.model]
        self.between = "" if model["source_language"] in UNSPACED else " "

    async def _update(self, update: dict[str, Any]) -> None:
        """Answer an update with the translation of its utterance."""
        words = self._words(update)
        if update["utterance_id"] != self.utterance:
            self._new_utterance(update["utterance_id"])
        client = self.client
        assert client is not None
        final, known = update.get("is_final", False), self.words
        await self._give(client, words, "\n" * final)
        if final:
            while len(client.lines) < self.lines + 2:  # the next one begins where this one is over
                await client.more()
        elif self.words != known:
            with suppress(TimeoutError):
                while True:
                    await asyncio.wait_for(client.more(), QUIET)
        committed = "".join(client.lines[self.lines : self.lines + 1]).strip()
        if final:
            self.utterance, self.words, self.lines = None, [], self.lines + 1
        told = {"seq": update["seq"], "utterance_id": update["utterance_id"], "committed_text": committed}
        await self._say(type="translation", final=final, **told)

    async def _give(self, client: InnerClient, words: list[str], end: str) -> None:
        """Have the utterance translated as it is now: its text goes on, or is another one as far as it is not over."""
        before, text = self._joined(self.words), self._joined(words)
        while (same := in_common(before, text)) < len(before):
            earliest = await client.replace(self.begin + same, text[same:] + end)
            if earliest is None:
                self.words = words
                return
            begins = [len(self._joined(self.words[: n + 1])) - len(word) for n, word in enumerate(self.words)]
            over = sum(place < earliest - self.begin for place in begins)
            words = self.words[:over] + words[over:]
            text = self._joined(words)
            if not text.startswith(before[: earliest - self.begin]):  # a space before the first word that is left
                words = self.words + words[len(self.words) :]
                text = self._joined(words)
        self.words = words
        client.give(text[len(before) :] + end)

    def _new_utterance(self, number: Any) -> None:
        """Begin an utterance, in a new session where the one before has ended of itself."""
        assert self.client is not None
        if self.client.refused is not None:
            self.client.close()
            self._begin_session()
            self.lines = 0
        elif self.words:  # of one that the client has left without saying so
            self.client.give("\n")
            self.lines += 1
        self.utterance, self.words, self.begin = number, [], self.client.session.received

    def _words(self, update: dict[str, Any]) -> list[str]:
        """The words that an update has.

        Raises:
            Wrong: it is none.
        """
        try:
            if update["type"] != "update" or isinstance(update["seq"], bool):
                raise TypeError
            if not all(isinstance(part, list) for part in (update["words"], *update["words"])):
                raise TypeError
            words = [word[0] for word in update["words"]]
            if not all(isinstance(word, str) for word in words):
                raise TypeError
            if not isinstance(update["utterance_id"], int | str) or not isinstance(update.get("is_final", False), bool):
                raise TypeError
            int(update["seq"])
        except (KeyError, TypeError, ValueError, OverflowError, IndexError):
            told = "an update has seq, utterance_id, words [[text, start, end], …] and is_final"
            raise Wrong("bad_message", told) from None
        return [" ".join(word.split()) for word in words]

    def _joined(self, words: list[str]) -> str:
        """An utterance's text; Latin words among Chinese ones are kept apart."""
        text = ""
        for word in filter(None, words):
            apart = self.between or (" " if (text[-1:] + word[:1]).isascii() else "")
            text += apart + word if text else word
        return text
