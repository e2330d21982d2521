"""The faults of serve_load.py: each is done to a server at work, and no shown text may be lost or changed by it.

Beside those that something is done to, or who do something wrong, there are bystanders, who must not notice.

    python benchmarks/serve_faults.py --model-folder models/zh-en

attacks a server with default settings, and says what bystanders, its memory and its log notice of each attack.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.frames import Frame, Opcode

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.fault_proxy import Fault, FaultProxy, Kind, reset
from benchmarks.faults import FaultError, expect
from benchmarks.live_clients import (
    LOCAL,
    RESTART,
    Noted,
    Reference,
    Served,
    Speaker,
    code_of,
    opened,
    quantile,
    resident,
    settle,
    text_message,
)
from duplexmt.protocol.client import ServerError

STREAMS = 32
SETTINGS = (  # short times, so that what waits for them comes to pass; room for all invisible characters at once
    f"engine.max_streams={STREAMS}", "step_deadline=2", "limits.grace_seconds=10", "limits.idle_seconds=10",
    "limits.start_seconds=3", "limits.characters_burst=24000", "limits.retry_seconds=0.5",
)  # fmt: skip
PACE = 40.0  # characters a second
PATIENCE = 120.0  # seconds for one text
JOINERS = 20_000
AT_ONCE = 6  # faults at a time
BYSTANDERS = 4
LONGEST_DRAIN = 10.0
BAD_MESSAGE, UNKNOWN_SESSION, IDLE, REPLACED, TOO_BIG, INVALID = 4400, 4404, 4408, 4409, 1009, 1007
HANDSHAKE = (
    f"GET /v1/live HTTP/1.1\r\nHost: {LOCAL}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: duplexmt.v1\r\n\r\n"
).encode()
NO_UTF8 = [b'{"type":"ping\xff"}', b"\xed\xa0\x80", b"\xc0\xaf"]


class Mistaken(Noted):
    """A client that does something wrong, once, and comes back."""

    def __init__(
        self, speaker: Speaker, mistake: Callable[[ClientConnection], Awaitable[None]], after: float = 0.0
    ) -> None:
        super().__init__(speaker)
        self.mistake: Callable[[ClientConnection], Awaitable[None]] | None = mistake
        self.after = after

    async def _write(self, socket: ClientConnection) -> None:
        mistake, self.mistake = self.mistake, None
        if mistake is None:
            await super()._write(socket)
            return
        speaking = asyncio.create_task(super()._write(socket))
        try:
            await asyncio.sleep(self.after)
            await mistake(socket)
            await speaking
        finally:
            speaking.cancel()

    def _after(self, code: int, error: dict[str, Any]) -> float | None:
        try:
            return super()._after(code, error)
        except ServerError:
            return 0.05


class Campaign:
    """Faults at one server of a model folder, while texts are spoken; `seed` is that of moments and places."""

    def __init__(self, model_folder: str, reference: Reference, texts: list[str], seed: int) -> None:
        self.model_folder, self.reference, self.texts = model_folder, reference, texts
        self.draw = random.Random(seed)
        middle = len(texts[0]) // 2
        self.joined = texts[0][:middle] + JOINERS * "\u200d" + texts[0][middle:]
        for text in [*texts, self.joined]:
            reference(text)  # now, as it takes time
        self.faults: Counter[str] = Counter()
        self.failures: list[str] = []
        self.compared = self.changed = self.bystanders = self.affected = self.replacements = 0
        self.engine_is_mine, self.referring = asyncio.Lock(), asyncio.Lock()
        self.over = False
        self.served: Served

    async def run(self, kinds: list[str]) -> dict[str, Any]:
        """Inject these faults, and report."""
        begun = time.monotonic()
        with Served(self.model_folder, *SETTINGS) as self.served:
            files = len(self.open_files())
            waiting = list(reversed(kinds))
            standing_by = [asyncio.create_task(self._stand_by()) for _ in range(BYSTANDERS)]
            await asyncio.gather(*(self._work(waiting) for _ in range(AT_ONCE)))
            self.over = True
            await asyncio.gather(*standing_by)
            found = await settle(self.served, lambda: len(self.open_files()) <= files)
            if (more := len(self.open_files()) - files) > 0:
                print(f"{more} more files are open: {sorted(self.open_files())}", file=sys.stderr)
            await asyncio.to_thread(self.served.stop)
        return {
            "faults": sum(self.faults.values()),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "failures": len(self.failures),
            "first_failures": self.failures[:5],
            "texts_compared": self.compared,
            "texts_lost_or_changed": self.changed,
            "replacements": self.replacements,
            "bystanders": self.bystanders,
            "bystanders_affected": self.affected,
            "engines_started": int(found["duplexmt_engines_total"]),
            "sessions_left": int(found["duplexmt_sessions"]),
            "streams_left": int(found["duplexmt_streams"]),
            "files_left": max(0, more),
            "seconds": round(time.monotonic() - begun),
        }

    async def _work(self, waiting: list[str]) -> None:
        while waiting:
            kind = waiting.pop()
            seed = self.draw.random()
            try:
                async with asyncio.timeout(2 * PATIENCE):
                    await KINDS[kind][0](self, random.Random(seed))
                self.faults[kind] += 1
            except (FaultError, OSError, ConnectionClosed, RuntimeError, AssertionError) as error:
                self.failures.append(f"{kind}: {type(error).__name__}: {error}")
                print(self.failures[-1], file=sys.stderr, flush=True)

    async def _stand_by(self) -> None:
        while not self.over:
            speaker = self.someone(self.served.url, self.draw)
            try:
                await self.whole(speaker)
                expect(speaker.closes == [1000] and not speaker.errors, f"closes {speaker.closes}, {speaker.errors}")
            except (FaultError, AssertionError) as error:
                self.affected += 1
                self.failures.append(f"bystander: {error}")
                print(self.failures[-1], file=sys.stderr, flush=True)
            self.bystanders += 1

    def open_files(self) -> list[str]:
        """Files and sockets the server has open."""
        names = []
        for file in Path(f"/proc/{self.served.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it has just been closed
                names.append(os.readlink(file))
        return names

    async def engines(self) -> float:
        """How many engines the server has started so far."""
        return (await asyncio.to_thread(self.served.metrics))["duplexmt_engines_total"]

    def speaker(self, url: str, draw: random.Random, text: str = "", **values: Any) -> Speaker:
        """One who speaks one of the texts."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        return Speaker(url, text or draw.choice(self.texts), PACE, deadline=deadline, silence=4.0, **values)

    def someone(self, url: str, draw: random.Random) -> Speaker:
        """One who speaks one of the texts; every third has words of it replaced."""
        return self.speaker(url, draw, misheard=None if draw.random() < 2 / 3 else random.Random(draw.random()))

    async def whole(self, speaker: Any) -> None:
        """Have one speak, who must be shown all of the translation, and nothing else."""
        await speaker.run()
        told = f"done={speaker.done}, closes {speaker.closes}, {speaker.errors[-1:]}"
        async with self.referring:  # in a thread: others are served meanwhile
            expected = await asyncio.to_thread(speaker.expected, self.reference) if speaker.done else None
        self.replacements += len(getattr(speaker, "made", ()))
        self.compare(speaker.written, speaker.text, told, well=speaker.done, expected=expected)

    def compare(
        self,
        written: str,
        text: str,
        told: str = "",
        *,
        well: bool = True,
        whole: bool = True,
        expected: str | None = None,
    ) -> None:
        """Count what was shown of a text: it must be all of its translation, or (not `whole`) a beginning, and have
        ended well; else raise `FaultError`, with what else is told."""
        expected = self.reference(text) if expected is None else expected
        begins = expected.startswith(written)
        right = written == expected if whole else begins
        self.compared += 1
        self.changed += not (right if well else begins)
        expect(well and right, f"{told}: {written!r} was shown, where it is\n{expected!r}")


# --- what networks do ------------------------------------------------------------------------------------------------


async def network(campaign: Campaign, draw: random.Random, kind: Kind) -> None:
    """Something happens to a connection, early or late."""
    after = draw.randrange(0, 600) if draw.random() < 0.3 else draw.randrange(600, 4_000)
    fault = Fault(kind, after, draw.uniform(0.5, 3.0))
    async with FaultProxy(campaign.served.port, [fault]) as proxy:
        await campaign.whole(campaign.someone(proxy.url, draw))
        expect(proxy.injected == [fault], "nothing has happened")


# --- what clients do -------------------------------------------------------------------------------------------------


class Raw:
    """A connection that says what it is told to."""

    def __init__(self, socket: ClientConnection, written: str = "", seq: int = 0) -> None:
        self.socket, self.written, self.seq = socket, written, seq
        self.heard: list[dict[str, Any]] = []
        self.spoke = time.monotonic()

    async def say(self, **message: Any) -> None:
        """Send a message."""
        self.spoke = time.monotonic()
        await self.socket.send(json.dumps(message, ensure_ascii=False))

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; TimeoutError if it does not come."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                async with asyncio.timeout(self.spoke + 4 - time.monotonic()):
                    message: dict[str, Any] = json.loads(await self.socket.recv())
            except TimeoutError:
                if time.monotonic() > until:
                    raise
                with suppress(ConnectionClosed):  # by the server; what it has said before is still to be heard
                    await self.say(type="ping")  # who is silent for long is taken for gone, whatever he hears
                continue
            self.heard.append(message)
            if message["type"] == "events":
                expect(message["seq"] == self.seq + 1, f"frame {message['seq']} follows {self.seq}")
                self.seq = message["seq"]
                self.written += "".join(event["text"] for event in message["events"])
            if message["type"] == kind:
                return message

    async def rest(self) -> int:
        """Hear all until the close; its code."""
        try:
            await self.hear("no such kind")
        except ConnectionClosed as closed:
            return code_of(closed)
        raise AssertionError


async def duplicated(campaign: Campaign, draw: random.Random) -> None:
    """Text is sent again and again, from somewhere before."""
    await cut_oddly(campaign, draw, lambda at: draw.randint(max(0, at - 30), at))


async def gapped(campaign: Campaign, draw: random.Random) -> None:
    """Text is sent from somewhere after, and from where it should."""
    await cut_oddly(campaign, draw, lambda at: at if draw.random() < 0.5 else at + draw.randint(1, 50))


async def cut_oddly(campaign: Campaign, draw: random.Random, place: Callable[[int], int]) -> None:
    """Text of random lengths from places other than the expected."""
    text, at = draw.choice(campaign.texts), 0
    async with opened(campaign.served.url) as socket:
        raw = Raw(socket)
        await raw.say(type="start")
        await raw.hear("ready")
        await raw.hear("ack")
        while at < len(text):
            begin, length = place(at), draw.randint(0, 40)
            await socket.send(text_message(begin, text[begin : begin + length]))
            expected = at if begin > at else max(at, min(begin + length, len(text)))
            told = (await raw.hear("ack"))["at"]
            expect(told == expected, f"at={told} after {length} characters at {begin}, where {expected} is right")
            at = expected
            await asyncio.sleep(0.05)  # the protocol allows 20 messages a second
        await raw.say(type="end")
        code = await raw.rest()
    campaign.compare(raw.written, text, f"{code}", well=code == 1000)


async def two_on_one_key(campaign: Campaign, draw: random.Random) -> None:
    """A second connection takes the session; a third with the same key ends it."""
    text, url = draw.choice(campaign.texts), campaign.served.url
    half = draw.randint(15, len(text) - 1)  # enough for an event
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(url))
        first = Raw(one)
        await first.say(type="start")
        ready = await first.hear("ready")
        await one.send(text_message(0, text[:half]))
        if draw.random() < 0.5:
            await first.hear("events")
        two = await stack.enter_async_context(opened(url))
        second = Raw(two, first.written, first.seq)
        again = {"type": "resume", "session": ready["session"], "key": ready["key"]}
        await second.say(**again, seq=first.seq)
        await second.hear("ready")
        code = await first.rest()
        expect(code == REPLACED, f"the first connection ended with {code}")
        await two.send(text_message(half, text[half:]))
        if draw.random() < 0.5:
            await second.say(type="end")
            code = await second.rest()
            campaign.compare(second.written, text, f"{code}", well=code == 1000)
        else:
            third = Raw(await stack.enter_async_context(opened(url)))
            await third.say(**again, seq=0)
            codes = await third.rest(), await second.rest()
            expect(codes == (UNKNOWN_SESSION, UNKNOWN_SESSION), f"a used key ended them with {codes}")
            campaign.compare(second.written, text, whole=False)


async def abandoned(campaign: Campaign, draw: random.Random) -> None:
    """Half a request; or a handshake, and then nothing."""
    for _ in range(8):
        _, writer = await asyncio.open_connection(LOCAL, campaign.served.port)
        writer.write(HANDSHAKE[: draw.randrange(len(HANDSHAKE))])
        await writer.drain()
        reset(writer)
    async with opened(campaign.served.url) as socket:
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    await socket.recv()
        except ConnectionClosed as closed:
            code = code_of(closed)
    expect(code == IDLE, f"a handshake without a message ended with {code}")


async def mistake(campaign: Campaign, draw: random.Random, code: int, named: str, frames: list[str | bytes]) -> None:
    """In the middle of a session a frame comes that is none; its client comes back and goes on."""
    frame = draw.choice(frames)

    async def send(socket: ClientConnection) -> None:
        await socket.send(frame, text=True)

    mistaken = partial(Mistaken, mistake=send, after=draw.uniform(0.0, 0.5))
    speaker = campaign.speaker(campaign.served.url, draw, client=mistaken)
    await campaign.whole(speaker)
    at_once = code in (TOO_BIG, INVALID)  # uvicorn then closes the socket, too: if the client still sends, it is reset,
    codes = [code, 1006] if at_once else [code]  # and the close frame may be lost
    expect(speaker.closes in [[one, 1000] for one in codes], f"ended with {speaker.closes}")
    told = " ".join(speaker.errors)
    expect(named in told, f"{named!r} is not named in {told!r}")


async def nan(campaign: Campaign, draw: random.Random) -> None:
    """θ is no number, from the start or later."""
    if draw.random() < 0.5:
        await mistake(campaign, draw, BAD_MESSAGE, "theta", ['{"type":"set","id":1,"theta":NaN}'])
        return
    async with opened(campaign.served.url) as socket:
        raw = Raw(socket)
        await socket.send('{"type":"start","theta":NaN}')
        code = await raw.rest()
    expect(code == BAD_MESSAGE and "theta" in raw.heard[-1]["message"], f"{code}, {raw.heard}")


async def joiners(campaign: Campaign, draw: random.Random) -> None:
    """20,000 zero-width joiners, as fast as they may come."""
    speaker = campaign.speaker(campaign.served.url, draw, campaign.joined)
    speaker.pace = float("inf")
    await campaign.whole(speaker)


async def storm(campaign: Campaign, draw: random.Random) -> None:
    """Two hundred come at once, start, and are gone."""

    async def one() -> str:
        async with opened(campaign.served.url) as socket:
            await socket.send('{"type":"start"}')
            async with asyncio.timeout(PATIENCE):
                message = json.loads(await socket.recv())
            socket.transport.abort()
        return str(message.get("code", message["type"]))

    answers = Counter(await asyncio.gather(*(one() for _ in range(200))))
    expect(set(answers) <= {"ready", "busy"} and answers["ready"] > 0, f"answered {answers}")


# --- what becomes of the engine and of the server --------------------------------------------------------------------


async def engine(campaign: Campaign, draw: random.Random, number: int) -> None:
    """The engine gets a signal, while all speak."""
    async with campaign.engine_is_mine:
        speaker = campaign.speaker(campaign.served.url, draw)
        speaking = asyncio.create_task(campaign.whole(speaker))
        await asyncio.sleep(draw.uniform(0.2, 2.0))
        before, pid = await campaign.engines(), campaign.served.engine()
        expect(pid is not None, "there is no engine")
        os.kill(pid or 0, number)
        await speaking
        expect(speaker.closes == [1000], f"its clients' connections ended with {speaker.closes}")
        until = time.monotonic() + PATIENCE
        while await campaign.engines() == before:
            expect(time.monotonic() < until, "no other engine was started")
            await asyncio.sleep(0.2)


async def terminated(campaign: Campaign, draw: random.Random) -> None:
    """SIGTERM to a server at work: all are told, and go on at another."""
    served = await asyncio.to_thread(Served, campaign.model_folder, *SETTINGS)
    with served:
        speakers = [campaign.speaker(served.url, draw) for _ in range(6)]
        speaking = [asyncio.create_task(speaker.run()) for speaker in speakers]
        await asyncio.sleep(draw.uniform(0.5, 3.0))
        seconds = await asyncio.to_thread(served.stop)
        await asyncio.gather(*speaking)
    expect(seconds < LONGEST_DRAIN, f"the server took {seconds:.1f} s to end")
    for speaker in speakers:
        campaign.compare(speaker.written, speaker.text, whole=False)
        if speaker.done:
            continue
        expect(speaker.closes[-1:] == [RESTART], f"ended with {speaker.closes}")
        rest = campaign.speaker(campaign.served.url, draw, speaker.text[speaker.handed_back :])
        await rest.run()
        expect(rest.done, f"elsewhere it ended with {rest.closes}, {rest.errors}")
        expected = campaign.reference(speaker.text)
        whole = (speaker.kept() + " " + rest.written).split()  # what another server begins has no space before it
        expect(whole == expected.split(), f"{whole} was shown, where it is {expected!r}")


KINDS: dict[str, tuple[Callable[[Campaign, random.Random], Awaitable[None]], int]] = {  # and how many of 300
    "reset": (partial(network, kind="reset"), 50),
    "half_open": (partial(network, kind="half_open"), 30),
    "stall": (partial(network, kind="stall"), 20),
    "drip": (partial(network, kind="drip"), 15),
    "duplicated": (duplicated, 20),
    "gapped": (gapped, 20),
    "two_on_one_key": (two_on_one_key, 30),
    "abandoned": (abandoned, 20),
    "oversize": (partial(mistake, code=TOO_BIG, named="", frames=["x" * 20_000, text_message(0, "我" * 2_001)]), 20),
    "invalid_utf8": (partial(mistake, code=INVALID, named="", frames=NO_UTF8), 20),
    "nan": (nan, 20),
    "joiners": (joiners, 5),
    "storm": (storm, 6),
    "engine_killed": (partial(engine, number=signal.SIGKILL), 10),
    "engine_hung": (partial(engine, number=signal.SIGSTOP), 8),
    "terminated": (terminated, 6),
}


def faults_of(count: int, draw: random.Random) -> list[str]:
    """So many kinds of faults in random order, in the proportions of `KINDS`, at least one of each."""
    total = sum(share for _, share in KINDS.values())
    chosen = [kind for kind, (_, share) in KINDS.items() for _ in range(max(1, round(count * share / total)))]
    draw.shuffle(chosen)
    return chosen


# --- attacks, for the command ----------------------------------------------------------------------------------------

OPEN_FILES = 1024  # that a process may have open at first, on most systems
CONNECTIONS = 1010  # that are idle
MOST_TIMES, MOST_MIB, MOST_LINES = 2.0, 20.0, 100.0  # of bystanders' p99, of memory, of the log
LOOK = 0.2


async def idle_connections(port: int, until: float) -> None:
    """Connections that ask for nothing, and some whose request never ends."""
    writers = []
    for _ in range(CONNECTIONS):
        with suppress(OSError):
            writers.append((await asyncio.open_connection(LOCAL, port))[1])
    for writer in writers[::10]:
        writer.write(b"GET / HTTP/1.1\r\n")
    while time.monotonic() < until:
        for writer in writers[::10]:
            if not writer.is_closing():
                writer.write(b"X: 1\r\n")
        await asyncio.sleep(1.0)
    for writer in writers:
        writer.close()


async def frames_unread(port: int, until: float, frames: bytes) -> None:
    """A client who sends frames as fast as he can, reads nothing, and comes back when he is cut off."""
    loop = asyncio.get_running_loop()
    while time.monotonic() < until:
        with suppress(OSError, TimeoutError), socket.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, (LOCAL, port))
            await loop.sock_sendall(one, HANDSHAKE)
            async with asyncio.timeout(until - time.monotonic()):
                while True:
                    await loop.sock_sendall(one, frames)
        await asyncio.sleep(0.1)


async def pings(port: int, until: float) -> None:
    """Two clients who send pings, and two who send empty fragments."""
    ping = Frame(Opcode.PING, bytes(125)).serialize(mask=True)
    begin = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
    more = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
    floods = [ping * 500] * 2 + [begin + more * 10_000] * 2
    await asyncio.gather(*(frames_unread(port, until, flood) for flood in floods))


async def lost_transports(port: int, until: float) -> None:
    """Twenty clients who have much to be answered, and are gone when it is; half of them come back for it."""
    await asyncio.gather(*(lost(port, until, number / 10, number % 2 == 0) for number in range(20)))


async def lost(port: int, until: float, pause: float, comes_back: bool) -> None:
    """One of them."""
    await asyncio.sleep(pause)
    first = '{"type":"start"}'
    messages = [first] + ['{"type":"ping"}'] * 98
    if comes_back:
        with suppress(OSError, InvalidHandshake, ConnectionClosed):
            async with opened(f"ws://{LOCAL}:{port}/v1/live") as one:
                await one.send(first)
                ready = await Raw(one).hear("ready")
                await one.send(text_message(0, "我们走。" * 40))
                await asyncio.sleep(1.0)
                again = {"type": "resume", "session": ready["session"], "key": ready["key"], "seq": 0}
                messages = [json.dumps(again)]  # and nothing that would confirm the next key
    while time.monotonic() < until:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(LOCAL, port)
            writer.write(HANDSHAKE)
            await asyncio.sleep(0.1)
            writer.write(b"".join(Frame(Opcode.TEXT, one.encode()).serialize(mask=True) for one in messages))
            reset(writer)
        await asyncio.sleep(1.9)


ATTACKS: dict[str, Callable[[int, float], Awaitable[None]]] = {
    "idle_connections": idle_connections,
    "pings": pings,
    "lost_transports": lost_transports,
}


def attack(name: str, port: int, seconds: float) -> None:
    """Attack a server, in a process of its own, so that bystanders' clocks go on."""

    async def bounded() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + 3.0):
                await ATTACKS[name](port, time.monotonic() + seconds)

    asyncio.run(bounded())


async def stand_by(url: str, until: float) -> tuple[list[float], int]:
    """One who comes, asks for a sign of life now and then, goes, and comes again: seconds until each, and how often he
    did not get in."""
    found, locked_out = [], 0
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(5), opened(url) as one:
                raw = Raw(one)
                await raw.say(type="start")
                await raw.hear("ready")
                for _ in range(20):
                    await asyncio.sleep(0.06)  # the protocol allows 20 messages a second
                    begun = time.perf_counter()
                    await raw.say(type="ping")
                    await raw.hear("pong")
                    found.append(time.perf_counter() - begun)
                await raw.say(type="close")
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
            locked_out += 1
    return found, locked_out


async def bystanders_of(served: Served, seconds: float) -> tuple[list[float], int, int]:
    """What bystanders found, and the most memory that the server had meanwhile."""
    until, most = time.monotonic() + seconds, 0
    standing_by = asyncio.gather(*(stand_by(served.url, until) for _ in range(BYSTANDERS)))
    while time.monotonic() < until:
        most = max(most, resident(served.process.pid))
        await asyncio.sleep(LOOK)
    found = await standing_by
    return [seconds for latencies, _ in found for seconds in latencies], sum(out for _, out in found), most


async def attacked(served: Served, name: str, seconds: float, rounds: int, log: Path) -> dict[str, Any]:
    """What an attack does, beside as many seconds without one; of bystanders' times, the median of some rounds."""
    before, during, lines, memory, most, out = [], [], log.read_bytes().count(b"\n"), 0, 0, 0
    await bystanders_of(served, 2.0)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(int).result()  # it has started
        for _ in range(rounds):
            found, _, there = await bystanders_of(served, seconds)
            before.append(1000 * quantile(found, 0.99))
            memory = memory or there
            attacking = asyncio.get_running_loop().run_in_executor(pool, attack, name, served.port, seconds)
            found, locked_out, there = await bystanders_of(served, seconds)
            await attacking
            during.append(1000 * quantile(found, 0.99))
            most, out = max(most, there), out + locked_out
    row: dict[str, Any] = {
        "p99_ms_before": before,
        "p99_ms": during,
        "times": statistics.median(after / first for first, after in zip(before, during, strict=True)),
        "memory_mib": (most - memory) / 2**20,
        "log_lines": log.read_bytes().count(b"\n") - lines,
        "locked_out": out,
    }
    bounds = {"times": MOST_TIMES, "memory_mib": MOST_MIB, "log_lines": MOST_LINES, "locked_out": 0}
    return row | {"missed": [bound for bound, most in bounds.items() if not row[bound] <= most]}


def main() -> int:
    """Attack a server, and print what it did; 1 if it did too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-folder", default="models/zh-en")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each attack (12)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--only", default=",".join(ATTACKS), help=f"some of {', '.join(ATTACKS)}")
    asked = parser.parse_args()
    if unknown := set(asked.only.split(",")) - set(ATTACKS):
        parser.error(f"--only {','.join(sorted(unknown))}: the attacks are {', '.join(ATTACKS)}")
    rows = {}
    for name in asked.only.split(","):
        with TemporaryDirectory() as folder, open(log := Path(folder) / "log", "wb") as stderr:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, limits[1]))
            served = Served(asked.model_folder, log=stderr)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            with served:
                rows[name] = asyncio.run(attacked(served, name, asked.seconds, asked.rounds, log))
            print(name, "passed" if not rows[name]["missed"] else f"missed {rows[name]['missed']}", file=sys.stderr)
    print(json.dumps(json.loads(json.dumps(rows), parse_float=lambda digits: round(float(digits), 2))))
    return int(any(row["missed"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
