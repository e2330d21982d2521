"""The page of captions as a user has it: `serve.py` with a model, and Chromium with this page and the followed one."""

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.report.chromium import needs_chromium

from .live_page import at_tab, connected, type_in, until
from .test_page_and_server import server  # noqa: F401, a fixture

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"lines": "10"}, "lines=10: must be a number from 1 to 9"),
        ({"font": "x"}, "font: there is no such"),
    ],
)
def test_captions_are_a_page_of_their_own_that_follows_the_session(browser, server, changed, told):  # noqa: F811
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
