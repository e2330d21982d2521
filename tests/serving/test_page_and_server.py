"""The page as a user has it: `serve.py` with a model, Chromium before it, and `translate.py` for comparison."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.report.chromium import needs_chromium

from .live_page import PALE, SOURCE, STATE, WRITTEN, connected, type_in, until
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
