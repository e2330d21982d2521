"""What tests ask of the live page, and do to it."""

import time
from contextlib import contextmanager, suppress

from ..report.chromium import Navigated
from .scripted_server import NAMES

SENTENCE = "站在那边的男人"
WRITTEN = "[...document.querySelectorAll('#translation p:not(.gap)')].map(line => line.textContent).join('\\n')"
SOURCE = "[...document.querySelectorAll('#source p')].map(line => line.textContent).join('\\n')"
STATE = "document.getElementById('state').dataset.state"
SAID = "document.getElementById('state-text').textContent"
PALE = "[...document.querySelectorAll('#source .unread')].map(part => part.textContent).join('')"
CAPTION = "[...document.querySelectorAll('.caption.{} p')].map(line => line.textContent)"
UNDER = "[...document.querySelectorAll('.column')].map(column => [...column.children].map(part => part.textContent))"


def connected(browser, scripted, **window):
    browser.open(scripted.address, **window)
    until(browser, STATE, "open")
    browser.run("document.getElementById('how').open = true")
    return browser


def until(browser, script, value, patience=30):
    """Wait until an expression has a value, whatever page it is that comes to have it."""
    end = time.monotonic() + patience
    while True:
        found = None
        with suppress(Navigated):
            if (found := browser.run(script)) == value:
                return
        assert time.monotonic() < end, (script, found, value)
        time.sleep(0.02)


def type_in(page, text):
    """As with a keyboard that has a key for each character; a longer text comes at once, as a paste does."""
    page.run("document.getElementById('type').focus()")
    page.send("Input.insertText", text=text)


def numbers(count, first=0):
    """What the script writes."""
    return " ".join(NAMES[i % 10] for i in range(first, first + count))


def taken_along(page, *buttons):
    """What each of them takes along, each file's name behind its text."""
    page.run("""window.kept = [];
        URL.createObjectURL = (blob) => { kept.push(blob.text()); return 'about:blank#'; };
        HTMLAnchorElement.prototype.click = function () { kept.push(this.download); };
        addEventListener('copy', ({clipboardData}) =>
            kept.push(clipboardData.getData('text/plain') || getSelection().toString())); 0""")
    for name in buttons:
        page.send("Runtime.evaluate", expression=f"document.getElementById('{name}').click()", userGesture=True)
    return page.run("Promise.all(kept)")


@contextmanager
def another_tab(browser):
    """A second tab, at which the browser is meanwhile; of the first one the session."""
    first, target = browser.session, browser.send("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    try:
        for domain in ("Page", "Runtime"):
            browser.send(f"{domain}.enable")
        yield first
    finally:
        browser.session = first
        browser.send("Target.closeTarget", targetId=target)


@contextmanager
def duplicate(browser, address):
    """A second tab with a copy of the first one's memory, as `Duplicate` makes one; the browser is at it meanwhile."""
    kept = browser.run("JSON.stringify(sessionStorage)")
    with another_tab(browser):
        browser.open(f"{address}icon.svg")
        browser.run(f"Object.assign(sessionStorage, {kept})")
        browser.open(address)
        yield


@contextmanager
def at_tab(browser, session):
    """The browser is at another tab meanwhile."""
    browser.session, now = session, browser.session
    try:
        yield
    finally:
        browser.session = now
