"""The application on uvicorn: one port, no compression, a SIGTERM that lets sentences end."""

import asyncio
import logging
import socket
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .hub import Hub

SEND_BUFFER = 65_536  # bytes of the system's own, so that a slow reader is noticed
CLOSE_TIMEOUT = 3.0  # seconds that a client has to answer a close


class LiveProtocol(WebSocketsSansIOProtocol):
    """Closes connections whose client does not read, too: uvicorn's waits until it does."""

    def __init__(self, *arguments: Any, **values: Any) -> None:
        super().__init__(*arguments, **values)
        self.close_timeout = CLOSE_TIMEOUT

    async def send(self, message: Any) -> None:
        """Send a message of the application's."""
        if message["type"] == "websocket.close":
            self.writable.set()
            if self.transport is not None:
                self.loop.call_later(CLOSE_TIMEOUT + 1, self.transport.abort)
        await super().send(message)


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


def serve(app: Starlette, hub: Hub, listening: socket.socket, *, frame_bytes: int, proxies: list[str]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        app: of `create_app`.
        hub: of the app.
        listening: see `listen`.
        frame_bytes: most of a frame; a longer one is closed with 1009.
        proxies: addresses whose word is taken for who a client is.
    """
    config = uvicorn.Config(
        app,
        ws=LiveProtocol,
        ws_max_size=frame_bytes,
        ws_per_message_deflate=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    # It logs a traceback for each frame that is not UTF-8: a client could fill the log.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith("Invalid UTF-8"))
    Server(config, hub).run([listening])
