"""Clients that others have written, against the server: LibreTranslate's, and WhisperLiveKit's remote translation."""

import asyncio
import importlib
import importlib.util
import json
import socket
import sys
import types
import urllib.error
import urllib.request
from itertools import pairwise

import pytest
from libretranslatepy import LibreTranslateAPI
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from duplexmt.serving.inner_client import InnerClient
from duplexmt.serving.session import Session

from .live_server import serving, source_of, translated, until

TEXTS = ["我们走。", "我昨天买了一本书。你昨天去哪儿了？", "两行\n第二行。", ""]
WORDS = ["我", "昨天", "买", "了", "一", "本", "书", "。"]


def api(server, **values):
    return LibreTranslateAPI(f"http://127.0.0.1:{server.port}", **values)


def post(server, body, kind="application/json", **headers):
    """Status and answer of `POST /translate`."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/translate", data, {"Content-Type": kind} | headers
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("text", TEXTS)
def test_libretranslates_client_gets_the_text_of_translate_py(server, text):
    assert api(server).translate(text, "zh", "en", timeout=20) == translated(f"{text}\n").removesuffix("\n")
    until(lambda: not server.hub.sessions)


def test_libretranslates_client_is_told_the_languages(server):
    assert api(server).languages() == [
        {"code": "zh", "name": "Chinese", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]


def test_many_texts_come_back_one_by_one_and_as_they_are_cut(server):
    status, answer = post(server, {"q": TEXTS, "source": "auto", "target": "en-GB", "format": "text"})
    assert status == 200
    assert answer["translatedText"] == [translated(f"{text}\n").removesuffix("\n") for text in TEXTS]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"q": "x", "source": "de", "target": "en"}, 400, "source=de, target=en: this server translates from zh to en"),
        ({"q": "x", "source": "zh"}, 400, "target=None"),
        ({"q": 3, "source": "zh", "target": "en"}, 400, "q: a text or a list"),
        ({"q": "x", "source": "zh", "target": "en", "format": "html"}, 400, "format=html: must be text"),
        ({"q": "走" * 4001, "source": "zh", "target": "en"}, 413, "4,000 at most"),
        ({"q": "x" * 100_000}, 413, "bytes"),
        (["q"], 400, "no JSON object"),
        (b"{", 400, "cannot be read"),
        ({"q": "我\ud800", "source": "zh", "target": "en"}, 400, "lone surrogates"),
        ({"q": "我", "source": "\udc00", "target": "en"}, 400, "lone surrogates"),
        ({"q": "我", "source": "zh", "target": "en", "api_key": 5}, 400, "api_key: a text"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_a_reason(server, body, status, told):
    found, answer = post(server, body)
    assert found == status
    assert told in answer["error"]
    assert not server.hub.sessions


def test_other_kinds_of_body_and_other_sites_pages_are_refused(server):
    asked = {"q": "我们走。", "source": "zh", "target": "en"}
    assert post(server, asked, kind="multipart/form-data")[0] == 415
    form = "application/x-www-form-urlencoded"
    assert post(server, b"q=a&q=b&source=zh&target=en", kind=form)[1]["error"].startswith("a field stands there twice")
    assert post(server, asked, Origin="https://elsewhere.example")[0] == 403
    assert post(server, asked, Origin=f"http://127.0.0.1:{server.port}")[0] == 200


def test_a_server_with_a_token_wants_it_as_api_key(monkeypatch):
    with serving(monkeypatch, token="secret") as server:
        assert api(server, api_key="secret").translate(TEXTS[0], "zh", "en") == translated(TEXTS[0] + "\n")[:-1]
        for key in (None, "another"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                api(server, api_key=key).translate(TEXTS[0], "zh", "en")
        assert "give it as api_key" in post(server, {"q": "我"})[1]["error"]


def test_who_waits_for_a_long_answer_is_not_cut_off(monkeypatch):
    with serving(monkeypatch, idle_seconds=0.2, request_seconds=0.2) as server:
        more, waited = InnerClient.more, []

        async def slow(self):
            waited.append(await asyncio.sleep(0.6 if not waited else 0))
            await more(self)

        monkeypatch.setattr(InnerClient, "more", slow)
        status, answer = post(server, {"q": TEXTS[1], "source": "zh", "target": "en"})
        assert (status, answer["translatedText"]) == (200, translated(f"{TEXTS[1]}\n")[:-1])


def test_nothing_more_is_translated_for_who_has_gone(server, monkeypatch):
    body = json.dumps({"q": "我们走", "source": "zh", "target": "en"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with monkeypatch.context() as patch, socket.create_connection(("127.0.0.1", server.port)) as one:
        patch.setattr(server.hub.link, "ask", lambda **_: None)  # an engine that never answers
        one.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        until(lambda: server.hub.sessions)
        one.close()
        until(lambda: not server.hub.sessions)


def test_where_there_is_no_room_the_status_says_so(monkeypatch):
    with serving(monkeypatch, sessions=0) as server:
        status, answer = post(server, {"q": "我们走。", "source": "zh", "target": "en"})
        assert (status, answer["error"]) == (503, "0 sessions are open: try again in 3 s")


# --- WhisperLiveKit ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whisperlivekit():
    """Its client as the registry has it, without the speech recognition that the package imports first."""
    spec = importlib.util.find_spec("whisperlivekit")
    package = types.ModuleType("whisperlivekit")
    package.__path__ = list(spec.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "whisperlivekit", package)
        client = importlib.import_module("whisperlivekit.translation_alignatt")
        yield types.SimpleNamespace(
            engine=client.AlignAttRemoteEngine, token=importlib.import_module("whisperlivekit.timed_objects").ASRToken,
            tail=client.HypothesisTail,
        )  # fmt: skip


def session(whisperlivekit, server, source="zh", target="en", query=""):
    url = f"ws://127.0.0.1:{server.port}/v1/recogniser{query}"
    return whisperlivekit.engine(url=url, source_language=source, preset=None, latency="balanced").new_session(target)


def spoken(whisperlivekit, words, begin=0.0):
    return [
        whisperlivekit.token(begin + 0.3 * place, begin + 0.3 * place + 0.3, word) for place, word in enumerate(words)
    ]


def test_whisperlivekits_client_gets_the_text_of_translate_py(server, whisperlivekit):
    client, sentences = (
        session(whisperlivekit, server),
        [["你", "昨天", "去", "哪儿", "了", "？"], ["我们", "走", "。"], WORDS],
    )
    found, shown = [], []
    for words in sentences:
        for token in spoken(whisperlivekit, words):
            client.insert_tokens([token, whisperlivekit.tail(text="也许", start=None, end=None)])
            client._last_call_started = 0.0  # it need not wait half a second between two updates
            segment, buffer = client.process()
            shown.append(buffer.text or "")
            if segment is not None:
                found.append(segment.text)
    assert found == [translated("".join(words) + "\n").strip() for words in sentences]
    early = [text for text in shown[: len(sentences[0]) - 1] if text]
    assert early, "nothing was shown before the end"
    assert all(found[0].startswith(text) for text in early)


def test_an_utterance_that_ends_in_silence_is_translated_to_its_end(server, whisperlivekit):
    client = session(whisperlivekit, server)
    client.insert_tokens(spoken(whisperlivekit, WORDS[:-1]))
    client.process()
    client.validate_buffer_and_reset()
    segment, _ = client.process()
    assert segment.text == translated("".join(WORDS[:-1]) + "\n").strip()


def test_a_recognisers_session_ends_with_its_connection(server, whisperlivekit):
    others, client = {*server.hub.sessions}, session(whisperlivekit, server)
    client.insert_tokens(spoken(whisperlivekit, WORDS[:4]))
    client.process()
    (own,) = {*server.hub.sessions} - others
    client._ws.close()
    until(lambda: own not in server.hub.sessions)


def test_a_recogniser_brings_the_servers_token_in_its_address(monkeypatch, whisperlivekit, caplog):
    with serving(monkeypatch, token="secret") as server:
        for query, words in (("?token=secret", True), ("", False)):
            client = session(whisperlivekit, server, query=query)
            client.insert_tokens(spoken(whisperlivekit, WORDS))
            assert (client.process()[0] is not None) == words
    assert "the server's token is missing or wrong: give it in the address, ?token=…" in caplog.text


INIT = '{"type":"init","protocol_version":1,"source_lang":"zh","target_lang":"en"}'
UPDATE = '{{"type":"update","seq":{},"utterance_id":{},"words":{},"is_final":{}}}'


@pytest.mark.parametrize(
    "messages",
    [
        ["{"],
        ['{"type":"update"}'],
        [INIT.encode()],
        [INIT.replace("zh", r"\ud800")],
        ['{"type":"init","protocol_version":2}'],
        [INIT, '{"type":"update"}'],
        *(
            [INIT, UPDATE.format(*update)]
            for update in (
                ("1", "0", r'[["\ud800",0,0]]', "true"), ("1e999", "0", '[["我",0,0]]', "true"),
                ("1", "0", "[[3,0,0]]", "false"), ("1", "0", '["我们走。"]', "true"), ("1", "0", '"我们"', "true"),
                ("1", "0", '{"a":1}', "true"), ("1", "0", "[[]]", "true"), ("1", "0", '[["我",0,0]]', '"false"'),
                ("1", "NaN", '[["我",0,0]]', "true"), ("1", "null", '[["我",0,0]]', "true"),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_with_a_reason(server, messages):
    with connect(f"ws://127.0.0.1:{server.port}/v1/recogniser") as socket:
        for message in messages:
            socket.send(message)
        told = [json.loads(socket.recv(20)) for _ in messages]
        with pytest.raises(ConnectionClosed):
            socket.recv(20)
    assert [one["type"] for one in told] == [*["init_ok"] * (len(messages) - 1), "error"]
    assert told[-1]["code"] == "bad_message"
    assert socket.close_code == 4400


def test_a_recogniser_that_is_refused_is_counted(monkeypatch):
    init = '{"type":"init","protocol_version":1,"source_lang":"zh","target_lang":"en"}'
    with serving(monkeypatch, token="secret") as server:
        for message, query, code in ((init, "", "token"), ("{}", "?token=secret", "bad_message")):
            with connect(f"ws://127.0.0.1:{server.port}/v1/recogniser{query}") as socket:
                socket.send(message)
                assert json.loads(socket.recv(20))["code"] == code
            assert server.hub.metrics.rejected.labels(code)._value.get() == 1


def updates(server, *each):
    """Each is an utterance's words, one update after the other; the answers, and the text that the server has read."""
    read = []
    with connect(f"ws://127.0.0.1:{server.port}/v1/recogniser") as socket, pytest.MonkeyPatch.context() as patch:
        add = Session.add
        patch.setattr(Session, "add", lambda self, events: (read.extend(events), add(self, events))[1])
        socket.send('{"type":"init","protocol_version":1,"source_lang":"zh","target_lang":"en"}')
        assert json.loads(socket.recv(20))["type"] == "init_ok"
        told = []
        for utterance, versions in enumerate(each):
            for words in versions:
                socket.send(json.dumps({
                    "type": "update", "seq": len(told), "utterance_id": utterance, "is_final": words is versions[-1],
                    "words": [[word, 0, 0] for word in words],
                }))  # fmt: skip
                told.append(json.loads(socket.recv(20)))
    assert [one["type"] for one in told] == ["translation"] * len(told)
    return told, source_of(read)


@pytest.mark.parametrize(
    "versions",
    [
        [
            ["我", "昨天", "买", "了"],
            ["我", "今天", "买", "了", "书"],
            ["我"],
            ["我", "今天", "买", "了", "一", "本", "书"],
        ],
        [["我"], [], ["他", "走"]],
        [["R", "and", "D"], ["R", "与", "D"], ["R", "and", "B"]],
    ],
)
def test_committed_words_that_change_are_read_anew_and_what_was_written_stays(server, versions):
    told, read = updates(server, versions, [["我们走"]])
    written = [one["committed_text"] for one in told]
    assert all(after.startswith(before) for before, after in pairwise(written[: len(versions)]))
    words = versions[-1]
    assert (" " if words[0].isascii() else "").join(words).startswith(read[0])  # a guard may end it before
    assert read[1:] == ["我们走"]
    assert written[-1] == translated("我们走\n").strip()


def test_words_of_a_sentence_that_is_over_stay_as_they_were(server):
    first, other = ["我们", "走", "。", "你", "昨天", "去"], ["他们", "走", "。", "他", "今天", "去", "吗"]
    told, read = updates(server, [first, other, [*other, "？"]])
    assert read == ["我们走。", "他今天去吗？"]
    assert told[-1]["committed_text"].startswith(told[0]["committed_text"])
