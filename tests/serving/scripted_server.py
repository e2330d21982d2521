"""A live server without a model: it speaks the protocol and translates by a script, so that the page can be tested.

Each character is a source token, each target token the name of a number: the i-th is written once `i + lag` tokens
have been read, the lag being 0 to 4 as θ goes from 0 to 1. Sentences end at 。 and at line ends. A character that is
said to be in pieces, of either side, is as many tokens as UTF-8 has bytes of it. The page cannot tell it from the
server: messages of both sides are checked against the protocol.
"""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

import duplexmt
from duplexmt.protocol.messages import SUBPROTOCOL, client_message
from duplexmt.serving.app import FILES, Guard

from .live_server import validator

PACKAGE = Path(duplexmt.__file__).parent
NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LIMITS = {
    "frame_bytes": 16384, "message_characters": 2000, "characters_per_second": 200.0, "characters_burst": 4000,
    "messages_per_second": 20.0, "messages_burst": 40, "idle_seconds": 120.0, "grace_seconds": 120.0,
}  # fmt: skip
SAMPLES = {"chosen": "Chosen by the tests.", "sentences": ["站在那边的男人曾是棒球手。", "那张他昨天买的沙发真贵。"]}
MODEL = {
    "name": "scripted", "source_language": "zh", "target_language": "en", "theta": 0.5, "parameters": 5_300_000,
    "samples": SAMPLES,
}  # fmt: skip


class Session:
    """A text, and the frames of events that it has led to.

    Attributes:
        connection: of its client, the last one.
        forgotten: how many of the frames a snapshot stands for; None for all there are.
        answered: how many characters are taken, and all is sent that follows from them.
    """

    def __init__(self, name, theta, names, in_pieces):
        self.name, self.theta, self.keys = name, theta, 0
        self.names = [piece for name in names for piece in self.tokens(name, in_pieces)]
        self.in_pieces = in_pieces
        self.text, self.frames = "", []
        self.sentence, self.read, self.written, self.line_is_open = 0, 0, 0, False
        self.connection, self.forgotten, self.answered, self.replaced = None, None, 0, 0

    @property
    def key(self):
        return f"{self.name}-{self.keys}"

    def take(self, at, text):
        """The text from a position on; whatever is known of it is passed over."""
        for character in text[len(self.text) - at :] if at <= len(self.text) else "":
            self.text += character
            self.frames.append([])
            if character == "\n":
                self.finish()
                self.happens(event="line", text="\n")
                self.line_is_open = False
                continue
            for token in self.tokens(character, self.in_pieces):
                between = " " if self.read == 0 and self.line_is_open else ""
                self.step("read", token=token, end=False, text=between)
                self.line_is_open = True
                if character != "。":
                    self.catch_up(self.read - round(4 * self.theta))
            if character == "。":
                self.finish()

    @staticmethod
    def tokens(text, in_pieces):
        """The texts that the tokens of a text make complete."""
        return [""] * (len(text.encode()) - 1) + [text] if text in in_pieces else [text]

    def replace(self, position, text):
        """Other text from a position on; False where that is over."""
        if position < self.boundary(len(self.frames)):
            return False
        kept = "".join(character for character in self.text[self.boundary(len(self.frames)) : position])
        read = sum(len(self.tokens(character, self.in_pieces)) for character in kept)
        back, self.read = max(0, self.read - read), min(self.read, read)
        self.text = self.text[:position]
        self.frames.append([])
        self.happens(event="replaced", sentence=self.sentence, text="", tokens=back)
        self.replaced += 1
        self.take(position, text)
        return True

    def step(self, event, **fields):
        """A read or a write; p(EMIT) lies between θ and the end of the scale it must be at."""
        p = self.theta / 2 if event == "read" else (1 + self.theta) / 2
        first = event == "read" and self.read == 0
        self.happens(
            event=event, sentence=self.sentence, theta=self.theta, p_emit=None if first else round(p, 3), **fields
        )
        self.read += event == "read" and not fields["end"]

    def catch_up(self, count):
        while self.written < count:
            name = self.names[self.written % len(self.names)]
            self.step("write", token=name, text=f"{' ' if self.written and name else ''}{name}", delay=self.read)
            self.written += 1

    def finish(self):
        if self.read:
            self.step("read", token="", end=True, text="")
            self.catch_up(self.read)
            self.happens(event="end", sentence=self.sentence, text=".", reason="end_token")
            self.sentence, self.read, self.written = self.sentence + 1, 0, 0

    def boundary(self, frames):
        """Where the last sentence or line of the first frames ended."""
        events = [event for frame in self.frames[:frames] for event in frame]
        return max((event["source"] for event in events if event["event"] in ("end", "line")), default=0)

    def happens(self, **event):
        self.frames[-1].append(event | {"source": len(self.text)})


class ScriptedServer:
    """The server.

    Attributes:
        address: of the page.
        received: all messages of clients, in order.
        mistakes: messages of clients that the protocol does not know.
        refuses: whether connections are refused.
        expires: whether a session that is gone on with is over by now.
        fails_with: close code, name and further fields of the error that every new connection ends with, if any.
        forgets: whether a `resume` gets a snapshot.
        stalls: whether nothing is answered any more.
        models, limits: that `ready` tells.
        credit: characters that may be sent at a time.
        keeps: whether events are not sent, only acknowledgements.
        lasts: seconds of a session.
        engine: state of the engine, as it is told after `ready` and before a refusal.
        names: that are written.
        in_pieces: characters and names that are several tokens each.
    """

    def __init__(self):
        self.received, self.mistakes, self.sessions, self.sockets = [], [], {}, set()
        self.refuses, self.forgets, self.stalls, self.keeps, self.expires = False, False, False, False, False
        self.fails_with = self.token = None
        self.models = [MODEL]
        self.loop, self.credit, self.limits = None, 4000, LIMITS
        self.names, self.in_pieces, self.lasts, self.engine = NAMES, (), 3600.0, {"state": "ready"}

    @property
    def session(self):
        return list(self.sessions.values())[-1]

    @property
    def translation(self):
        """Of the newest session."""
        return "".join(event["text"] for event in self.events())

    def events(self):
        """Of the newest session."""
        return [event for frame in self.session.frames for event in frame]

    def texts(self):
        """What has arrived as text, message by message."""
        return [message.text for message in self.received if message.type == "text"]

    def cut(self, code=1011):
        """End all connections."""
        self._to_all(lambda one: one.close(code))

    def tell_engine(self, **engine):
        """Another state of the engine."""
        self.engine = engine
        message = {"type": "engine", **engine}
        validator("server").validate(message)
        self._to_all(lambda one: one.send_text(json.dumps(message)))

    def tell_events(self, *events, seq=1):
        """Events by no script, and such as the protocol does not know yet."""
        message = {"type": "events", "seq": seq, "events": events}
        self._to_all(lambda one: one.send_text(json.dumps(message)))

    def _to_all(self, act):
        for one in list(self.sockets):
            asyncio.run_coroutine_threadsafe(act(one), self.loop).result(5)

    async def live(self, connection):
        if self.refuses:
            await connection.close()
            return
        await connection.accept(SUBPROTOCOL)
        self.sockets.add(connection)
        try:
            with suppress(WebSocketDisconnect, RuntimeError):  # cut off
                await self.converse(connection)
        except ValueError as error:  # of client_message: the page does not keep to the protocol
            self.mistakes.append(error)
        self.sockets.discard(connection)

    async def converse(self, connection):
        async def send(kind, **fields):
            message = {"type": kind, **fields}
            validator("server").validate(message)
            await connection.send_text(json.dumps(message))

        async def fail(code, name, message="no", **fields):
            await send("error", code=name, fatal=True, message=message, **fields)
            await connection.close(code)

        first = await self.receive(connection)
        if self.fails_with:
            code, name, fields = self.fails_with
            if self.engine["state"] != "ready":
                await send("engine", **self.engine)
            return await fail(code, name, **fields)
        if first.type == "watch":
            await send("watching", model=MODEL)
            while await self.receive(connection):
                if not self.stalls:
                    await send("pong")
        if first.type == "start":
            if first.token != self.token:
                return await fail(4401, "token", "the token is missing or wrong")
            models = {model["name"]: model for model in self.models}
            if first.model not in (None, *models):
                return await fail(4400, "bad_message", f"no model {first.model}")
            model = models[first.model or self.models[0]["name"]]
            if first.theta is not None and model["theta"] is None:
                return await fail(4400, "bad_message", "theta: this model has none")
            name = f"session{len(self.sessions)}"
            theta = MODEL["theta"] if first.theta is None else first.theta
            self.sessions[name] = Session(name, theta, self.names, self.in_pieces)
            self.sessions[name].model = model
        session, seen, snapshot = self.sessions.get(getattr(first, "session", self.session.name)), 0, None
        if first.type == "resume":
            if self.expires:
                return await fail(4408, "expired")
            if session is None or session.key != first.key:
                return await fail(4404, "unknown_session", "no such session")
            seen = first.seq
            if self.forgets:
                seen = len(session.frames) if session.forgotten is None else session.forgotten
                place = {"source": len(session.text), "sentence": session.sentence, "boundary": session.boundary(seen)}
                text = "".join(event["text"] for frame in session.frames[:seen] for event in frame)
                snapshot = {"seq": seen, "text": text, **place}
            if session.connection in self.sockets:
                await session.connection.close(4409)
        session.connection = connection
        session.keys += 1
        more = {"limits": self.limits, "models": self.models} | ({"snapshot": snapshot} if snapshot else {})
        await send("ready", session=session.name, key=session.key, model=session.model, expires=self.lasts, **more)
        await send("engine", **self.engine)
        counted = {"replaced": session.replaced} if session.replaced else {}
        await send("ack", at=len(session.text), credit=self.credit, **counted)
        while True:
            while not self.keeps and seen < len(session.frames):
                await send("events", seq=seen + 1, events=session.frames[seen])
                seen += 1
            session.answered = len(session.text)
            message = await self.receive(connection)
            if self.stalls:
                continue
            if message.type == "text" and message.replace is not None:
                if not session.replace(message.replace, message.text):
                    told = {"earliest": session.boundary(len(session.frames))}
                    await send("error", code="replace", fatal=False, message="it is over", **told)
                    continue
                await send("ack", at=len(session.text), credit=self.credit, replaced=session.replaced)
            elif message.type == "text":
                session.take(message.at, message.text)
                counted = {"replaced": session.replaced} if session.replaced else {}
                await send("ack", at=len(session.text), credit=self.credit, **counted)
            elif message.type == "set":
                session.theta = message.theta
                await send("set", id=message.id, seq=len(session.frames))
            elif message.type == "ping":
                await send("pong")

    async def receive(self, connection):
        message = client_message(await connection.receive_text())
        self.received.append(message)
        return message


def app(server):
    """The page and its server, with the policy of the real one."""
    return Starlette(routes=[WebSocketRoute("/v1/live", server.live), *FILES], middleware=[Middleware(Guard, hosts=())])


@contextmanager
def serving():
    """A scripted server on a port of its own."""
    server = ScriptedServer()
    listening = socket.create_server(("127.0.0.1", 0))
    server.address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    runner = uvicorn.Server(uvicorn.Config(app(server), log_level="warning", ws="websockets-sansio", lifespan="off"))

    async def run():
        server.loop = asyncio.get_running_loop()
        await runner.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield server
    finally:
        runner.should_exit = runner.force_exit = True
        thread.join(10)
        listening.close()
