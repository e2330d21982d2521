"""Chromium without a window, driven through its debugging pipe: no driver and no package is needed.

Debian and Ubuntu: `apt-get install chromium`. The protocol is https://chromedevtools.github.io/devtools-protocol/.
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATH = next((path for path in map(shutil.which, NAMES) if path), None)
needs_chromium = pytest.mark.skipif(PATH is None, reason="needs Chromium: apt-get install chromium")
TIMEOUT = 60  # seconds


class Navigated(Exception):
    """The page went elsewhere before it answered."""


class Chromium:
    """A browser with one page, closed at the end of a `with` block.

    Attributes:
        events: what the page has sent so far: `(method, parameters)`.
    """

    def __init__(self, profile):
        read_theirs, self.write_ours = _pipe()
        self.read_ours, write_theirs = _pipe()

        def connect():  # in the browser's process: it reads from 3 and writes to 4
            os.dup2(read_theirs, 3)
            os.dup2(write_theirs, 4)

        self.process = subprocess.Popen(
            [
                PATH, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                "--force-color-profile=srgb", f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(3, 4),
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_theirs)
        os.close(write_theirs)
        self.number, self.buffer, self.session, self.events = 0, b"", None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "CSS", "Accessibility"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT)
        os.close(self.read_ours)
        os.close(self.write_ours)

    def send(self, method, **parameters):
        """One command and its result."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_ours, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != number:
            pass
        if "navigated" in answer.get("error", {}).get("message", ""):
            raise Navigated(method)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def receive(self):
        """The next message; events are kept."""
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_ours], [], [], max(0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            received = os.read(self.read_ours, 1 << 20)
            assert received, "Chromium has ended"
            self.buffer += received
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

    def open(self, address, width=1280, height=900, scheme="light"):
        """Load a page in a window of that size; events begin anew, with no page left that could add to them."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for url in ("about:blank", address):
            self.events.clear()
            self.send("Page.navigate", url=url)
            while not any(method == "Page.loadEventFired" for method, _ in self.events):
                self.receive()
        self.run("document.fonts.ready.then(() => 0)")

    def run(self, script):
        """Value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, code=None):
        """One key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {}
        extra = {
            "key": key,
            "code": code or key,
            **text,
            **({"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {}),
        }
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", **extra)

    def requests(self):
        """Addresses asked for since the page was opened, without those inside the page itself."""
        asked = [parameters for method, parameters in self.events if method == "Network.requestWillBeSent"]
        return [entry["request"]["url"] for entry in asked if not entry["request"]["url"].startswith("data:")]

    def complaints(self):
        """Errors, warnings and exceptions on the console since the page was opened."""
        found = []
        for method, parameters in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return found

    def slide(self, name, value):
        """Move a slider."""
        self.run(
            f"(() => {{ const slider = document.getElementById('{name}'); slider.value = {value};"
            " slider.dispatchEvent(new Event('input')) })()"
        )

    def outside(self, *exempt):
        """Elements that reach beyond the window's right side."""
        assert self.run("document.documentElement.scrollWidth <= innerWidth")
        return self.run(
            f"[...document.querySelectorAll('body *')].filter(e => !e.closest('{', '.join(exempt)}') &&"
            " e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )

    def roles(self):
        """The names of all that a screen reader meets, by role."""
        found = {}
        for node in self.send("Accessibility.getFullAXTree")["nodes"]:
            if not node.get("ignored"):
                found.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        return found

    def stopped(self):
        """What the page's policy stops of four things that it must: sorted directives."""
        found = self.run(FORBIDDEN)
        assert self.run("window.ran") is None
        return found


FORBIDDEN = """new Promise(done => {
    const stopped = [];
    addEventListener("securitypolicyviolation", ({effectiveDirective}) => {
        if (stopped.push(effectiveDirective) === 4) done(stopped.sort());
    });
    fetch("https://example.org/").catch(() => 0);
    new Image().src = "https://example.org/x.png";
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    document.body.setAttribute("style", "color: red");
})"""
KEYS = {
    "Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
    "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


def _pipe():
    """A pipe whose ends are none of the numbers the browser wants."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved
