"""The live page when the network, the server or the browser lets it down: nothing shown is lost, repeated or moved."""

import time

import pytest

from tests.report.chromium import needs_chromium

from .live_page import (
    CAPTION,
    PALE,
    SAID,
    SENTENCE,
    SOURCE,
    STATE,
    UNDER,
    WRITTEN,
    at_tab,
    connected,
    duplicate,
    numbers,
    taken_along,
    type_in,
    until,
)
from .live_server import until as holds
from .scripted_server import LIMITS, NAMES

pytestmark = [needs_chromium, pytest.mark.slow]

HURRY = "const real = setTimeout; window.setTimeout = (act, ms) => real(act, ms / {})"
AL = "document.getElementById('al').textContent"
LOADED_AND_OPEN = f"document.readyState === 'complete' && {STATE} === 'open'"


def test_a_reload_takes_nothing_away_and_the_session_goes_on(page, scripted):
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    page.slide("theta", 0.75)
    words = page.run(UNDER)
    connected(page, scripted)
    assert (page.run(WRITTEN), page.run(UNDER), page.run(SOURCE)) == (numbers(5), words, SENTENCE)
    assert page.run("document.getElementById('theta').value") == "0.75"
    type_in(page, "曾。")
    until(page, WRITTEN, f"{numbers(9)}.")
    assert page.run(WRITTEN) == scripted.translation
    assert len(scripted.sessions) == 1
    assert page.complaints() == []


def test_a_sample_goes_on_after_a_reload_and_a_new_beginning_is_empty(page, scripted):
    page.slide("speed", 15)
    page.run("document.getElementById('play').click()")
    until(page, f"{SOURCE}.length > 3", True)
    connected(page, scripted)
    until(page, WRITTEN, f"{numbers(13)}.")
    until(page, "document.getElementById('play').textContent", "▸ start")
    assert scripted.session.text.rstrip() == "站在那边的男人曾是棒球手。"
    page.run("document.getElementById('play').click()")
    # what comes between the click and the reload, here a text, does not bring the session back
    page.run("document.getElementById('type').focus()")
    page.run("document.getElementById('anew').click()")
    page.run("document.getElementById('ask-yes').click(), setTimeout(() => {"
             " const field = document.getElementById('type'); field.value = '人';"
             " field.dispatchEvent(new Event('input')); })")  # fmt: skip
    holds(lambda: len(scripted.sessions) == 2)  # until then the page is the one before
    until(page, LOADED_AND_OPEN, True)
    assert (page.run(SOURCE), page.run(WRITTEN)) == ("", "")


def test_a_story_too_long_to_be_kept_leaves_the_session(page, scripted):
    """The browser's memory is filled but for a thousand characters; the sentence makes a longer story."""
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    until(page, "sessionStorage.length > 1", True)
    attempt = "try { sessionStorage.setItem(size, 'x'.repeat(size)) } catch {}"
    page.run(f"for (let size = 1 << 23; size > 500; size >>= 1) {attempt}")
    type_in(page, SENTENCE * 3)
    until(page, WRITTEN, numbers(26))
    assert page.run(CAPTION.format("translation")) == [numbers(26)], "none of which is in the story"
    page.run("document.getElementById('unit').value = 'line'")
    type_in(page, "他们")
    connected(page, scripted)
    assert "too long" in page.run("document.querySelector('#translation .gap').textContent")
    assert page.run("document.getElementById('type').value") == "他们"
    page.run("document.getElementById('type').value = ''")
    type_in(page, "人")
    until(page, WRITTEN, f" {NAMES[26 % 10]}")
    scripted.keeps = True
    type_in(page, "公园")
    holds(lambda: scripted.session.answered == 31)
    scripted.session.frames.pop()
    scripted.keeps = False
    page.slide("theta", 0.5)  # for the server to go on with what it has
    until(page, WRITTEN, f" {NAMES[26 % 10]} {NAMES[27 % 10]}")
    assert page.run(PALE) == "园"
    assert len(scripted.sessions) == 1


def test_text_typed_without_a_network_survives_a_reload_and_arrives(page, scripted):
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    scripted.refuses = True
    scripted.cut()
    until(page, STATE, "waiting")
    type_in(page, "边的😀")
    page.open(scripted.address)
    until(page, STATE, "waiting")
    assert (page.run(WRITTEN), page.run(SOURCE)) == ("one", "站在那边的😀")
    type_in(page, "男人")
    scripted.refuses = False
    page.run("document.getElementById('retry').click()")
    until(page, WRITTEN, numbers(6))
    assert scripted.session.text == "站在那边的😀男人"
    assert len(scripted.sessions) == 1


def test_a_server_that_no_longer_answers_is_left(browser, scripted):
    """With clocks that run twenty times as fast: the page is patient for fifteen seconds."""
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=HURRY.format(20))["identifier"]
    connected(browser, scripted)
    browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    scripted.stalls = True
    until(browser, SAID, "the server does not answer; reconnecting")
    scripted.stalls = False
    type_in(browser, SENTENCE)
    until(browser, WRITTEN, numbers(5))


def test_captions_leave_a_server_that_no_longer_answers(browser, scripted):
    """Connections that are closed stay as they are, as where the network is lost."""
    hurry = f"{HURRY.format(10)}; WebSocket.prototype.close = () => 0"
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=hurry)["identifier"]
    browser.open(f"{scripted.address}captions?watch={'x' * 16}")
    browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    holds(lambda: [message.type for message in scripted.received[-2:]] == ["ping"] * 2)
    scripted.stalls = True
    holds(lambda: scripted.received[-1].type == "watch")
    write = {"event": "write", "sentence": 0, "text": "one"}
    scripted.tell_events(write, {"event": "breath", "sentence": 0})
    until(browser, CAPTION.format("translation"), ["one"])
    assert browser.complaints() == []


def test_a_sentence_whose_middle_was_missed_has_no_lagging_and_the_next_session_begins_with_it(page, scripted):
    type_in(page, "站在那边的男")
    until(page, WRITTEN, numbers(4))
    scripted.keeps = True
    type_in(page, "人曾。站在那边。站在")
    holds(lambda: scripted.session.answered == 16)
    scripted.keeps, scripted.forgets = False, True
    scripted.cut()
    missed = f"{numbers(4)}\n {numbers(5, 4)}. {numbers(5)}. "
    until(page, WRITTEN, missed)
    until(page, AL, "—")
    shown = "(() => { const al = document.getElementById('al'); window.shown = [];"
    page.run(
        f"{shown} new MutationObserver(() => window.shown.push(al.textContent)).observe(al, {{childList: true}}) }})()"
    )
    type_in(page, "那")
    until(page, WRITTEN, f"{missed}one")
    page.run("new Promise(requestAnimationFrame)")
    assert page.run(AL) == "—"
    assert set(page.run("window.shown")) <= {"—"}, "not that of the part before, either"
    scripted.cut(1012)
    holds(lambda: len(scripted.sessions) == 2 and scripted.session.answered == 3)
    assert scripted.session.text == "站在那", "what had ended meanwhile is not translated twice"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("forgotten", "The server has lost this session."),
        ("restarted", "The server has handed this session back."),
    ],
)
def test_another_session_goes_on_with_the_unfinished_sentence(page, scripted, how, said):
    type_in(page, "站在那边。站在那")
    until(page, WRITTEN, f"{numbers(5)}. one")
    if how == "forgotten":
        scripted.session.keys += 1
        scripted.cut()
    else:
        scripted.cut(1012)
    until(page, WRITTEN, f"{numbers(5)}. one\none")
    told = page.run("document.querySelector('#translation .gap').textContent")
    assert told == f"{said} Another one translates the unfinished sentence anew."
    type_in(page, "边")
    until(page, WRITTEN, f"{numbers(5)}. one\none two")
    assert page.run(PALE) == ""
    assert scripted.session.text == "站在那边"
    assert page.run(SOURCE) == "站在那边。站在那边"


def test_a_displaced_tab_takes_no_text_even_after_a_reload(page, scripted):
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    page.slide("speed", 4)
    page.run("document.getElementById('play').click()")
    scripted.cut(4409)
    until(page, STATE, "ended")
    for _ in range(2):
        assert page.run(SAID) == "this session goes on in another window"
        shown = page.run(SOURCE)
        disabled = "['type', 'theta', 'sample', 'play', 'speed'].map(id => document.getElementById(id).disabled)"
        assert page.run(disabled) == [True] * 5
        told = "No text is taken here: this session goes on in another window."
        assert page.run("document.getElementById('type').placeholder") == told
        assert not page.run("document.getElementById('here').hidden")
        type_in(page, "边")
        page.run("(() => { const field = document.getElementById('type'); field.value = 'x';"
                 " field.dispatchEvent(new Event('input')) })()")  # fmt: skip
        time.sleep(0.4)
        assert page.run(SOURCE) == shown
        page.open(scripted.address)
    assert [message.type for message in scripted.received if message.type in ("start", "resume")] == ["start"]


def test_a_displaced_tab_continues_with_all_that_came_in_the_other_one_which_is_displaced(page, scripted):
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    until(page, "sessionStorage.length > 1", True)
    first = page.session
    page.run("document.getElementById('unit').value = 'line'")
    type_in(page, "她")  # not sent
    with duplicate(page, scripted.address):
        until(page, STATE, "open")
        assert (page.run(SOURCE), page.run(WRITTEN)) == ("站在那", "one")
        type_in(page, "边的")
        until(page, WRITTEN, numbers(3))
        page.slide("theta", 0.75)
        page.run("document.getElementById('unit').value = 'line'")
        type_in(page, "他")
        with at_tab(page, first):
            until(page, STATE, "ended")
            page.run("document.getElementById('here').click()")
            until(page, LOADED_AND_OPEN, True)
            assert (page.run(SOURCE), page.run(WRITTEN)) == ("站在那边的", numbers(3))
            assert page.run("document.getElementById('theta').value") == "0.75"
            assert page.run("document.getElementById('type').value") == "他\n她"
            page.run("document.getElementById('type').value = ''")
            type_in(page, "男人曾是")
            until(page, WRITTEN, numbers(6))
        until(page, STATE, "ended")
        assert page.run("document.getElementById('type').disabled")
        assert page.run("document.getElementById('type').value") == "", "it is in the other one"
        page.run("document.getElementById('here').click()")  # and back
        until(page, LOADED_AND_OPEN, True)
        assert (page.run(SOURCE), page.run(WRITTEN)) == ("站在那边的男人曾是", numbers(6))
        type_in(page, "。")
        until(page, WRITTEN, f"{numbers(10)}.")
    until(page, STATE, "ended")
    assert (len(scripted.sessions), scripted.session.text) == (1, "站在那边的男人曾是。")


def test_a_displaced_tab_that_the_other_one_does_not_answer_continues_by_a_session_of_its_own(page, scripted):
    type_in(page, "站在那边。站在那")
    until(page, WRITTEN, f"{numbers(5)}. one")
    scripted.cut(4409)
    until(page, STATE, "ended")
    page.run("document.getElementById('here').click()")
    until(page, WRITTEN, f"{numbers(5)}. one\none")
    assert "does not answer. Another one" in page.run("document.querySelector('#translation .gap').textContent")
    type_in(page, "边")
    until(page, WRITTEN, f"{numbers(5)}. one\none two")
    assert (len(scripted.sessions), scripted.session.text) == (2, "站在那边")


ENGINES = {
    "starting": ({"state": "starting"}, "the engine is starting", ""),
    "failed": (
        {"state": "failed", "reason": "CUDA out of memory"},
        "the engine cannot start",
        "The engine cannot start: CUDA out of memory",
    ),
}
NOTICE = "document.getElementById('notice').hidden ? '' : document.getElementById('notice').textContent"


@pytest.mark.parametrize(("engine", "said", "notice"), ENGINES.values(), ids=ENGINES)
def test_what_the_engine_is_doing_is_said_instead_of_connected(page, scripted, engine, said, notice):
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    scripted.tell_engine(**engine)
    until(page, STATE, engine["state"])
    assert page.run(SAID).startswith(said)
    assert page.run(NOTICE) == notice
    scripted.keeps = True
    scripted.cut()  # it is told again after each resume
    until(page, STATE, engine["state"])
    type_in(page, "边")  # which waits
    until(page, PALE, "边")
    holds(lambda: scripted.session.answered == 4)
    scripted.keeps = False
    scripted.tell_engine(state="ready")
    until(page, STATE, "open")
    assert (page.run(SAID), page.run(NOTICE)) == ("connected", "")
    type_in(page, "的")
    until(page, WRITTEN, numbers(3))


@pytest.mark.parametrize("width", [360, 1280])
def test_whatever_is_told_of_a_session_fits_the_window_and_can_be_operated(browser, scripted, width):
    page = connected(browser, scripted, width=width)
    for engine in (
        {"state": "starting"},
        {"state": "failed", "reason": f"no such file: {'/models' * 20}"},
        {"state": "ready"},
    ):
        scripted.tell_engine(**engine)
        until(page, f"{STATE} === 'open' ? 'ready' : {STATE}", engine["state"])
        assert page.outside(".scroll", ".skip", ".hidden") == []
    assert page.complaints() == []
    scripted.cut(4409)
    until(page, STATE, "ended")
    assert page.outside(".scroll", ".skip", ".hidden") == []
    buttons = ["continue here", "begin anew", "microphone", "copy", "TXT", "VTT", "Text file", "▸ start"]
    assert page.roles()["button"][: len(buttons)] == buttons
    page.run("document.querySelector('.skip').focus()")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "here"


@pytest.mark.parametrize(("engine", "said", "notice"), ENGINES.values(), ids=ENGINES)
def test_whoever_is_refused_for_want_of_an_engine_is_told_so_and_not_that_the_server_is_busy(
    browser, scripted, engine, said, notice
):
    name = {"starting": "busy", "failed": "engine"}[engine["state"]]
    scripted.engine = engine
    scripted.fails_with = (1013, name, {"retry_after": 1.0, "message": "no engine"})
    browser.open(scripted.address)
    until(browser, SAID, f"{said}; reconnecting")
    assert browser.run(NOTICE) == notice
    type_in(browser, SENTENCE)
    scripted.fails_with, scripted.engine = None, {"state": "ready"}
    until(browser, WRITTEN, numbers(5))
    assert (browser.run(SAID), browser.run(NOTICE)) == ("connected", "")


def test_a_sleeping_session_wakes_when_one_types(page, scripted):
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    scripted.cut(4408)
    until(page, STATE, "asleep")
    type_in(page, "曾")
    until(page, WRITTEN, numbers(6))


def test_a_session_whose_time_is_over_begins_anew_when_one_types(page, scripted):
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    scripted.fails_with = (4408, "expired", {})
    scripted.cut()
    until(page, STATE, "asleep")
    assert page.run(SAID) == "this session has expired; another one begins when you type"
    scripted.fails_with = None
    type_in(page, "曾")
    until(page, WRITTEN, f"{numbers(5)}\n{numbers(6)}")
    gap = "This session has expired. Another one translates the unfinished sentence anew."
    assert page.run("document.querySelector('#translation .gap').textContent") == gap
    assert len(scripted.sessions) == 2
    text, _, vtt, _ = taken_along(page, "txt", "vtt")
    assert text == f"{numbers(5)}\n{numbers(6)}"
    assert [line for line in vtt.split("\n") if line.startswith("one")] == [numbers(5), numbers(6)]
    assert page.run(CAPTION.format("translation")) == [numbers(5), numbers(6)]


@pytest.mark.parametrize(
    ("lasts", "grace", "said", "how"),
    [
        (0.3, 120.0, "This session has expired.", "lost"),
        (3600.0, 0.0, "This session has expired while this page was away.", "reloaded"),
    ],
)
def test_a_session_that_is_gone_has_expired_if_its_time_was_over(browser, scripted, lasts, grace, said, how):
    scripted.lasts, scripted.limits = lasts, scripted.limits | {"grace_seconds": grace}
    page = connected(browser, scripted)
    type_in(page, "站在那边。站在那")
    until(page, WRITTEN, f"{numbers(5)}. one")
    time.sleep(0.5)
    scripted.session.keys += 1
    if how == "lost":
        scripted.cut()
    else:
        page.open(scripted.address)
    until(page, WRITTEN, f"{numbers(5)}. one\none")
    told = page.run("document.querySelector('#translation .gap').textContent")
    assert told == f"{said} Another one translates the unfinished sentence anew."


def test_a_browser_that_denies_its_memory_is_served_and_told(browser, scripted):
    denies = "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException('', 'SecurityError'); }})"
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=denies)["identifier"]
    try:
        page = connected(browser, scripted)
        type_in(page, SENTENCE)
        until(page, WRITTEN, numbers(5))
        assert "keeps nothing" in page.run("document.querySelector('#translation .gap').textContent")
        page.run("document.getElementById('full').click()")
        until(page, "document.getElementById('screen').hidden", False)
        assert page.complaints() == []
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_a_server_with_a_token_is_told_it(browser, scripted):
    scripted.token = "open sesame"
    browser.open(scripted.address)
    until(browser, STATE, "token")
    assert browser.run("document.activeElement.id") == "token"
    browser.send("Input.insertText", text="open barley")
    browser.run("document.querySelector('#token-form button').click()")
    until(browser, SAID, "that token is wrong")
    browser.send("Input.insertText", text="open sesame")
    browser.run("document.querySelector('#token-form button').click()")
    until(browser, STATE, "open")
    assert browser.run("document.getElementById('token-form').hidden")


def test_a_long_text_goes_in_parts_as_the_server_takes_it(browser, scripted):
    scripted.credit = 150
    page = connected(browser, scripted)
    text = "人😀人😀人😀人😀人。" * 40
    type_in(page, text)
    until(page, f"{WRITTEN}.split('.').length", 41)
    assert scripted.session.text == text
    assert max(map(len, scripted.texts())) == 150
    nodes = "Math.max(...[...document.querySelectorAll('#{} span')].map(part => part.childNodes.length))"
    assert page.run(nodes.format("source")) < 10, "one for each character would make the page slow"
    assert page.run(nodes.format("translation")) < 300
    assert page.complaints() == []


def test_the_page_sends_no_faster_than_the_server_tells_it(browser, scripted):
    scripted.limits = LIMITS | {"messages_per_second": 5.0, "messages_burst": 5}
    page = connected(browser, scripted)
    before, begin = len(scripted.received), time.monotonic()
    for number in range(10):
        type_in(page, "人")
        page.slide("theta", 0.3 + number / 50)
        time.sleep(0.15)
    sent = len(scripted.received) - before
    assert sent <= 5 * (time.monotonic() - begin) + 5
    holds(lambda: scripted.session.text == "人" * 10)
