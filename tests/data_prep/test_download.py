"""Downloads against a server that cuts off, fails and lies."""

import hashlib
import http.server
import threading

import pytest

from data_prep.download import download, fetch
from data_prep.sources import Source

DATA = bytes(range(256)) * 500
NEW = DATA[::-1]


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
            self.send_error(503)
            return
        data = b"<!DOCTYPE html><html>Please register</html>" if self.path.startswith("/page") else DATA
        if self.path.startswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(DATA), DATA) + (b"ff\r\nhalf" if first else b"0\r\n\r\n"))
            return
        start, version = 0, None
        if self.path.startswith("/replaced"):  # after the first connection, which is cut off
            version, data = ('"old"', DATA) if first else ('"new"', NEW)
        if self.headers.get("Range") and version is not None and self.headers.get("If-Range", version) != version:
            self.send_response(200)
        elif self.headers.get("Range") and not self.path.startswith("/whole"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        if version is not None:
            self.send_header("ETag", version)
        self.end_headers()
        end = start + 50_000 if self.path.startswith(("/cut", "/whole")) or version == '"old"' else len(data)
        self.wfile.write(data[start:end] if first or not self.path.startswith("/whole") else data[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.seen = []
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_file_is_fetched_and_its_hash_checked(server, tmp_path):
    fetch(f"{server.url}/file", tmp_path / "new" / "file", size=len(DATA), sha256=hashlib.sha256(DATA).hexdigest())
    assert (tmp_path / "new" / "file").read_bytes() == DATA
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_connection_that_is_cut_off_goes_on_where_it_stopped(server, tmp_path):
    fetch(f"{server.url}/cut", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.seen == [None, "bytes=50000-", "bytes=100000-"]


def test_a_later_run_goes_on_with_what_an_earlier_one_has_left(server, tmp_path):
    (tmp_path / "file.part").write_bytes(DATA[:1234])
    fetch(f"{server.url}/file", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == DATA
    (tmp_path / "file.part").write_bytes(DATA)
    fetch(f"{server.url}/file", tmp_path / "file", size=len(DATA), pause=0)  # all was there but the name
    assert (tmp_path / "file").read_bytes() == DATA
    assert server.seen == ["bytes=1234-", f"bytes={len(DATA)}-"]


def test_a_file_that_was_replaced_meanwhile_is_fetched_anew(server, tmp_path):
    fetch(f"{server.url}/replaced", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "file.part").write_bytes(DATA + b"more than there is now")
    fetch(f"{server.url}/file", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == DATA


def test_an_answer_in_pieces_that_is_cut_off_is_asked_for_again(server, tmp_path):
    fetch(f"{server.url}/chunked", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == DATA
    assert len(server.seen) == 2


def test_a_server_that_cannot_continue_starts_afresh(server, tmp_path):
    fetch(f"{server.url}/whole", tmp_path / "file", pause=0)
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_busy_server_is_tried_again_and_a_wrong_address_is_not(server, tmp_path):
    fetch(f"{server.url}/busy", tmp_path / "file", pause=0)
    assert len(server.seen) == 2
    with pytest.raises(OSError, match=r"404 .*is the address still right"):
        fetch(f"{server.url}/gone", tmp_path / "gone", pause=0)
    assert len(server.seen) == 3


def test_a_web_page_in_place_of_the_file_is_not_kept(server, tmp_path):
    with pytest.raises(ValueError, match=r"a web page came instead of the file; fetch it by hand and put it at .*file"):
        fetch(f"{server.url}/page", tmp_path / "file", pause=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"size": 7}, {"sha256": "0" * 64}])
def test_a_file_of_another_size_or_hash_is_not_kept(server, tmp_path, wrong):
    with pytest.raises(ValueError, match="has not the size or SHA-256"):
        fetch(f"{server.url}/file", tmp_path / "file", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_what_to_do(tmp_path):
    with pytest.raises(OSError, match=r"no connection after 5 tries .*Without a network, put the file at .*file"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file", pause=0)


def test_what_is_there_is_not_fetched_and_what_needs_a_registration_is_said_in_the_end(server, tmp_path):
    sources = {
        "by_hand": Source("paired", ["ccmt/*.zip"], "zh", "en", by_hand="register there"),
        "there": Source("tsv", ["there.tsv"], 0, 1, 2, urls=[f"{server.url}/there.tsv"], sizes=[3]),
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
