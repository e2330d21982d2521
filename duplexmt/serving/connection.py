"""One WebSocket connection: messages in, frames out; it attaches itself to a session and leaves it again."""

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ..protocol.bucket import Bucket
from ..protocol.messages import (
    Ack,
    Close,
    CloseSession,
    End,
    Flush,
    Ping,
    Resume,
    Set,
    Start,
    Text,
    Watch,
    as_json,
    client_message,
)
from .hub import Hub
from .limits import Refused
from .session import Frame, Session

FAREWELL = 2.0  # seconds to send what is left


class Connection:
    """A client, from the accepted handshake to the close.

    Args:
        websocket: accepted.
        address: of the client, as `limits.whose` has it.
        token: that the first message of a new session must bring; None for none.
    """

    def __init__(self, websocket: WebSocket, hub: Hub, address: str, token: str | None) -> None:
        self.websocket, self.hub, self.address, self.token = websocket, hub, address, token
        self.limits = hub.limits
        self.messages = Bucket(self.limits.messages_per_second, self.limits.messages_burst)
        self.session: Session | None = None
        self.channel: str | None = None  # that is watched, in place of a session
        self._out: deque[tuple[str, int]] = deque()  # messages to be sent, and how many events each has
        self._events = self._bytes = 0  # of these
        self._gap = False  # whether the last text began past what has been received
        self._spare_events = self._spare_bytes = 0  # allowed beyond the limit: what a client came back for
        self._wake = asyncio.Event()
        self._last: tuple[dict[str, Any] | None, Close] | None = None  # the farewell, and the close code
        self._closing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the client until either side ends it."""
        self.hub.connections.add(self)
        sender = asyncio.create_task(self._send())
        try:
            await self._receive()
        except Refused as refused:
            self.leave(refused)
        except WebSocketDisconnect:
            sender.cancel()
        finally:
            self.hub.connections.discard(self)
            if self.session is not None:
                self.hub.detach(self.session, self)
            if self.channel is not None:
                self.hub.unwatch(self, self.channel)
            with suppress(asyncio.CancelledError, TimeoutError, WebSocketDisconnect, RuntimeError):
                await asyncio.wait_for(sender, FAREWELL)
            if self._closing is not None:
                await self._closing

    # --- in ----------------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(self.limits.start_seconds):
                first = await self._message()
        except TimeoutError:
            told = f"no message within {self.limits.start_seconds:g} s: begin with start, resume or watch"
            raise Refused(Close.IDLE, told) from None
        self._greet(first)
        while self._last is None:
            message = await self._message()
            if self._last is None and self.session is None:
                self._act_as_watcher(message)
            elif self._last is None and self.session is not None:
                self.session.heard = monotonic()
                self.session.confirm()
                self._act(self.session, message)
            await asyncio.sleep(0)  # others' turn, however many messages have come at once
        while (await self.websocket.receive())["type"] != "websocket.disconnect":
            pass  # `receive_text` would object where the close has been sent already
        raise WebSocketDisconnect(1000)

    async def _message(self) -> Any:
        """The next message.

        Raises:
            Refused: for one that is none, or is one too many.
        """
        received = await self.websocket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1006))
        frame = received.get("text")
        if frame is None:
            raise Refused(Close.BAD_MESSAGE, "a binary frame: messages are text")
        if len(frame) > self.limits.frame_bytes:
            raise Refused(Close.TOO_BIG, f"a frame of more than {self.limits.frame_bytes} bytes")
        if not self.messages.take(1):
            rate = self.limits.messages_per_second
            raise Refused(Close.RATE, f"more than {rate:g} messages a second: put text together", 1 / rate)
        try:
            return client_message(frame)
        except ValueError as error:
            raise Refused(Close.BAD_MESSAGE, str(error)) from None

    def _greet(self, first: Any) -> None:
        """Begin a session, or go on with one."""
        seq = 0
        if isinstance(first, Start):
            self.hub.guesses.look_at(self.address, first.token, self.token, "in start")
            try:
                session = self.hub.begin(self, first)
            except Refused:
                if self.hub.link.state != "ready":
                    self.tell(self.hub.engine())
                raise
        elif isinstance(first, Resume):
            session, seq = self.hub.resume(self, first), first.seq
        elif isinstance(first, Watch):
            self.channel = first.channel
            self.hub.watch(self, first.channel)
            return self.tell(self.hub.watching(first.channel))
        else:
            raise Refused(Close.BAD_MESSAGE, f"type={first.type}: begin with start, resume or watch")
        self.session = session
        session.heard = monotonic()
        ready: dict[str, Any] = {
            "type": "ready",
            "session": session.name,
            "key": session.key,
            "model": self.hub.models[session.model],
            "models": [*self.hub.models.values()],
            "limits": self.limits.published(),
            "expires": max(0.0, session.began + self.limits.session_seconds - monotonic()),
        }
        if (snapshot := session.snapshot(seq)) is not None:
            ready["snapshot"], seq = snapshot, session.seq
        missed = [frame for frame in session.frames if frame.seq > seq]
        self._spare_events = sum(frame.events for frame in missed)
        self._spare_bytes = len(as_json(ready)) + sum(len(frame.text) for frame in missed)
        self.tell(ready)
        self.tell(self.hub.engine())
        self.tell(session.ack())
        for frame in missed:
            self.tell_frame(frame)
        if session.done:
            self.finish()

    def _act_as_watcher(self, message: Any) -> None:
        if not isinstance(message, Ping):
            raise Refused(Close.BAD_MESSAGE, f"type={message.type}: who watches a channel can only ping")
        self.tell({"type": "pong"})

    def _act(self, session: Session, message: Any) -> None:
        """Do what a message asks for."""
        ask, text = self.hub.link.ask, session.open_text
        if isinstance(message, Text):
            self._take(session, message)
        elif isinstance(message, Set):
            self.hub.check_theta(message.theta, session.model)
            ask(**text.set(message.id, message.theta))
        elif isinstance(message, Flush):
            session.check_answered()
            ask(**text.flush())
        elif isinstance(message, End):
            session.check_answered()
            if self._gap:
                raise Refused(Close.BAD_MESSAGE, f"end after a gap: send the text from at={session.received} on before")
            if not text.ended and not self.hub.draining:  # then text before it may not have been taken
                ask(**text.end())
        elif isinstance(message, Ack):
            session.acknowledge(message.seq)
        elif isinstance(message, Ping):
            self.tell({"type": "pong"})
        elif isinstance(message, CloseSession):
            self.hub.forget(session)
            self._say_last(None, Close.NORMAL)
        else:
            raise Refused(Close.BAD_MESSAGE, f"type={message.type}: the session has begun already")

    def _take(self, session: Session, message: Text) -> None:
        if len(message.text) > self.limits.message_characters:
            most = self.limits.message_characters
            raise Refused(Close.TOO_BIG, f"a text of {len(message.text)} characters: {most} at most")
        if message.replace is not None:
            return self._replace(session, message, message.replace)
        session.check_answered()
        if session.open_text.ended and message.at + len(message.text) > session.received:
            raise Refused(Close.BAD_MESSAGE, "text after end: start a new session")
        if not self.hub.draining:
            self._gap = message.at > session.received
            if not session.received:
                self.hub.check_streams()
            if asked := session.take(message.at, message.text):
                self.hub.link.ask(**asked)
        self.tell(session.ack())

    def _replace(self, session: Session, message: Text, position: int) -> None:
        if session.open_text.ended:
            raise Refused(Close.BAD_MESSAGE, "text after end: start a new session")
        if not session.received:
            self.hub.check_streams()
        if session.open_text.replacing is None and position < (earliest := session.open_text.position):
            self.tell(session.refusal(earliest))
        elif not self.hub.draining and (asked := session.replace(message.at, position, message.text)):
            self.hub.link.ask(**asked)

    # --- out ---------------------------------------------------------------------------------------------------------

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message, in its turn."""
        self._put(as_json(message), 0)

    def tell_frame(self, frame: Frame) -> None:
        """Send a frame of events."""
        self._put(frame.text, frame.events)

    def _put(self, text: str, events: int) -> None:
        if self._last is not None:
            return
        self._out.append((text, events))
        self._events += events
        self._bytes += len(text)
        self._wake.set()
        if (
            self._events > self.limits.unsent_events + self._spare_events
            or self._bytes > self.limits.unsent_bytes + self._spare_bytes
        ):
            told = f"more than {self.limits.unsent_events} events or {self.limits.unsent_bytes} bytes wait to be sent"
            self.leave(Refused(Close.TOO_SLOW, f"{told}: resume"))

    def finish(self) -> None:
        """Everything has been translated."""
        self.tell({"type": "done"})
        self._say_last(None, Close.NORMAL)

    def leave(self, refused: Refused) -> None:
        """Say why, and close."""
        if self._last is None:
            self.hub.metrics.rejected.labels(refused.code).inc()
        if refused.close == Close.TOO_SLOW:
            self._out.clear()  # they are sent when the client comes back
            if self._last is None:
                if self.session is not None:
                    self.hub.detach(self.session, self)
                self._closing = asyncio.create_task(self._close(refused.close))
        self._say_last(refused.error(), refused.close)

    def _say_last(self, message: dict[str, Any] | None, close: Close) -> None:
        if self._last is None:
            self._last = message, close
            self._wake.set()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                text, events = self._out.popleft()
                await self.websocket.send_text(text)
                self._events -= events
                self._bytes -= len(text)
                self._spare_events = max(0, min(self._spare_events, self._events))
                self._spare_bytes = max(0, min(self._spare_bytes, self._bytes))
            if self._last is not None:
                message, close = self._last
                if message is not None:
                    await self.websocket.send_text(as_json(message))
                await self._close(close)
                return

    async def _close(self, close: Close) -> None:
        with suppress(RuntimeError, WebSocketDisconnect):  # it may be closed by now
            await self.websocket.close(close)
