"""LibreTranslate's interface, for all that speaks it: whole texts, through the sessions that live ones go through.

`POST /translate` takes `q` (a text or a list of them), `source` (`auto`: that of the first model that has the target),
`target`, `format=text` and `api_key`, the server's token, as JSON or as a form; `GET /languages` says what there is.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from babel import Locale
from starlette.requests import Request
from starlette.responses import JSONResponse

from ..protocol.messages import Close
from .hub import Hub
from .inner_client import InnerClient, from_json, pairs
from .limits import Refused

LONGEST_CHARACTER = 12  # bytes, where each of its four is escaped as %F0
BESIDE = 4096  # bytes of a request that are not the text
STATUS = {Close.TOKEN: 403, Close.RATE: 429, Close.BUSY: 503, Close.RESTART: 503}  # of a refusal; of others, 500
NAMES = Locale("en").languages


class BadRequest(Exception):
    """A request that cannot be answered.

    Args:
        told: what is wrong, and the way out.
    """

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status


def languages(hub: Hub) -> list[dict[str, Any]]:
    """The models' languages as LibreTranslate lists them, what is translated from first."""
    targets: dict[str, list[str]] = {code: [] for one in (0, 1) for code in [pair[one] for pair in pairs(hub)]}
    for source, target in dict.fromkeys(pairs(hub)):
        targets[source].append(target)
    return [{"code": code, "name": NAMES.get(code, code), "targets": found} for code, found in targets.items()]


async def translate(
    request: Request, hub: Hub, address: str, check_token: Callable[[str | None], None]
) -> JSONResponse:
    """The answer to `POST /translate`.

    Args:
        address: of the client, as `limits.whose` has it.
        check_token: raises `Refused` for a token that is not the server's.
    """
    try:
        asked = await _body(request, LONGEST_CHARACTER * hub.limits.characters_burst + BESIDE)
        if not isinstance(key := asked.get("api_key"), str | None):
            raise BadRequest(400, "api_key: a text")
        check_token(key)
        texts, source, target = _texts(asked, hub), asked.get("source"), asked.get("target")
        try:
            client = InnerClient(hub, address, (None if source == "auto" else str(source), str(target)))
        except LookupError as error:
            raise BadRequest(400, f"source={source}, target={target}: {error.args[0]}") from None
        written = await _translated(client, texts, request)
    except BadRequest as bad:
        return JSONResponse({"error": str(bad)}, bad.status)
    except Refused as refused:
        headers = {} if refused.retry_after is None else {"Retry-After": f"{refused.retry_after:.0f}"}
        return JSONResponse({"error": str(refused)}, STATUS.get(refused.close, 500), headers)
    return JSONResponse({"translatedText": written if isinstance(asked["q"], list) else written[0]})


async def _body(request: Request, most: int) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BadRequest(413, f"a request of more than {most} bytes: send less text at once")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            asked = from_json(body)
        elif kind in ("", "application/x-www-form-urlencoded"):
            fields = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
            if len(asked := dict(fields)) < len(fields):
                raise BadRequest(400, "a field stands there twice: send several texts as JSON, q as a list")
        else:
            raise BadRequest(415, f"Content-Type {kind}: send JSON or a form that is URL-encoded")
    except (ValueError, RecursionError) as error:
        raise BadRequest(400, f"the request cannot be read: {error}") from None
    if not isinstance(asked, dict):
        raise BadRequest(400, "the request is no JSON object")
    return asked


def _texts(asked: dict[str, Any], hub: Hub) -> list[str]:
    """The texts to be translated.

    Raises:
        BadRequest: there are none, or they cannot be taken.
    """
    texts = asked.get("q")
    texts = texts if isinstance(texts, list) else [texts]
    if not all(isinstance(text, str) for text in texts):
        raise BadRequest(400, "q: a text or a list of texts")
    if (form := asked.get("format", "text")) != "text":
        raise BadRequest(400, f"format={form}: must be text")
    if (total := sum(map(len, texts)) + len(texts)) > hub.limits.characters_burst:
        raise BadRequest(413, f"{total:,} characters: {hub.limits.characters_burst:,} at most at once")
    return texts


async def _translated(client: InnerClient, texts: list[str], request: Request) -> list[str]:
    """Each text's translation; line ends stay where they are.

    Raises:
        Refused: the session has ended before, or who asked has gone.
    """
    lines = [text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in texts]
    watch = asyncio.create_task(_leave_with(request, client))
    try:
        client.give("".join(f"{line}\n" for text in lines for line in text))
        client.end()
        while not client.done:
            await client.more()
    finally:
        watch.cancel()
        client.close()
    written = iter(client.lines)
    return ["\n".join(next(written) for _ in text) for text in lines]


async def _leave_with(request: Request, client: InnerClient) -> None:
    """Have the session end when who asked goes, as nobody will read the answer."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    client.leave(Refused(Close.NORMAL, "the client has gone"))
