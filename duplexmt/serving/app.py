"""The server as an ASGI application: page, WebSocket, health and metrics on one port."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from .connection import Connection
from .hub import Hub, ip_address
from .protocol import SUBPROTOCOL

PAGE = Path(__file__).parent / "web"
STYLE = Path(__file__).parents[1] / "report" / "web" / "report.css"  # the page looks like the report


async def style(request: Request) -> Response:
    """The report's style sheet."""
    return FileResponse(STYLE)


FILES = [Route("/report.css", style), Mount("/", StaticFiles(directory=PAGE, html=True))]
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
PROBES = ("/livez", "/readyz", "/metrics")  # asked by machines that know an address only


def create_app(
    hub: Hub, *, token: str | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """The application; its lifespan starts the engine and ends it.

    Args:
        hub: of the sessions, not yet started.
        token: that a session must be started with; None for none.
        hosts: names this server is reached by, beside `localhost` and plain addresses.
        origins: pages of other hosts that may connect, such as `https://example.org`.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hub.start()
        yield
        await hub.drain()
        await hub.stop()

    async def live(websocket: WebSocket) -> None:
        if not origin_is_allowed(websocket.headers, origins) or SUBPROTOCOL not in websocket.scope["subprotocols"]:
            hub.metrics.rejected.labels("handshake").inc()
            await websocket.close()
            return
        await websocket.accept(SUBPROTOCOL)
        address = websocket.client.host if websocket.client is not None else ""
        await Connection(websocket, hub, address, token).run()

    async def livez(request: Request) -> Response:
        return PlainTextResponse("alive")

    async def readyz(request: Request) -> Response:
        why = hub.why_not_ready
        return JSONResponse({"ready": why is None, "why": why}, 200 if why is None else 503)

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(hub.metrics.text(), media_type="text/plain; version=0.0.4")

    routes = [
        WebSocketRoute("/v1/live", live),
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *FILES,
    ]
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, hosts=hosts)])


class Guard:
    """Refuses hosts that are not ours, as a page whose name was made to lead here would ask for, and adds headers.

    Args:
        app: behind it.
        hosts: see `create_app`.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if scope["path"] not in PROBES and not self._is_ours(host):
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).close()
            else:
                told = "no such host here: name it in hosts=[…]\n"
                await PlainTextResponse(told, 421)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""  # without its port, in small letters
        except ValueError:
            return False
        # An address is no name that could be made to lead elsewhere.
        return name == "localhost" or name in self.hosts or ip_address(name) is not None


def origin_is_allowed(headers: Headers, origins: Sequence[str]) -> bool:
    """Whether a page may connect: one of this server, or one of those named. Programs send no Origin."""
    origin = headers.get("origin")
    if origin is None or origin in origins:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False
