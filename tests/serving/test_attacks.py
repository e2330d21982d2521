"""What clients do to connections, below the protocol: they ask for nothing, send frames that say nothing, do not read,
vanish, come in crowds, guess. Others are served all the while, and memory, files and log stay as they were."""

import json
import logging
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from benchmarks.serve_load import HANDSHAKE
from duplexmt.serving.limits import Guesses, Refused, whose
from duplexmt.serving.log import Sparing

from .live_server import Speaker, serving, until
from .test_serve_command import ENVIRONMENT, ROOT
from .test_server import START, begun, get

PING = Frame(Opcode.PING, bytes(125)).serialize(mask=True)
PONG = Frame(Opcode.PONG, bytes(125)).serialize(mask=True)
BEGIN = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
MORE = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
EMPTY = Frame(Opcode.TEXT, b"").serialize(mask=True)
CLOSE = Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True)


def raw(server, data=b"", small=False):
    """A connection that has sent this."""
    one = socket.socket()
    if small:  # the client's own room for what it does not read
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", server.port))
    one.settimeout(20)
    one.sendall(data)
    return one


def is_cut_off(one):
    """Whether the server has ended a connection, whatever is left to be read."""
    one.setblocking(False)
    try:
        while one.recv(2**16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def open_connections(server):
    return len(server.server.config.doors.entered)


# --- those who ask for nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", HANDSHAKE[:-2]])
def test_who_asks_for_nothing_in_time_is_cut_off(monkeypatch, sent):
    with serving(monkeypatch, request_seconds=0.5) as server, raw(server, sent) as one:
        assert not is_cut_off(one)
        until(lambda: is_cut_off(one))
        until(lambda: open_connections(server) == 0)


def test_a_request_that_comes_byte_by_byte_is_cut_off_in_the_same_time_also_after_another_one(monkeypatch):
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(monkeypatch, request_seconds=0.5) as server, raw(server) as one, raw(server, whole) as other:
        assert other.recv(1000).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        for connection in (one, other):
            with suppress(OSError):
                for byte in b"GET /livez HTTP/1.1\r\nX: " + b"x" * 1000:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.02)
        assert time.monotonic() - began < 15
        until(lambda: open_connections(server) == 0)


@pytest.mark.parametrize("packets", [1, 20])
def test_who_does_not_read_the_answer_is_cut_off(monkeypatch, packets):
    request = b"GET /staircase.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(monkeypatch, request_seconds=0.5, idle_seconds=1.0) as server, raw(server, small=True) as one:
        with suppress(OSError):
            for _ in range(packets):
                one.sendall(request * (100 // packets))
                time.sleep(0.02)
        until(lambda: open_connections(server) == 0)


def test_a_request_in_time_is_served_and_its_websocket_is_not_cut_off(monkeypatch):
    with serving(monkeypatch, request_seconds=0.3) as server:
        speaker = begun(server)
        with raw(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n") as one:
            time.sleep(0.1)
            one.sendall(b"\r\n")
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(0.6)
        speaker.say(type="ping")
        assert speaker.until("pong")


def test_those_who_ask_for_nothing_make_room_for_others(monkeypatch):
    with serving(monkeypatch, connections=20, sessions=8) as server, ExitStack() as stack:
        speaker = begun(server)
        idle = [stack.enter_context(raw(server)) for _ in range(60)]
        assert get(server, "/livez")[0] == 200
        other = begun(server)
        for one in (speaker, other):
            one.say(type="ping")
            assert one.until("pong")
        assert open_connections(server) <= 20
        until(lambda: sum(is_cut_off(one) for one in idle) >= 41)
        assert is_cut_off(idle[0])


def test_where_all_have_asked_for_something_one_more_is_told_so(monkeypatch):
    with serving(monkeypatch, connections=3, sessions=3) as server:
        there = [begun(server) for _ in range(3)]
        status, headers, told = get(server, "/livez")
        assert status == 503
        assert "3 connections are all there may be" in told
        assert headers["Retry-After"] == "3"
        for speaker in there:
            speaker.say(type="ping")
            assert speaker.until("pong")
        there[0].say(type="close")
        there[0].rest()
        until(lambda: get(server, "/livez")[0] == 200)


def test_an_address_has_its_share_of_connections_and_no_more(monkeypatch):
    monkeypatch.setattr("duplexmt.serving.limits.is_loopback", lambda name: name == "127.0.0.1")

    def come(server, address):
        one = socket.create_connection(("127.0.0.1", server.port), source_address=(address, 0), timeout=20)
        one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            return one, one.recv(1000)
        return one, b"HTTP/1.1 503"  # the answer was overtaken by the end

    with serving(monkeypatch, connections_per_address=4) as server, ExitStack() as stack:
        answers = []
        for _ in range(6):
            one, answer = come(server, "127.0.0.2")
            stack.enter_context(one)
            answers.append(answer[:12])
        assert answers == [b"HTTP/1.1 200"] * 4 + [b"HTTP/1.1 503"] * 2
        for address in ("127.0.0.3", "127.0.0.1"):
            one, answer = come(server, address)
            stack.enter_context(one)
            assert answer[:12] == b"HTTP/1.1 200"


def test_behind_a_proxy_the_address_it_tells_has_its_share(monkeypatch):
    with serving(monkeypatch, proxies=["127.0.0.1"], connections_per_address=3) as server:
        there = [Speaker(server.address, **{"X-Forwarded-For": f"2001:db8::{number}"}) for number in range(3)]
        with pytest.raises(InvalidStatus, match="503"):
            Speaker(server.address, **{"X-Forwarded-For": "2001:db8::ffff:1"})
        assert get(server, "/", **{"X-Forwarded-For": "2001:db8::9"})[0] == 503
        for address in ("2001:db8:0:1::1", "203.0.113.7", "127.0.0.1"):
            assert get(server, "/", **{"X-Forwarded-For": address})[0] == 200
        for speaker in there:
            speaker.drop()
        until(lambda: get(server, "/", **{"X-Forwarded-For": "2001:db8::9"})[0] == 200)


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"), ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::", "2001:db8:1:2::/64"), ("::1", "::1"),
        ("testclient", "testclient"), ("", ""),
    ],
)  # fmt: skip
def test_an_address_is_counted_as_one_customers(address, counted):
    assert whose(address) == counted


# --- frames that say nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [(PING + PONG) * 25, BEGIN + MORE * 50, EMPTY * 50], ids=map(str, range(3)))
def test_every_frame_counts_as_a_message(monkeypatch, frames):
    with serving(monkeypatch, messages_burst=20, messages_per_second=1.0) as server:
        speaker = begun(server)
        speaker.socket.socket.sendall(frames)
        assert speaker.rest() == 4429 or speaker.error is None
        until(lambda: open_connections(server) == 0)
        assert server.hub.metrics.rejected.labels("rate")._value.get() == 1


@pytest.mark.parametrize("frame", [PING, MORE], ids=["ping", "fragment"])
def test_too_many_frames_are_told_and_a_few_are_none(monkeypatch, frame):
    with serving(monkeypatch, messages_burst=10, messages_per_second=1.0) as server:
        speaker = begun(server)
        speaker.socket.socket.sendall((BEGIN if frame is MORE else b"") + frame * 5)
        time.sleep(0.2)
        assert server.hub.metrics.rejected.labels("rate")._value.get() == 0
        for _ in range(6):
            speaker.socket.socket.sendall(frame)
        assert speaker.rest() == 4429
        assert speaker.error["code"] == "rate"
        assert "pings and fragments included" in speaker.error["message"]


@pytest.mark.parametrize("frames", [PING * 500, BEGIN + MORE * 10_000], ids=map(str, range(2)))
def test_a_flood_that_nobody_reads_the_answers_of_takes_no_memory_and_no_ones_time(monkeypatch, frames):
    with serving(monkeypatch, messages_burst=100) as server:
        bystander = begun(server)
        with raw(server, HANDSHAKE, small=True) as one:
            one.settimeout(5)
            with suppress(OSError):
                for _ in range(200):
                    one.sendall(frames)
            protocols = list(server.server.server_state.connections)
            assert sum(protocol.transport.get_write_buffer_size() for protocol in protocols) < 100_000
            bystander.say(type="ping")
            assert bystander.until("pong")
        until(lambda: open_connections(server) == 1)


@pytest.mark.parametrize("what", ["pings", "is past the keepalive", "closes"])
def test_who_does_not_read_what_fills_his_room_is_cut_off_at_once(monkeypatch, what):
    monkeypatch.setattr("duplexmt.serving.server.CLOSE_TIMEOUT", 0.2)
    with serving(monkeypatch, start_seconds=60.0) as server:
        if what == "is past the keepalive":
            server.server.config.ws_ping_interval = server.server.config.ws_ping_timeout = 0.3
        with raw(server, HANDSHAKE, small=True) as one:
            assert one.recv(12) == b"HTTP/1.1 101"
            until(lambda: any(getattr(one, "handshake_complete", 0) for one in server.server.server_state.connections))
            (protocol,) = server.server.server_state.connections
            protocol.loop.call_soon_threadsafe(protocol.transport.write, bytes(10_000_000))
            if what != "is past the keepalive":
                until(lambda: not protocol.writable.is_set())
                one.sendall({"pings": PING, "closes": CLOSE}[what])
            until(lambda: open_connections(server) == 0, 4)


# --- lost transports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pings", "texts", "resumed"])
def test_a_lost_transport_is_not_written_to(monkeypatch, caplog, what):
    with serving(monkeypatch, messages_burst=400) as server:
        first = [START]
        if what == "resumed":
            speaker = begun(server, "我们走。" * 30)
            until(lambda: server.hub.sessions[speaker.session].seq > 60)
            speaker.drop()
            resume = {"type": "resume", "session": speaker.session, "key": speaker.key, "seq": 0}
        for _ in range(10):
            one = raw(server, HANDSHAKE)
            assert one.recv(12) == b"HTTP/1.1 101"
            time.sleep(0.05)
            more = {
                "pings": [{"type": "ping"}] * 99,
                "texts": [{"type": "text", "at": at, "text": "我"} for at in range(99)],
                "resumed": [{"type": "ping"}] * 50,
            }[what]
            first = [resume] if what == "resumed" else [START]
            frames = [Frame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True) for message in first + more]
            one.sendall(b"".join(frames))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()  # a reset
        until(lambda: open_connections(server) == 0)
        assert get(server, "/livez")[0] == 200
        assert [record.getMessage() for record in caplog.records if "socket.send()" in record.getMessage()] == []


def test_an_engine_that_is_lost_is_not_written_to(monkeypatch, caplog):
    with serving(monkeypatch) as server:
        speaker = begun(server, "我们走")
        link = server.hub.link
        loop = link._writer.transport._loop

        def lose():
            link._writer.transport.abort()
            for _ in range(50):
                link.ask(do="tell", name="")

        starts = link.starts
        loop.call_soon_threadsafe(lose)
        until(lambda: link.starts > starts and link.is_ready)
        assert "socket.send()" not in caplog.text
        speaker.say(type="end")
        assert speaker.rest() == 1000


# --- guesses ---------------------------------------------------------------------------------------------------------


def test_guesses_of_a_token_are_slowed_and_meanwhile_not_even_looked_at(monkeypatch):
    with serving(monkeypatch, token="secret", proxies=["127.0.0.1"]) as server:
        codes = []
        for number in range(8):  # of one customer's addresses
            speaker = Speaker(
                server.address, START | {"token": f"{number}"}, **{"X-Forwarded-For": f"2001:db8::{number}"}
            )
            codes.append(speaker.rest())
        assert codes == [4401] * 5 + [4429] * 3
        assert speaker.error["retry_after"] == 10.0
        right = START | {"token": "secret"}
        assert Speaker(server.address, right, **{"X-Forwarded-For": "2001:db8::9"}).rest() == 4429
        assert Speaker(server.address, right, **{"X-Forwarded-For": "203.0.113.7"}).until("ready")


def test_guesses_are_forgotten_in_time_and_do_not_fill_memory(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("duplexmt.protocol.bucket.monotonic", lambda: now[0])
    guesses = Guesses()

    def guess(address):
        with pytest.raises(Refused, match="the server's token is missing or wrong: give it here"):
            guesses.look_at(address, "guess", "secret", "here")

    for _ in range(5):
        guess("a")
    for given in ("guess", "secret"):
        with pytest.raises(Refused, match="too many wrong tokens from a"):
            guesses.look_at("a", given, "secret", "here")
    guesses.look_at("b", "secret", "secret", "here")
    now[0] = 10.1
    guesses.look_at("a", "secret", "secret", "here")
    for number in range(10_000):
        guess(f"{number}")
    assert len(guesses._left) < 5000


# --- files and log ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "told"),
    [
        (256, 4096, 2048, ""),
        (256, 4096, 3996, ""),
        (1024, 1024, 2048, "limits.connections=2048: these and what else a server opens are 2148 files, where"),
        (256, 4096, 3997, "or give limits.connections=3996 and no more limits.sessions"),
    ],
)
def test_the_limit_of_open_files_is_raised_or_settings_that_do_not_fit_are_refused(soft, hard, connections, told):
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"from duplexmt.serving.server import make_room; make_room({connections})\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, env=ENVIRONMENT)
    if told:
        assert told in done.stderr
    else:
        assert done.stdout == f"({hard}, {hard})\n", done.stderr


def test_lines_of_one_kind_are_rare_and_say_how_many_are_left_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("duplexmt.protocol.bucket.monotonic", lambda: now[0])
    written = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())
    handler.addFilter(Sparing())
    logger = logging.Logger("any")
    logger.addHandler(handler)
    for number in range(1000):
        logger.warning("client %d", number)
        logger.warning("another") if number == 999 else None
    assert written == [f"client {number}" for number in range(20)] + ["another"]
    now[0] = 6.0
    logger.warning("no place seen before")
    for _ in range(3):
        try:
            raise ValueError
        except ValueError:
            logger.exception("has a traceback")
    assert written[-2:] == ["no place seen before", "has a traceback"]
