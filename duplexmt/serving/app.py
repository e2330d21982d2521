"""The server as an ASGI application: page, WebSocket, health and metrics on one port."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ..common.addresses import ip_address
from ..protocol.messages import SUBPROTOCOL
from . import libretranslate
from .connection import Connection
from .hub import Hub
from .limits import Shares, whose
from .recogniser import Recogniser

log = logging.getLogger(__name__)
PORTS = {"http": 80, "https": 443}
PAGE = Path(__file__).parent / "web"
REPORT = Path(__file__).parents[1] / "report" / "web"  # the page looks like the report


async def of_report(request: Request) -> Response:
    """The report's style sheet, and what makes its elements."""
    return FileResponse(REPORT / request.url.path.rsplit("/", 1)[-1])


async def captions(request: Request) -> Response:
    """The caption screen."""
    return FileResponse(PAGE / "captions.html")


FILES = [
    Route("/report.css", of_report),
    Route("/dom.js", of_report),
    Route("/captions", captions),
    Mount("/", StaticFiles(directory=PAGE, html=True)),
]
UNUSED = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "geolocation",
    "gyroscope", "hid", "magnetometer", "midi", "payment", "picture-in-picture",
    "publickey-credentials-get", "screen-wake-lock", "serial", "usb", "xr-spatial-tracking",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(["fullscreen=(self)", "microphone=(self)", *(f"{one}=()" for one in UNUSED)]),
    "Cache-Control": "no-cache",
}


def create_app(
    hub: Hub, *, token: str | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """The application; its lifespan starts the engine and ends it.

    Args:
        hub: of the sessions, not yet started.
        token: that a session must be started with; None for none.
        hosts: names this server is reached by, beside `localhost` and plain addresses.
        origins: pages of other hosts that may connect and read answers, such as `https://example.org`.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hub.start()
        yield
        await hub.drain()
        await hub.stop()

    async def live(websocket: WebSocket) -> None:
        if not origin_is_allowed(websocket, origins) or SUBPROTOCOL not in websocket.scope["subprotocols"]:
            hub.metrics.rejected.labels("handshake").inc()
            await websocket.close()
            return
        await websocket.accept(SUBPROTOCOL)
        await Connection(websocket, hub, client_of(websocket), token).run()

    async def recogniser(websocket: WebSocket) -> None:
        if not origin_is_allowed(websocket, origins):
            hub.metrics.rejected.labels("handshake").inc()
            await websocket.close()
            return
        await websocket.accept()
        await Recogniser(websocket, hub, client_of(websocket)).run(
            partial(check_token, websocket, "in the address, ?token=…")
        )

    def check_token(connection: HTTPConnection, way: str, given: str | None) -> None:
        hub.guesses.look_at(client_of(connection), given, token, way)

    async def translate(request: Request) -> Response:
        if not origin_is_allowed(request, origins):
            return JSONResponse({"error": "pages of that origin are not served: name it in origins=[…]"}, 403)
        return await libretranslate.translate(
            request, hub, client_of(request), partial(check_token, request, "as api_key")
        )

    async def languages(request: Request) -> Response:
        known, retry = libretranslate.languages(hub), {"Retry-After": f"{hub.limits.retry_seconds:.0f}"}
        return JSONResponse(known) if known else JSONResponse({"error": hub.why_not_ready}, 503, retry)

    async def livez(request: Request) -> Response:
        return PlainTextResponse("alive")

    async def readyz(request: Request) -> Response:
        why = hub.why_not_ready
        told = {"ready": why is None, "why": why, "engine": hub.link.state, "last_failure": hub.link.failure}
        return JSONResponse(told, 200 if why is None else 503)

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(hub.metrics.text(), media_type="text/plain; version=0.0.4")

    routes = [
        WebSocketRoute("/v1/live", live),
        WebSocketRoute("/v1/recogniser", recogniser),
        Route("/translate", translate, methods=["POST"]),
        Route("/languages", languages),
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *FILES,
    ]
    guard = Middleware(Guard, hosts=hosts, most=hub.limits.connections_per_address, retry=hub.limits.retry_seconds)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=[*map(as_sent, origins)],
        allow_methods=["POST"],
        allow_headers=["Content-Type"],
        expose_headers=["Retry-After"],
    )
    return Starlette(routes=routes, lifespan=lifespan, middleware=[guard, cors])


class Guard:
    """Refuses hosts that are not ours, as a page whose name was made to lead here would ask for, and adds headers.
    Refuses more than an address may have at a time, too: behind a proxy nobody else knows whose a connection is.

    Args:
        most: requests of an address at a time.
        retry: seconds after which who has too many may try again.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], most: int = 64, retry: float = 5.0) -> None:
        self.app, self.hosts = app, {host.lower() for host in hosts}
        self.shares, self.retry = Shares(most), retry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = send_with_headers if scope["type"] == "http" else send  # frames pass as they are
        client = client_of(HTTPConnection(scope))
        if not self._is_ours(Headers(scope=scope).get("host", "")):
            refusal = PlainTextResponse("no such host here: name it in hosts=[…]\n", 421)
        elif not self.shares.take(client):
            told = f"{self.shares.most} connections from {client} are all there may be: close one\n"
            refusal = PlainTextResponse(told, 503, {"Retry-After": f"{self.retry:.0f}"})
        else:
            try:
                await self.app(scope, receive, answer)
            finally:
                self.shares.give_back(client)
            return
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
            await WebSocket(scope, receive, send).close()
        else:
            await refusal(scope, receive, send_with_headers)

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""  # without its port, in small letters
        except ValueError:
            return False
        # An address is no name that could be made to lead elsewhere.
        return name == "localhost" or name in self.hosts or ip_address(name) is not None


def client_of(connection: HTTPConnection) -> str:
    """Whose a connection is: the client's address as it is counted; empty where there is none."""
    return "" if connection.client is None else whose(connection.client.host)


def origin_is_allowed(connection: HTTPConnection, origins: Sequence[str]) -> bool:
    """Whether a page may connect: one of this server, or one of those named. Programs send no Origin.

    A page of this server has its scheme, too: what is read on an open network may have been changed there.
    """
    origin = connection.headers.get("origin")
    scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
    ours = as_sent(f"{scheme}://{connection.headers.get('host', '')}")
    if origin is None or as_sent(origin) in {ours, *map(as_sent, origins)}:
        return True
    told = "a page of %.100r is refused: name it in origins=[…], or the proxy that has its https in proxies=[…]"
    log.warning(told, origin)
    return False


def as_sent(origin: str) -> str:
    """An origin as a browser writes it: in small letters, without the port that its scheme has anyway; what is none, as
    it is."""
    try:
        parts = urlsplit(origin)
        port, usual = parts.port, PORTS[parts.scheme]
    except (ValueError, KeyError):
        return origin
    if not (host := parts.hostname):
        return origin
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" if port in (None, usual) else f"{parts.scheme}://{host}:{port}"
