"""Does the live server hold what it promises, under load, overload and abandoned connections?

    python benchmarks/serve_load.py --model-folder runs/latest/model             # all, at full size: 25 minutes
    python benchmarks/serve_load.py --model-folder runs/latest/model --quick     # a little of each
    python benchmarks/serve_load.py --model-folder … --only load,churn --seed 3

    load        speakers who speak by the clock, whether answers come or not, beside connected ones who are silent; a
                third of the speakers are misheard now and then, and have their last words replaced
    throughput  as many who have said all at once, beside the engine alone on their sentences; the median of three turns
    overload    twice as many speakers as there are streams
    churn       connects and aborts at every moment of a session's begin

All of it goes over this machine's loopback. Latencies are those of speakers who replace nothing, from source token to
write, policy waits left out (see `latencies`); S is the median step of the engine with as many streams, measured in the
same run without a server. Every text is compared with that of translate.py, to which the same is done. The last line is
JSON; `missed` names the targets that were not met. Ratios are of one run; on a machine that is busy otherwise they say
little. What faults do is tested in tests/serving.
"""

import asyncio
import gc
import json
import math
import random
import signal
import socket
import struct
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.live_clients import LOCAL, TICK, Reference, Served, Speaker
from benchmarks.measuring import count, rounded, some_of
from duplexmt.common.command import command_parser
from duplexmt.data.builtin import builtin_corpus
from duplexmt.policy.decoding_options import TARGET_TOKENS
from duplexmt.protocol.client import OPTIONS, ServerError
from duplexmt.protocol.messages import SUBPROTOCOL
from duplexmt.streaming.events import End
from duplexmt.streaming.systems import build_system

PARTS = ("load", "throughput", "overload", "churn")
LOST = 1006
RESET = struct.pack("ii", 1, 0)  # linger for no time: a connection ends with RST
TOKENS_PER_SECOND = 5.0
TEXTS = 4  # different ones; speakers share them
MAX_REPEATS = 8  # as in conf/serve.yaml
AT_ONCE = 50  # connects
TURNS = 3  # of the throughput
MOST_STEPS = 1_000  # of the engine alone
AT_ONCE_SAID = 400  # characters of those who have said all at once
OVERLOAD = 60.0  # seconds, at most
SETTLED = 90.0  # seconds in which sessions without a client have to be gone
NEVER = ("texts_lost_or_changed", "disturbed", "silent_disturbed", "streams_left", "sessions_left")
HANDSHAKE = (
    f"GET /v1/live HTTP/1.1\r\nHost: {LOCAL}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: duplexmt.v1\r\n\r\n"
).encode()


def text_of(sentences: Iterator[str], characters: int) -> str:
    """So many characters, or a few more, in lines of two sentences."""
    text = ""
    while len(text) < characters:
        text += "".join(islice(sentences, 2)) + "\n"
    return text


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


def quantiles(speakers: list[Speaker], reference: Reference, step: float) -> dict[str, float]:
    """Of the latencies of all who replaced nothing and whose text was translated as a whole, in milliseconds; NaN for
    none. The others are counted by `wrong`."""
    plain = [speaker for speaker in speakers if speaker.misheard is None]
    whole = [speaker for speaker in plain if speaker.done and speaker.written == reference(speaker.text)]
    found = [seconds for speaker in whole for seconds in latencies(speaker, reference.due(speaker.text), step)]
    values = np.quantile(found or [math.nan], (0.5, 0.95, 0.99), method="inverted_cdf")
    return dict(zip(("p50_ms", "p95_ms", "p99_ms"), (1000 * values).tolist(), strict=True))


def wrong(speakers: list[Speaker], reference: Reference) -> dict[str, int]:
    """What should not be: texts that are other than translate.py's, connections that were not one."""
    return {
        "speakers": len(speakers),
        "texts_lost_or_changed": sum(not s.done or s.written != s.expected(reference) for s in speakers),
        "disturbed": sum(s.closes != [1000] or bool(s.errors) for s in speakers),
    }


def histogram_quantile(before: Mapping[str, float], after: Mapping[str, float], name: str, share: float) -> float:
    """A quantile of what a histogram took between two looks, as if each bucket's were spread evenly; ∞ for none."""
    edges = sorted((float(key[len(name) + 8 : -1]), key) for key in after if key.startswith(f"{name}_bucket{{"))
    counts = [after[key] - before.get(key, 0.0) for _, key in edges]
    return float(np.interp(share * counts[-1], [0.0, *counts], [0.0, *(edge for edge, _ in edges)]))


def engine_alone(reference: Reference, streams: int, texts: list[str]) -> dict[str, float]:
    """The engine without a server, given the tokens of the sentences of the texts, until the first stream has no more:
    its median step, in milliseconds, and events a second."""
    guards = {"max_target_tokens": TARGET_TOKENS, "max_repeats": MAX_REPEATS, "tokenizer": reference.loaded.tokenizer}
    engine = build_system(reference.loaded, "grid", reference.engine.theta, batch_size=streams, **guards)
    left = [iter(reference.sentences(texts[number % len(texts)])) for number in range(streams)]
    whose: dict[int, int] = {}

    def open_next(number: int) -> bool:
        if (tokens := next(left[number], None)) is None:
            return False
        stream = engine.open()
        stream.read(tokens)
        stream.end()
        whose[stream.name] = number
        return True

    going, events, steps, begin = all([open_next(number) for number in range(streams)]), 0, [], time.perf_counter()
    while going and len(steps) < MOST_STEPS:
        before = time.perf_counter()
        told = engine.step()
        steps.append(time.perf_counter() - before)
        ends = [event for event in told if isinstance(event, End)]
        events += len(told) - len(ends)
        going = all([open_next(whose.pop(event.stream)) for event in ends])
    seconds = time.perf_counter() - begin
    return {"step_ms_p50": 1000 * median(steps), "events_per_second": events / seconds}


@dataclass
class Bench:
    """A server under load, and what it is compared with."""

    asked: Namespace
    served: Served
    reference: Reference
    step: float  # seconds that one of the engine alone takes
    draw: random.Random

    async def speak(self, texts: list[str], number: int, seconds: float, revising: int = 0) -> list[Speaker]:
        """So many speakers, of whom some revise, begin within a second and speak for so long."""
        now, pace, speakers = time.monotonic(), self.reference.pace(TOKENS_PER_SECOND), []
        for index in range(number):
            begin = now + 1.0 + self.draw.random() + index % 5 * TICK / 5
            how = {"begin": begin, "deadline": begin + 2 * seconds + 60}
            how["misheard"] = random.Random(self.draw.random()) if index < revising else None
            speakers.append(Speaker(self.served.url, texts[index % len(texts)], pace, **how))
        await asyncio.gather(*(speaker.run() for speaker in speakers))
        return speakers


async def silent(url: str, seconds: float) -> bool:
    """One who is connected and says nothing; whether the connection lasted."""
    client = Speaker(url, "")
    with suppress(TimeoutError, ServerError):
        async with asyncio.timeout(seconds), client:
            async for _ in client:
                pass
    return client.closes == [LOST]  # its only one, which it has left itself


async def load(bench: Bench, texts: list[str]) -> dict[str, Any]:
    """As many speakers as streams, and silent ones beside them."""
    served, seconds, active, connected = bench.served, bench.asked.seconds, bench.asked.active, bench.asked.connected
    before, empty = served.metrics(), served.taken()
    beside = [asyncio.create_task(silent(served.url, seconds)) for _ in range(connected - active)]
    speakers = await bench.speak(texts, active, seconds, revising=-(-active // 3))
    lasted = await asyncio.gather(*beside)
    after, full = await asyncio.to_thread(served.metrics), served.taken()
    return {
        "characters_per_second": bench.reference.pace(TOKENS_PER_SECOND),
        **quantiles(speakers, bench.reference, bench.step),
        **wrong(speakers, bench.reference),
        "replacements": sum(len(speaker.made) for speaker in speakers),
        "silent_disturbed": lasted.count(False),
        "loop_lag_ms_p99": 1000 * histogram_quantile(before, after, "duplexmt_loop_lag_seconds", 0.99),
        **{f"{name}_cores_per_speaker": (full[name][1] - empty[name][1]) / seconds / active for name in full},
        "server_kib_per_connection": (full["server"][0] - empty["server"][0]) / 1024 / connected,
        "engine_kib_per_stream": (full["engine"][0] - empty["engine"][0]) / 1024 / active,
    }


async def throughput(bench: Bench, texts: list[str]) -> dict[str, Any]:
    """Events a second of speakers who have said all at once, while all are at work, and their share of those of the
    engine alone just before, as a machine is not as fast each minute; the median of several turns."""
    shares, speakers = dict[float, float](), list[Speaker]()
    for _ in range(TURNS):
        alone = await asyncio.to_thread(engine_alone, bench.reference, bench.asked.active, texts)
        deadline = time.monotonic() + 300
        own = [Speaker(bench.served.url, texts[n % TEXTS], deadline=deadline) for n in range(bench.asked.active)]
        await asyncio.gather(*(speaker.run() for speaker in own))
        speakers += own
        begin, end = max(s.events[0][0] for s in own), min(s.events[-1][0] for s in own)
        kinds = Counter(event["event"] for s in own for received, event in s.events if begin < received <= end)
        events = (kinds["read"] + kinds["write"]) / (end - begin)
        shares[events / alone["events_per_second"]] = events
    share = sorted(shares)[TURNS // 2]
    figures = {"events_per_second": shares[share], "share_of_same_sentences": share, "shares": sorted(shares)}
    return figures | wrong(speakers, bench.reference)


async def overload(bench: Bench, texts: list[str]) -> dict[str, Any]:
    """Twice as many speakers as streams."""
    speakers = await bench.speak(texts, 2 * bench.asked.active, OVERLOAD)
    admitted = [speaker for speaker in speakers if not speaker.told]
    return {
        **quantiles(admitted, bench.reference, bench.step),
        "told_to_come_back": len(speakers) - len(admitted),
        "told_ms_max": 1000 * max((seconds for speaker in speakers for seconds in speaker.told), default=math.nan),
        **wrong(admitted, bench.reference),
    }


async def on_server(asked: Namespace, reference: Reference, texts: dict[str, list[str]], step: float) -> dict[str, Any]:
    """Parts load, throughput and overload, on one server."""
    settings = (f"engine.max_streams={asked.active}", f"limits.sessions={2 * asked.connected + 2 * asked.active}")
    with Served(asked.model_folder, *settings) as served:
        bench = Bench(asked, served, reference, step, random.Random(asked.seed))
        parts = {"load": load, "throughput": throughput, "overload": overload}
        return {name: await parts[name](bench, own) for name, own in texts.items()}


async def connect_and_abort(served: Served, text: str, draw: random.Random) -> str:
    """Come as far as chance has it, and be gone without a word; or with one."""
    how = draw.choice(("half a request", "handshake", "start", "text", "close"))
    if how == "half a request":
        _, writer = await asyncio.open_connection(LOCAL, served.port)
        writer.write(HANDSHAKE[: draw.randrange(1, len(HANDSHAKE))])
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        return how
    options = OPTIONS | {"open_timeout": None, "close_timeout": 1, "max_queue": None, "proxy": None}
    async with connect(served.url, subprotocols=[Subprotocol(SUBPROTOCOL)], **options) as connection:
        if how != "handshake":
            await connection.send('{"type":"start"}')
        if how in ("text", "close"):
            await connection.recv()
            await connection.send(json.dumps({"type": "text", "at": 0, "text": text[: draw.randrange(1, 30)]}))
        if how == "close":
            await connection.send('{"type":"close"}')
        connection.transport.abort()
    return how


async def churn(asked: Namespace, text: str) -> dict[str, Any]:
    """Connects and aborts; memory once they are over, beside that after the first tenth."""
    draw, counts = random.Random(asked.seed), Counter[str]()

    async def some(number: int) -> None:
        for _ in range(number):
            try:
                counts[await connect_and_abort(served, text, draw)] += 1
            except (OSError, ConnectionClosed, InvalidHandshake):
                counts["refused"] += 1  # also an answer; for want of room, say

    streams = f"engine.max_streams={asked.active}"
    with Served(asked.model_folder, "limits.grace_seconds=1", "limits.active_seconds=0.5", streams) as served:
        await asyncio.gather(*(Speaker(served.url, text).run() for _ in range(asked.active)))  # every stream, once
        tenths = []
        for _ in range(10):
            await asyncio.gather(*(some(-(-asked.connects // 10 // AT_ONCE)) for _ in range(AT_ONCE)))
            until = time.monotonic() + SETTLED
            while (found := served.metrics())["duplexmt_sessions"] + found["duplexmt_streams"]:
                if time.monotonic() > until:
                    break
                await asyncio.sleep(0.5)
            tenths.append(sum(memory for memory, _ in served.taken().values()))
    return {
        "connects": counts.total(),
        "by_kind": dict(sorted(counts.items())),
        "memory_growth": tenths[-1] / tenths[0] - 1,
        "mib_by_tenth": [tenth // 2**20 for tenth in tenths],
        "sessions_left": found["duplexmt_sessions"],
        "streams_left": found["duplexmt_streams"],
    }


def missed(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Targets that were not met, each with its value; those of the documents."""
    values = {f"{part}.{name}": value for part, row in rows.items() for name, value in row.items()}
    step = values.get("engine_alone.step_ms_p50", math.nan)
    most = {name: 0.0 for name in values if name.rpartition(".")[2] in NEVER} | {
        "load.p50_ms": 2 * step,
        "load.p95_ms": 3 * step + 5,
        "load.p99_ms": 5 * step + 10,
        "load.loop_lag_ms_p99": 20,
        "overload.told_ms_max": 100,
        "overload.p99_ms": 1.2 * values.get("load.p99_ms", math.inf),
        "churn.memory_growth": 0.01,
    }
    above = {name: bound for name, bound in most.items() if name in values and not values[name] <= bound}
    found = [f"{name}={values[name]:.4g} > {bound:.4g}" for name, bound in above.items()]
    if not (share := values.get("throughput.share_of_same_sentences", 1)) >= 0.85:
        found.append(f"throughput.share_of_same_sentences={share:.3g} < 0.85")
    return found


def main() -> int:
    """Measure and print; 1 if a target was missed."""
    parser = command_parser(__doc__)
    parser.add_argument("--model-folder", default="runs/latest/model")
    parser.add_argument("--quick", action="store_true", help="a few seconds and connects of each")
    parser.add_argument("--only", type=some_of(PARTS), default=list(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--active", type=count, help="speakers, and streams of the engine (64)")
    parser.add_argument("--connected", type=count, help="sessions, those of the speakers among them (512)")
    parser.add_argument("--seconds", type=count, help="of the load (600)")
    parser.add_argument("--seed", type=int, default=1, help="of texts, moments and places")
    asked = parser.parse_args()
    full = {"active": 64, "connected": 512, "seconds": 600, "connects": 10_000}
    quick = {"active": 8, "connected": 24, "seconds": 6, "connects": 300}
    given = {name: value for name, value in vars(asked).items() if value is not None}
    asked = Namespace(**(quick if asked.quick else full) | given)
    if asked.connected < asked.active:
        parser.error(f"--connected {asked.connected}: must be at least --active {asked.active}, who are among them")

    make = partial(text_of, cycle(pair.source for pair in builtin_corpus(4000, 0, 0, seed=asked.seed)["train"]))
    reference = Reference(asked.model_folder, TARGET_TOKENS, MAX_REPEATS)
    short = [make(60) for _ in range(8)]
    for text in short:
        reference(text)
    rows: dict[str, Any] = {"size": {name: getattr(asked, name) for name in full}}
    pace = reference.pace(TOKENS_PER_SECOND)
    sizes = {"load": pace * asked.seconds, "throughput": AT_ONCE_SAID, "overload": pace * min(OVERLOAD, asked.seconds)}
    texts = {name: [make(int(size)) for _ in range(TEXTS)] for name, size in sizes.items() if name in asked.only}
    if texts:
        for text in (text for some in texts.values() for text in some):
            reference(text)  # now, as it takes time
        rows["engine_alone"] = engine_alone(reference, asked.active, next(iter(texts.values())))
        gc.freeze()  # so that the clients do not pause while Python looks through what was loaded
        rows |= asyncio.run(on_server(asked, reference, texts, rows["engine_alone"]["step_ms_p50"] / 1000))
    if "churn" in asked.only:
        rows["churn"] = asyncio.run(churn(asked, short[0]))
    rows["missed"] = missed(rows)
    print(json.dumps(rounded(rows), ensure_ascii=False))
    return int(bool(rows["missed"]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left
    sys.exit(main())
