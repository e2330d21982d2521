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

from duplexmt.serving.client import Client

from ..helpers import SENTENCES
from .live_server import Speaker, tiny_folder, until

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


def translated(folder):
    command = [sys.executable, "translate.py", f"model_folder={folder}"]
    return subprocess.run(
        command, input=TEXT, cwd=ROOT, text=True, capture_output=True, check=True, env=ENVIRONMENT
    ).stdout


def test_a_server_is_reached_by_the_name_it_was_told_to_listen_at(folder, monkeypatch):
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip(f"this machine does not know its own name, {name}")
    monkeypatch.setitem(ENVIRONMENT, "DUPLEXMT_TOKEN", "secret")
    with served(folder, f"host={name}") as process:
        assert f"//{name}:" in process.page
        with urllib.request.urlopen(process.page, timeout=5) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_text_is_that_of_translate_py_though_the_engine_is_lost(folder, fault):
    expected = translated(folder)
    with served(folder, "step_deadline=6") as process:
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
            os.kill(engine_of(process), fault)
            client.send(TEXT[20:])
            other.send(TEXT[7:])
            client.end()
            other.end()
            assert text + "".join(event["text"] for event in events) == expected
            assert rest + "".join(event["text"] for event in others) == expected


LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (WARNING|ERROR) [\w.]+: .+")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_the_log_says_when_the_engine_was_lost_and_how(folder, number, capfd):
    with served(folder) as process, Client(process.address):
        os.kill(engine_of(process), number)
        until(lambda: "last_failure" in (told := readiness(process)) and told["last_failure"] and told["ready"])
        assert readiness(process)["last_failure"] == f"has ended (signal {number:d}, {number.name})"
    lines = capfd.readouterr().err.splitlines()
    (line,) = [line for line in lines if "the engine" in line]
    assert f"the engine has ended (signal {number:d}, {number.name}); another one is started" in line
    assert all(LINE.fullmatch(line) for line in lines), lines


def test_sigterm_under_way_ends_sentences_and_the_rest_is_handed_back(folder, capfd):
    with served(folder) as process:
        speaker = Speaker(process.address, {"type": "start"})
        speaker.say(type="text", at=0, text="我们走。他没")
        speaker.until("events")
        process.terminate()
        assert speaker.until("goaway")
        assert speaker.rest() == 1012
        assert process.wait(10) == 0
        assert [event["source"] for event in speaker.events if event["event"] == "end"] == [4]
        assert capfd.readouterr().err == "", "what ends well says nothing"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["host=0.0.0.0"], "host=0.0.0.0: others than this machine reach that address, so clients must bring a token"),
        (["port=70000"], "port=70000: must be at least 0 and below 65536"),
        (["limits.idle_seconds=0"], "limits.idle_seconds=0.0: must be a finite number above 0"),
        (["limits.message_characters=3000"], "limits.frame_bytes=16384: must be at least 18100, or a message of"),
        (["limits.messages_burst=1"], "limits.messages_burst=1: must be at least 2"),
        (
            ["limits.sessions=3000"],
            "limits.connections=2048: must be at least limits.sessions=3000, or not all of them",
        ),
        (["limits.connections=100000000"], "limits.connections=100000000: these and what else a server opens are"),
        (["limits.idle_second=1"], "did you mean limits.idle_seconds?"),
        (["engine.max_streams=0"], "engine.max_streams=0: must be at least 1"),
        (["engine.max_repeats=0"], "engine.max_repeats=0: must be at least 2, or null for no guard"),
        (["port=0", "model_folder=/nowhere"], "model_folder='/nowhere' does not exist: give"),
        (["port=0", "engine.max_sentence_tokens=100000"], "max_sentence_tokens=100000: must lie between"),
    ],
)
def test_a_mistake_is_told_in_a_line(folder, arguments, told):
    arguments = arguments if any("model_folder" in one for one in arguments) else [*arguments, f"model_folder={folder}"]
    done = subprocess.run(
        [sys.executable, "serve.py", *arguments], cwd=ROOT, text=True, capture_output=True, timeout=90, env=ENVIRONMENT
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    if "nowhere" in told:
        assert done.stdout == ""  # no address of a server that will not be
