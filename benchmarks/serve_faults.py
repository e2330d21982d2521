"""The faults of serve_load.py: each is done to a server at work, and no shown text may be lost or changed by it.

Beside those that something is done to there are bystanders, who must not notice. What clients do wrong, message by
message, is tested in tests/serving/test_server.py and test_attacks.py.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from websockets.exceptions import ConnectionClosed

from benchmarks.fault_proxy import Fault, FaultProxy
from benchmarks.faults import FaultError, expect
from benchmarks.live_clients import RESTART, Reference, Served, Speaker, opened, settle

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
        with Served(self.model_folder, *SETTINGS) as self.served:
            open_files = self.served.process.num_fds  # sockets among them
            files, waiting = open_files(), list(reversed(kinds))
            standing_by = [asyncio.create_task(self._stand_by()) for _ in range(BYSTANDERS)]
            await asyncio.gather(*(self._work(waiting) for _ in range(AT_ONCE)))
            self.over = True
            await asyncio.gather(*standing_by)
            found = await settle(self.served, lambda: open_files() <= files)
            more = open_files() - files
            await asyncio.to_thread(self.served.stop)
        return {
            "faults": self.faults.total(),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "failures": len(self.failures),
            "first_failures": self.failures[:5],
            **self.counts,
            "engines_started": int(found["duplexmt_engines_total"]),
            "sessions_left": int(found["duplexmt_sessions"]),
            "streams_left": int(found["duplexmt_streams"]),
            "files_left": max(0, more),
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
            speaker = self.speaker(self.served.url, self.draw)
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

    async def engines(self) -> float:
        """How many engines the server has started so far."""
        return (await asyncio.to_thread(self.served.metrics))["duplexmt_engines_total"]

    def speaker(self, url: str, draw: random.Random, text: str = "", pace: float = PACE) -> Speaker:
        """One who speaks a text; or one of the texts, and then every third has words of it replaced."""
        deadline = time.monotonic() + PATIENCE
        misheard = random.Random(draw.random()) if not text and draw.random() < 1 / 3 else None
        text = text or draw.choice(self.texts)
        return Speaker(url, text, pace, deadline=deadline, silence=4.0, misheard=misheard)

    async def whole(self, speaker: Speaker) -> None:
        """Have one speak, who must be shown all of the translation, and nothing else."""
        await speaker.run()
        told = f"done={speaker.done}, closes {speaker.closes}, {speaker.errors[-1:]}"
        async with self.referring:  # in a thread: others are served meanwhile
            expected = await asyncio.to_thread(speaker.expected, self.reference) if speaker.done else ""
        self.counts["replacements"] += len(speaker.made)
        self.compare(speaker.written, expected or self.reference(speaker.text), told, well=speaker.done)

    def compare(self, written: str, expected: str, told: str = "", *, well: bool = True, whole: bool = True) -> None:
        """Count what was shown of a translation: it must be all of it, or (not `whole`) a beginning, and have ended
        well; else raise `FaultError`, with what else is told."""
        begins = expected.startswith(written)
        right = written == expected if whole else begins
        self.counts["texts_compared"] += 1
        self.counts["texts_lost_or_changed"] += not (right if well else begins)
        expect(well and right, f"{told}: {written!r} was shown, where it is\n{expected!r}")


async def network(campaign: Campaign, draw: random.Random, kind: Any) -> None:
    """Something happens to a connection, early or late."""
    after = draw.randrange(0, 600) if draw.random() < 0.3 else draw.randrange(600, 4_000)
    fault = Fault(kind, 0 if kind == "drip" else after, draw.uniform(0.5, 3.0))
    async with FaultProxy(campaign.served.port, [fault]) as proxy:
        await campaign.whole(campaign.speaker(proxy.url, draw))
        expect(proxy.injected == [fault], "nothing has happened")


async def joiners(campaign: Campaign, draw: random.Random) -> None:
    """20,000 zero-width joiners, as fast as they may come."""
    await campaign.whole(campaign.speaker(campaign.served.url, draw, campaign.joined, pace=float("inf")))


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


async def engine(campaign: Campaign, draw: random.Random, number: int) -> None:
    """The engine gets a signal, while all speak."""
    async with campaign.engine_is_mine:
        speaker = campaign.speaker(campaign.served.url, draw)
        speaking = asyncio.create_task(campaign.whole(speaker))
        await asyncio.sleep(draw.uniform(0.2, 2.0))
        before, process = await campaign.engines(), campaign.served.engine()
        assert process is not None, "there is no engine"
        process.send_signal(number)
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
        speakers = [campaign.speaker(served.url, draw, draw.choice(campaign.texts)) for _ in range(6)]
        speaking = [asyncio.create_task(speaker.run()) for speaker in speakers]
        await asyncio.sleep(draw.uniform(0.5, 3.0))
        seconds = await asyncio.to_thread(served.stop)
        await asyncio.gather(*speaking)
    expect(seconds < LONGEST_DRAIN, f"the server took {seconds:.1f} s to end")
    for speaker in speakers:
        expected = campaign.reference(speaker.text)
        campaign.compare(speaker.written, expected, whole=False)
        if speaker.done:
            continue
        expect(speaker.closes[-1:] == [RESTART], f"ended with {speaker.closes}")
        rest = campaign.speaker(campaign.served.url, draw, speaker.text[speaker.handed_back :])
        await rest.run()
        expect(rest.done, f"elsewhere it ended with {rest.closes}, {rest.errors}")
        whole = (speaker.kept() + " " + rest.written).split()  # what another server begins has no space before it
        expect(whole == expected.split(), f"{whole} was shown, where it is {expected!r}")


KINDS: dict[str, tuple[Callable[[Campaign, random.Random], Awaitable[None]], int]] = {  # and how many of 300
    "reset": (partial(network, kind="reset"), 110),
    "half_open": (partial(network, kind="half_open"), 70),
    "stall": (partial(network, kind="stall"), 50),
    "drip": (partial(network, kind="drip"), 35),
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
