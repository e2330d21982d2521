"""The real server with a tiny model: in this process, its engine in a thread; and a client that speaks JSON alone."""

import asyncio
import faulthandler
import json
import threading
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace

import jsonschema
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from duplexmt.data.settled import SettledTokens
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder.live_model import live_engine, live_text
from duplexmt.policy.decoding_options import PAPER_RULE
from duplexmt.protocol.messages import SCHEMA_FILE
from duplexmt.serving import engine_link
from duplexmt.serving.app import create_app
from duplexmt.serving.engine_process import Worker
from duplexmt.serving.hub import Hub
from duplexmt.serving.server import LiveConfig, Server, listen
from duplexmt.serving.settings import EngineSettings, Limits
from duplexmt.streaming.live import Boundary, LiveDriver, LiveEvent
from duplexmt.streaming.live_text import LineEnd

from ..helpers import CORPUS, float64, model_folder, spoken_grid, tiny_prefix, tiny_tokenizer

TOKENIZER = tiny_tokenizer(460)
SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
PAIRS = "zh-en", "de-en"  # models that stand for folders of these names
LIMITS = {
    "frame_bytes": 16384, "message_characters": 2000, "characters_per_second": 200.0, "characters_burst": 4000,
    "messages_per_second": 20.0, "messages_burst": 400, "unsent_bytes": 65536, "unsent_events": 256,
    "kept_bytes": 1048576, "kept_events": 4096, "request_seconds": 10.0, "start_seconds": 5.0,
    "idle_seconds": 120.0, "grace_seconds": 120.0, "session_seconds": 3600.0, "sessions": 64, "sessions_per_address": 8,
    "connections": 512, "connections_per_address": 64, "active_seconds": 5.0, "drain_seconds": 5.0,
    "retry_seconds": 3.0,
}  # fmt: skip
ENGINE = {
    "model_folders": ["zh-en"], "device": "cpu", "quantize": None, "threads": None, "max_streams": 8,
    "max_target_tokens": 12, "max_repeats": 3, "max_sentence_tokens": None, "cut": True,
    "text_seconds": 0.003, "park_after": 0.2,
}  # fmt: skip


def tiny_folder(into, segmentation, seed=0):
    """The folder of a tiny grid that says something."""
    model, kept = spoken_grid(seed=seed, tokenizer=TOKENIZER, anchor=0), {"lam": 0.1, "theta": 0.5}
    return saved(into, model, kept, segmentation)


def multi_path_folder(into, seed=0, k="multi"):
    """The folder of a tiny multi-path model, which any rival of the grid can be run on; or of an offline one."""
    return saved(into, tiny_prefix(k, seed=seed, anchor=12, vocab_size=len(TOKENIZER)), {}, "tokens")


def saved(into, model, kept, segmentation):
    data = CORPUS | {"path": "gone.tsv", "max_tokens": 32, "licence": "CC0", "segmentation": segmentation}
    return model_folder(into, model, TOKENIZER, data=data, policy=kept)


@cache
def validator(side):
    return jsonschema.Draft202012Validator(SCHEMA | {"anyOf": [{"$ref": f"#/$defs/{side}"}]})


@cache
def loaded(languages="zh-en"):
    """As a model folder is loaded; in float64, so that no rounding decides."""
    source, target = languages.split("-")
    return SimpleNamespace(
        model=float64(spoken_grid(seed=2 if languages == "zh-en" else 3, tokenizer=TOKENIZER, anchor=0)),
        tokens=stream_tokens(TOKENIZER),
        rule=PAPER_RULE,
        tokenizer=TOKENIZER,
        settled_tokens=SettledTokens(TOKENIZER),
        typical_source_length=None,
        info={
            "system": "grid",
            "policy": {"theta": 0.5},
            "data": {"source_language": source, "target_language": target, "max_tokens": 20},
        },
    )


def translated(text, max_target_tokens=ENGINE["max_target_tokens"], languages="zh-en"):
    """What translate.py writes for a text: its driver with one client, and its report."""
    engine = live_engine(loaded(languages), max_target_tokens, ENGINE["max_repeats"], max_streams=1)
    driver = LiveDriver(engine)
    translator = driver.join(live_text(loaded(languages), engine, None, True))
    translator.give(translator.text.take(text))
    translator.give(translator.text.end())
    out, sentence = "", None
    while driver.goes_on:
        for _, found in driver.step():
            if isinstance(found, LineEnd):
                out, sentence = out + "\n", None
            elif isinstance(found, LiveEvent):
                if sentence not in (None, found.event.stream):
                    out += " "
                sentence = found.event.stream
                out += getattr(found.event, "text", "")
            else:
                assert isinstance(found, Boundary) or not driver.goes_on
    return out


def source_of(events):
    """The source that is left, by sentence, as its tokens were told."""
    read = {}
    for event in events:
        tokens = read.setdefault(event["sentence"], []) if "sentence" in event else []
        if event["event"] == "read":
            tokens.append(event["token"])
        elif event["event"] == "replaced" and event["tokens"]:
            del tokens[-event["tokens"] :]
    return ["".join(tokens) for tokens in read.values() if tokens]


class ThreadProcess:
    """Stands for the engine's process."""

    def __init__(self, target, args, **_):
        self.link = args[1].dup()
        self.thread = threading.Thread(target=self._run, args=(target, args[0]), daemon=True)
        self.pid, self.exitcode = 1, None

    def _run(self, target, settings):
        try:
            target(settings, self.link)
        except (Killed, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.exitcode = 0
            self.link.close()

    def start(self):
        self.thread.start()

    def join(self, timeout=None):
        self.thread.join(timeout)

    def kill(self):
        raise AssertionError("the engine's thread does not end")

    def close(self):
        assert self.exitcode is not None


class Killed(Exception):
    """The engine dies."""


@contextmanager
def serving(monkeypatch, token=None, hosts=(), origins=(), proxies=(), step_deadline=10.0, engine=None, **limits):
    """A server; `address`, `hub`, `port`, and `kill`, whose set event has the engine die at its next step."""
    kill = threading.Event()
    settings = EngineSettings(**ENGINE | (engine or {}))
    step = Worker.step

    def mortal(self):
        (model, *_) = self.models.values()
        if model.settings is settings and kill.is_set():  # not an engine of another server's
            kill.clear()
            raise Killed
        return step(self)

    with monkeypatch.context() as patch:
        context = SimpleNamespace(Process=ThreadProcess)
        patch.setattr(engine_link.multiprocessing, "get_context", lambda kind: context)
        known = {pair: loaded(pair) for pair in PAIRS}
        load = "duplexmt.serving.engine_process.load_live_model"
        patch.setattr(load, lambda folder, *values, **options: known.get(folder, known["zh-en"]))
        patch.setattr(Worker, "step", mortal)
        values = Limits(**LIMITS | limits)
        hub = Hub(settings, values, step_deadline=step_deadline, start_deadline=60)
        app = create_app(hub, token=token, hosts=hosts, origins=origins)
        listening = listen("127.0.0.1", 0)
        server = Server(LiveConfig(app, hub, list(proxies)), hub)
        thread = threading.Thread(target=partial(asyncio.run, server.serve([listening])), daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        until(lambda: hub.link.is_ready)
        try:
            yield SimpleNamespace(
                address=f"ws://127.0.0.1:{port}/v1/live", port=port, hub=hub, server=server, kill=kill
            )
        finally:
            hub.draining = True
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def until(holds, seconds=40.0):
    """Wait until something holds; where it does not, stderr has what every thread is at."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if holds():
            return
        pause.wait(0.005)
    faulthandler.dump_traceback(all_threads=True)
    raise AssertionError("it does not come to hold")


class Speaker:
    """A client written from docs/reference/protocol.md alone, which checks all messages by the schema."""

    def __init__(self, address, first=None, way=None, **headers):
        """Connect, by a `way` of its own if that is given: a socket, TLS."""
        self.socket = connect(
            address, subprotocols=["duplexmt.v1"], compression=None, additional_headers=headers, max_size=None,
            **way or {},
        )  # fmt: skip
        self.text, self.events, self.seq, self.at, self.error = "", [], 0, None, None
        if first is not None:
            self.say(**first)

    def say(self, **message):
        validator("client").validate(message)
        self.socket.send(json.dumps(message))

    def hear(self, timeout=20):
        """The next message."""
        message = json.loads(self.socket.recv(timeout))
        validator("server").validate(message)
        if message["type"] == "ready":
            self.session, self.key = message["session"], message["key"]
        elif message["type"] == "events":
            assert message["seq"] == self.seq + 1
            self.seq = message["seq"]
            self.events += message["events"]
            self.text += "".join(event["text"] for event in message["events"])
        elif message["type"] == "ack":
            self.at = message["at"]
        elif message["type"] == "error":
            self.error = message
        return message

    def until(self, kind):
        """Hear until a message of a kind has come, which is returned."""
        while (message := self.hear())["type"] != kind:
            pass
        return message

    def rest(self):
        """Hear until the server closes; the close code."""
        try:
            while True:
                self.hear()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006

    def whole(self):
        """End the text, hear until all is said, and return it."""
        self.say(type="end")
        assert (code := self.rest()) == 1000, (code, self.error)
        return self.text

    def again(self, address, **values):
        """Resume on another connection, which knows what this one knew."""
        other = Speaker(address)
        other.text, other.events, other.seq = self.text, list(self.events), self.seq
        other.say(**{"type": "resume", "session": self.session, "key": self.key, "seq": self.seq} | values)
        return other

    def drop(self):
        """Lose the connection without a word."""
        self.socket.socket.shutdown(2)
        self.socket.socket.close()
