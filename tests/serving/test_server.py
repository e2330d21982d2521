"""The live server before real sockets: its text is translate.py's, nothing is lost, and each limit has its code."""

import asyncio
import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import closing

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from duplexmt.grid import cache as grid_cache
from duplexmt.serving import engine_process
from duplexmt.serving.server import listen
from duplexmt.serving.settings import EngineSettings

from ..helpers import SENTENCES
from .live_server import ENGINE, Killed, Speaker, serving, source_of, translated, until

START = {"type": "start"}
TEXT = "".join(source for source, _ in SENTENCES[:3]) + "\n" + SENTENCES[3][0] + " Tea or coffee?\r\n\n我们走"


def get(server, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def handshake(server, **headers):
    """The status a WebSocket is answered with."""
    asked = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    asked |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": "duplexmt.v1"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with closing(connection):
        connection.request("GET", "/v1/live", headers=asked | headers)
        return connection.getresponse().status


def begun(server, text=""):
    """A speaker whose session has begun and has this text."""
    speaker = Speaker(server.address, START)
    speaker.until("ack")
    if text:
        speaker.say(type="text", at=0, text=text)
        speaker.until("ack")
    return speaker


def no_streams(server):
    until(lambda: all(session.done for session in server.hub.sessions.values()))
    until(lambda: server.hub.metrics.streams._value.get() == 0)


def test_short_frames_do_not_wait_for_each_other():
    """Nagle's algorithm would have each wait for the client's word on the one before, which takes 40 ms."""

    async def accepted():
        found = asyncio.get_running_loop().create_future()
        listening = listen("127.0.0.1", 0)
        served = await asyncio.start_server(lambda _, writer: found.set_result(writer), sock=listening)
        async with served:
            _, client = await asyncio.open_connection(*listening.getsockname())
            writer = await found
            option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            client.close()
            writer.close()
            return option

    assert asyncio.run(accepted()) == 1


# --- fidelity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_client_written_from_the_protocol_gets_the_text_of_translate_py(server, size):
    speaker = Speaker(server.address, START)
    for at in range(0, len(TEXT), size):
        speaker.say(type="text", at=at, text=TEXT[at : at + size])
    assert speaker.whole() == translated(TEXT)
    assert speaker.events[-1]["source"] == len(TEXT)
    positions = [event["source"] for event in speaker.events]
    assert positions == sorted(positions)
    no_streams(server)


def test_overlapping_text_is_passed_over_and_a_gap_is_told_the_position_expected(server):
    speaker = begun(server)
    for at, text, expected in [(3, TEXT[3:], 0), (0, TEXT[:5], 5), (2, TEXT[2:9], 9), (0, TEXT[:4], 9), (10, "x", 9)]:
        speaker.say(type="text", at=at, text=text)
        assert speaker.until("ack")["at"] == expected
    speaker.say(type="text", at=9, text=TEXT[9:])
    speaker.say(type="end")
    speaker.rest()
    assert speaker.text == translated(TEXT)


def test_theta_acts_at_once_and_the_answer_says_from_which_frame_on(server):
    speaker = Speaker(server.address, START | {"theta": 1.0})
    speaker.say(type="text", at=0, text="我昨天买了一本书")
    while len(speaker.events) < 4:
        speaker.hear()
    speaker.say(type="set", id=7, theta=0.0)
    seq = speaker.until("set")
    assert seq["id"] == 7
    before = len(speaker.events)
    speaker.say(type="text", at=8, text="。")
    speaker.say(type="end")
    assert speaker.rest() == 1000
    assert {event["theta"] for event in speaker.events[:before] if "theta" in event} == {1.0}
    assert {event["theta"] for event in speaker.events[before:] if "theta" in event} == {0.0}


def test_a_pause_lets_go_what_is_held_back(server):
    speaker = Speaker(server.address, START | {"theta": 1.0})
    speaker.say(type="text", at=0, text="t")
    speaker.say(type="set", id=1, theta=1.0)
    speaker.until("set")  # by which the engine has looked at the text
    assert speaker.events == []
    speaker.say(type="flush")
    assert speaker.until("events")["events"][0]["token"] == "t"
    speaker.say(type="close")
    assert speaker.rest() == 1000
    no_streams(server)


# --- coming back -----------------------------------------------------------------------------------------------------


def test_a_second_use_of_a_key_ends_the_session_for_all(server):
    speaker = begun(server, "我们")
    stolen = speaker.key
    assert len(stolen) == 32, "128 bits"
    holder = speaker.again(server.address)
    assert speaker.rest() == 4409
    holder.until("ack")
    holder.say(type="ping")
    holder.until("pong")
    holder.key, key = stolen, holder.key
    assert key != stolen
    thief = holder.again(server.address)
    assert (thief.rest(), holder.rest()) == (4404, 4404)
    holder.key = key
    assert holder.again(server.address).rest() == 4404
    no_streams(server)


def test_a_key_whose_answer_was_lost_may_be_used_again(server):
    speaker = begun(server, "我们")
    for _ in range(3):  # a `ready` that never arrives
        speaker.again(server.address).drop()
    last = speaker.again(server.address)
    last.until("ack")
    last.say(type="text", at=2, text="走。")
    assert last.whole() == translated("我们走。")


def test_another_key_is_refused_and_harms_nobody(server):
    speaker = begun(server, "我们")
    assert speaker.again(server.address, key="0" * 32).rest() == 4404
    assert speaker.again(server.address, session="another").rest() == 4404
    speaker.say(type="end")
    assert speaker.rest() == 1000


def test_who_has_missed_more_than_is_kept_gets_the_text_so_far(monkeypatch):
    text = TEXT * 9
    with serving(monkeypatch, kept_events=5, unsent_bytes=700) as server:
        speaker = begun(server, text)
        speaker.drop()
        session = server.hub.sessions[speaker.session]
        until(lambda: session.open_text.position >= len(text) - 4 and session.seq > 20)
        until(lambda: (session.seq, time.sleep(0.3))[0] == session.seq)  # or more comes before `ready` is on its way
        back = speaker.again(server.address)
        snapshot = back.until("ready")["snapshot"]
        assert len(snapshot["text"]) > 700, "longer than what may wait for a slow reader"
        server.hub.limits.unsent_bytes = 10**6  # or this reader may be too slow, on a busy machine
        back.text, back.seq = snapshot["text"], snapshot["seq"]
        assert back.whole() == translated(text)


def test_a_session_without_text_ends_with_its_connection_and_one_with_text_after_its_grace(monkeypatch):
    with serving(monkeypatch, grace_seconds=0.1) as server:
        for text in ("", "我们"):
            speaker = begun(server, text)
            speaker.drop()
            no_streams(server)
            assert speaker.again(server.address).rest() == 4404


def test_who_claims_frames_that_were_never_sent_is_refused_and_holds_no_session_open(monkeypatch):
    with serving(monkeypatch, grace_seconds=0.1) as server:
        speaker = begun(server, "我们")
        speaker.seq = 1000
        assert speaker.again(server.address).rest() == 4400
        until(lambda: not server.hub.sessions)


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        ('{"type":"start","theta":1.5}', "theta=1.5"),
        ('{"type":"text","at":0,"text":"x"}', "begin with start"),
        ("nonsense", "JSON"),
        (b"\x00", "binary"),
    ],
)
def test_what_is_no_message_is_refused_by_name(server, frame, named):
    speaker = Speaker(server.address)
    speaker.socket.send(frame)
    assert speaker.rest() == 4400
    assert named in speaker.error["message"]
    assert speaker.error["fatal"]


@pytest.mark.parametrize(
    ("limits", "act", "code", "word"),
    [
        ({"start_seconds": 0.1}, lambda speaker: None, 4408, "idle"),
        ({"idle_seconds": 0.3}, lambda speaker: speaker.say(**START), 4408, "idle"),
        ({"session_seconds": 0.3}, lambda speaker: speaker.say(**START), 4408, "expired"),
        ({"frame_bytes": 500}, lambda speaker: speaker.socket.send(" " * 501), 1009, None),
        ({}, lambda speaker: speaker.socket.send(b'{"type":"ping\xff"}', text=True), 1007, None),
        (
            {"message_characters": 5},
            lambda speaker: (speaker.say(**START), speaker.say(type="text", at=0, text="x" * 6)),
            1009,
            "too_big",
        ),
        (
            {"characters_burst": 9, "characters_per_second": 1.0},
            lambda speaker: (speaker.say(**START), speaker.say(type="text", at=0, text="x" * 10)),
            4429,
            "rate",
        ),
        (
            {"messages_burst": 3, "messages_per_second": 0.5},
            lambda speaker: [speaker.say(**START)] + [speaker.say(type="ping") for _ in range(3)],
            4429,
            "rate",
        ),
    ],
)
def test_each_limit_has_its_close_code(monkeypatch, limits, act, code, word):
    with serving(monkeypatch, **limits) as server:
        speaker = Speaker(server.address)
        act(speaker)
        assert speaker.rest() == code
        assert word is None or speaker.error["code"] == word
        no_streams(server)


def test_credit_comes_back_and_is_told(monkeypatch):
    with serving(monkeypatch, characters_burst=20, characters_per_second=20.0, message_characters=20) as server:
        speaker = Speaker(server.address, START)
        assert speaker.until("ack")["credit"] == 20
        speaker.say(type="text", at=0, text="我" * 20)
        assert speaker.until("ack")["credit"] <= 1
        while speaker.until("ack")["credit"] < 10:
            pass
        speaker.say(type="text", at=20, text="我" * 10)
        assert speaker.until("ack")["at"] == 30


def test_more_sessions_than_streams_may_be_open_but_no_more_active_ones_begin(monkeypatch):
    with serving(monkeypatch, engine={"max_streams": 2}) as server:
        speakers = [Speaker(server.address, START) for _ in range(4)]
        for speaker in speakers:
            speaker.until("ack")
        for speaker in speakers[:2]:
            speaker.say(type="text", at=0, text="我们走")
            speaker.until("ack")
        speakers[2].say(type="text", at=0, text="我们走")
        assert speakers[2].rest() == 1013
        assert Speaker(server.address, START).rest() == 1013
        for speaker in speakers[:2]:
            speaker.say(type="end")
            assert speaker.rest() == 1000
        until(lambda: not any(session.is_active(time.monotonic()) for session in server.hub.sessions.values()))
        speakers[3].say(type="text", at=0, text="我们走")
        speakers[3].say(type="end")
        assert speakers[3].rest() == 1000


def test_a_speaker_who_is_silent_in_a_sentence_keeps_nobody_out(monkeypatch):
    with serving(monkeypatch, active_seconds=0.1, engine={"max_streams": 1}) as server:
        silent = begun(server, "我们走")
        silent.say(type="flush")
        until(lambda: not any(session.is_active(time.monotonic()) for session in server.hub.sessions.values()))
        other = begun(server, TEXT)
        assert other.whole() == translated(TEXT)
        assert silent.whole() == translated("我们走")


def test_a_reader_who_stalls_is_let_go_and_comes_back(monkeypatch):
    with serving(monkeypatch, unsent_events=10, engine={"max_target_tokens": 40}) as server:
        speaker = begun(server)
        session = server.hub.sessions[speaker.session]

        async def never(text):
            await asyncio.Event().wait()

        limits = session.connection.limits
        session.connection.websocket.send_text = never
        speaker.say(type="text", at=0, text=TEXT)
        until(lambda: session.connection is None)
        assert speaker.rest() == 4413
        limits.unsent_events = 10_000  # a busy machine may make the one who comes back slow, too
        back = speaker.again(server.address)
        assert back.whole() == translated(TEXT, 40)


# --- who watches ---------------------------------------------------------------------------------------------------

CHANNEL = "a name that nobody guesses"


def watching(server, channel=CHANNEL):
    watcher = Speaker(server.address, {"type": "watch", "channel": channel})
    assert watcher.hear() == {"type": "watching", "model": server.hub.models["zh-en"]}
    return watcher


def test_watchers_of_a_channel_are_told_the_events_of_one_session_after_the_other_and_no_others(server):
    first, second, elsewhere = watching(server), watching(server), watching(server, f"not {CHANNEL}")
    for text in (SENTENCES[0][0], SENTENCES[1][0]):
        speaker = Speaker(server.address, START | {"channel": CHANNEL})
        speaker.until("ack")
        speaker.say(type="text", at=0, text=text)
        speaker.whole()
        for watcher in (first, second):
            watcher.seq, watcher.events = 0, []  # of the next session
            while watcher.events != speaker.events:
                watcher.hear()
        first.say(type="ping")
        assert first.hear() == {"type": "pong"}
    begun(server, TEXT).whole()  # on no channel
    for watcher in (first, second, elsewhere):
        watcher.say(type="ping")
        assert watcher.hear() == {"type": "pong"}, "and nothing before it"
        watcher.drop()
    until(lambda: not server.hub.watchers)


def test_who_watches_can_do_nothing_else(server):
    watcher = watching(server)
    watcher.say(type="text", at=0, text="我")
    assert watcher.rest() == 4400
    assert "who watches a channel can only ping" in watcher.error["message"]


def test_a_channel_that_can_be_guessed_is_refused(server):
    for first in (START | {"channel": "talk"}, {"type": "watch", "channel": "talk"}, {"type": "watch"}):
        with closing(connect(server.address, subprotocols=["duplexmt.v1"])) as socket:
            socket.send(json.dumps(first))
            assert "channel" in json.loads(socket.recv())["message"]


# --- security --------------------------------------------------------------------------------------------------------


def test_origin_host_and_subprotocol_are_checked(monkeypatch):
    with serving(monkeypatch, hosts=["mt.example"], origins=["https://Other.example:443"]) as server:
        port = server.port
        for origin in (f"http://127.0.0.1:{port}", "https://other.example", f"HTTP://127.0.0.1:{port}"):
            assert Speaker(server.address, START, Origin=origin).until("ready")
        refused = ("null", "https://evil.example", "http://127.0.0.1:1", f"http://127.0.0.1.evil.example:{port}")
        others = (f"https://127.0.0.1:{port}", f"ftp://127.0.0.1:{port}", "http://other.example", "http://127.0.0.1:x")
        for origin in (*refused, *others):
            with pytest.raises(InvalidStatus, match="403"):
                Speaker(server.address, START, Origin=origin)
        with pytest.raises(InvalidStatus, match="403"):
            connect(server.address, subprotocols=["another"])
        for path in ("/", "/metrics", "/livez", "/readyz", "/missing"):
            assert get(server, path, Host="evil.example")[0] == 421
        assert handshake(server, Host="evil.example") == 421
        for host in ("mt.example", f"localhost:{port}", "192.0.2.1"):
            for path in ("/", "/metrics", "/livez", "/readyz"):
                assert get(server, path, Host=host)[0] == 200


def test_a_page_of_a_named_origin_may_read_a_translation(monkeypatch):
    body = json.dumps({"q": "我们走。", "source": "zh", "target": "en"}).encode()
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    allowed = "Access-Control-Allow-Origin"

    def ask(method, headers, sent=b""):
        with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.request(method, "/translate", sent, headers)
            return connection.getresponse()

    with serving(monkeypatch, origins=["https://Other.example:443", "http://[::1]:81"]) as server:
        for origin in ("https://other.example", "http://[::1]:81"):
            before = ask("OPTIONS", {"Origin": origin, **asks})
            after = ask("POST", {"Origin": origin, "Content-Type": "application/json"}, body)
            assert (before.status, after.status) == (200, 200)
            assert {before.headers[allowed], after.headers[allowed]} == {origin}
        for origin in ("https://evil.example", "http://other.example", "https://other.example:444"):
            assert ask("OPTIONS", {"Origin": origin, **asks}).status == 400
            refused = ask("POST", {"Origin": origin}, body)
            assert (refused.status, refused.headers[allowed]) == (403, None)


def test_behind_a_proxy_the_scheme_it_tells_is_the_pages(monkeypatch):
    cases = {
        ("https", "mt.example", "https://mt.example"): 101, ("https", "mt.example:443", "https://mt.example"): 101,
        ("http", "mt.example:80", "http://mt.example"): 101, ("https", "MT.example", "https://mt.example:443"): 101,
        ("https", "mt.example", "http://mt.example"): 403, ("http", "mt.example", "https://mt.example"): 403,
        ("https", "mt.example:8443", "https://mt.example"): 403,
    }  # fmt: skip
    with serving(monkeypatch, hosts=["mt.example"], proxies=["127.0.0.1"]) as server:
        for (proto, host, origin), status in cases.items():
            assert handshake(server, **{"X-Forwarded-Proto": proto, "Origin": origin, "Host": host}) == status, origin


def test_sessions_of_one_address_are_counted_behind_a_named_proxy(monkeypatch):
    with serving(monkeypatch, proxies=["127.0.0.1"], sessions_per_address=2) as server:
        far = {"X-Forwarded-For": "203.0.113.5"}
        assert [Speaker(server.address, START, **far).until("ready")["type"] for _ in range(2)]
        speaker = Speaker(server.address, START, **far)
        assert speaker.rest() == 4429
        assert Speaker(server.address, START, **{"X-Forwarded-For": "203.0.113.6"}).until("ready")
        for number in range(3):  # of one customer's addresses
            six = Speaker(server.address, START, **{"X-Forwarded-For": f"2001:db8::{number}:1"})
        assert six.rest() == 4429
        assert Speaker(server.address, START, **{"X-Forwarded-For": "2001:db8:0:1::1"}).until("ready")
    with serving(monkeypatch, sessions_per_address=2) as server:
        for _ in range(4):
            assert Speaker(server.address, START, **far).until("ready"), "nobody's word is taken"


def test_pages_are_served_with_a_strict_policy(server):
    for path, host in (("/", "localhost"), ("/live.js", "localhost"), ("/missing", "localhost"), ("/", "evil.example")):
        _, headers, _ = get(server, path, Host=host)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "camera=()" in headers["Permissions-Policy"]


def test_health_and_metrics_tell_no_text_and_no_address(server):
    assert get(server, "/livez")[0] == 200
    ready = {"ready": True, "why": None, "engine": "ready", "last_failure": None}
    assert json.loads(get(server, "/readyz")[2]) == ready
    status, _, text = get(server, "/metrics")
    assert status == 200
    for name in ("step_seconds", "step_events", "queue_seconds", "delay_seconds", "loop_lag_seconds", "sessions"):
        assert f"duplexmt_{name}" in text
    assert "127.0.0.1" not in text
    assert "我" not in text


# --- the engine is lost, the server stops ----------------------------------------------------------------------------


def test_a_session_whose_text_ends_every_engine_is_told_and_given_up(monkeypatch, caplog):
    do = engine_process.Worker.do

    def deadly(self, **message):
        if "☠" in message.get("text", ""):
            raise Killed
        do(self, **message)

    monkeypatch.setattr(engine_process.Worker, "do", deadly)
    with serving(monkeypatch) as server:
        bystander, midway = begun(server, "我们走。\n"), begun(server, "我昨天")
        while not bystander.events or bystander.events[-1]["event"] != "line":
            bystander.until("events")
        midway.until("events")
        speaker = begun(server)
        speaker.say(type="text", at=0, text="我们☠")
        assert speaker.rest() == 4400
        assert speaker.error["code"] == "untranslatable"
        assert "5 engines have ended, one after the other" in speaker.error["message"]
        assert server.hub.link.starts == 6
        bystander.say(type="text", at=5, text=TEXT)
        assert bystander.whole() == translated("我们走。\n" + TEXT)
        midway.say(type="text", at=3, text=TEXT)
        assert midway.whole() == translated("我昨天" + TEXT), "its text was open, too"
        assert server.hub.link.starts == 6


def test_engines_that_end_while_a_session_waits_for_its_speaker_are_not_held_against_it(monkeypatch):
    with serving(monkeypatch) as server:
        speaker = begun(server, TEXT[:5])
        for _ in range(7):
            until(lambda: server.hub._taken and not server.hub._lost)
            starts = server.hub.link.starts
            server.kill.set()
            until(lambda starts=starts: server.hub.link.starts > starts and server.hub.link.is_ready)
        speaker.say(type="text", at=5, text=TEXT[5:])
        assert speaker.whole() == translated(TEXT)


def room_for_one(slots, *of_what):
    if slots > 1:
        raise ValueError(f"a cache of {slots} streams takes too much")


def test_a_sentence_that_finds_no_room_is_over_and_the_others_go_on(monkeypatch, caplog):
    monkeypatch.setattr(grid_cache, "check_memory", room_for_one)
    with serving(monkeypatch) as server:
        first = begun(server, TEXT[:5])
        first.until("events")
        second = begun(server, TEXT)
        while not second.events or second.events[-1]["event"] != "end":
            second.until("events")
        assert second.events[-1]["reason"] == "failed"
        assert "takes too much" in caplog.text
        first.say(type="text", at=5, text=TEXT[5:])
        assert first.whole() == translated(TEXT)
        second.say(type="text", at=len(TEXT), text=TEXT[:20])
        last = second.whole().removesuffix("\n").split("\n")[-1]
        assert last.strip(), "it has room by then"
        assert server.hub.link.starts == 1


def test_an_engine_that_finds_no_room_for_its_model_says_so(monkeypatch):
    def no_room(settings):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(engine_process, "Worker", no_room)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine_process.run(EngineSettings(**ENGINE), theirs)
        assert json.loads(ours.recv(1000)) == {"failed": "CUDA out of memory"}


def test_a_fault_of_the_servers_own_ends_it_with_a_reason(monkeypatch, caplog):
    """And is not a server that answers, ready as it seems, and translates nothing."""
    with serving(monkeypatch) as server:
        speaker = Speaker(server.address, START)
        monkeypatch.setattr(server.hub, "_tell", lambda session, items: 1 / 0)
        speaker.say(type="text", at=0, text=TEXT)
        until(lambda: server.hub.link.failed is not None)
        assert "ZeroDivisionError" in server.hub.link.failed
        assert "ZeroDivisionError" in caplog.text
        assert server.hub.why_not_ready is not None
        assert speaker.rest() == 1012


def test_a_server_that_stops_says_so_ends_sentences_and_hands_back_the_rest(monkeypatch):
    with serving(monkeypatch) as server:
        speaker, other = Speaker(server.address, START), Speaker(server.address, START)
        speaker.say(type="text", at=0, text="我昨天买了一本书。我们走。他没")
        while speaker.until("ack")["at"] < 15:  # a server that stops takes no more text
            pass
        other.until("ack")
        server.server.handle_exit(15, None)
        assert speaker.until("goaway")["in_ms"] == 5000
        assert get(server, "/readyz")[0] == 503
        assert speaker.rest() == 1012
        assert other.rest() == 1012
        ends = [event["source"] for event in speaker.events if event["event"] == "end"]
        assert len(ends) == 2, "two sentences had all their text"
        assert "我昨天买了一本书。我们走。他没"[ends[-1] :] == "他没"


def test_a_server_that_stops_ends_no_sentence_whose_text_it_did_not_take(monkeypatch):
    """A client sends the rest of its text, and that this is all, while the server takes no more text."""
    with serving(monkeypatch) as server:
        speaker = Speaker(server.address, START)
        speaker.say(type="text", at=0, text="我们走。他没")
        while speaker.until("ack")["at"] < 6:
            pass
        monkeypatch.setattr(server.hub, "draining", True)
        speaker.say(type="text", at=6, text="有来。")
        speaker.say(type="end")
        assert speaker.until("ack")["at"] == 6, "it takes no more text"
        speaker.say(type="ping")
        speaker.until("pong")
        monkeypatch.setattr(server.hub, "draining", False)
        server.server.handle_exit(15, None)
        assert speaker.rest() == 1012
        assert [event["source"] for event in speaker.events if event["event"] == "end"] == [4]


def test_an_end_after_a_gap_is_no_end(server):
    speaker = begun(server, "我们")
    speaker.say(type="text", at=3, text="。")
    speaker.say(type="end")
    assert speaker.rest() == 4400
    assert "end after a gap: send the text from at=2 on before" in speaker.error["message"]
    back = speaker.again(server.address)
    back.say(type="text", at=2, text="走。")
    assert back.whole() == translated("我们走。")


# --- sources that change their mind ----------------------------------------------------------------------------------


def replaced(speaker, position, text):
    """Replace, and hear until it is answered."""
    speaker.say(type="text", at=speaker.at, text=text, replace=position)
    while True:
        message = speaker.hear()
        if message.get("code") == "replace" or ("replaced" in message and message["at"] == position + len(text)):
            return message


@pytest.mark.parametrize("at_once", [True, False])
def test_text_is_replaced_and_what_was_read_is_read_anew(server, at_once):
    speaker = begun(server, "我们昨天")
    if not at_once:
        speaker.until("events")
    answer = replaced(speaker, 2, "今天走。")
    assert (answer["at"], answer["replaced"]) == (6, 1)
    written = speaker.text
    speaker.whole()
    assert speaker.text.startswith(written)
    events = [event for event in speaker.events if event["event"] == "replaced"]
    assert [(event["sentence"], event["source"], event["text"]) for event in events] == [(0, 2, "")]
    assert source_of(speaker.events) == ["我们今天走。"]
    no_streams(server)


def test_a_position_whose_sentence_is_over_is_refused_and_the_session_goes_on(server):
    speaker = begun(server, "我们走。\n你昨天")
    while "line" not in [event["event"] for event in speaker.events]:
        speaker.hear()
    answer = replaced(speaker, 2, "去。")
    assert (answer["fatal"], answer["earliest"]) == (False, 5)
    assert "from 5 on" in answer["message"]
    assert replaced(speaker, 5, "我")["replaced"] == 1
    speaker.say(type="text", at=6, text="昨天买了一本书。")
    speaker.whole()
    assert source_of(speaker.events) == ["我们走。", "我昨天买了一本书。"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"at": 5, "replace": 2, "text": "x"}, "at=5 of a replacement: the text has 4"),
        ({"at": 3, "replace": 2, "text": "x"}, "at=3 of a replacement"),
        ({"at": 4, "replace": 5, "text": "x"}, "replace=5: more than at=4"),
        ({"at": 4, "replace": 0, "text": "走" * 2001}, "2001 characters: 2000 at most"),
    ],
)
def test_a_replacement_that_is_none_is_refused_by_name(server, message, told):
    speaker = begun(server, "我们昨天")
    speaker.say(type="text", **message)
    assert speaker.rest() in (4400, 1009)
    assert told in speaker.error["message"]


def test_nothing_of_the_text_may_follow_before_the_answer(server, monkeypatch):
    for message in ({"type": "text", "at": 4, "text": "走"}, {"type": "flush"}, {"type": "end"}):
        speaker = begun(server, "我们昨天")
        with monkeypatch.context() as patch:
            patch.setattr(server.hub.link, "ask", lambda **values: None)  # the engine does not hear of it
            speaker.say(type="text", at=4, replace=2, text="今天")
            speaker.say(type="ping")
            speaker.until("pong")
            speaker.say(**message)
            assert speaker.rest() == 4400
        assert "wait for the answer to replace=2" in speaker.error["message"]


def test_a_replacement_costs_what_is_taken_anew(monkeypatch):
    with serving(monkeypatch, characters_per_second=0.001, characters_burst=20) as server:
        speaker = begun(server, "我们昨天")
        assert replaced(speaker, 3, "日")["credit"] == 20 - 4 - 3 - 1
        speaker.say(type="text", at=4, replace=4, text="买了一本书很有意思")
        assert speaker.rest() == 4429
