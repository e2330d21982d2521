"""deploy/nginx.conf before two servers: sessions come back to the server that has them."""

import shutil
import socket
import subprocess
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from websockets.exceptions import InvalidStatus

from .live_server import Speaker, serving, translated, until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
CONF = Path(__file__).parents[2] / "deploy" / "nginx.conf"
TEXT = "我们走。我昨天买了一本书。\n"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="there is no nginx here")]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def nginx(folder, ports):
    """nginx with the file as it is, but other ports."""
    port = free_port()
    text = CONF.read_text(encoding="utf-8")
    for number, other in zip((8000, 8001, 8002), (port, *ports), strict=True):
        # not in the comments: there they follow `port=`
        text = text.replace(f"listen {number};", f"listen 127.0.0.1:{other};")
        text = text.replace(f"server 127.0.0.1:{number} ", f"server 127.0.0.1:{other} ")
    with running(folder, text, port):
        yield SimpleNamespace(port=port, address=f"ws://127.0.0.1:{port}/v1/live")


@contextmanager
def running(folder, text, port):
    """nginx with a text in its `http { }`, in a folder of its own, once it listens at a port."""
    (folder / "duplexmt.conf").write_text(text, encoding="utf-8")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr warn; worker_processes 2; events {{}}\n"
        f"http {{ access_log off; {temporary} include {folder}/duplexmt.conf; }}\n"
    )
    with subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"]) as process:
        try:
            until(lambda: process.poll() is not None or listens(port))
            assert process.poll() is None
            yield
        finally:
            process.terminate()


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """Two servers that trust this machine's proxy, and nginx before them."""
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(patch, proxies=["127.0.0.1"], hosts=["live.example.org"]) as one,
        serving(patch, proxies=["127.0.0.1"], hosts=["live.example.org"]) as two,
        nginx(tmp_path_factory.mktemp("nginx"), (one.port, two.port)) as front,
    ):
        front.servers = one, two
        yield front


def server_of(front, speaker):
    (found,) = [number for number, server in enumerate(front.servers) if speaker.session in server.hub.sessions]
    return found


def come_and_go(front, address, headers):
    """A session that loses its connection twice and comes back by the same address; the server it was at."""
    speaker = Speaker(address, {"type": "start"}, **headers)
    speaker.until("ack")
    speaker.say(type="text", at=0, text=TEXT[:7])
    speaker.until("events")
    number = server_of(front, speaker)
    for _ in range(2):
        speaker.drop()
        other = Speaker(address, **headers)
        other.text, other.seq = speaker.text, speaker.seq
        other.say(type="resume", session=speaker.session, key=speaker.key, seq=speaker.seq)
        other.until("ready")
        speaker = other
    speaker.say(type="text", at=0, text=TEXT)
    assert speaker.whole() == translated(TEXT)
    return number


def test_a_program_comes_back_to_its_server_by_the_route_it_has_chosen(behind):
    found = set()
    for number in range(40):  # a route leads where its hash does: with other ports another half of them to either
        found.add(come_and_go(behind, f"{behind.address}?route={number}", {}))
        if found == {0, 1}:
            break
    assert found == {0, 1}


def test_a_browser_comes_back_to_its_server_by_the_cookie_it_got_with_the_page(behind):
    found = set()
    for _ in range(40):  # each cookie is drawn, so that half of them lead to either server
        with urllib.request.urlopen(f"http://127.0.0.1:{behind.port}/", timeout=10) as answer:
            cookie = answer.headers["set-cookie"]
        assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
        found.add(come_and_go(behind, behind.address, {"Cookie": cookie.split(";")[0]}))
        if found == {0, 1}:
            break
    assert found == {0, 1}


def test_hosts_origins_and_addresses_are_passed_on(behind):
    host = f"127.0.0.1:{behind.port}"
    speaker = Speaker(f"{behind.address}?route=1", {"type": "start"}, Origin=f"http://{host}")
    speaker.until("ready")
    server = behind.servers[server_of(behind, speaker)]
    assert server.hub.sessions[speaker.session].address == "127.0.0.1"
    assert speaker.socket.response.headers.get("sec-websocket-extensions") is None
    for headers in ({"Origin": "http://elsewhere.example"}, {"X-Forwarded-For": "192.0.2.7", "Origin": "null"}):
        with pytest.raises(InvalidStatus):
            Speaker(behind.address, **headers)
    with Speaker(f"{behind.address}?route=1", {"type": "start"}, **{"X-Forwarded-For": "192.0.2.7"}).socket as other:
        other.recv(10)
        addresses = {s.address for one in behind.servers for s in one.hub.sessions.values()}
        assert addresses == {"127.0.0.1"}  # what a client says of itself is not believed
    speaker.say(type="close")
    assert speaker.rest() == 1000


def test_metrics_are_not_shown_to_the_world(behind):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{behind.port}/metrics", timeout=10)


def test_where_a_server_is_gone_its_clients_begin_anew_at_the_other(tmp_path, monkeypatch):
    with serving(monkeypatch) as one, nginx(tmp_path, (one.port, free_port())) as front:
        for number in range(4):  # some of these routes lead to the one that is not there
            speaker = Speaker(f"{front.address}?route={number}", {"type": "start"})
            speaker.until("ready")
            speaker.say(type="text", at=0, text=TEXT)
            assert speaker.whole() == translated(TEXT)
