"""The engine in a process of its own: text in, events out, as lines of JSON over a socket.

Whoever starts it has all it takes to start another one: `open_text.OpenText`.
"""

import gc
import json
import logging
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import torch

from ..model_folder.artifact import ModelFolder
from ..model_folder.live_model import live_engine, live_text, load_live_model
from ..model_folder.manifest import checksum
from ..protocol.messages import as_json
from ..streaming.events import End, Read, Replaced
from ..streaming.growing_text import GrowingText
from ..streaming.live import Boundary, LiveDriver, LiveOutput, LiveTranslator
from ..streaming.live_text import LineEnd, TextEnd
from .settings import EngineSettings

log = logging.getLogger(__name__)
HEARTBEAT = 0.5  # seconds between two signs of life
PARKING = 0.05  # seconds between two looks for a stream that has stalled
CHUNK = 2**18


def run(settings: EngineSettings, link: socket.socket) -> None:
    """Be the engine until the other end of the link is closed."""
    own_process = threading.current_thread() is threading.main_thread()
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
    told = {name: model.description for name, model in engine.models.items()}
    fingerprint = checksum({name: model.loaded.info for name, model in engine.models.items()})
    link.sendall(_line({"models": told, "fingerprint": fingerprint}))
    with suppress(BrokenPipeError, ConnectionResetError):  # the other end has been closed meanwhile
        engine.serve(link)
    gc.unfreeze()  # else nanobind, which Triton is bound by, takes what was frozen for leaked and lists it at exit


def _line(values: dict[str, Any]) -> bytes:
    return as_json(values).encode() + b"\n"


class Model:
    """One of the models: its engine, and the driver of its texts.

    Attributes:
        languages: such as zh-en.
        description: what a client is told of it, but its name.
    """

    def __init__(self, settings: EngineSettings, folder: str) -> None:
        self.settings = settings
        self.loaded = load_live_model(folder, settings.device, quantize=settings.quantize, run_as=settings.run_as)
        self.engine = live_engine(
            self.loaded,
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
        self.languages = f"{data['source_language']}-{data['target_language']}"
        self.description = {
            "source_language": data["source_language"],
            "target_language": data["target_language"],
            "theta": self.engine.theta,
            "parameters": sum(weight.numel() for weight in self.loaded.model.parameters()),
            **({"samples": samples} if (samples := self.loaded.info.get("samples")) else {}),
        }
        self.join(None, None, log.warning)  # for its checks, before any client comes

    def join(
        self, theta: float | None, source_length: int | None, warn: Callable[[str], None] = lambda message: None
    ) -> LiveTranslator:
        """A further text."""
        text = live_text(self.loaded, self.engine, self.settings.max_sentence_tokens, self.settings.cut, warn)
        return self.driver.join(text, theta=theta, source_length=source_length)

    @staticmethod
    def _failed(why: str) -> None:
        log.warning("a sentence was ended: %s; with a lower engine.max_streams, fewer are translated at once", why)


def named(models: Sequence[Model], folders: Sequence[str]) -> dict[str, Model]:
    """The models by their names: their languages, and the name of the folder where several have the same ones.

    Raises:
        ValueError: for two of one name.
    """
    found: dict[str, Model] = {}
    counts = Counter(model.languages for model in models)
    for model, folder in zip(models, folders, strict=True):
        name = model.languages if counts[model.languages] == 1 else f"{model.languages} {Path(folder).name}"
        if name in found:
            raise ValueError(f"model_folder={folder}: another model is called {name!r}, too: rename one of the folders")
        found[name] = model
        model.description["name"] = name
    return found


class Worker:
    """The models, each with a driver, and texts that go by names."""

    def __init__(self, settings: EngineSettings) -> None:
        folders = settings.model_folders
        self.models = named([Model(settings, folder) for folder in folders], folders)
        self.drivers = [model.driver for model in self.models.values()]
        self.texts: dict[str, LiveTranslator] = {}
        self.names: dict[LiveTranslator, str] = {}
        self.loaded: dict[LiveTranslator, ModelFolder] = {}  # of which model a text is
        self.sources: dict[str, tuple[int, GrowingText]] = {}  # of the sentence at hand, with its number
        self.out: dict[str, list[list[Any]]] = {}
        self.asked = False

    def serve(self, link: socket.socket) -> None:
        """Do what comes over the link, and send what each step has brought, until the other end closes it."""
        received, heard = b"", monotonic()
        while True:
            if select.select([link], [], [], self.patience())[0]:
                data = link.recv(CHUNK)
                if not data:
                    return
                *lines, received = (received + data).split(b"\n")
                for line in lines:
                    self.do(**json.loads(line))
            found = self.step()
            if found["out"] or found["asked"] or monotonic() - heard > HEARTBEAT:
                link.sendall(_line(found))
                heard = monotonic()

    def patience(self) -> float:
        """Seconds it may wait for more text."""
        if self.out or any(driver.goes_on for driver in self.drivers):
            return 0.0
        return PARKING if any(driver.queue for driver in self.drivers) else HEARTBEAT

    def do(self, do: str, name: str, **values: Any) -> None:
        """Do what the server asks for a text: join, text, replace, flush, end, set, leave; `tell` asks for a sign of
        life."""
        if do == "tell":
            self.asked = True
        elif do == "join":
            model = self.models[values["model"]]
            new = model.join(values["theta"], values["source_length"])
            self.texts[name], self.names[new], self.loaded[new] = new, name, model.loaded
            if values["restore"] is not None:
                new.restore(**values["restore"])
        elif (translator := self.texts.get(name)) is None:
            pass  # it has left
        elif do == "text":
            translator.give(translator.text.take(values["text"]))
        elif do == "replace":
            if places := translator.replace(values["position"], values["text"]):
                self.out.setdefault(name, []).append(["refused", places.start])
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

    def _forget(self, name: str) -> None:
        text = self.texts.pop(name)
        del self.names[text], self.loaded[text]
        self.sources.pop(name, None)

    def step(self) -> dict[str, Any]:
        """One step of each driver: `out` has what they brought by name, in order."""
        begin = perf_counter()
        waits = {text: since for driver in self.drivers for text, since in driver.queue.items()}
        before = sum(len(driver.streaming) for driver in self.drivers)
        found = [one for driver in self.drivers for one in driver.step()]
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
            "idle": not any(driver.goes_on or driver.queue for driver in self.drivers),
            "seconds": now - begin,
            "batch": sum(one[0] in ("read", "write", "end") for items in out.values() for one in items),
            "streams": max(before, sum(len(driver.streaming) for driver in self.drivers)),
            "waiting": sum(len(driver.queue) for driver in self.drivers),
            "waited": [now - since for translator, since in waits.items() if translator not in translator.driver.queue],
            "out": out,
        }

    def _told(self, name: str, translator: LiveTranslator, found: LiveOutput) -> list[Any]:
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
        if isinstance(event, Replaced):
            self.sources.pop(name, None)
            return ["replaced", told | {"event": "replaced", "tokens": event.tokens}]
        told["p_emit"], told["theta"] = event.emit_probability, found.theta
        if isinstance(event, Read):
            told["event"] = "read"
            told["end"] = event.token == self.loaded[translator].tokens.end  # special tokens in a text are text
            told["token"] = "" if told["end"] else self._source(name, translator, event.token)
            return ["read", told]
        told["event"], told["delay"] = "write", event.delay
        told["token"] = event.text
        return ["write", told, event.token]

    def _source(self, name: str, translator: LiveTranslator, token: int) -> str:
        """The text that a source token which was read has made complete."""
        sentence = translator.sentence
        assert sentence is not None
        number, growing = self.sources.get(name, (-1, None))
        if growing is None or number != sentence.number:
            growing = GrowingText(self.loaded[translator].tokenizer)
            for earlier in sentence.tokens[: sentence.read - 1]:  # read before another engine was lost
                growing.add(earlier)
            self.sources[name] = sentence.number, growing
        return growing.add(token)
