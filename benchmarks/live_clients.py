"""For serve_load.py: a server, clients of it that speak by the clock, and the text that translate.py would show.

A `Speaker` is the Python client; `opened` is for those who are hostile.
"""

import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from duplexmt.protocol.client import AsyncClient, ServerError

ROOT = Path(__file__).resolve().parents[1]
LOCAL = "127.0.0.1"
TICK = 0.2  # seconds between two messages of a speaker
MISHEARD = 0.3  # of a reviser's ticks
LONGEST_START, LONGEST_STOP = 300.0, 30.0  # seconds
SETTLED = 90.0  # seconds in which sessions without a client have to be gone
RESTART, BUSY = 1012, 1013


class Served:
    """`serve.py` with settings, as a user has it; a context manager. `log` takes its standard error."""

    def __init__(self, model_folder: str, *settings: str, python: str = sys.executable, log: Any = None) -> None:
        command = [python, "serve.py", f"model_folder={model_folder}", "port=0", *settings]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        if not re.fullmatch(r"http://.*:\d+/", address):
            raise RuntimeError(f"{' '.join(command)} did not start: {address}")
        self.http = address
        self.port = int(address.rstrip("/").rsplit(":", 1)[1])
        self.url = f"ws://{LOCAL}:{self.port}/v1/live"
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until an engine runs. RuntimeError if none does in time."""
        until = time.monotonic() + LONGEST_START
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{LOCAL}:{self.port}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.1)
        self.process.kill()
        raise RuntimeError("the server was not ready in time")

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name; those of a histogram's buckets are `name{le}`."""
        with urllib.request.urlopen(f"http://{LOCAL}:{self.port}/metrics", timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        found = {}
        for family in families:
            for sample in family.samples:
                label = "".join(sample.labels.values())
                found[f"{sample.name}{{{label}}}" if label else sample.name] = sample.value
        return found

    def engine(self) -> int | None:
        """The engine's process."""
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in task.read_text().split():
                try:
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return int(child)
                except OSError:
                    continue  # it has ended meanwhile
        return None

    def each(self, figure: Callable[[int], float]) -> dict[str, float]:
        """A figure of the server's process, and of the engine's; 0 without one."""
        engine = self.engine()
        return {"server": figure(self.process.pid), "engine": 0 if engine is None else figure(engine)}

    def stop(self) -> float:
        """SIGTERM; seconds until it has ended. RuntimeError if it does not, or not well."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LONGEST_STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError(f"the server has not ended {LONGEST_STOP:g} s after SIGTERM") from None
        if status != 0:
            raise RuntimeError(f"the server ended with status {status}")
        return time.monotonic() - begun

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            with suppress(RuntimeError):
                self.stop()


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    (line,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


async def settle(served: Served, holds: Callable[[], bool] = lambda: True) -> dict[str, float]:
    """Wait until no session is left, and something holds; the metrics then, or once that takes too long."""
    until = time.monotonic() + SETTLED
    while True:
        found = await asyncio.to_thread(served.metrics)
        left = found["duplexmt_sessions"] or found["duplexmt_streams"] or not holds()
        if not left or time.monotonic() > until:
            return found
        await asyncio.sleep(0.5)


def processor(pid: int) -> float:
    """Seconds a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def histogram_quantile(before: Mapping[str, float], after: Mapping[str, float], name: str, share: float) -> float:
    """A quantile of what a histogram took between two looks, as if each bucket's were spread evenly; NaN for none."""
    edges = sorted((float(key[len(name) + 8 : -1]), key) for key in after if key.startswith(f"{name}_bucket{{"))
    counts = [(edge, after[key] - before.get(key, 0.0)) for edge, key in edges]
    wanted = share * counts[-1][1]
    lower, below = 0.0, 0.0
    for edge, count in counts:
        if count >= wanted and count > below:
            return edge if math.isinf(edge) else lower + (edge - lower) * (wanted - below) / (count - below)
        lower, below = edge, count
    return math.nan


class Reference:
    """What translate.py shows of a text: its driver, with one client, and guards as in the server's settings.

    Attributes:
        characters, reads, sentences: of all texts so far; a sentence's end is read, too.
        sentences_of: of each text, as they were translated.
        engine: that translates them.
    """

    def __init__(self, model_folder: str, max_target_tokens: int, max_repeats: int) -> None:
        from duplexmt.common.text import UNSPACED
        from duplexmt.model_folder.live_model import live_engine, load_live_model

        self.loaded = load_live_model(model_folder, "cpu")
        self.between = "" if self.loaded.info["data"]["target_language"] in UNSPACED else " "
        self.engine = live_engine(self.loaded, None, max_target_tokens, max_repeats, max_streams=1)
        self._known: dict[str, list[tuple[str, int]]] = {}
        self.characters = self.reads = self.sentences = 0
        self.sentences_of: dict[str, list[Any]] = {}

    def __call__(self, text: str) -> str:
        """The translation of a text, a line for each of its lines."""
        return "".join(shown for shown, _ in self._found(text))

    def due(self, text: str) -> list[int]:
        """Of each event that a text brings about, the lines' among them: how many characters have to be there."""
        return [characters for _, characters in self._found(text)]

    def _found(self, text: str) -> list[tuple[str, int]]:
        if text not in self._known:
            self._known[text] = list(self._parts(text))
            self.characters += len(text)
        return self._known[text]

    def revised(self, text: str, made: list[tuple[int, str, str]], counts: list[int]) -> str:
        """What is shown of a text in which these replacements were made, each once so many events had been told."""
        from duplexmt.model_folder.live_model import live_text
        from duplexmt.streaming.live import LiveDriver, LiveEvent
        from duplexmt.streaming.live_text import LineEnd

        driver = LiveDriver(self.engine, text_seconds=0.0)  # one event a step
        translator = driver.join(live_text(self.loaded, self.engine, None, True))
        shown, given = list[str](), 0

        def step(most: float) -> None:
            while len(shown) < most and driver.goes_on:
                shown.extend(found.text for _, found in driver.step() if isinstance(found, LiveEvent | LineEnd))

        for (place, had, new), count in zip(made, counts, strict=True):
            translator.give(translator.text.take((text[:place] + had)[given:]))
            step(count)
            if len(shown) != count or translator.replace(place, new) is not None:
                return f"{''.join(shown)} and no replacement at {place}"
            given = place + len(new)
        translator.give(translator.text.take(text[given:]))
        translator.give(translator.text.end())
        step(math.inf)
        return "".join(shown)

    def pace(self, tokens_per_second: float) -> float:
        """Characters a second with so many tokens, on average of all texts so far."""
        return tokens_per_second * self.characters / (self.reads - self.sentences)

    def _parts(self, text: str) -> Iterator[tuple[str, int]]:
        """What each event of a text shows, and after how many characters."""
        from duplexmt.model_folder.live_model import live_text
        from duplexmt.streaming.events import End, Read
        from duplexmt.streaming.live import LiveDriver, LiveEvent
        from duplexmt.streaming.live_text import LineEnd

        translator = LiveDriver(self.engine).join(live_text(self.loaded, self.engine, None, True))
        sentence = None  # the last one of this line
        given = [translator.text.take(character) for character in text]
        for number, parts in enumerate([*given, translator.text.end()], start=1):
            translator.give(parts)
            while translator.driver.goes_on:
                for _, found in translator.driver.step():
                    if isinstance(found, LineEnd):
                        sentence = None
                        yield "\n", min(number, len(text))
                    elif isinstance(found, LiveEvent):
                        between = "" if sentence in (None, found.event.stream) else self.between
                        sentence = found.event.stream
                        self.reads += isinstance(found.event, Read)
                        if isinstance(found.event, End):
                            self.sentences += 1
                            self.sentences_of.setdefault(text, []).append(translator.sentence)
                        yield between + getattr(found.event, "text", ""), min(number, len(text))


class Noted(AsyncClient):
    """The Python client, and what becomes of it. For `Speaker`.

    Attributes:
        speaker: who is told.
        begun: when the connection at hand had text and could take it.
    """

    def __init__(self, speaker: "Speaker") -> None:
        super().__init__(speaker.url, patience=math.inf)
        self.speaker, self.begun = speaker, 0.0
        self.ping = self.answer = speaker.silence / 2
        self._changed = asyncio.Event()

    def _connect(self, **options: Any) -> connect:
        self.speaker.closes.append(0)
        return super()._connect(additional_headers=self.speaker.headers, **options)

    async def _talk(self, socket: ClientConnection) -> float | None:
        closes = self.speaker.closes
        closes[-1], self.begun = 1006, self.speaker.clock()
        if (wait := await super()._talk(socket)) == 0.0:
            closes[-1] = 1000
        return wait

    def _after(self, code: int, error: dict[str, Any]) -> float | None:
        self.speaker.closes[-1] = code
        if error:
            self.speaker.errors.append(error["message"])
        if error.get("code") == "busy":
            self.speaker.told.append(self.speaker.clock() - self.begun)
        return super()._after(code, error)

    def _acknowledged_text(self, at: int, replaced: int, is_first: bool) -> None:
        if is_first:
            self.begun = self.speaker.clock()
        if replaced != self._replaced and self._asked is not None:
            place, text, had = self._asked
            self.speaker.made.append((place, had, text))
        super()._acknowledged_text(at, replaced, is_first)

    def _take(self, message: dict[str, Any], is_first: bool) -> None:
        if message["type"] == "events" and message["seq"] != self._seq + 1:
            raise AssertionError(f"frame {message['seq']} follows {self._seq}")
        super()._take(message, is_first)
        self._changed.set()

    def _show(self, event: dict[str, Any]) -> None:
        if event["event"] == "snapshot":
            raise AssertionError("a snapshot: the frames should have been kept")
        self.speaker.events.append((self.speaker.clock(), event))
        super()._show(event)

    @property
    def is_in(self) -> bool:
        """Whether the server has taken text."""
        return self._at > 0

    async def correct(self, place: int, text: str) -> None:
        """Replace, and wait until that is so."""
        self.send(text, replace=place)
        while self._asked is not None or self._stale is not None:
            self._changed.clear()
            await self._changed.wait()


@dataclass
class Speaker:
    """One who speaks by the clock, whether answers come or not, and comes back when the connection is lost.

    Attributes:
        url: of the server, or of a proxy before it.
        text: to be spoken.
        pace: characters a second; infinite for all at once.
        begin: when the first of them are there, by the event loop's clock.
        deadline: when it gives up.
        silence: seconds without a word, a ping answered included, after which the connection is taken for lost.
        headers: of its handshakes.
        client: that speaks for it.
        misheard: draws what of it is misheard, and put right a moment later; None for one who is understood.
        events: what was received, with the time of each.
        closes: code of each connection that has ended, 1006 for a lost one; 0 for one that could not be made.
        errors: that the server told.
        told: seconds from the first ack, or the first text, to `error` where that says to come back later.
        made: replacements: position, what the server had there, and what it has now.
        done: whether all was translated.
        handed_back: position from which another session has to go on, where a server stops or has lost this one.
    """

    url: str
    text: str
    pace: float = math.inf
    begin: float = 0.0
    deadline: float = math.inf
    silence: float = 20.0
    headers: dict[str, str] = field(default_factory=dict)
    client: Callable[["Speaker"], Noted] = Noted
    misheard: random.Random | None = None
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    closes: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    made: list[tuple[int, str, str]] = field(default_factory=list)
    done: bool = False
    handed_back: int | None = None

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

    def clock(self) -> float:
        """The event loop's."""
        return asyncio.get_running_loop().time()

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
        self.begin = self.begin or self.clock()
        until = self.deadline if math.isfinite(self.deadline) else None
        try:
            async with asyncio.timeout_at(until), self.client(self) as client:
                speaking = asyncio.create_task(self._speak(client))
                try:
                    async for _ in client:
                        pass
                    self.done = True
                finally:
                    speaking.cancel()
        except TimeoutError:
            pass
        except ServerError as error:
            if error.code in ("restart", "unknown_session", "expired"):
                self.handed_back = self.events[self._over() - 1][1]["source"] if self._over() else 0
        return self

    async def _speak(self, client: Noted) -> None:
        said = 0
        while said < len(self.text):
            if self.told and not client.is_in:
                self.begin = self.clock()  # waits to be let in, with all that is to be said
            part = self.text[said : self.there(self.clock())]
            if part and not said:
                client.begun = self.clock()
            if self.misheard is not None and part.isalnum() and self.misheard.random() < MISHEARD:
                client.send(
                    "".join(self.misheard.choices([*filter(str.isalnum, self.text)], k=self.misheard.randint(1, 3)))
                )
                await asyncio.sleep(self.misheard.uniform(0.0, 2 * TICK))
                await client.correct(said, part)
            elif part:
                client.send(part)
            said += len(part)
            now = self.clock()
            next_tick = self.begin + (math.floor((now - self.begin) / TICK) + 1) * TICK
            await asyncio.sleep(max(0.0, next_tick - now) if said < len(self.text) else 0.0)
        client.end()

    def kept(self) -> str:
        """What was shown of the sentences that are over: a session that goes on where this was handed back follows."""
        return "".join(event["text"] for _, event in self.events[: self._over()])

    def _over(self) -> int:
        """Number of events after which the last line, or sentence that has all its text, was over."""
        ends = [event["event"] == "line" or event.get("reason") == "end_token" for _, event in self.events]
        return max((number for number, end in enumerate(ends, start=1) if end), default=0)


def code_of(closed: ConnectionClosed) -> int:
    """With which a connection was closed; 1006 for a lost one."""
    return closed.rcvd.code if closed.rcvd is not None else 1006


def text_message(at: int, text: str) -> str:
    """A message with text."""
    return json.dumps({"type": "text", "at": at, "text": text}, ensure_ascii=False)


def opened(url: str, headers: Mapping[str, str] | None = None) -> connect:
    """A connection, as a context manager."""
    return connect(
        url, additional_headers=headers, subprotocols=[Subprotocol("duplexmt.v1")], compression=None, max_size=None,
        max_queue=None, ping_interval=None, open_timeout=None, close_timeout=1, proxy=None,
    )  # fmt: skip


def latencies(speaker: Speaker, due: Sequence[int], step: float) -> list[float]:
    """Seconds from source token to write, of each write, policy waits left out.

    Beside the server goes one that takes `step` seconds for each event and does it as soon as the characters it takes
    have been spoken and the event before is done. Where that begins a write, or the read just before it, is where the
    write's time begins. So the time for which the policy waits for more source, or writes earlier words, does not
    count, nor that in which a token is not certain yet; all that this server is behind does, however long ago that
    began.

    Args:
        speaker: whose text was translated as a whole.
        due: of the text, see `Reference.due`.
        step: seconds.
    """
    found, done, read = [], -math.inf, None  # when the one before was done; when the read before it was begun
    for (received, event), characters in zip(speaker.events, due, strict=True):
        if event["event"] == "line":
            continue
        begun = max(speaker.spoken_at(characters), done)
        done = begun + step
        if event["event"] == "write":
            found.append(received - (begun if read is None else read))
        read = begun if event["event"] == "read" else None
    return found


def quantile(values: list[float], share: float) -> float:
    """Of a list; NaN for an empty one."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share else 0)]
