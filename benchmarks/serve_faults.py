"""The faults of serve_load.py: each is done to a server at work, and no shown text may be lost or changed by it.

Beside those that something is done to, or who do something wrong, there are bystanders, who must not notice.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from benchmarks.fault_proxy import LOCAL, Fault, FaultProxy, reset
from benchmarks.faults import FaultError, expect
from benchmarks.live_clients import RESTART, Reference, Served, Speaker, code_of, opened, settle, text_message
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
COUNTS = ("texts_compared", "texts_lost_or_changed", "replacements", "bystanders", "bystanders_affected")
LONGEST_DRAIN = 10.0
NETWORK = {"reset": 50, "half_open": 30, "stall": 20, "drip": 15}  # and how many of 300
BAD_MESSAGE, UNKNOWN_SESSION, IDLE, REPLACED, TOO_BIG, INVALID = 4400, 4404, 4408, 4409, 1009, 1007
HANDSHAKE = (
    f"GET /v1/live HTTP/1.1\r\nHost: {LOCAL}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: duplexmt.v1\r\n\r\n"
).encode()
NO_UTF8 = [b'{"type":"ping\xff"}', b"\xed\xa0\x80", b"\xc0\xaf"]


class Mistaken(Speaker):
    """One who sends a frame that is none, once, in the middle of a session, and comes back."""

    frame: str | bytes | None
    after: float

    async def _write(self, socket: ClientConnection) -> None:
        frame, self.frame = self.frame, None
        async with asyncio.TaskGroup() as both:
            both.create_task(super()._write(socket))
            if frame is not None:
                await asyncio.sleep(self.after)
                await socket.send(frame, text=True)

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
        self.faults, self.failures = Counter[str](), list[str]()
        self.counts = dict.fromkeys(COUNTS, 0)
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
            **self.counts,
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
                self.failed(f"{kind}: {type(error).__name__}: {error}")

    async def _stand_by(self) -> None:
        while not self.over:
            speaker = self.someone(self.served.url, self.draw)
            try:
                await self.whole(speaker)
                expect(speaker.closes == [1000] and not speaker.errors, f"closes {speaker.closes}, {speaker.errors}")
            except (FaultError, AssertionError) as error:
                self.counts["bystanders_affected"] += 1
                self.failed(f"bystander: {error}")
            self.counts["bystanders"] += 1

    def failed(self, why: str) -> None:
        """Note it."""
        self.failures.append(why)
        print(why, file=sys.stderr, flush=True)

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

    def speaker(
        self, url: str, draw: random.Random, text: str = "", kind: type[Speaker] = Speaker, **values: Any
    ) -> Any:
        """One who speaks one of the texts."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        return kind(url, text or draw.choice(self.texts), PACE, deadline=deadline, silence=4.0, **values)

    def someone(self, url: str, draw: random.Random) -> Speaker:
        """One who speaks one of the texts; every third has words of it replaced."""
        return self.speaker(url, draw, misheard=None if draw.random() < 2 / 3 else random.Random(draw.random()))

    async def whole(self, speaker: Any) -> None:
        """Have one speak, who must be shown all of the translation, and nothing else."""
        await speaker.run()
        told = f"done={speaker.done}, closes {speaker.closes}, {speaker.errors[-1:]}"
        async with self.referring:  # in a thread: others are served meanwhile
            expected = await asyncio.to_thread(speaker.expected, self.reference) if speaker.done else None
        self.counts["replacements"] += len(speaker.made)
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
        self.counts["texts_compared"] += 1
        self.counts["texts_lost_or_changed"] += not (right if well else begins)
        expect(well and right, f"{told}: {written!r} was shown, where it is\n{expected!r}")


# --- what networks do ------------------------------------------------------------------------------------------------


async def network(campaign: Campaign, draw: random.Random, kind: Any) -> None:
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


async def cut_oddly(campaign: Campaign, draw: random.Random, back: int, on: int) -> None:
    """Text of random lengths, from somewhere before where it should be; or from there, and from somewhere after."""
    text, at = draw.choice(campaign.texts), 0
    async with opened(campaign.served.url) as socket:
        raw = Raw(socket)
        await raw.say(type="start")
        await raw.hear("ready")
        await raw.hear("ack")
        while at < len(text):
            begin = at if on and draw.random() < 0.5 else draw.randint(max(0, at - back), at + on)
            length = draw.randint(0, 40)
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


async def half_a_request(port: int, draw: random.Random) -> None:
    """Begin a handshake, and be gone without a word."""
    _, writer = await asyncio.open_connection(LOCAL, port)
    writer.write(HANDSHAKE[: draw.randrange(1, len(HANDSHAKE))])
    await writer.drain()
    reset(writer)


async def abandoned(campaign: Campaign, draw: random.Random) -> None:
    """Half a request; or a handshake, and then nothing."""
    for _ in range(8):
        await half_a_request(campaign.served.port, draw)
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
    speaker = campaign.speaker(campaign.served.url, draw, kind=Mistaken)
    speaker.frame, speaker.after = draw.choice(frames), draw.uniform(0.0, 0.5)
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
    **{kind: (partial(network, kind=kind), n) for kind, n in NETWORK.items()},
    "duplicated": (partial(cut_oddly, back=30, on=0), 20),
    "gapped": (partial(cut_oddly, back=0, on=50), 20),
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
