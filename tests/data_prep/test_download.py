"""Downloads against a server that cuts off, fails and lies."""

import hashlib
import http.server
import threading

import pytest

from data_prep.download import download, fetch
from data_prep.sources import Source

DATA = bytes(range(256)) * 500
CHANGED = "Sat, 01 Jan 2050 00:00:00 GMT"


class Server(http.server.BaseHTTPRequestHandler):
    """Serves DATA; what the path says happens to the first requests."""

    seen: list

    def do_GET(self):
        self.server.seen.append(self.headers.get("Range"))
        first = len(self.server.seen) == 1
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        if self.path.startswith("/busy") and first:
            self.send_error(429)
            return
        if self.path.startswith("/replaced") and self.headers.get("If-Unmodified-Since", CHANGED) != CHANGED:
            self.send_error(412)
            return
        data = b"<!DOCTYPE html><html>Please register</html>" if self.path.startswith("/page") else DATA
        if self.path.startswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(DATA), DATA) + (b"ff\r\nhalf" if first else b"0\r\n\r\n"))
            return
        start = 0
        if self.headers.get("Range") and not self.path.startswith("/whole"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = start + 50_000 if self.path.startswith(("/cut", "/whole")) else len(data)
        self.wfile.write(data[start:end] if first or not self.path.startswith("/whole") else data[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)  # what is lost of a connection at most
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.seen = []
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_file_is_fetched_and_its_hash_checked(server, tmp_path):
    fetch(f"{server.url}/file", tmp_path / "new" / "file", hashlib.sha256(DATA).hexdigest())
    assert (tmp_path / "new" / "file").read_bytes() == DATA
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "ranges"),
    [
        ("cut", [None, "bytes=50000-", "bytes=100000-"]),  # where it stopped
        ("whole", [None, "bytes=50000-"]),  # by a server that cannot continue
        ("busy", [None, None]),
    ],
)
def test_a_connection_that_is_cut_off_goes_on(server, tmp_path, name, ranges):
    fetch(f"{server.url}/{name}", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.seen == ranges


@pytest.mark.parametrize(
    ("name", "left", "ranges"),
    [
        ("file", DATA[:1234], ["bytes=1234-"]),
        ("file", DATA, [f"bytes={len(DATA)}-", None]),
        ("file", DATA + b"more than there is now", [f"bytes={len(DATA) + 22}-", None]),
        ("replaced", b"what was there before", ["bytes=21-", None]),
    ],
)
def test_a_later_run_goes_on_with_what_an_earlier_one_has_left_of_the_same_file(server, tmp_path, name, left, ranges):
    (tmp_path / "file.part").write_bytes(left)
    fetch(f"{server.url}/{name}", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.seen == ranges
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_answer_in_pieces_that_is_cut_off_is_no_whole_file(server, tmp_path):
    fetch(f"{server.url}/chunked", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_wrong_address_is_not_tried_again(server, tmp_path):
    with pytest.raises(OSError, match=r"404; is the address still right"):
        fetch(f"{server.url}/gone", tmp_path / "gone")
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("name", "digest", "message"),
    [
        ("page", None, r"a web page came instead of the file; fetch it by hand and put it at .*file"),
        ("file", "0" * 64, "has not the SHA-256"),
    ],
)
def test_what_is_not_the_file_is_not_kept(server, tmp_path, name, digest, message):
    with pytest.raises(ValueError, match=message):
        fetch(f"{server.url}/{name}", tmp_path / "file", digest)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(OSError, match=r"no connection .*Without a network, put the file at .*file"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file")


def test_what_is_there_is_not_fetched_and_what_needs_a_registration_is_said_in_the_end(server, tmp_path):
    there = hashlib.sha256(b"a\tb").hexdigest()
    sources = {
        "by_hand": Source("paired", ["ccmt/*.zip"], "zh", "en", by_hand="register there"),
        "there": Source("tsv", ["there.tsv"], 0, 1, 2, urls=[f"{server.url}/there.tsv"], sha256=[there]),
        "new": Source("tsv", ["new.tsv"], 0, 1, 2, urls=[f"{server.url}/new.tsv"]),
    }
    (tmp_path / "there.tsv").write_bytes(b"a\tb")
    with pytest.raises(ValueError, match="to be fetched by hand: by_hand: register there"):
        download(sources, tmp_path)
    assert (tmp_path / "there.tsv").read_bytes() == b"a\tb"
    assert (tmp_path / "new.tsv").read_bytes() == DATA
    (tmp_path / "ccmt").mkdir()
    (tmp_path / "ccmt" / "x.zip").touch()
    download(sources, tmp_path)
    assert len(server.seen) == 1
