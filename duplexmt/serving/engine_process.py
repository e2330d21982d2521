"""The engine in a process of its own: text in, events out, as lines of JSON over a socket.

Whoever starts it has all it takes to start another one: `open_text.OpenText`.
"""

import gc
import json
import logging
import select
import signal
import socket
import threading
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any

import torch

from ..model_folder.live import live_engine, live_text, load_live_model
from ..model_folder.manifest import checksum
from ..streaming.events import End, Read
from ..streaming.live import Boundary, Found, LiveDriver, LiveTranslator, Sentence
from ..streaming.live_text import LineEnd, TextEnd
from ..streaming.text import GrowingText
from .protocol import as_json
from .settings import EngineSettings

log = logging.getLogger(__name__)
HEARTBEAT = 0.5  # seconds between two signs of life
PARKING = 0.05  # seconds between two looks for a stream that has stalled
CHUNK = 2**18


def run(settings: EngineSettings, link: socket.socket) -> None:
    """Be the engine until the other end of the link is closed."""
    own_process = threading.current_thread() is threading.main_thread()
    if own_process:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)  # are for the server, which ends this
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    try:
        engine = Worker(settings)
    except (ValueError, OSError, RuntimeError) as error:  # the last one: PyTorch's own, such as no room on a GPU
        link.sendall(_line({"failed": str(error)}))
        return
    if own_process:  # else Python looks through all that was loaded now and then, and serves nobody for 150 ms
        gc.collect()
        gc.freeze()
    link.sendall(_line({"model": engine.model, "fingerprint": checksum(engine.loaded.info)}))
    with suppress(BrokenPipeError, ConnectionResetError):  # the other end has been closed meanwhile
        _serve(engine, link)
    gc.unfreeze()  # else nanobind, which Triton is bound by, takes what was frozen for leaked and lists it at exit


def _serve(engine: "Worker", link: socket.socket) -> None:
    received, heard = b"", monotonic()
    while True:
        if select.select([link], [], [], engine.patience())[0]:
            data = link.recv(CHUNK)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                engine.do(**json.loads(line))
        found = engine.step()
        if found["out"] or found["asked"] or monotonic() - heard > HEARTBEAT:
            link.sendall(_line(found))
            heard = monotonic()


def _line(values: dict[str, Any]) -> bytes:
    return as_json(values).encode() + b"\n"


class Worker:
    """A driver whose texts go by names."""

    def __init__(self, settings: EngineSettings) -> None:
        self.loaded = load_live_model(
            settings.model_folder, settings.device, quantize=settings.quantize, run_as=settings.run_as
        )
        self.settings = settings
        self.engine = live_engine(
            self.loaded,
            None,
            settings.max_target_tokens,
            settings.max_repeats,
            max_streams=settings.max_streams,
            run_as=settings.run_as,
            setting=settings.setting,
            adaptive=settings.adaptive,
        )
        self.driver = LiveDriver(
            self.engine, text_seconds=settings.text_seconds, park_after=settings.park_after, failed=self._failed
        )
        data = self.loaded.info["data"]
        self.model = {
            "name": f"{data['source_language']}-{data['target_language']}",
            "source_language": data["source_language"],
            "target_language": data["target_language"],
            "theta": self.engine.theta,
            "parameters": sum(weight.numel() for weight in self.loaded.model.parameters()),
            **({"samples": samples} if (samples := self.loaded.info.get("samples")) else {}),
        }
        self.texts: dict[str, LiveTranslator] = {}
        self.names: dict[LiveTranslator, str] = {}
        self.sources: dict[str, tuple[int, GrowingText]] = {}  # of the sentence at hand, with its number
        self.out: dict[str, list[list[Any]]] = {}
        self.asked = False
        text = live_text(self.loaded, self.engine, settings.max_sentence_tokens, settings.cut, log.warning)
        self.driver.join(text)  # for its checks, before any client comes

    def patience(self) -> float:
        """Seconds it may wait for more text."""
        if self.driver.goes_on or self.out:
            return 0.0
        return PARKING if self.driver.queue else HEARTBEAT

    def do(self, do: str, name: str, **values: Any) -> None:
        """Do what the server asks for a text: join, text, flush, end, set, leave; `tell` asks for a sign of life."""
        if do == "tell":
            self.asked = True
        elif do == "join":
            text = live_text(self.loaded, self.engine, self.settings.max_sentence_tokens, self.settings.cut)
            new = self.driver.join(text, theta=values["theta"], source_length=values["source_length"])
            self.texts[name], self.names[new] = new, name
            if values["restore"] is not None:
                new.restore(**values["restore"])
        elif (translator := self.texts.get(name)) is None:
            pass  # it has left
        elif do == "text":
            translator.give(translator.text.take(values["text"]))
        elif do == "flush":
            translator.give(translator.text.pause())
        elif do == "end":
            translator.give(translator.text.end())
        elif do == "set":
            translator.theta = values["theta"]
            self.out.setdefault(name, []).append(["set", values["id"]])
        else:
            assert do == "leave"
            translator.close()
            self._forget(name)

    @staticmethod
    def _failed(why: str) -> None:
        log.warning("a sentence was ended: %s; with a lower engine.max_streams, fewer are translated at once", why)

    def _forget(self, name: str) -> None:
        del self.names[self.texts.pop(name)]
        self.sources.pop(name, None)

    def step(self) -> dict[str, Any]:
        """One step of the driver: `out` has what it brought by name, in order."""
        begin = perf_counter()
        waits = dict(self.driver.queue)
        before = len(self.driver.streaming)
        found = self.driver.step()
        now = perf_counter()
        for translator, one in found:
            name = self.names[translator]
            self.out.setdefault(name, []).append(self._told(name, translator, one))
            if isinstance(one, TextEnd):
                self._forget(name)
        out, self.out = self.out, {}
        asked, self.asked = self.asked, False
        return {
            "asked": asked,
            "idle": not self.driver.goes_on and not self.driver.queue,
            "seconds": now - begin,
            "batch": sum(one[0] in ("read", "write", "end") for items in out.values() for one in items),
            "streams": max(before, len(self.driver.streaming)),
            "waiting": len(self.driver.queue),
            "waited": [now - since for translator, since in waits.items() if translator not in self.driver.queue],
            "out": out,
        }

    def _told(self, name: str, translator: LiveTranslator, found: Found) -> list[Any]:
        """What kind it is; the event as the protocol has it; what another engine would have to know."""
        if isinstance(found, Boundary):
            return ["boundary", found.position, found.state]
        if isinstance(found, LineEnd):
            return ["line", {"event": "line", "text": found.text, "source": found.position}]
        if isinstance(found, TextEnd):
            return ["done"]
        event = found.event
        told = {"event": "", "sentence": event.stream, "source": found.position, "text": found.text}
        if isinstance(event, End):
            return ["end", told | {"event": "end", "reason": event.reason}]
        told["p_emit"], told["theta"] = event.emit_probability, found.theta
        if isinstance(event, Read):
            assert translator.sentence is not None
            told["event"] = "read"
            told["end"] = event.token == self.loaded.tokens.end  # special tokens in a text are text
            told["token"] = "" if told["end"] else self._source(name, translator.sentence, event.token)
            return ["read", told]
        told["event"], told["delay"] = "write", event.delay
        told["token"] = event.text
        return ["write", told, event.token]

    def _source(self, name: str, sentence: Sentence, token: int) -> str:
        """The text that a source token which was read has made complete."""
        number, growing = self.sources.get(name, (-1, None))
        if growing is None or number != sentence.number:
            growing = GrowingText(self.loaded.tokenizer)
            for earlier in sentence.tokens[: sentence.read - 1]:  # read before another engine was lost
                growing.add(earlier)
            self.sources[name] = sentence.number, growing
        return growing.add(token)
