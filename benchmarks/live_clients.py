"""For serve_load.py: a server, the Python client that speaks by the clock, and the text that translate.py shows."""

import asyncio
import math
import random
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import ClientConnection, connect

from duplexmt.model_folder.live_model import live_engine, live_text, load_live_model
from duplexmt.protocol.client import AsyncClient, ServerError
from duplexmt.streaming.events import Read
from duplexmt.streaming.live import LiveDriver, LiveEvent
from duplexmt.streaming.live_text import LineEnd
from duplexmt.translator.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
LOCAL = "127.0.0.1"
TICK = 0.2  # seconds between two messages of a speaker
MISHEARD = 0.3  # of a reviser's ticks
LONGEST_START, LONGEST_STOP = 300.0, 30.0  # seconds


class Served:
    """`serve.py` with settings, as a user has it; a context manager. RuntimeError where it does not start, or end."""

    def __init__(self, model_folder: str, *settings: str) -> None:
        command = [sys.executable, "serve.py", f"model_folder={Path(model_folder).resolve()}", "port=0", *settings]
        self.process = psutil.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        address = self.process.stdout.readline().strip()
        if not re.fullmatch(r"http://.*:\d+/", address):
            raise RuntimeError(f"{' '.join(command)} did not start: {address}")
        self.port = int(address.rstrip("/").rsplit(":", 1)[1])
        self.url = f"ws://{LOCAL}:{self.port}/v1/live"
        until = time.monotonic() + LONGEST_START
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(urllib.error.URLError, TimeoutError):  # no engine runs yet
                self._get("readyz")
                return
            time.sleep(0.1)
        self.process.kill()
        raise RuntimeError("the server was not ready in time")

    def _get(self, name: str) -> str:
        with urllib.request.urlopen(f"http://{LOCAL}:{self.port}/{name}", timeout=30) as answer:
            return str(answer.read().decode())

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name; those of a histogram's buckets are `name{le}`."""
        samples = (each for family in text_string_to_metric_families(self._get("metrics")) for each in family.samples)
        return {"".join([one.name, *(f"{{{label}}}" for label in one.labels.values())]): one.value for one in samples}

    def taken(self) -> dict[str, tuple[int, float]]:
        """Bytes of memory and seconds of the processor, of the server's process and of the engine's; 0 without one."""
        found = {"server": (0, 0.0), "engine": (0, 0.0)}
        for process in (self.process, *self.process.children()):
            with suppress(psutil.Error):  # it has ended meanwhile
                if process is self.process or any("spawn_main" in part for part in process.cmdline()):
                    name = "server" if process is self.process else "engine"
                    found[name] = process.memory_info().rss, sum(process.cpu_times()[:2])
        return found

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(LONGEST_STOP)
        except psutil.TimeoutExpired:
            self.process.kill()
            raise RuntimeError(f"the server has not ended {LONGEST_STOP:g} s after SIGTERM") from None
        if status != 0:
            raise RuntimeError(f"the server ended with status {status}")


class Reference:
    """What translate.py shows of a text, with guards as in the server's settings.

    Attributes:
        events: of each text so far, with the number of characters that had to be there.
        engine: that translates them.
    """

    def __init__(self, model_folder: str, max_target_tokens: int, max_repeats: int) -> None:
        self.loaded = load_live_model(model_folder, "cpu")
        self.engine = live_engine(self.loaded, max_target_tokens, max_repeats, max_streams=1)
        self.translator = Translator(self.loaded, self.engine, None, True)
        self.events: dict[str, list[tuple[LiveEvent | LineEnd, int]]] = {}

    def __call__(self, text: str) -> str:
        """The translation of a text, a line for each of its lines."""
        return "".join(event.text for event, _ in self._found(text))

    def due(self, text: str) -> list[int]:
        """Of each event that a text brings about, the lines' among them: how many characters have to be there."""
        return [characters for _, characters in self._found(text)]

    def sentences(self, text: str) -> list[list[int]]:
        """The tokens of each sentence of a text, without its end."""
        found: dict[int, list[int]] = {}
        for event, _ in self._found(text):
            if isinstance(event, LiveEvent) and isinstance(event.event, Read):
                found.setdefault(event.event.stream, []).append(event.event.token)
        return [[token for token in tokens if token != self.engine.tokens.end] for tokens in found.values()]

    def pace(self, tokens_per_second: float) -> float:
        """Characters a second with so many tokens, on average of all texts so far."""
        tokens = sum(len(sentence) for text in self.events for sentence in self.sentences(text))
        return tokens_per_second * sum(map(len, self.events)) / tokens

    def _found(self, text: str) -> list[tuple[LiveEvent | LineEnd, int]]:
        if text not in self.events:
            found = self.events[text] = []
            with self.translator.stream() as stream:
                for number, character in enumerate(text, start=1):
                    stream.feed(character)
                    found += [(event, number) for event in stream.events]
                stream.finish()
                found += [(event, len(text)) for event in stream.events]
        return self.events[text]

    def revised(self, text: str, made: list[tuple[int, str, str]], counts: list[int]) -> str:
        """What is shown of a text in which these replacements were made, each once so many events had been told."""
        driver = LiveDriver(self.engine, text_seconds=0.0)  # one event a step
        translator = driver.join(live_text(self.loaded, self.engine, None, True))
        shown, given = list[str](), 0

        def go_on(count: float) -> None:
            while len(shown) < count and driver.goes_on:
                for _, found in driver.step():
                    if isinstance(found, LiveEvent | LineEnd) and len(shown) < count:
                        shown.append(found.text)

        for (place, had, new), count in zip(made, counts, strict=True):
            translator.give(translator.text.take((text[:place] + had)[given:]))
            go_on(count)
            if len(shown) != count or translator.replace(place, new) is not None:
                return f"{''.join(shown)} and no replacement at {place}"
            given = place + len(new)
        translator.give(translator.text.take(text[given:]))
        translator.give(translator.text.end())
        go_on(math.inf)
        return "".join(shown)


class Speaker(AsyncClient):
    """The Python client, as one who speaks by the clock, whether answers come or not, and notes what becomes of it.

    Args:
        url: of the server, or of a proxy before it.
        text: to be spoken.
        pace: characters a second; infinite for all at once.
        begin: when the first of them are there, by `time.monotonic`, as the event loop's; 0 for at once.
        deadline: when it gives up.
        misheard: draws what of it is misheard, and put right a moment later; None for one who is understood.

    Attributes:
        events: what was received, with the time of each.
        closes: code of each connection that has ended, 1006 for a lost one; 0 for one that could not be made.
        errors: that the server told.
        told: seconds from the first ack, or the first text, to `error` where that says to come back later.
        made: replacements: position, what the server had there, and what it has now.
        done: whether all was translated.
        ended_by: code of the error that ended the session before its time.
    """

    ping = answer = 10.0

    def __init__(
        self,
        url: str,
        text: str,
        pace: float = math.inf,
        *,
        begin: float = 0.0,
        deadline: float = math.inf,
        misheard: random.Random | None = None,
    ) -> None:
        super().__init__(url, patience=math.inf)
        self.text, self.pace, self.begin, self.deadline, self.misheard = text, pace, begin, deadline, misheard
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.closes, self.errors, self.told = list[int](), list[str](), list[float]()
        self.made: list[tuple[int, str, str]] = []
        self.done = False
        self.ended_by: str | None = None
        self._could = 0.0  # when the connection at hand had text and could take it

    @property
    def written(self) -> str:
        """The translation so far."""
        return "".join(event["text"] for _, event in self.events)

    def expected(self, reference: Reference) -> str:
        """What there is to be shown of it."""
        if self.misheard is None:
            return reference(self.text)
        counts = [number for number, (_, event) in enumerate(self.events) if event["event"] == "replaced"]
        return reference.revised(self.text, self.made, counts)

    def there(self, now: float) -> int:
        """Characters that have been spoken."""
        if math.isinf(self.pace):
            return len(self.text)
        return max(0, min(len(self.text), int((math.floor((now - self.begin) / TICK) + 1) * TICK * self.pace)))

    def spoken_at(self, position: int) -> float:
        """When the first so many characters were."""
        if math.isinf(self.pace):
            return self.begin
        return self.begin + max(0, math.ceil(min(position, len(self.text)) / (TICK * self.pace)) - 1) * TICK

    async def run(self) -> "Speaker":
        """Speak, until all is translated, another server has to go on, or the deadline comes."""
        self.begin = self.begin or time.monotonic()
        speaking = asyncio.create_task(self._speak())
        try:
            async with asyncio.timeout_at(self.deadline if math.isfinite(self.deadline) else None), self:
                async for _ in self:
                    pass
                self.done = True
        except TimeoutError:
            pass
        except ServerError as error:
            self.ended_by = error.code
        finally:
            speaking.cancel()
        return self

    async def _speak(self) -> None:
        said = 0
        while said < len(self.text):
            if self.told and not self._at:
                self.begin = time.monotonic()  # waits to be let in, with all that is to be said
            part = self.text[said : self.there(time.monotonic())]
            if part and not said:
                self._could = time.monotonic()
            if self.misheard is not None and part.isalnum() and self.misheard.random() < MISHEARD:
                letters = [*filter(str.isalnum, self.text)]
                self.send("".join(self.misheard.choices(letters, k=self.misheard.randint(1, 3))))
                await asyncio.sleep(self.misheard.uniform(0.0, 2 * TICK))
                self.send(part, replace=said)
                while self._asked is not None or self._stale is not None:
                    await asyncio.sleep(TICK / 10)
            elif part:
                self.send(part)
            said += len(part)
            now = time.monotonic()
            next_tick = self.begin + (math.floor((now - self.begin) / TICK) + 1) * TICK
            await asyncio.sleep(max(0.0, next_tick - now) if said < len(self.text) else 0.0)
        self.end()

    def _connect(self, **options: Any) -> connect:
        self.closes.append(0)
        return super()._connect(**options)

    async def _talk(self, socket: ClientConnection) -> float | None:
        self.closes[-1], self._could = 1006, time.monotonic()
        if (wait := await super()._talk(socket)) == 0.0:
            self.closes[-1] = 1000
        return wait

    def _after(self, code: int, error: dict[str, Any]) -> float | None:
        self.closes[-1] = code
        if error:
            self.errors.append(error["message"])
        if error.get("code") == "busy":
            self.told.append(time.monotonic() - self._could)
        return super()._after(code, error)

    def _acknowledged_text(self, at: int, replaced: int, is_first: bool) -> None:
        if is_first:
            self._could = time.monotonic()
        if replaced != self._replaced and self._asked is not None:
            place, text, had = self._asked
            self.made.append((place, had, text))
        super()._acknowledged_text(at, replaced, is_first)

    def _take(self, message: dict[str, Any], is_first: bool) -> None:
        if message["type"] == "events" and message["seq"] != self._seq + 1:
            raise AssertionError(f"frame {message['seq']} follows {self._seq}")
        super()._take(message, is_first)

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "snapshot":
            raise AssertionError("a snapshot: the frames should have been kept")
        self.events.append((time.monotonic(), event))
        super()._show(event)
