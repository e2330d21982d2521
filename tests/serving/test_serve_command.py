"""`python serve.py` as it is run: its engine is killed and stopped, it is told to end, and started with mistakes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from duplexmt.protocol.client import Client, ServerError

from ..commands import run, succeeded
from ..helpers import SENTENCES
from .live_server import Speaker, multi_path_folder, tiny_folder, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = "".join(source for source, _ in SENTENCES[:4]) + "\n" + SENTENCES[4][0] + "\n"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("run") / "model", "tokens", seed=2)


@contextmanager
def served(folder, *arguments):
    """The command; its process and the WebSocket's address. It has to end by SIGTERM, within ten seconds."""
    command = [sys.executable, "serve.py", f"model_folder={folder}", "port=0", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, env=ENVIRONMENT)
    try:
        process.page = process.stdout.readline().strip()
        process.address = process.page.replace("http", "ws") + "v1/live"
        until(lambda: readiness(process)["ready"], 90)
        yield process
        begin = time.monotonic()
        if process.poll() is None:
            process.terminate()
        assert process.wait(30) == 0
        assert time.monotonic() - begin < 10
    finally:
        process.kill()
        process.stdout.close()


def readiness(process):
    try:
        with urllib.request.urlopen(process.page + "readyz", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return {"ready": False}


def engine_of(process):
    """The process id of the engine."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, _, parent = entry.read_text(encoding="utf-8").replace(") ", ")\0").replace("\0", " ").split()[:4]
            command = (entry.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if int(parent) == process.pid and b"spawn_main" in command:
            return int(number)
    raise AssertionError("no engine")


LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (WARNING|ERROR) [\w.]+: .+")


def test_text_is_that_of_translate_py_though_the_engine_hangs_and_an_end_is_orderly(folder, capfd):
    """One server, whose engine is stopped, and which is then told to end; `test_client.py` has engines that die."""
    expected = succeeded(run("translate.py", f"model_folder={folder}", stdin=TEXT.encode())).stdout
    with served(folder, "step_deadline=4") as process:
        with Client(process.address) as plain:
            plain.send(TEXT)
            plain.end()
            assert "".join(event["text"] for event in plain) == expected
        with Client(process.address) as client, Client(process.address) as other:
            client.send(TEXT[:20])
            other.send(TEXT[:7])
            events, others = iter(client), iter(other)
            text = "".join(next(events)["text"] for _ in range(6))
            rest = "".join(next(others)["text"] for _ in range(2))
            engine = engine_of(process)
            for told in (signal.SIGINT, signal.SIGTERM, signal.SIGSTOP):  # of which the server alone has to know two
                os.kill(engine, told)
            client.send(TEXT[20:])
            other.send(TEXT[7:])
            client.end()
            other.end()
            assert text + "".join(event["text"] for event in events) == expected
            assert rest + "".join(event["text"] for event in others) == expected
        assert readiness(process)["last_failure"] == "has given no sign of life for 4 s"
        speaker = Speaker(process.address, {"type": "start"})
        speaker.say(type="text", at=0, text="我们走。他没")
        speaker.until("events")
        process.terminate()
        assert speaker.until("goaway")
        assert speaker.rest() == 1012
        assert process.wait(10) == 0
        assert [event["source"] for event in speaker.events if event["event"] == "end"] == [4]
    lines = capfd.readouterr().err.splitlines()
    said = "the engine has given no sign of life for 4 s; another one is started"
    assert sum(said in line for line in lines) == 1, lines
    assert all(LINE.fullmatch(line) for line in lines), lines


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["host=0.0.0.0"], "host=0.0.0.0: others than this machine reach that address, so clients must bring a token"),
        (["port=70000"], "port=70000: must be at least 0 and below 65536"),
        (["limits.idle_seconds=0"], "limits.idle_seconds=0.0: must be a finite number above 0"),
        (["limits.message_characters=3000"], "limits.frame_bytes=16384: must be at least 18100, or a message of"),
        (
            ["limits.sessions=3000"],
            "limits.connections=2048: must be at least limits.sessions=3000, or not all of them",
        ),
        (["limits.connections=100000000"], "limits.connections=100000000: these and what else a server opens are"),
        (["engine.max_streams=0"], "engine.max_streams=0: must be at least 1"),
        (["port=0", "model_folder=/nowhere"], "model_folder='/nowhere' does not exist: give"),
        (["port=0", "engine.max_sentence_tokens=100000"], "max_sentence_tokens=100000: must be a whole number between"),
    ],
)
def test_a_mistake_is_told_in_a_line(folder, arguments, told):
    arguments = arguments if any("model_folder" in one for one in arguments) else [*arguments, f"model_folder={folder}"]
    done = run("serve.py", *arguments, cold="nowhere" in told)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    if "nowhere" in told:
        assert done.stdout == ""  # no address of a server that will not be


@pytest.fixture
def name():
    """That of this machine, where it knows it."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
        return socket.gethostname()
    except OSError:
        return "localhost"


def test_what_another_system_serves_is_the_text_of_translate_py_and_a_theta_is_refused(tmp_path, name, monkeypatch):
    """Reached by the name it was told to listen at, with a token."""
    monkeypatch.setitem(ENVIRONMENT, "DUPLEXMT_TOKEN", "secret")
    folder = multi_path_folder(tmp_path / "model")
    how = [f"model_folder={folder}", "run_as=hold", "setting=1"]
    expected = succeeded(run("translate.py", *how, "max_target_tokens=12", stdin=TEXT.encode())).stdout
    assert len(expected.split()) > 4
    with (
        served(folder, *how[1:], f"host={name}", "engine.max_target_tokens=12") as server,
        Client(server.address, token="secret") as first,
        Client(server.address, token="secret") as second,
    ):
        assert f"//{name}:" in server.page
        for client in (first, second):  # side by side, in one engine
            client.send(TEXT)
            client.end()
        told = ["".join(event["text"] for event in client) for client in (first, second)]
        assert first.model["theta"] is None
        with (
            Client(server.address, theta=0.3, token="secret") as client,
            pytest.raises(ServerError, match="this model is no grid and has none"),
        ):
            list(client)
    assert [text.split() for text in told] == [expected.split()] * 2
