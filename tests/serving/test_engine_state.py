"""Clients, operators and the log are told how the engine is; an engine of another model goes on with nobody's text."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from websockets.sync.client import connect

from duplexmt.serving import engine_process
from duplexmt.serving.engine_link import EngineLink, _end

from .live_server import Speaker, loaded, serving, translated, until
from .test_other_clients import INIT, UPDATE
from .test_server import START, TEXT, begun, get


def end_engine(server):
    starts = server.hub.link.starts
    server.kill.set()
    until(lambda: server.hub.link.starts > starts)


def readiness(server):
    status, _, told = get(server, "/readyz")
    return status, json.loads(told)


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as running:
        until(lambda: running.hub._taken)
        yield running


@pytest.fixture
def broken(monkeypatch):
    """Once it is set, no engine can be started."""
    event, worker = threading.Event(), engine_process.Worker

    def make(settings):
        if event.is_set():
            raise OSError("model.safetensors: no such file")
        return worker(settings)

    monkeypatch.setattr(engine_process, "Worker", make)
    return event


def test_a_recogniser_whose_languages_another_engine_lacks_is_told(server, monkeypatch):
    with connect(f"ws://127.0.0.1:{server.port}/v1/recogniser") as socket:
        socket.send(INIT)
        assert json.loads(socket.recv(20))["type"] == "init_ok"
        monkeypatch.setattr(engine_process, "load_live_model", lambda *values, **options: loaded("de-en"))
        end_engine(server)
        until(lambda: "de-en" in server.hub.models)
        socket.send(UPDATE.format("1", "0", '[["我",0,0]]', "true"))
        told = json.loads(socket.recv(20))
    assert (told["code"], socket.close_code) == ("unsupported_language", 4400)
    assert told["message"] == "source_lang=zh, target_lang=en: this server translates from de to en"


def test_a_client_is_told_that_the_engine_is_ready_after_start_and_after_resume(server):
    speaker = Speaker(server.address, START)
    for one in (speaker, None):
        one = one or speaker.again(server.address)
        assert [one.hear()["type"] for _ in range(3)] == ["ready", "engine", "ack"]
        if one is speaker:
            one.say(type="text", at=0, text="我们")
            one.until("ack")


@pytest.mark.parametrize("text", ["", TEXT])
def test_a_client_is_told_that_another_engine_starts_and_is_ready(server, text):
    speaker = begun(server, text)
    end_engine(server)
    assert speaker.until("engine") == {"type": "engine", "state": "starting"}
    assert speaker.until("engine") == {"type": "engine", "state": "ready"}
    assert speaker.whole() == translated(text)
    assert readiness(server) == (
        200, {"ready": True, "why": None, "engine": "ready", "last_failure": "has ended (exit code 0)"},
    )  # fmt: skip


def test_after_failures_in_a_row_no_session_begins_until_an_engine_is_there(server, broken):
    speaker = begun(server, "我们走")
    broken.set()
    server.kill.set()
    assert speaker.until("engine")["state"] == "starting"
    failed = speaker.until("engine")
    assert failed["state"] == "failed"
    assert (
        "3 engines in a row have failed; the last one cannot start: model.safetensors: no such file" in failed["reason"]
    )
    status, told = readiness(server)
    assert status == 503
    assert told["engine"] == "failed"
    assert told["why"] == failed["reason"]
    assert "model.safetensors: no such file" in told["last_failure"]
    late = Speaker(server.address, START)
    assert late.hear() == failed
    assert late.rest() == 1013
    assert late.error["code"] == "engine"
    assert late.error["retry_after"] == 3.0
    assert "no such file" in late.error["message"]
    back = speaker.again(server.address)
    assert back.until("engine") == failed, "who is there is kept"
    broken.clear()
    assert back.until("engine")["state"] == "ready"
    assert begun(server)
    assert back.whole() == translated("我们走")
    assert readiness(server)[0] == 200


def test_before_the_first_engine_is_ready_a_client_is_told_that_it_starts(server, monkeypatch):
    monkeypatch.setattr(server.hub, "models", {})
    monkeypatch.setattr(server.hub.link, "is_ready", False)
    assert readiness(server) == (
        503, {"ready": False, "why": "the model is being loaded", "engine": "starting", "last_failure": None},
    )  # fmt: skip
    status, headers, _ = get(server, "/languages")
    assert (status, headers["Retry-After"]) == (503, "3")
    speaker = Speaker(server.address, START)
    assert speaker.hear() == {"type": "engine", "state": "starting"}
    assert speaker.rest() == 1013
    assert speaker.error["code"] == "busy"
    assert "the model is being loaded" in speaker.error["message"]


@pytest.mark.parametrize("change", [{"digests": {"model.safetensors": "another"}}, {"policy": {"theta": 0.1}}])
def test_an_engine_of_another_model_goes_on_with_nobodys_text(server, monkeypatch, caplog, change):
    other = SimpleNamespace(**vars(loaded()) | {"info": loaded().info | change})
    here, away, over = begun(server, "我们走"), begun(server, "我昨天"), begun(server, "我们走。")
    away.drop()
    over.say(type="end")
    until(lambda: server.hub.sessions[over.session].done if over.session in server.hub.sessions else True)
    until(lambda: server.hub.sessions[away.session].connection is None)
    monkeypatch.setattr(engine_process, "load_live_model", lambda *values, **options: other)
    end_engine(server)
    assert here.rest() == 1012
    assert here.error["message"] == "the server has another model now: start anew"
    assert here.error["retry_after"] == 3.0
    assert away.again(server.address).rest() == 4404
    assert over.rest() == 1000
    assert "another model than before: 2 sessions are handed back" in caplog.text
    anew = Speaker(server.address, START)
    assert anew.until("ready")["model"]["theta"] == server.hub.models["zh-en"]["theta"]
    assert anew.whole() == ""


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, " (exit code 0)"), (-11, " (signal 11, SIGSEGV)"), (-40, " (signal 40, of no name)"), (None, "")],
)
def test_the_log_says_how_the_engines_process_ended(code, told):
    killed = []
    process = SimpleNamespace(
        exitcode=code, join=lambda *_: None, kill=lambda: killed.append(True), close=lambda: None
    )  # fmt: skip
    assert _end(process) == told
    assert bool(killed) == (code is None)


def test_an_engine_that_ended_before_it_had_read_all_has_ended_like_any_other():
    async def line():
        reader = asyncio.StreamReader()
        reader.set_exception(ConnectionResetError(104, "Connection reset by peer"))
        return await EngineLink._line(None, reader, deadline=1.0)

    with pytest.raises(EOFError, match="has ended"):
        asyncio.run(line())
