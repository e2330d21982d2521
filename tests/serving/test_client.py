"""The Python client: whatever becomes of its connections, it gives each event once, in order."""

import asyncio
import contextlib
import random
import socket
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.protocol.client import AsyncClient, Client, ServerError, is_this_machine
from duplexmt.streaming.policies import Theta

from ..helpers import SENTENCES
from .live_server import ENGINE, TOKENIZER, serving, source_of, translated, until
from .scripted_server import serving as scripted_serving

CHINESE = [source for source, _ in SENTENCES]
HASTY = {"messages_per_second": 1000.0, "characters_per_second": 1e5}
TEXT = "".join(CHINESE[:3]) + "\n" + CHINESE[3] + " Tea or coffee?\n我们走"


class Cutter:
    """Between client and server; each connection is cut once so many bytes have passed, in either direction, and both
    ends are told so; where it is `silent` nothing passes any more, and nobody is told."""

    def __init__(self, port, lengths, silent=False):
        self.port, self.lengths, self.connections, self.silent = port, list(lengths), 0, silent
        self.ends = []  # or Python would close those of silent connections
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"ws://127.0.0.1:{self.listening.getsockname()[1]}/v1/live"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                ours = self.listening.accept()[0]
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", self.port))
            self.ends += (ours, theirs)
            left = [self.lengths.pop(0) if self.lengths else float("inf")]
            self.connections += 1
            for one, other in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pass_on, args=(one, other, left), daemon=True).start()

    def _pass_on(self, one, other, left):
        try:
            while data := one.recv(4096):
                other.sendall(data[: int(max(0, min(left[0], len(data))))])  # maybe in the middle of a frame
                left[0] -= len(data)
                if left[0] <= 0:
                    break
        except OSError:
            pass
        for end in () if self.silent and left[0] <= 0 else (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Cut all connections that there are, now."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listening.close()


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as monkeypatch, serving(monkeypatch, **HASTY) as running:
        yield running


@pytest.fixture
def patient_server(monkeypatch):
    """One whose sentences end with their source, and not because a random model repeats itself or writes much."""
    monkeypatch.setitem(ENGINE, "max_repeats", None)
    monkeypatch.setitem(ENGINE, "max_target_tokens", 200)
    with serving(monkeypatch, **HASTY) as running:
        yield running


@settings(max_examples=6)
@given(
    st.lists(st.sampled_from([*CHINESE, "\n", "Tea or coffee? "]), min_size=1, max_size=4).map("".join),
    st.lists(st.integers(300, 6000), max_size=6),
    st.randoms(use_true_random=False),
)
def test_connections_that_are_cut_anywhere_and_an_engine_that_dies_change_no_text(server, text, lengths, draw):
    kills = iter(range(4))  # five engines that end one after the other, on a busy machine, would end a session

    async def one(cutter, text):
        found = []
        async with AsyncClient(cutter.address) as client:
            begin = 0
            while begin < len(text):
                size = draw.randint(1, 9)
                client.send(text[begin : begin + size])
                begin += size
                await asyncio.sleep(0.01)
                if draw.random() < 0.03 and next(kills, None) is not None:
                    server.kill.set()
            client.end()
            async for event in client:
                found.append(event["text"])
        return "".join(found)

    async def several():
        return await asyncio.gather(*(one(cutter, text) for cutter in cutters))

    cutters = [Cutter(server.port, lengths), Cutter(server.port, lengths[::-1]), Cutter(server.port, [])]
    assert asyncio.run(several()) == [translated(text)] * 3
    for cutter in cutters:
        cutter.close()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(200, 3000), max_size=6), draw=st.randoms(use_true_random=False))
def test_replacements_are_made_once_wherever_connections_are_cut_and_whenever_the_engine_dies(
    patient_server, lengths, draw
):
    server, kills = patient_server, iter(range(3))

    async def speak(cutter):
        text, found = "我", []
        async with AsyncClient(cutter.address) as client:
            client.send(text)
            for _ in range(12):
                place, new = draw.randint(0, len(text)), draw.choice(["昨天", "买", "了书", "我们", ""])
                text = text[:place] + new if len(text) > 6 or draw.random() < 0.6 else text + new
                client.send(new, replace=place) if text == text[:place] + new else client.send(new)
                await asyncio.sleep(draw.choice([0, 0.02, 0.1]))
                if draw.random() < 0.1 and next(kills, None) is not None:
                    server.kill.set()
            while True:
                kept = [session.open_text for session in server.hub.sessions.values() if not session.done]
                if any(one.text == text and one.replacing is None for one in kept):
                    break
                await asyncio.sleep(0.01)
            client.send("。")
            client.end()
            found = [event async for event in client]
        return text, found

    cutter = Cutter(server.port, lengths)
    text, found = asyncio.run(asyncio.wait_for(speak(cutter), 60))
    assert "refused" not in [event["event"] for event in found]
    assert f"{text}。".startswith("".join(source_of(found)))
    cutter.close()


def test_a_session_whose_text_is_all_replaced_by_none_goes_on_after_a_lost_connection(patient_server):
    async def speak(cutter):
        async with AsyncClient(cutter.address) as client:
            client.send("我们走")
            await some_session(lambda one: one.received)
            client.send("", replace=0)
            (session,) = await some_session(lambda one: one.replaced and not one.received)
            cutter.cut()
            await some_session(lambda one: one.connection is None)
            client.send("我们去。")
            client.end()
            return session, [event async for event in client]

    async def some_session(holds):
        while not (there := [one for one in patient_server.hub.sessions.values() if holds(one)]):
            await asyncio.sleep(0.001)
        return there

    cutter = Cutter(patient_server.port, [])
    session, found = asyncio.run(asyncio.wait_for(speak(cutter), 60))
    assert source_of(found) == ["我们去。"]
    assert cutter.connections == 2
    assert session.done
    cutter.close()


@pytest.mark.parametrize(
    ("new", "read"),
    [("他们走。\n她们昨天去。", "她们昨天去。"), ("他们走。\n她", "她"), ("他", ""), ("他们都走了。", "。")],
)
def test_a_replacement_that_comes_too_late_is_told_from_where_the_text_could_be_replaced(
    server, monkeypatch, new, read
):
    take = AsyncClient._take

    def late(self, message, is_first):
        """It does not hear what is over."""
        if message["type"] == "events" and not heard.is_set():
            message["events"] = [event for event in message["events"] if event["event"] not in ("end", "line")]
        take(self, message, is_first)

    heard = threading.Event()
    monkeypatch.setattr(AsyncClient, "_take", late)
    with Client(server.address) as client:
        client.send("我们走。\n你昨天")
        until(lambda: any(one.open_text.position == 5 for one in server.hub.sessions.values() if not one.done))
        client.send(new, replace=0)
        until(lambda: client._client._replaced == 1 or (client._client._sent, client._client._at) == (8, 8))
        heard.set()
        client.send("")
        client.end()
        found = list(client)
    assert [event["source"] for event in found if event["event"] == "refused"] == [5]
    assert source_of(found)[1:] == ([read] if read else [])


class Counting(AsyncClient):
    connections = 0

    def _connect(self, **options):
        self.connections += 1
        return super()._connect(**options)


@pytest.mark.parametrize("after", [700, 2000, 4000])  # in the answer to `start`, and in the session
def test_a_connection_on_which_nothing_comes_any_more_is_given_up_after_the_time_it_has(server, after):
    async def translation():
        async with Counting(cutter.address) as client:
            client.ping, client.answer = 1.0, 1.0
            client.send(TEXT)
            client.end()
            while client.connections < 2:
                await asyncio.sleep(0.01)
            assert time.monotonic() - begin < 10, "the ten seconds that a closing handshake may take are not waited for"
            return "".join([event["text"] async for event in client])

    cutter, begin = Cutter(server.port, [after], silent=True), time.monotonic()
    assert asyncio.run(translation()) == translated(TEXT)
    cutter.close()


def test_theta_and_pauses_hold_over_lost_connections(server):
    cutter = Cutter(server.port, [1500, 900, 2500])
    with Client(cutter.address, theta=0.0) as client:
        client.set_theta(1.0)
        client.send("我们")
        client.flush()
        client.send("走。")
        client.end()
        events = list(client)
    assert events[0]["token"]
    assert {event["theta"] for event in events[-3:] if "theta" in event} == {1.0}
    cutter.close()


def test_a_snapshot_goes_on_where_the_events_ended(monkeypatch):
    with serving(monkeypatch, kept_events=3) as server:
        cutter = Cutter(server.port, [random.Random(1).randint(2500, 4000), 3000])
        with Client(cutter.address) as client:
            client.send(TEXT)
            client.end()
            assert "".join(event["text"] for event in client) == translated(TEXT)
        cutter.close()


def test_an_error_is_told_with_what_was_not_translated(monkeypatch):
    with serving(monkeypatch, token="secret") as server, Client(server.address) as client:
        client.send("我们走。")
        with pytest.raises(ServerError, match="token") as told:
            list(client)
        assert (told.value.code, told.value.handed_back) == ("token", "我们走。")
    with Client("ws://127.0.0.1:9/v1/live", patience=0.2) as client, pytest.raises(ServerError, match="not reached"):
        list(client)


def test_outside_its_with_block_a_client_says_so_instead_of_waiting(server):
    client = Client(server.address)
    with pytest.raises(RuntimeError, match="inside its with block"):
        client.send("我")
    with client:
        client.end()
        assert list(client) == []
    with pytest.raises(RuntimeError, match="inside its with block"):
        client.end()
    with pytest.raises(RuntimeError, match="inside its with block"):
        asyncio.run(asyncio.wait_for(anext(aiter(AsyncClient(server.address))), 5))


def test_an_address_that_is_none_of_a_server_is_told():
    with (
        Client("127.0.0.1:8000") as client,
        pytest.raises(ServerError, match="is no address of a server: give one like ws://"),
    ):
        list(client)


def test_what_is_handed_back_after_a_cut_has_what_came_too_late_for_it(monkeypatch):
    text = "站在那边的男人曾是棒球手我昨天买了一本书"
    with serving(monkeypatch, engine={"max_sentence_tokens": 3}) as server, Client(server.address) as client:
        client.send(text)
        seen, events = [], iter(client)
        while sum(event["event"] == "end" for event in seen) < 2:
            seen.append(next(events))
        server.server.handle_exit(15, None)
        with pytest.raises(ServerError) as told:
            seen += iter(lambda: next(events), None)
        over = max(event["sentence"] for event in seen if event["event"] == "end")
        read = "".join(event["token"] for event in seen if event["event"] == "read" and event["sentence"] <= over)
        assert (told.value.code, read + told.value.handed_back) == ("restart", text)


def test_a_server_that_stays_busy_is_not_taken_for_lost(monkeypatch):
    with serving(monkeypatch, sessions=1, retry_seconds=0.1) as server, Client(server.address) as first:
        first.send("我")
        next(iter(first))
        with (
            Client(server.address, patience=0.3) as client,
            pytest.raises(ServerError, match="1 sessions are open") as told,
        ):
            list(client)
        assert told.value.code == "busy"


def test_a_client_that_leaves_leaves_nothing(monkeypatch):
    with serving(monkeypatch) as server:
        with Client(server.address) as client:
            client.send("我们走")
            next(iter(client))
        until(lambda: not server.hub.sessions)


@pytest.mark.parametrize(
    ("values", "told"),
    [(("\ud800",), "lone surrogates"), ((None,), "None: a text is a str"), (("好", "x"), "replace='x': must be a pos")],
)
def test_what_is_no_text_or_position_is_refused(values, told):
    with Client("ws://127.0.0.1:9/v1/live") as client, pytest.raises(ValueError, match=told):
        client.send(*values)


@pytest.mark.parametrize("patience", ["x", True, -1])
def test_a_patience_that_is_no_time_is_refused(patience):
    with pytest.raises(ValueError, match=f"patience={patience!r}: must be a number of seconds"):
        Client("ws://127.0.0.1:9/v1/live", patience=patience)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"theta": 1.5}, "theta=1.5: .* less than or equal to 1"), ({"theta": "high"}, "theta=high: .* number"),
        ({"source_length": 0}, "source_length=0: .* greater than or equal to 1"),
        ({"model": 5.5}, "model=5.5: .* string"), ({"token": b"secret"}, "b'secret': must be a text or a number"),
    ],
)  # fmt: skip
def test_values_that_the_protocol_does_not_have_are_refused_at_once(value, told):
    with pytest.raises(ValueError, match=told):
        Client("ws://127.0.0.1:9/v1/live", **value)
    if "theta" in value:
        client = AsyncClient("ws://127.0.0.1:9/v1/live")
        with pytest.raises(ValueError, match=told):
            client.set_theta(value["theta"])
        assert client._theta is None


def test_what_is_no_address_is_refused_at_once():
    with pytest.raises(ValueError, match="url=b'ws://x': must be a text"):
        Client(b"ws://x")


def test_a_threshold_of_numpys_is_a_number(server):
    with Client(server.address, theta=np.float32(0.5)) as client:
        client.set_theta(np.float32(0.75))
        client.send("我们走。")
        client.end()
        assert {event["theta"] for event in client if "theta" in event} <= {0.5, 0.75}


def test_a_client_that_has_been_used_says_that_it_is_one_session(server):
    with Client(server.address) as client:
        client.end()
        assert list(client) == []
    with pytest.raises(RuntimeError, match="one session"), client:
        pass


# --- proxies, and whoever lets nobody in ------------------------------------------------------------------------------


class Answers:
    """A listener that gives every connection the same answer, and counts them."""

    def __init__(self, answer):
        self.answer, self.connections = answer, 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one = self.listening.accept()[0]
                self.connections += 1
                with one:
                    one.recv(4096)
                    one.sendall(self.answer)

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


@pytest.fixture
def answers():
    started = []
    yield lambda answer: started.append(Answers(answer)) or started[-1]
    for one in started:
        one.close()


def status(code):
    return f"HTTP/1.1 {code} Any\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.fixture
def environment(monkeypatch):
    for name in ("http", "https", "all", "ws", "wss", "socks", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(("name", "host"), [("http_proxy", "127.0.0.1"), ("ALL_PROXY", "localhost")])
def test_no_proxy_leads_to_this_machine(server, answers, environment, name, host):
    proxy = answers(status(403))
    environment.setenv(name, f"http://{proxy.place}")
    with Client(server.address.replace("127.0.0.1", host)) as client:
        client.send("我们走。")
        client.end()
        assert "".join(event["text"] for event in client) == translated("我们走。")
    assert proxy.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST.",
                                  "duplexmt.localhost", "0.0.0.0", "[::]"])  # fmt: skip
def test_an_address_of_this_machine_is_known(host):
    assert is_this_machine(f"ws://{host}:8000/v1/live")
    for other in ("192.168.0.1", "localhost.example.org", "[2001:db8::1]", "127.0.0.1.example.org", ""):
        assert not is_this_machine(f"ws://{other}:8000/v1/live")


@pytest.mark.parametrize("code", [403, 407])
def test_a_proxy_that_refuses_is_told_at_once(answers, environment, code):
    proxy = answers(status(code))
    environment.setenv("http_proxy", f"http://{proxy.place}")
    with Client("ws://translate.example/v1/live") as client:
        client.send("我们走。")
        with pytest.raises(ServerError, match=f"HTTP {code} .*NO_PROXY=translate.example") as told:
            list(client)
    assert (told.value.code, told.value.handed_back, proxy.connections) == ("refused", "我们走。", 1)


@pytest.mark.parametrize("code", [429, 503])
def test_a_proxy_whose_trouble_may_pass_is_asked_again(answers, environment, code):
    proxy = answers(status(code))
    environment.setenv("http_proxy", f"http://{proxy.place}")
    with (
        Client("ws://translate.example/v1/live", patience=0.5) as client,
        pytest.raises(ServerError, match=f"not reached for 0.5 s: .*HTTP {code}") as told,
    ):
        list(client)
    assert told.value.code == "lost"
    assert proxy.connections > 1


UPGRADE = b"HTTP/1.1 101 Any\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
REFUSALS = {
    "forbidden": status(403), "gone": status(410), "a page": status(200), "elsewhere": status(301),
    "another protocol": b"220 mail.example ESMTP\r\n", "another WebSocket": UPGRADE,
}  # fmt: skip


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
def test_a_server_that_refuses_is_told_at_once(answers, answer):
    server = answers(answer)
    with Client(f"ws://{server.place}/v1/live") as client, pytest.raises(ServerError, match="refuses") as told:
        list(client)
    assert (told.value.code, server.connections) == ("refused", 1)


# --- characters of several tokens -------------------------------------------------------------------------------------

PIECES = ["我😀们", "👍🏽é"]


@pytest.mark.parametrize("text", PIECES)
def test_one_read_says_that_the_sentence_ends_and_pieces_of_a_character_do_not(server, text):
    with Client(server.address) as client:
        client.send(f"{text}。")
        client.end()
        reads = [event for event in client if event["event"] == "read"]
    assert [read["end"] for read in reads] == [False] * (len(reads) - 1) + [True]
    assert "".join(read["token"] for read in reads) == f"{text}。"
    assert len(reads) - 1 == len(token_ids(TOKENIZER, [f"{text}。"])[0])
    assert "" in [read["token"] for read in reads[:-1]]


@pytest.mark.parametrize("text", PIECES)
def test_a_character_that_is_written_in_pieces_comes_with_its_last_one(server, monkeypatch, text):
    tokens = [*token_ids(TOKENIZER, [text])[0], stream_tokens(TOKENIZER).end]

    predict = Theta.predict

    def next_ones(self, model, asked, states):
        found = zip(predict(self, model, asked, states), asked, strict=True)
        return [
            (p, token if token is None else tokens[len(stream.written)], within)
            for (p, token, within), (stream, _) in found
        ]

    monkeypatch.setattr(Theta, "predict", next_ones)
    monkeypatch.setitem(ENGINE, "max_target_tokens", 40)
    with serving(monkeypatch) as server, Client(server.address) as client:
        client.send("我们走。")
        client.end()
        events = list(client)
    writes = [event for event in events if event["event"] == "write"]
    assert "".join(event["text"] for event in events) == f"{text}\n"
    assert len(writes) == len(tokens) - 1
    assert [write["token"] for write in writes] == [write["text"] for write in writes]
    assert not any("\N{REPLACEMENT CHARACTER}" in write["token"] for write in writes)


# --- sessions that are over, and engines that are not there -----------------------------------------------------------


@pytest.mark.parametrize(
    ("lasts", "grace", "code", "why"),
    [
        (0.1, 120.0, "expired", "lasted as long as one may"),
        (3600.0, 0.0, "expired", "away for more than 0 s"),
        (3600.0, 120.0, "unknown_session", "no such session"),
    ],
)
def test_a_session_that_is_gone_has_expired_if_its_time_was_over(lasts, grace, code, why):
    with scripted_serving() as scripted, ExitStack() as until_the_end:
        scripted.lasts, scripted.limits = lasts, scripted.limits | {"grace_seconds": grace}  # before it connects
        client = until_the_end.enter_context(Client(f"ws{scripted.address[4:]}v1/live"))
        client.send("站在那")
        events = iter(client)
        while next(events)["event"] != "write":
            pass
        time.sleep(0.2)
        scripted.session.keys += 1
        scripted.cut()
        with pytest.raises(ServerError, match=why) as told:
            list(events)
    assert (told.value.code, told.value.handed_back) == (code, "站在那")


def test_an_engine_that_cannot_start_is_waited_for_as_long_as_patience_says(monkeypatch):
    monkeypatch.setattr(AsyncClient, "ping", 0.1)
    with scripted_serving() as scripted, Client(f"ws{scripted.address[4:]}v1/live", patience=0.5) as client:
        client.send("站在那")
        until(lambda: client.engine == "ready")
        scripted.tell_engine(state="failed", reason="no room")
        until(lambda: client.engine == "failed")
        scripted.tell_engine(state="ready")
        until(lambda: client.engine == "ready")
        begun = time.monotonic()
        scripted.tell_engine(state="failed", reason="no such folder")
        until(lambda: client.engine == "failed")
        scripted.tell_engine(state="starting")
        with pytest.raises(ServerError, match=r"its engine could not start for 0\.5 s: no such folder") as told:
            list(client)
    assert time.monotonic() - begun >= 0.5
    assert (told.value.code, told.value.handed_back) == ("engine", "站在那")


def test_the_engines_state_is_told(monkeypatch):
    with scripted_serving() as scripted:
        scripted.engine = {"state": "starting"}
        with Client(f"ws{scripted.address[4:]}v1/live") as client:
            client.send("站在那")
            until(lambda: client.engine == "starting")
            for now in ({"state": "failed", "reason": "no room"}, {"state": "ready"}):
                scripted.tell_engine(**now)
                until(lambda now=now: client.engine == now["state"])
            assert next(iter(client))["token"] == "站"
