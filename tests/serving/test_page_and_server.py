"""The page as a user has it: `serve.py` with a model, Chromium before it, and `translate.py` for comparison."""

import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.commands import run, succeeded
from tests.report.chromium import needs_chromium

from .live_page import CAPTION, PALE, SOURCE, STATE, WRITTEN, another_tab, at_tab, connected, type_in, until
from .scripted_server import PACKAGE

pytestmark = [needs_chromium, pytest.mark.slow]

ROOT = PACKAGE.parent
TEXT = "站在那边的男人曾是棒球手。我昨天买了一本书。"
OFFLINE = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


@pytest.fixture(scope="module")
def server(folder):
    command = [sys.executable, "serve.py", f"model_folder={folder}", "port=0", "engine.max_target_tokens=12"]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    try:
        yield SimpleNamespace(address=process.stdout.readline().strip())
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_one_types_moves_theta_reloads_loses_the_network_and_goes_on(browser, server, folder):
    given = f"model_folder={folder}", "max_target_tokens=12"
    expected = succeeded(run("translate.py", *given, stdin=f"{TEXT}\n".encode())).stdout.rstrip("\n")
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


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"lines": "10"}, "lines=10: must be a number from 1 to 9"),
        ({"constructor": "x"}, "constructor: there is no such"),
    ],
)
def test_captions_are_a_page_of_their_own_that_follows_the_session(browser, server, changed, told):
    """As OBS shows it: transparent, and with nothing but what its address has."""
    connected(browser, server)
    address = urlsplit(browser.run("document.getElementById('watch').href"))
    asked = dict(parse_qsl(address.query)) | {"source": "1"} | changed
    done = "document.querySelectorAll('#translation p[aria-busy=false]')"
    with another_tab(browser) as first:
        browser.open(f"{server.address}captions?{urlencode(asked)}")
        if told:
            assert browser.run("document.getElementById('told').textContent").startswith(told)
            return
        with at_tab(browser, first):
            before = browser.run(f"{done}.length")
            browser.slide("theta", 1.0)  # all is read before the length limit ends the sentence
            type_in(browser, "我昨天买了一本书。\n")
            until(browser, f"{done}.length", before + 1)
            written = browser.run(f"[...{done}].at(-1).textContent")
        line = "document.querySelector('.caption.{} p:last-child')?.textContent"
        until(browser, line.format("source"), "我昨天买了一本书。")
        until(browser, f"{line.format('translation')}?.trim()", written.strip())
        style = "getComputedStyle(document.getElementById('screen'))"
        assert browser.run(f"{style}.backgroundColor") == "rgba(0, 0, 0, 0)"
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
        assert browser.run(f"{style}.fontSize") == f"{0.08 * browser.run('innerHeight'):g}px"
        assert browser.run("document.getElementById('told').hidden")
        with at_tab(browser, first):
            browser.send("Page.bringToFront")  # else no dialog is answered
            browser.run("document.getElementById('anew').click(), document.getElementById('ask-yes').click()")
            until(browser, f"document.readyState === 'complete' && {STATE} === 'open' && {SOURCE}", "")
            browser.slide("theta", 1.0)
            type_in(browser, "我昨天买了一本书。\n")
        until(browser, CAPTION.format("source"), ["我昨天买了一本书。"] * 2)
