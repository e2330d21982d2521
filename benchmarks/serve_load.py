"""Does the live server hold what it promises, under load, overload, abandoned connections and faults?

    python benchmarks/serve_load.py --model-folder runs/latest/model             # all, at full size: 25 minutes
    python benchmarks/serve_load.py --model-folder runs/latest/model --quick     # a little of each
    python benchmarks/serve_load.py --model-folder … --only faults,churn --seed 3

    load        speakers who speak by the clock, whether answers come or not, beside connected ones who are silent; a
                third of the speakers are misheard now and then, and have their last words replaced
    throughput  as many who have said all at once, beside the engine alone on their sentences; the median of three turns
    overload    twice as many speakers as there are streams
    churn       connects and aborts at every moment of a session's begin
    faults      see serve_faults.py

All of it goes over this machine's loopback. Latencies are those of speakers who replace nothing, from source token to
write, policy waits left out (see `live_clients.latencies`), in units of S, the median step of the engine with as many
streams, measured in the same run without a server. Every text is compared with that of translate.py's driver, to which
the same is done. The last line is JSON; `missed` names the targets that were not met. Ratios are of one run; on a
machine that is busy otherwise they say little.
"""

import argparse
import asyncio
import gc
import json
import math
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.live_clients import (
    TICK,
    Reference,
    Served,
    Speaker,
    histogram_quantile,
    latencies,
    opened,
    processor,
    quantile,
    settle,
    text_message,
)
from benchmarks.measuring import check_counts, names_of, resident, rounded
from benchmarks.serve_faults import Campaign, faults_of, half_a_request
from duplexmt.data.builtin import builtin_corpus
from duplexmt.policy.decoding_options import TARGET_TOKENS
from duplexmt.protocol.client import ServerError
from duplexmt.streaming.events import End
from duplexmt.streaming.systems import build_system

PARTS = ("load", "throughput", "overload", "churn", "faults")
LOST = 1006
TOKENS_PER_SECOND = 5.0
TEXTS = 4  # different ones; speakers share them
MAX_REPEATS = 8  # as in conf/serve.yaml
AT_ONCE = 50  # connects
TURNS = 3  # of the throughput
MOST_STEPS = 1_000  # of the engine alone
AT_ONCE_SAID = 400  # characters of those who have said all at once
OVERLOAD = 60.0  # seconds, at most
LOOK = 0.02  # seconds between two looks at the event loop of the clients


class Texts:
    """Lines of two sentences of the built-in corpus, without end."""

    def __init__(self, seed: int) -> None:
        self._sources = cycle(pair.source for pair in builtin_corpus(4000, 0, 0, seed=seed)["train"])

    def __call__(self, characters: int) -> str:
        """A text of so many characters, or a few more."""
        lines: list[str] = []
        while sum(map(len, lines)) < characters:
            lines.append("".join(islice(self._sources, 2)) + "\n")
        return "".join(lines)


def engine_alone(reference: Reference, streams: int, texts: list[str]) -> dict[str, float]:
    """The engine without a server, given the tokens of the sentences of the texts, until the first stream has no more:
    its median step, in milliseconds, and events a second."""
    guards = {"max_target_tokens": TARGET_TOKENS, "max_repeats": MAX_REPEATS, "tokenizer": reference.loaded.tokenizer}
    engine = build_system(reference.loaded, "grid", reference.engine.theta, batch_size=streams, **guards)
    left = [iter(reference.sentences_of[texts[number % len(texts)]]) for number in range(streams)]
    whose: dict[int, int] = {}

    def open_next(number: int) -> bool:
        if (sentence := next(left[number], None)) is None:
            return False
        stream = engine.open(context=sentence.context if engine.tokens.context else ())
        stream.read(sentence.tokens)
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
    return {"step_ms_p50": 1000 * statistics.median(steps), "events_per_second": events / seconds}


async def throughput(
    url: str, active: int, reference: Reference, texts: list[str]
) -> tuple[dict[str, float], list[Speaker]]:
    """Speakers who have said all at once, beside the engine alone just before, as a machine is not as fast each minute.

    Returns:
        Events and tokens a second while all are at work, and the share of the engine alone; and the speakers.
    """
    alone = await asyncio.to_thread(engine_alone, reference, active, texts)
    deadline = asyncio.get_running_loop().time() + 300
    speakers = [Speaker(url, texts[number % TEXTS], deadline=deadline) for number in range(active)]
    await speak(speakers)
    begin = max(speaker.events[0][0] for speaker in speakers)
    end = min(speaker.events[-1][0] for speaker in speakers)
    kinds = Counter(e["event"] for s in speakers for received, e in s.events if begin < received <= end)
    events_per_second = (kinds["read"] + kinds["write"]) / (end - begin)
    return {
        "events_per_second": events_per_second,
        "tokens_per_second": kinds["write"] / (end - begin),
        "share_of_same_sentences": events_per_second / alone["events_per_second"],
    }, speakers


def in_memory(pid: int) -> int:
    """Bytes of a process."""
    return resident("VmRSS", pid)


async def silent(url: str, until: float) -> bool:
    """One who is connected and says nothing; whether the connection lasted."""
    client = Speaker(url, "")
    with suppress(TimeoutError, ServerError):
        async with asyncio.timeout_at(until), client:
            async for _ in client:
                pass
    return client.closes == [LOST]  # its only one, which it has left itself


async def watch_lag(found: list[float]) -> None:
    """How late this process's own event loop is: what it adds to the latencies."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + LOOK
        await asyncio.sleep(LOOK)
        found.append(clock() - due)


async def speak(speakers: list[Any], others: Iterable[Any] = ()) -> tuple[list[float], list[Any]]:
    """Have all speak; the lag of this process, and what the others returned."""
    lags: list[float] = []
    lag = asyncio.create_task(watch_lag(lags))
    beside = [asyncio.create_task(other) for other in others]
    await asyncio.gather(*(speaker.run() for speaker in speakers))
    lag.cancel()
    return lags, list(await asyncio.gather(*beside))


def speakers_of(
    url: str, texts: list[str], count: int, pace: float, seconds: float, draw: random.Random, revising: int = 0
) -> list[Any]:
    """Speakers who begin within a second from now; so many of them are revisers."""
    now = asyncio.get_running_loop().time()
    made: list[Any] = []
    for number in range(count):
        begin = now + 1.0 + draw.random() + number % 5 * TICK / 5
        mishears = random.Random(draw.random()) if number < revising else None
        deadline = begin + 2 * seconds + 60
        made.append(Speaker(url, texts[number % len(texts)], pace, begin=begin, deadline=deadline, misheard=mishears))
    return made


def all_latencies(speakers: list[Any], reference: Reference, step: float) -> list[float]:
    """Of all writes to those whose text was translated as a whole; the others are counted by `wrong`."""
    plain = [speaker for speaker in speakers if speaker.misheard is None]
    whole = [speaker for speaker in plain if speaker.done and speaker.written == reference(speaker.text)]
    return [seconds for speaker in whole for seconds in latencies(speaker, reference.due(speaker.text), step)]


def of_steps(found: list[float], step: float) -> dict[str, float]:
    """Quantiles of latencies, in steps and in milliseconds."""
    row = {}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        row[f"{name}_steps"] = quantile(found, share) / step
        row[f"{name}_ms"] = 1000 * quantile(found, share)
    return row


def wrong(speakers: list[Any], reference: Reference) -> dict[str, int]:
    """What should not be: texts that are other than translate.py's, connections that were not one."""
    return {
        "speakers": len(speakers),
        "texts_lost_or_changed": sum(not s.done or s.written != s.expected(reference) for s in speakers),
        "disturbed": sum(s.closes != [1000] or bool(s.errors) for s in speakers),
    }


async def load(
    asked: argparse.Namespace, reference: Reference, texts: dict[str, list[str]], alone: dict[str, float]
) -> dict[str, Any]:
    """Parts load, throughput and overload, on one server."""
    draw, step = random.Random(asked.seed), alone["step_ms_p50"] / 1000
    pace = reference.pace(TOKENS_PER_SECOND)
    clock, rows = asyncio.get_running_loop().time, {}
    settings = (f"engine.max_streams={asked.active}", f"limits.sessions={2 * asked.connected + 2 * asked.active}")
    with Served(asked.model_folder, *settings) as served:
        empty, before = served.each(in_memory), served.metrics()
        if "load" in asked.only:
            revising = -(-asked.active // 3)
            speakers = speakers_of(served.url, texts["load"], asked.active, pace, asked.seconds, draw, revising)
            until, computed = clock() + asked.seconds, served.each(processor)
            others = [silent(served.url, until) for _ in range(asked.connected - asked.active)]
            lags, lasted = await speak(speakers, others)
            after, full = await asyncio.to_thread(served.metrics), served.each(in_memory)
            cores = {
                f"{name}_cores_per_speaker": (seconds - computed[name]) / asked.seconds / asked.active
                for name, seconds in served.each(processor).items()
            }
            found = all_latencies(speakers, reference, step)
            rows["load"] = {
                "characters_per_second": pace,
                **of_steps(found, step),
                **wrong(speakers, reference),
                "revisers": revising,
                "replacements": sum(len(speaker.made) for speaker in speakers[:revising]),
                "silent_disturbed": lasted.count(False),
                "step_ms_mean": 1000
                * (after["duplexmt_step_seconds_sum"] - before["duplexmt_step_seconds_sum"])
                / (after["duplexmt_step_seconds_count"] - before["duplexmt_step_seconds_count"]),
                "loop_lag_ms_p99": 1000 * histogram_quantile(before, after, "duplexmt_loop_lag_seconds", 0.99),
                "clients_lag_ms_p99": 1000 * quantile(lags, 0.99),
                **cores,
                "server_kib_per_connection": (full["server"] - empty["server"]) / 1024 / asked.connected,
                "engine_kib_per_stream": (full["engine"] - empty["engine"]) / 1024 / asked.active,
            }
        if "throughput" in asked.only:
            turns = [await throughput(served.url, asked.active, reference, texts["throughput"]) for _ in range(TURNS)]
            figures = sorted((figures for figures, _ in turns), key=lambda turn: turn["share_of_same_sentences"])
            rows["throughput"] = {
                **figures[TURNS // 2],
                "shares": [turn["share_of_same_sentences"] for turn in figures],
                **wrong([speaker for _, speakers in turns for speaker in speakers], reference),
            }
        if "overload" in asked.only:
            speakers = speakers_of(served.url, texts["overload"], 2 * asked.active, pace, OVERLOAD, draw)
            await speak(speakers)
            admitted = [speaker for speaker in speakers if not speaker.told]
            told = [seconds for speaker in speakers for seconds in speaker.told]
            found = all_latencies(admitted, reference, step)
            rows["overload"] = {
                "speakers": len(speakers),
                "told_to_come_back": len(speakers) - len(admitted),
                "told_ms_p50": 1000 * quantile(told, 0.5),
                "told_ms_max": 1000 * max(told, default=math.nan),
                **of_steps(found, step),
                "admitted": wrong(admitted, reference),
            }
        await asyncio.to_thread(served.stop)
    return rows


async def connect_and_abort(served: Served, text: str, draw: random.Random) -> str:
    """Come as far as chance has it, and be gone without a word; or with one."""
    how = draw.choice(("half a request", "handshake", "start", "text", "close"))
    if how == "half a request":
        await half_a_request(served.port, draw)
        return how
    async with opened(served.url) as socket:
        if how != "handshake":
            await socket.send('{"type":"start"}')
        if how in ("text", "close"):
            await socket.recv()
            await socket.send(text_message(0, text[: draw.randrange(1, 30)]))
        if how == "close":
            await socket.send('{"type":"close"}')
        socket.transport.abort()
    return how


async def churn(asked: argparse.Namespace, text: str) -> dict[str, Any]:
    """Connects and aborts; memory once they are over, beside that after the first tenth."""
    draw, counts = random.Random(asked.seed), Counter[str]()

    async def some(count: int) -> None:
        for _ in range(count):
            try:
                counts[await connect_and_abort(served, text, draw)] += 1
            except (OSError, ConnectionClosed, InvalidHandshake):
                counts["refused"] += 1  # also an answer; for want of room, say

    begun, streams = time.monotonic(), f"engine.max_streams={asked.active}"
    with Served(asked.model_folder, "limits.grace_seconds=1", "limits.active_seconds=0.5", streams) as served:
        await asyncio.gather(*(Speaker(served.url, text).run() for _ in range(asked.active)))  # every stream, once
        tenths = []
        for _ in range(10):
            await asyncio.gather(*(some(-(-asked.connects // 10 // AT_ONCE)) for _ in range(AT_ONCE)))
            found = await settle(served)
            tenths.append(served.each(in_memory))
        await asyncio.to_thread(served.stop)
    return {
        "connects": counts.total(),
        "by_kind": dict(sorted(counts.items())),
        "memory_growth": sum(tenths[-1].values()) / sum(tenths[0].values()) - 1,
        "server_mib_by_tenth": [tenth["server"] // 2**20 for tenth in tenths],
        "engine_mib_by_tenth": [tenth["engine"] // 2**20 for tenth in tenths],
        "sessions_left": found["duplexmt_sessions"],
        "streams_left": found["duplexmt_streams"],
        "seconds": time.monotonic() - begun,
    }


def missed(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Targets that were not met, each with its value; those of issue and documents."""
    values = {f"{part}.{name}": value for part, row in rows.items() for name, value in row.items()}
    values |= {f"overload.{name}": value for name, value in values.get("overload.admitted", {}).items()}
    step = values.get("engine_alone.step_ms_p50", math.nan)
    most = {
        "load.p50_ms": 2 * step, "load.p95_ms": 3 * step + 5, "load.p99_ms": 5 * step + 10, "load.loop_lag_ms_p99": 20,
        "load.texts_lost_or_changed": 0, "load.disturbed": 0, "load.silent_disturbed": 0,
        "throughput.texts_lost_or_changed": 0, "overload.told_ms_max": 100, "overload.texts_lost_or_changed": 0,
        "overload.disturbed": 0, "overload.p99_ms": 1.2 * values.get("load.p99_ms", math.inf),
        "churn.memory_growth": 0.01, "churn.streams_left": 0, "churn.sessions_left": 0, "faults.failures": 0,
        "faults.texts_lost_or_changed": 0, "faults.bystanders_affected": 0, "faults.sessions_left": 0,
        "faults.streams_left": 0,
        "faults.files_left": 2,  # pipes of the engine before, until Python collects its process object
    }  # fmt: skip
    above = {name: bound for name, bound in most.items() if name in values and not values[name] <= bound}
    found = [f"{name}={values[name]:.4g} > {bound:.4g}" for name, bound in above.items()]
    if not (share := values.get("throughput.share_of_same_sentences", 1)) >= 0.85:
        found.append(f"throughput.share_of_same_sentences={share:.3g} < 0.85")
    return found


def main() -> int:
    """Measure and print; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-folder", default="runs/latest/model")
    parser.add_argument("--quick", action="store_true", help="a few seconds, connects and faults of each")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--active", type=int, help="speakers, and streams of the engine (64)")
    parser.add_argument("--connected", type=int, help="sessions, those of the speakers among them (512)")
    parser.add_argument("--seconds", type=float, help="of the load (600)")
    parser.add_argument("--connects", type=int, help="of the churn (10000)")
    parser.add_argument("--faults", type=int, help="(300)")
    parser.add_argument("--seed", type=int, default=1, help="of texts, moments and places")
    asked = parser.parse_args()
    asked.only = names_of(parser, asked, "only", PARTS)
    full = {"active": 64, "connected": 512, "seconds": 600.0, "connects": 10_000, "faults": 300}
    quick = {"active": 8, "connected": 24, "seconds": 6.0, "connects": 300, "faults": 1}
    for name, value in (quick if asked.quick else full).items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    check_counts(parser, asked, *full)
    if asked.connected < asked.active:
        parser.error(f"--connected {asked.connected}: must be at least --active {asked.active}, who are among them")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left
    make, rows = Texts(asked.seed), dict[str, Any]()
    reference = Reference(asked.model_folder, TARGET_TOKENS, MAX_REPEATS)
    short = [make(60) for _ in range(8)]
    for text in short:
        reference(text)
    rows["size"] = {name: getattr(asked, name) for name in ("active", "connected", "seconds", "connects", "faults")}
    if {"load", "throughput", "overload"} & set(asked.only):
        pace = reference.pace(TOKENS_PER_SECOND)
        brief = min(OVERLOAD, asked.seconds)
        sizes = {"load": pace * asked.seconds, "throughput": AT_ONCE_SAID, "overload": pace * brief}
        texts = {name: [make(int(size)) for _ in range(TEXTS)] for name, size in sizes.items() if name in asked.only}
        for text in (text for some in texts.values() for text in some):
            reference(text)  # now, as it takes time
        rows["engine_alone"] = engine_alone(reference, asked.active, next(iter(texts.values())))
        gc.freeze()  # so that the clients do not pause while Python looks through what was loaded
        rows |= asyncio.run(load(asked, reference, texts, rows["engine_alone"]))
        print(json.dumps(rounded(rows)), file=sys.stderr, flush=True)  # progress
    if "churn" in asked.only:
        rows["churn"] = asyncio.run(churn(asked, short[0]))
        print(json.dumps(rounded(rows["churn"])), file=sys.stderr, flush=True)
    if "faults" in asked.only:
        campaign = Campaign(asked.model_folder, reference, short, asked.seed)
        rows["faults"] = asyncio.run(campaign.run(faults_of(asked.faults, random.Random(asked.seed))))
    rows["missed"] = missed(rows)
    print(json.dumps(rounded(rows), ensure_ascii=False))
    return int(bool(rows["missed"]))


if __name__ == "__main__":
    sys.exit(main())
