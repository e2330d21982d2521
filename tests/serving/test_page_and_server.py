"""The page as a user has it: `serve.py` with a model, Chromium before it, and `translate.py` for comparison."""

import subprocess
import sys
import urllib.request
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.report.chromium import needs_chromium

from .live_page import PALE, SOURCE, STATE, UNDER, WRITTEN, at_tab, connected, duplicate, type_in, until
from .scripted_server import PACKAGE

pytestmark = [needs_chromium, pytest.mark.slow]

ROOT = PACKAGE.parent
TEXT = "站在那边的男人曾是棒球手。我昨天买了一本书。"
OFFLINE = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


def command(name, *arguments, **options):
    return subprocess.Popen([sys.executable, name, *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE, **options)


@pytest.fixture(scope="module")
def server(folder):
    process = command("serve.py", f"model_folder={folder}", "port=0", "engine.max_target_tokens=12")
    try:
        yield SimpleNamespace(address=process.stdout.readline().strip())
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_one_types_moves_theta_reloads_loses_the_network_and_goes_on(browser, server, folder):
    compared = command("translate.py", f"model_folder={folder}", "max_target_tokens=12", stdin=subprocess.PIPE)
    expected = compared.communicate(f"{TEXT}\n")[0].rstrip("\n")
    connected(browser, server)
    for character in f"{TEXT}\n":
        type_in(browser, character)
    until(browser, f"{WRITTEN}.replaceAll('\\n', '')", expected, patience=20)
    written = browser.run(WRITTEN)

    browser.slide("theta", 0.0)
    type_in(browser, "她的哥")
    until(browser, f"{WRITTEN}.length > {len(written)}", True)
    connected(browser, server)
    assert browser.run("document.getElementById('theta').value") == "0"
    assert browser.run(WRITTEN).startswith(written)
    assert browser.complaints() == []
    assert {address.split("/")[2] for address in browser.requests()} == {server.address.split("/")[2]}

    written = browser.run(WRITTEN)
    browser.send("Network.emulateNetworkConditions", offline=True, **OFFLINE)
    until(browser, STATE, "waiting")
    type_in(browser, "哥在北京工作。\n")
    browser.send("Network.emulateNetworkConditions", offline=False, **OFFLINE)
    until(browser, PALE, "", patience=20)
    assert browser.run(WRITTEN).startswith(written)
    assert browser.run(SOURCE) == f"{TEXT}\n她的哥哥在北京工作。"


@pytest.mark.parametrize("text", ["我😀们", "مرحبا", "𠮷野家"])
def test_a_character_of_several_tokens_ends_no_sentence(browser, server, text):
    browser.open(server.address)
    browser.run("sessionStorage.clear()")
    connected(browser, server)
    browser.slide("theta", 1.0)  # all is read before anything is written
    type_in(browser, f"{text}\n")
    until(browser, "document.querySelectorAll('.column').length > 0 && !document.querySelector('.newest')", True)
    under = [read for read, _ in browser.run(UNDER)]
    assert under[-1] == "■"
    assert "■" not in under[:-1]
    assert "".join(under[:-1]).replace("·", "") == text
    assert "·" in under
    until(browser, "document.getElementById('counts').textContent.split(' ')[0]", str(len(under) - 1))


def test_a_displaced_tab_has_the_session_back_when_it_asks_for_it(browser, server):
    browser.open(server.address)
    browser.run("sessionStorage.clear()")
    connected(browser, server)
    type_in(browser, "站在那边。")
    until(browser, PALE, "")
    first = browser.session
    with duplicate(browser, server.address):
        until(browser, STATE, "open")
        type_in(browser, "我昨天买了")
        with at_tab(browser, first):
            until(browser, STATE, "ended")
            browser.run("document.getElementById('here').click()")
            until(browser, f"document.readyState === 'complete' && {STATE} === 'open'", True)
            assert browser.run(SOURCE) == "站在那边。我昨天买了"
            type_in(browser, "一本书。\n")
            until(browser, PALE, "")
        until(browser, STATE, "ended")
        gaps = browser.run("[...document.querySelectorAll('.gap')].map(gap => gap.textContent).join()")
        assert "Another" not in gaps, "the session was not lost"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""), ({"lines": "10"}, "lines=10: must be a number from 1 to 9"), ({"size": ""}, "size=: must be a"),
        ({"background": "blurred"}, "background=blurred: must be a colour"), ({"font": "x"}, "font: there is no such"),
        ({"watch": "talk"}, "watch=talk: must be the channel"),
    ],
)  # fmt: skip
def test_captions_are_a_page_of_their_own_that_follows_the_session(browser, server, changed, told):
    """As OBS shows it: transparent, and with nothing but what its address has."""
    connected(browser, server)
    address = urlsplit(browser.run("document.getElementById('watch').href"))
    asked = dict(parse_qsl(address.query)) | {"source": "1"} | changed
    first, target = browser.session, browser.send("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    try:
        for domain in ("Page", "Runtime"):
            browser.send(f"{domain}.enable")
        browser.open(f"{server.address}captions?{urlencode(asked)}")
        if told:
            assert browser.run("document.getElementById('told').textContent").startswith(told)
            return
        with at_tab(browser, first):
            browser.run("sessionStorage.clear()")
            type_in(browser, "我昨天买了一本书。\n")
            until(
                browser, "document.querySelectorAll('.column').length > 0 && !document.querySelector('.newest')", True
            )
            written = browser.run("[...document.querySelectorAll('#translation p:not(.gap)')].at(-1).textContent")
        line = "document.querySelector('.caption.{} p:last-child')?.textContent"
        until(browser, line.format("source"), "我昨天买了一本书。")
        until(browser, f"{line.format('translation')}?.trim()", written.strip())
        style = "getComputedStyle(document.getElementById('screen'))"
        assert browser.run(f"{style}.backgroundColor") == "rgba(0, 0, 0, 0)"
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
        assert browser.run(f"{style}.fontSize") == f"{0.08 * browser.run('innerHeight'):g}px"
        assert browser.run("document.getElementById('told').hidden")
    finally:
        browser.session = first
        browser.send("Target.closeTarget", targetId=target)


def test_the_pages_policy_and_its_files_are_served(server):
    with urllib.request.urlopen(server.address) as answer:
        policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("live.js", "live.css", "report.css", "icon.svg"):
        with urllib.request.urlopen(server.address + name) as answer:
            assert answer.status == 200
