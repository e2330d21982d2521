"""The application on uvicorn: one port, no compression, a SIGTERM that lets sentences end; and what clients may do to
its connections, of which the application sees nothing."""

import asyncio
import logging
import resource
import socket
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN

from ..protocol.bucket import Bucket
from ..protocol.messages import Close, as_json
from .hub import Hub
from .limits import Refused, Shares, whose

log = logging.getLogger(__name__)
SEND_BUFFER = 65_536  # bytes of the system's own, so that a slow reader is noticed
CLOSE_TIMEOUT = 3.0  # seconds that a client has to answer a close
FAREWELL = 1.0  # seconds that one who is refused has to read why
SLICE = 1024  # bytes that are looked at before it is asked whether they were too many messages
OTHER_FILES = 100  # that a server has open beside connections: libraries, pipes to the engine, pages being sent
BACKLOG = 2048  # connections that the system holds until they are accepted
ACCEPTED = 32  # of these at once, so that others do not wait for a flood of them


class Doors:
    """Who is connected: no more than fit, in all and of each address.

    Those who have asked for nothing make room for others, the oldest first, so that they can keep nobody out.

    Args:
        most: connections at a time.
        of_an_address: of these, of one address; the proxies' clients are counted by the application.
        proxies: see `serve`.
    """

    def __init__(self, most: int, of_an_address: int, proxies: list[str]) -> None:
        self.most, self.shares = most, Shares(of_an_address)
        self.proxies = ProxyHeadersMiddleware(_no_application, proxies).trusted_hosts
        self.entered: dict[asyncio.Transport, str] = {}
        self.idle: dict[asyncio.Transport, None] = {}

    def enter(self, transport: asyncio.Transport) -> str | None:
        """Let a connection in; else why not."""
        host = (transport.get_extra_info("peername") or ("",))[0]
        address = "" if host in self.proxies else whose(host)
        if address and not self.shares.take(address):
            return f"{self.shares.most} connections from {address} are all there may be: close one"
        if len(self.entered) >= self.most:
            log.warning("limits.connections=%d are open: who has asked for nothing is cut off for others", self.most)
            if not self.idle:
                if address:
                    self.shares.give_back(address)
                return f"{self.most} connections are all there may be"
            (oldest := next(iter(self.idle))).abort()
            self.leave(oldest)
        self.entered[transport], self.idle[transport] = address, None
        return None

    def leave(self, transport: asyncio.Transport) -> None:
        """A connection has ended, or has been refused."""
        if address := self.entered.pop(transport, ""):
            self.shares.give_back(address)
        self.idle.pop(transport, None)


async def _no_application(*_: Any) -> None:
    """Nothing."""


class LiveConfig(uvicorn.Config):
    """uvicorn's settings for an application.

    Args:
        proxies: see `serve`.
    """

    def __init__(self, app: Starlette, hub: Hub, proxies: list[str]) -> None:
        self.hub, limits = hub, hub.limits
        self.doors = Doors(limits.connections, limits.connections_per_address, proxies)
        super().__init__(
            app,
            http=HttpProtocol,
            ws=LiveProtocol,
            ws_max_size=limits.frame_bytes,
            ws_per_message_deflate=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=proxies,
            server_header=False,
            access_log=False,
            log_config=None,
            log_level="warning",
            timeout_graceful_shutdown=1,
            backlog=ACCEPTED,
        )


class HttpProtocol(H11Protocol):
    """Cuts off who does not ask for something, or does not read the answer, in time: uvicorn waits for ever. The
    application may take as long as it needs."""

    config: LiveConfig
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has come."""
        super().connection_made(transport)
        self.limits = self.config.hub.limits
        self._has(self.limits.request_seconds)
        if (why := self.config.doors.enter(transport)) is not None:
            self.config.hub.metrics.rejected.labels("connections").inc()
            body = f"{why}\n".encode()
            retry = f"Retry-After: {self.limits.retry_seconds:.0f}\r\nConnection: close\r\n"
            head = f"HTTP/1.1 503 Service Unavailable\r\n{retry}Content-Length: {len(body)}\r\n\r\n"
            transport.write(head.encode() + body)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """And has gone."""
        self._has(None)
        self.config.doors.leave(self.transport)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Something may have been asked for."""
        before = self.cycle
        super().handle_events()
        if self.cycle is None or self.cycle.response_complete:
            return
        if self.cycle is not before:
            self.config.doors.idle.pop(self.transport, None)
            self._has(self.limits.idle_seconds)
        if not self.cycle.more_body and not self.flow.write_paused:  # by an answer before this one
            self._has(None)

    def pause_writing(self) -> None:
        """The answer is not read."""
        super().pause_writing()
        self._has(self.limits.idle_seconds)

    def resume_writing(self) -> None:
        """And now it is."""
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._has(None)

    def on_response_complete(self) -> None:
        """The next request may come."""
        if self.transport in self.config.doors.entered:
            self.config.doors.idle[self.transport] = None
        unread = self.transport.get_write_buffer_size()  # of this answer
        self._has(self.limits.idle_seconds if unread else self.limits.request_seconds)
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """It goes on as a WebSocket."""
        self._has(None)
        self.config.doors.idle.pop(self.transport, None)
        super().handle_websocket_upgrade(event)

    def _has(self, seconds: float | None) -> None:
        """It has so long for what comes next."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class LiveProtocol(WebSocketsSansIOProtocol):
    """Counts every frame as a message, so that pings and empty fragments are none for free, and cuts off who does not
    read, is past the keepalive, or does not close: uvicorn answers pings for ever, and waits for ever."""

    config: LiveConfig

    def __init__(self, *arguments: Any, **values: Any) -> None:
        super().__init__(*arguments, **values)
        self.close_timeout = CLOSE_TIMEOUT
        self.limits = self.config.hub.limits
        self.messages = Bucket(self.limits.messages_per_second, self.limits.messages_burst)
        self.refused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self.config.doors.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, a few at a time: answers to all pings of a packet would take others' time."""
        for begin in range(0, len(data), SLICE):
            if self.refused or self.transport.is_closing():
                return
            super().data_received(data[begin : begin + SLICE])

    def handle_events(self) -> None:
        """Act on frames, unless there are too many."""
        frames = sum(isinstance(one, Frame) and one.opcode is not Opcode.CLOSE for one in self.conn.events)
        if not frames or self.messages.take(frames):
            super().handle_events()
        else:
            self._refuse()

    def _refuse(self) -> None:
        """Say that there were too many, and close."""
        self.refused = True
        self.config.hub.metrics.rejected.labels("rate").inc()
        self.conn.events_received()
        self.conn.data_to_send()
        if self.close_sent or self.conn.state is not OPEN or not self.writable.is_set():
            self.transport.abort()
            return
        rate = self.limits.messages_per_second
        refused = Refused(Close.RATE, f"more than {rate:g} messages a second, pings and fragments included", 1 / rate)
        self.conn.send_text(as_json(refused.error()).encode())
        self.conn.send_close(refused.close)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": int(refused.close)})
        self.transport.pause_reading()
        self.read_paused = False  # so that nothing resumes it
        self.close_timer = self.loop.call_later(FAREWELL, self.transport.abort)

    def handle_ping(self) -> None:
        """Answer a ping of one who reads."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        """The client has not answered in time, and will not read why, either."""
        super().keepalive_timeout()
        self.transport.abort()

    def shutdown(self) -> None:
        """The server stops."""
        if not self.transport.is_closing():
            super().shutdown()

    async def send(self, message: Any) -> None:
        """Send a message of the application's."""
        if self.refused or self.transport.is_closing():
            raise ClientDisconnected
        if message["type"] == "websocket.close":
            if not self.writable.is_set() and message.get("code") == Close.TOO_SLOW:
                self.transport.abort()
                return
            self.writable.set()
        await super().send(message)

    async def run_asgi(self) -> None:
        """Run the application."""
        await super().run_asgi()
        if not self.disconnected:
            self.loop.call_later(CLOSE_TIMEOUT + 1, self.transport.abort)


class Server(uvicorn.Server):
    """Drains before it shuts down; a second signal does not wait.

    uvicorn closes all sockets with 1012 before the application's shutdown runs, so the drain begins with the signal.
    """

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self.hub = hub
        self._stops = False  # whether a signal has come
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        if self._stops:
            super().handle_exit(sig, frame)
        self._stops = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, a few at a time, of which the system holds many."""
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Whether to exit, asked ten times a second: also where there will be no engine."""
        if self._stops and self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await super().on_tick(counter) or self.hub.link.failed is not None

    async def _drain(self) -> None:
        await self.hub.drain()
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. OSError, naming it, for an address that cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm of sockets that say they are TCP's only: else a short frame waits until the
    # one before is acknowledged, which clients put off for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(f"port={port}: {host} cannot be listened at ({error.strerror}); give another port=…") from error
    return listening


def make_room(connections: int) -> None:
    """Have this process open files for so many connections. ValueError if it may not."""
    needed = connections + OTHER_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most
    if most == resource.RLIM_INFINITY:  # which some systems do not allow for
        wanted = now if now == most else max(now, needed)
    elif most < needed:
        raise ValueError(
            f"limits.connections={connections}: these and what else a server opens are {needed} files, where this "
            f"process may open {most}: allow more (ulimit -n {needed}), or give limits.connections="
            f"{most - OTHER_FILES} and no more limits.sessions"
        )
    if now != wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def serve(app: Starlette, hub: Hub, listening: socket.socket, *, proxies: list[str]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        listening: see `listen`.
        proxies: addresses whose word is taken for who a client is.
    """
    # It logs a traceback for each frame that is not UTF-8: a client could fill the log.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith("Invalid UTF-8"))
    Server(LiveConfig(app, hub, proxies), hub).run([listening])
