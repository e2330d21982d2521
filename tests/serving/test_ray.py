"""deploy/ray_serve.py on Ray: two replicas, of which one is killed while all speak."""

import asyncio
import importlib.util
import os
import random
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from benchmarks.live_clients import Reference, Speaker
from duplexmt.data.builtin import builtin_corpus
from duplexmt.protocol.messages import Close

from .live_server import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: duplexmt[ray]"),
]
PORT = 8123
HTTP = f"http://127.0.0.1:{PORT}"
LINES = [pair.source for pair in builtin_corpus(60, 0, 0, seed=5)["train"]]
SPEAKERS = 6


@pytest.fixture(scope="module")
def replicas(folder):
    """Ray with two replicas; calling it gives their processes."""
    os.environ |= {"RAY_SERVE_SESSION_ID_HEADER_KEY": "x-session-id", "RAY_USAGE_STATS_ENABLED": "0"}
    for what in ("PROXY_READY_CHECK", "PROXY_HEALTH_CHECK"):  # for a busy machine
        os.environ[f"RAY_SERVE_{what}_TIMEOUT_S"] = "120"
    import ray
    from ray import serve

    from deploy.ray_serve import application

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        values = {"model_folder": str(folder), "replicas": "2", "cores": "0.5", "engine.max_target_tokens": "12"}
        serve.run(application(values | {"engine.max_repeats": "3", "limits.retry_seconds": "0.2"}))
        until(lambda: len(ready()) == 2, seconds=120)
        yield ready
    finally:
        serve.shutdown()
        ray.shutdown()


def ready():
    """Processes of the replicas; one that still loads its model tells clients to come back."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            title = (entry / "cmdline").read_bytes()
            if title.startswith(b"ray::") and b"ServeReplica" in title:
                found.append(int(entry.name))
        except OSError:
            continue
    with urllib.request.urlopen(f"{HTTP}/livez", timeout=30) as answer:
        assert answer.read() == b"alive"
    return found


class Customer(Speaker):
    """One whom a header leads to the same replica each time."""

    ping = answer = 5.0

    def _connect(self, **options):
        return super()._connect(additional_headers={"x-session-id": self.name}, **options)

    def over(self):
        """Number of events after which the last line, or sentence that has all its text, was over."""
        ends = [event["event"] == "line" or event.get("reason") == "end_token" for _, event in self.events]
        return max((number for number, end in enumerate(ends, start=1) if end), default=0)

    @property
    def is_lost(self):
        """Whether another session has to go on after what is over."""
        return self.ended_by in ("restart", "unknown_session", "expired")

    def rest(self):
        """The one that does."""
        source = self.events[self.over() - 1][1]["source"] if self.over() else 0
        return customer(self.text[source:], name=self.name)


def customer(text, name, **how):
    found = Customer(f"ws://127.0.0.1:{PORT}/v1/live", text, deadline=time.monotonic() + 120, **how)
    found.name = name
    return found


def test_a_replica_is_killed_under_load_and_its_sessions_go_on_at_the_other(replicas, folder):
    reference = Reference(str(folder), 12, 3)
    texts = ["".join(f"{line}\n" for line in LINES[10 * number : 10 * number + 6]) for number in range(SPEAKERS)]
    for text in texts:
        reference(text)

    async def speak():
        chance = random.Random(1)
        speakers = [customer(text, f"{chance.random()}", pace=10.0) for text in texts]
        speaking = [asyncio.create_task(speaker.run()) for speaker in speakers]
        while not all(speaker.written for speaker in speakers) and time.monotonic() < speakers[0].deadline:
            await asyncio.sleep(0.1)
        os.kill(replicas()[0], signal.SIGKILL)
        await asyncio.gather(*speaking)
        rests = [speaker.rest() for speaker in speakers if speaker.is_lost]
        await asyncio.gather(*(rest.run() for rest in rests))
        return speakers, rests

    speakers, rests = asyncio.run(speak())
    assert 0 < len(rests) < SPEAKERS
    rests = iter(rests)
    for speaker in speakers:
        expected = reference(speaker.text)
        assert expected.startswith(speaker.written)
        if not speaker.is_lost:
            assert (speaker.done, speaker.written) == (True, expected)
            assert speaker.closes == [Close.BUSY] * len(speaker.told) + [1000]  # busy while the model was loaded
        else:
            rest = next(rests)
            assert rest.done
            kept = "".join(event["text"] for _, event in speaker.events[: speaker.over()])
            assert f"{kept} {rest.written}".split() == expected.split()
