"""A client of the live server, for programs: text in, events out, over as many connections as it takes.

    with Client("ws://127.0.0.1:8000/v1/live", theta=0.7) as client:
        client.send("站在那边的男人曾是棒球手。")
        client.end()
        for event in client:
            print(event["text"], end="", flush=True)

`AsyncClient` is the same for asyncio. Events are those of docs/reference/protocol.md, each once and in order. Where
the server no longer has them all after a long absence, one of kind `snapshot` has the text they would have had.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from numbers import Integral, Real
from time import monotonic
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyMessage,
    InvalidProxyStatus,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)
from websockets.typing import Subprotocol

from ..common.addresses import ip_address
from ..common.text import check_position, check_text
from .bucket import Bucket
from .messages import SUBPROTOCOL, Close, client_message

Result = TypeVar("Result")

ACKNOWLEDGE = 0.5  # seconds between two acknowledgements
OPTIONS: Any = {"open_timeout": 10.0, "compression": None, "max_size": None, "ping_interval": None}  # of a connection
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries, doubled from try to try
AGAIN = {Close.BUSY, Close.RATE, Close.TOO_SLOW}
AGAIN_STATUS = {408, 425, 429, 500, 502, 503, 504}  # of HTTP, those that waiting may mend
FATAL = {Close.TOO_BIG, Close.RESTART, Close.BAD_MESSAGE, Close.TOKEN, Close.UNKNOWN_SESSION, Close.REPLACED}


class ServerError(Exception):
    """The session is over before its time.

    Attributes:
        code: of the server's `error`; `refused` where server or proxy do not let the client connect; `expired` where
            the session was over before the client came back; `lost` where the server cannot be reached, `engine` where
            its engine cannot start.
        handed_back: source text whose translation is not complete, for another session.
    """

    def __init__(self, code: str, message: str, handed_back: str) -> None:
        super().__init__(message)
        self.code, self.handed_back = code, handed_back


class AsyncClient:
    """A session; also a context manager, and an iterator over events.

    A proxy of the environment (`HTTPS_PROXY` and others) is used, but not to this machine.

    Args:
        url: of the server, `ws://…/v1/live`.
        model: its name, where the server has several; None for the first one.
        theta: EMIT threshold; None for the model's own.
        source_length: tokens of each sentence, where they are known.
        patience: seconds for which a lost or busy server is tried again, and a failed engine waited for.

    Raises:
        ValueError: for a value that the protocol does not have.

    Attributes:
        model: what the server said of its model, once it did.
        engine: `starting`, `ready` or `failed`, once the server said so.
        ping, answer: seconds of silence after which the server is asked whether it is there, and that it has to say so.
    """

    ping, answer = 20.0, 10.0

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        theta: float | None = None,
        source_length: int | None = None,
        token: str | None = None,
        patience: float = 60.0,
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int | float) or not patience >= 0:
            raise ValueError(f"patience={patience!r}: must be a number of seconds, at least 0")
        self.url, self.patience = url, patience
        given: dict[str, Any] = {
            "model": model,
            "theta": _number(theta),
            "source_length": _number(source_length),
            "token": token,
        }
        self._start: dict[str, Any] = {"type": "start"} | {
            name: value for name, value in given.items() if value is not None
        }
        client_message(_as_json(self._start))
        if not isinstance(url, str):
            raise ValueError(f"url={url!r}: must be a text like ws://127.0.0.1:8000/v1/live")
        self.model: dict[str, Any] | None = None
        self.engine: str | None = None
        self._session: tuple[str, str] | None = None  # its name, and the next key
        self._seq = self._acknowledged = 0
        self._kept, self._begin = "", 0  # text that may be wanted again, and its position
        self._at = self._credit = 0  # what the server has, and how much more it takes
        self._sent = 0  # how far text was sent on this connection
        self._replaced = 0  # replacements that the server has made
        self._stale: tuple[int, str] | None = None  # from where on it has other text than we; and which
        self._asked: tuple[int, str, str] | None = None  # the replacement it is asked for: place, text, what it had
        self._boundary = 0  # where the last finished sentence ended
        self._flushes: list[int] = []
        self._theta: dict[str, Any] | None = None  # the `set` that is not yet confirmed
        self._sets = 0
        self._ended = False
        self._shown = 0  # characters of the translation
        self._limits: dict[str, Any] = {}
        self._heard = 0.0
        self._left = self._expires = 0.0  # when the last connection of this session ended; when the session will
        self._wake = asyncio.Event()
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._failed: tuple[float, str] | None = None  # since when the engine cannot start, and why
        self._error: Exception | None = None
        self._refused: dict[str, Any] = {}  # the server's last error, of this connection
        self._task: asyncio.Task[None] | None = None

    # --- what a program calls ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def send(self, text: str, replace: int | None = None) -> None:
        """More source text; it is sent as fast as the server takes it.

        Args:
            text: that follows what was sent before; or, with `replace`, all there is from that position of the whole
                text on. Should the server have translated some of that by then, an event `refused` says up to which
                position, `source`, the text stays as it was; what follows there is replaced.
            replace: not before the first sentence whose translation is not complete.

        Raises:
            ValueError: for what is no text, a lone surrogate, after `end`, and for such a position.
        """
        check_text(text)
        if self._ended:
            raise ValueError("text after end(): begin another client")
        if replace is not None:
            check_position(replace)
            end = self._begin + len(self._kept)
            if not self._boundary <= replace <= end:
                told = f"replace={replace}: must be from {self._boundary}, before which all is translated, to {end}"
                raise ValueError(told)
            self._flushes = [place for place in self._flushes if place <= replace]
            place, stale = self._stale or (end, "")
            if replace < place:
                self._stale = replace, self._kept[replace - self._begin : place - self._begin] + stale
            self._kept = self._kept[: replace - self._begin]
        self._kept += text
        self._wake.set()

    def flush(self) -> None:
        """The speaker pauses: have the server let go what it holds back."""
        self._flushes.append(self._begin + len(self._kept))
        self._wake.set()

    def set_theta(self, theta: float) -> None:
        """Another EMIT threshold, from now on.

        Raises:
            ValueError: for what is no number from 0 to 1.
        """
        theta = _number(theta)
        message = {"type": "set", "id": self._sets + 1, "theta": theta}
        client_message(_as_json(message))
        self._sets, self._theta = self._sets + 1, message
        self._start["theta"] = theta
        self._wake.set()

    def end(self) -> None:
        """The text is complete: events end when all of it has been translated."""
        self._ended = True
        self._wake.set()

    async def close(self) -> None:
        """Forget the session, whatever is still to come."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        if self._task is None:
            raise RuntimeError("an AsyncClient lives inside its with block: async with AsyncClient(url) as client: …")
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)  # for who asks again
        if isinstance(self._error, ServerError):
            self._error.handed_back = self._unfinished()  # with what was sent since
        if self._error is not None:
            raise self._error

    # --- connections -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause, since = FIRST_PAUSE, monotonic()
        try:
            while True:
                before, self._refused, why = self._heard, {}, "the connection was lost"
                wait: float | None = None
                try:
                    opening = self._connect()
                except (InvalidURI, ValueError) as error:
                    told = f"{self.url} is no address of a server: give one like ws://127.0.0.1:8000/v1/live"
                    raise self._failure("refused", told) from error
                try:
                    async with opening as socket:
                        wait = await self._talk(socket)
                except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, InvalidProxy) as error:
                    wait, why = None, str(error)  # lost
                    if isinstance(error, ProxyError | InvalidProxy):
                        why += f" (a proxy of the environment; NO_PROXY={urlsplit(self.url).hostname} does without it)"
                    if not waiting_may_mend(error):
                        raise self._failure("refused", f"{self.url} refuses the connection: {why}") from error
                if wait == 0.0:
                    return
                if self._heard != before:
                    pause, since = FIRST_PAUSE, monotonic()
                if monotonic() - since > self.patience:
                    if self._refused:  # it was reached
                        raise self._failure(self._refused["code"], f"{self.url}: {self._refused['message']}")
                    raise self._failure("lost", f"{self.url} was not reached for {self.patience:g} s: {why}")
                await asyncio.sleep(pause if wait is None else wait)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Exception as error:  # whatever it is, who iterates over the events is told
            self._error = error
        finally:
            self._events.put_nowait(None)

    def _connect(self, **options: Any) -> connect:
        """A connection that is to be made."""
        options = OPTIONS | ({"proxy": None} if is_this_machine(self.url) else {}) | options
        return connect(self.url, subprotocols=[Subprotocol(SUBPROTOCOL)], **options)

    async def _talk(self, socket: ClientConnection) -> float | None:
        """One connection: 0 where the session has come to its end, else seconds to wait, None for a lost one."""
        if self._session is None:
            await socket.send(json.dumps(self._start))
        else:
            name, key = self._session
            await socket.send(json.dumps({"type": "resume", "session": name, "key": key, "seq": self._seq}))
        writer: asyncio.Task[None] | None = None
        try:
            while True:
                async with asyncio.timeout(self.ping + self.answer):
                    message = json.loads(await socket.recv())
                if message["type"] == "ready":
                    self._greeted(message)
                elif message["type"] == "error" and message["fatal"]:
                    self._refused = message
                elif message["type"] == "error":
                    if message["code"] == "replace" and self._asked is not None:
                        self._stays(message["earliest"])
                elif message["type"] == "engine":
                    self._engine_is(message["state"], message.get("reason", "it does not say why"))
                elif message["type"] == "done":
                    with suppress(ConnectionClosed):  # by the server, which has said all
                        await socket.send(json.dumps({"type": "ack", "seq": self._seq}))
                    return 0.0
                else:
                    is_first = message["type"] == "ack" and writer is None
                    self._take(message, is_first)
                    if is_first:
                        writer = asyncio.create_task(self._write(socket))
        except TimeoutError:
            socket.transport.abort()  # else its close waits for an answer, too
            return None
        except asyncio.CancelledError:
            with suppress(ConnectionClosed):
                await socket.send('{"type":"close"}')
            raise
        except ConnectionClosed as closed:
            return self._after(closed.rcvd.code if closed.rcvd is not None else 1006, self._refused)
        finally:
            if writer is not None:
                self._left = monotonic()
                writer.cancel()
                (failure,) = await asyncio.gather(writer, return_exceptions=True)
                if isinstance(failure, Exception) and not isinstance(failure, ConnectionClosed):
                    raise failure

    def _after(self, code: int, error: dict[str, Any]) -> float | None:
        """What to do after a close."""
        if code in (Close.BUSY, Close.UNKNOWN_SESSION) and not self._at and not self._replaced:
            self._session = None  # it never had text, and has gone with its connection
            return float(error.get("retry_after", FIRST_PAUSE))
        if code == Close.UNKNOWN_SESSION and (told := self._expired()):
            raise self._failure("expired", f"the session has expired: {told}: start another")
        if code in FATAL or error.get("code") == "expired":
            raise self._failure(error.get("code", str(code)), error.get("message", f"closed with {code}"))
        return float(error.get("retry_after", FIRST_PAUSE)) if code in AGAIN else None

    def _expired(self) -> str | None:
        """Why the server had to forget the session by now, if it had to."""
        now, grace = monotonic(), self._limits["grace_seconds"]
        if now > self._expires:
            return "it has lasted as long as one may"
        return f"its client was away for more than {grace:g} s" if now - self._left > grace else None

    def _failure(self, code: str, message: str) -> ServerError:
        return ServerError(code, message, self._unfinished())

    def _unfinished(self) -> str:
        """Source text whose translation is not complete."""
        return self._kept[max(0, self._boundary - self._begin) :]

    # --- messages ----------------------------------------------------------------------------------------------------

    def _greeted(self, ready: dict[str, Any]) -> None:
        self._session = ready["session"], ready["key"]
        self.model, self._limits = ready["model"], ready["limits"]
        self._heard = monotonic()
        self._expires = self._heard + ready["expires"]
        if (snapshot := ready.get("snapshot")) is not None:
            self._seq, self._boundary = snapshot["seq"], snapshot["boundary"]
            self._show({"event": "snapshot"} | snapshot | {"text": snapshot["text"][self._shown :]})

    def _engine_is(self, state: str, why: str) -> None:
        self.engine = state
        if state == "ready":
            self._failed = None
        elif state == "failed":
            self._failed = (monotonic() if self._failed is None else self._failed[0]), why
        self._check_engine()

    def _check_engine(self) -> None:
        """Raise ServerError where the engine could not start for as long as patience says."""
        if self._failed is not None and monotonic() - self._failed[0] > self.patience:
            told = f"{self.url}: its engine could not start for {self.patience:g} s: {self._failed[1]}"
            raise self._failure("engine", told)

    def _show(self, event: dict[str, Any]) -> None:
        self._shown += len(event["text"])
        self._events.put_nowait(event)

    def _acknowledged_text(self, at: int, replaced: int, is_first: bool) -> None:
        """The server has the text up to `at`, after so many replacements; also, at first on a connection, what of the
        last one had been lost."""
        if replaced != self._replaced:
            self._sent, self._asked, self._replaced = at, None, replaced
        if is_first:
            self._sent = at
            if self._asked is not None:  # to be asked again, unless what it replaces was lost, too
                place, text, had = self._asked
                self._asked = (place, text, had[: at - place]) if at > place else None

    def _stays(self, earliest: int) -> None:
        """What the server has of the text up to a position stays as it is."""
        place, _, had = self._asked or (self._sent, "", "")
        first, stale = self._stale or (place, "")
        if first < place:
            place, had = first, stale[: place - first] + had
        low = max(place, self._begin)
        earliest = max(earliest, low)
        kept, begin = self._kept, self._begin
        self._kept = kept[: low - begin] + had[low - place : earliest - place] + kept[earliest - begin :]
        self._stale = (earliest, had[earliest - place :]) if had[earliest - place :] else None
        self._asked = None
        self._events.put_nowait({"event": "refused", "text": "", "source": earliest})
        self._wake.set()

    def _replacement(self, asked: Any) -> dict[str, Any] | None:
        """What has the server replace text, where it has other text than it should, and credit; unless that is what it
        was asked already."""
        if self._asked is None and self._stale is not None:
            place, had = self._stale
            if place < self._boundary:
                self._asked = place, "", had[: self._sent - place]
                self._stale = None
                self._stays(self._boundary)
                return None
            text = self._kept[place - self._begin :][: self._limits["message_characters"]]
            cost = min(place - self._boundary + len(text), self._limits["characters_burst"])
            if cost > self._credit - (self._sent - self._at):
                return None
            self._asked, self._stale = (place, text, had[: self._sent - place]), None
        if self._asked is None or self._asked is asked:
            return None
        return {"type": "text", "at": self._sent, "text": self._asked[1], "replace": self._asked[0]}

    def _take(self, message: dict[str, Any], is_first: bool) -> None:
        self._heard = monotonic()
        if message["type"] == "ack":
            self._acknowledged_text(message["at"], message.get("replaced", 0), is_first)
            self._at, self._credit = message["at"], message["credit"]
            self._flushes = [place for place in self._flushes if place >= self._at]
        elif message["type"] == "events":
            self._seq = message["seq"]
            for event in message["events"]:
                if event["event"] in ("end", "line"):
                    self._boundary = event["source"]
                self._show(event)
        elif message["type"] == "set" and self._theta is not None and message["id"] == self._theta["id"]:
            self._theta = None
        elif message["type"] == "pong":
            self._check_engine()
        wanted = min(self._at, self._boundary)
        self._kept, self._begin = self._kept[wanted - self._begin :], wanted
        self._wake.set()

    async def _write(self, socket: ClientConnection) -> None:
        """Send what there is to be sent, as the server's limits allow."""
        rate = Bucket(0.9 * self._limits["messages_per_second"], 0.9 * self._limits["messages_burst"])
        flushed, changed, ended, asked_for = set[int](), 0, False, None
        acknowledged, confirmed = 0.0, False
        asked = monotonic()
        while True:
            self._wake.clear()
            message: dict[str, Any] | None = None
            now, length, sent = monotonic(), self._begin + len(self._kept), self._sent
            if self._asked is None and self._stale is not None and self._stale[0] >= sent:
                self._stale = None  # it has none of that
            waits = self._asked is not None or self._stale is not None  # nothing else may be sent of the text
            pauses = [place for place in self._flushes if place >= sent and place not in flushed]
            room = min(
                self._limits["message_characters"], self._credit - (sent - self._at), min(pauses, default=length) - sent
            )
            if not confirmed or (self._seq > self._acknowledged and now - acknowledged > ACKNOWLEDGE):
                message, confirmed = {"type": "ack", "seq": self._seq}, True
                self._acknowledged, acknowledged = self._seq, now
            elif self._theta is not None and self._theta["id"] != changed:
                message, changed = self._theta, self._theta["id"]
            elif (replacement := self._replacement(asked_for)) is not None:
                message, asked_for = replacement, self._asked
            elif room > 0 and not waits:
                text = self._kept[sent - self._begin : sent - self._begin + room]
                message = {"type": "text", "at": sent, "text": text}
                self._sent += room
            elif sent in pauses and not waits:
                message = {"type": "flush"}
                flushed.add(sent)
            elif self._ended and sent == length and not ended and not waits:
                message, ended = {"type": "end"}, True
            elif now - max(self._heard, asked) > self.ping:
                message, asked = {"type": "ping"}, now
            if message is not None:
                while not rate.take(1):
                    await asyncio.sleep(1 / rate.rate)
                await socket.send(json.dumps(message, ensure_ascii=False))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ACKNOWLEDGE):  # not `wait_for`, which in 3.11 may lose a cancellation
                        await self._wake.wait()


def _as_json(message: dict[str, Any]) -> str:
    def refuse(value: Any) -> None:
        raise ValueError(f"{value!r}: must be a text or a number")

    return json.dumps(message, default=refuse)


def _number(value: Any) -> Any:
    """A number of any library's as Python's own, which JSON has; anything else as it is."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value


def is_this_machine(url: str) -> bool:
    """Whether an address is one of this machine itself, which no proxy leads to."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = ip_address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)  # 0.0.0.0, say


def waiting_may_mend(error: Exception) -> bool:
    """Whether a connection that could not be made may be made later: as when a server is away, but not where one has
    refused it, or speaks something else."""
    if isinstance(error, InvalidStatus | InvalidProxyStatus):
        return error.response.status_code in AGAIN_STATUS
    if isinstance(error, InvalidMessage | InvalidProxyMessage):
        return isinstance(error.__cause__, EOFError)  # cut off
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)  # cut off, too
    return not isinstance(error, InvalidHandshake | InvalidProxy)


class Client:
    """`AsyncClient` for programs without asyncio: it runs in a thread of its own.

    Args:
        url, values: see there.
    """

    def __init__(self, url: str, **values: Any) -> None:
        self._client = AsyncClient(url, **values)  # first, as it refuses values
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="duplexmt client", daemon=True)

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise RuntimeError("a Client is one session, and this one has been used: make another")
        self._thread.start()
        self._wait(self._client.__aenter__())
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def model(self) -> dict[str, Any] | None:
        """What the server said of its model, once it did."""
        return self._client.model

    @property
    def engine(self) -> str | None:
        """`starting`, `ready` or `failed`, once the server said so."""
        return self._client.engine

    def send(self, text: str, replace: int | None = None) -> None:
        """More source text, or other text from a position on."""
        self._call(self._client.send, text, replace)

    def flush(self) -> None:
        """The speaker pauses."""
        self._call(self._client.flush)

    def set_theta(self, theta: float) -> None:
        """Another EMIT threshold, from now on."""
        self._call(self._client.set_theta, theta)

    def end(self) -> None:
        """The text is complete."""
        self._call(self._client.end)

    def close(self) -> None:
        """Forget the session, whatever is still to come."""
        if self._thread.is_alive():
            self._wait(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        events = self._client.__aiter__()
        while (event := self._wait(_next(events))) is not None:
            yield event

    def _call(self, act: Callable[..., None], *values: Any) -> None:
        async def call() -> None:
            act(*values)

        self._wait(call())

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("a Client lives inside its with block: with Client(url) as client: …")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
    return await anext(events, None)
