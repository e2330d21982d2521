"""The live page in a browser, before a server that translates by a script: what one types, sees and hears."""

import random
import time

import pytest

from duplexmt.metrics.latency import average_lagging
from tests.report.chromium import needs_chromium

from .live_page import CAPTION, SENTENCE, SOURCE, STATE, UNDER, WRITTEN, connected, numbers, type_in, until
from .scripted_server import NAMES

pytestmark = [needs_chromium, pytest.mark.slow]

PIECES = ["😀", "👩‍👩‍👧"]  # five characters in one
COUNTS = "document.getElementById('counts').textContent"


def test_what_is_typed_is_translated_while_it_is_typed(page, scripted):
    for character in SENTENCE:
        type_in(page, character)
    until(page, WRITTEN, numbers(5))
    assert page.run(SOURCE) == SENTENCE
    type_in(page, "\n他们")
    until(page, WRITTEN, f"{numbers(7)}.")
    assert page.run(SOURCE) == f"{SENTENCE}\n他们"
    assert page.complaints() == []
    assert {address.split("/")[2] for address in page.requests()} == {scripted.address.split("/")[2]}


def test_each_word_stands_under_the_source_read_by_then(page):
    type_in(page, "站在那边\n")
    until(page, UNDER, [["站", ""], ["在", ""], ["那", "one"], ["边", " two"], ["■", " three four."]])


def test_theta_acts_at_once_and_on_what_comes_next_only(page, scripted):
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    page.run("document.getElementById('theta').focus()")
    page.press("End")
    assert page.run("document.getElementById('theta-value').textContent") == "1.000"
    type_in(page, "曾")
    until(page, "document.getElementById('counts').textContent", "8 / 5")
    assert page.run("document.getElementById('behind').textContent") == "3"
    page.press("Home")
    page.run("document.getElementById('theta').focus()")
    page.press("Home")
    type_in(page, "是")
    until(page, WRITTEN, numbers(9))
    thetas = [event["theta"] for event in scripted.events()]
    assert thetas == [0.5] * 12 + [1.0] + [0.0] * 5
    points = "document.querySelector('#decisions polyline.theta').getAttribute('points').split(' ')"
    until(page, f"new Set({points}.map((point) => point.split(',')[1])).size", 3)  # once it is drawn


def test_panes_stay_at_their_end_unless_one_scrolls_back(page):
    left = "['source', 'translation', 'words'].map(id => document.getElementById(id))"
    left += ".map(pane => Math.round(pane.scrollHeight - pane.clientHeight - pane.scrollTop) < 2)"
    for number in range(1, 31):
        type_in(page, f"{SENTENCE}。\n")
        if number % 10 == 0:
            until(page, f"{WRITTEN}.split('.').length", number + 1)
            until(page, left, [True] * 3)
    page.run("document.getElementById('words').scrollTop = 100")
    until(page, left, [True, True, False])
    type_in(page, f"{SENTENCE}。\n")
    until(page, f"{WRITTEN}.split('.').length", 32)
    until(page, left, [True, True, False])


def test_the_figures_grow_with_the_sentence(page):
    sizes = []
    for number, character in enumerate("站在那边的"):
        type_in(page, character)
        until(page, "document.getElementById('counts').textContent", f"{number + 1} / {max(0, number - 1)}")
        drawn = ("#staircase .visited", "#decisions .wrote, #decisions .waited", "#staircase .label")
        sizes.append([page.run(f"document.querySelectorAll('{part}').length") for part in drawn])
    assert sizes == [[0, 0, 1], [1, 1, 2], [3, 3, 4], [5, 5, 6], [7, 7, 8]]
    page.run("document.getElementById('steps-part').open = true")
    rows = "[...document.querySelectorAll('#steps tbody tr')].map(row => row.textContent)"
    until(page, rows, ["1站0.250", "2在0.250", "3那one (0.750) 0.250", "4边two (0.750) 0.250", "5的three (0.750) —"])


def test_events_that_the_page_does_not_know_are_passed_over(page, scripted):
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    scripted.tell_events({"event": "breath", "sentence": 0}, seq=len(scripted.session.frames) + 1)
    scripted.session.frames.append([])
    type_in(page, "边")
    until(page, WRITTEN, numbers(2))
    assert page.run(UNDER) == [["站", ""], ["在", ""], ["那", "one"], ["边", " two"]]
    assert page.run(CAPTION.format("translation")) == [numbers(2)]
    assert page.complaints() == []


def test_average_lagging_is_that_of_the_evaluation(page, scripted):
    type_in(page, f"{SENTENCE}。站在那边的。")
    until(page, WRITTEN, f"{numbers(8)}. {numbers(6)}.")
    writes = [event for event in scripted.events() if event["event"] == "write"]
    expected = [
        average_lagging([event["delay"] for event in writes if event["sentence"] == number], count, count)
        for number, count in ((0, 8), (1, 6))
    ]
    until(page, "document.getElementById('al').textContent", f"{expected[1]:.2f}")
    assert page.run("document.getElementById('al-mean').textContent") == f"{sum(expected) / 2:.2f}"
    draw = random.Random(3)
    for _ in range(50):
        source, reference = draw.randint(1, 20), draw.randint(1, 20)
        delays = sorted(draw.randint(0, source) for _ in range(draw.randint(1, 20)))
        script = f"import('./latency.js').then(it => it.averageLagging({delays}, {source}, {reference}))"
        assert page.run(script) == pytest.approx(average_lagging(delays, source, reference))


def test_what_is_being_composed_is_not_sent(page, scripted):
    page.run("document.getElementById('type').focus()")
    for composed in ("z", "zh", "zhan"):
        page.send("Input.imeSetComposition", text=composed, selectionStart=len(composed), selectionEnd=len(composed))
        assert page.run("document.getElementById('type').value") == composed
    time.sleep(0.3)
    assert scripted.texts() == []
    page.send("Input.insertText", text="站")
    until(page, SOURCE, "站")
    type_in(page, "在那")
    until(page, WRITTEN, "one")
    assert scripted.session.text == "站在那"


def test_a_text_too_long_to_be_remembered_is_refused(page, scripted):
    page.run("(() => { const field = document.getElementById('type'); field.value = 'x'.repeat(1000001);"
             " field.dispatchEvent(new Event('input')) })()")  # fmt: skip
    told = "This text has 1,000,001 characters: at most 1,000,000 are taken."
    assert page.run("document.getElementById('notice').textContent") == told
    assert page.run(SOURCE) == ""
    scripted.stalls = True
    for _ in range(2):
        page.run("(() => { const field = document.getElementById('type'); field.value = '站在那边。'.repeat(100001);"
                 " field.dispatchEvent(new Event('input')) })()")  # fmt: skip
    told = "This text, with what is not translated yet, has 1,000,010 characters: at most 1,000,000 are taken."
    assert page.run("document.getElementById('notice').textContent") == told
    assert page.run(f"{SOURCE}.replaceAll('\\n', '').length") == 500_005
    longest = "Math.max(...[...document.querySelectorAll('#source p')].map(line => line.textContent.length))"
    assert page.run(longest) < 1_100, "which would make the page slow"


def test_a_sample_is_typed_at_the_speed_asked_for(page, scripted):
    page.slide("speed", 20)
    begin = time.monotonic()
    page.run("document.getElementById('play').click()")
    until(page, SOURCE, "站在那边的男人曾是棒球手。")
    assert 0.5 < time.monotonic() - begin < 2
    assert 3 <= len(scripted.texts()) <= 12
    until(page, "document.getElementById('play').textContent", "▸ start")
    until(page, WRITTEN, f"{numbers(13)}.")


def test_a_file_is_typed_and_can_be_stopped(page, tmp_path):
    path = tmp_path / "text.txt"
    page.slide("speed", 30)
    node = page.send("DOM.querySelector", nodeId=page.send("DOM.getDocument")["root"]["nodeId"], selector="#file")
    for encoding, told in (
        ("gbk", "text.txt is not UTF-8: save it as UTF-8, and choose it again."),
        ("utf-8", ""),
    ):
        path.write_text("站在那边。" * 50, encoding=encoding)
        page.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node["nodeId"])
        until(page, "document.getElementById('notice').textContent", told)
        assert page.run(SOURCE) == "" or not told
    until(page, f"{SOURCE}.startsWith('站在那边。站')", True)
    page.run("document.getElementById('play').click()")
    typed = page.run(SOURCE)
    time.sleep(0.2)
    assert page.run(SOURCE) == typed
    assert len(typed) < 100


def test_markup_and_whatever_turns_text_is_text(page):
    nasty = "<img src=x onerror=alert(1)>\u202e"
    type_in(page, nasty)
    until(page, "document.getElementById('counts').textContent.split(' ')[0]", str(len(nasty)))
    assert page.run(SOURCE) == nasty
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("[...document.querySelectorAll('.read')].at(-1).textContent") == "⟨202E⟩"
    assert page.complaints() == []


def test_everything_that_can_be_operated_has_a_name(page):
    roles = page.roles()
    for role in ("slider", "button", "combobox", "textbox", "image", "region", "log"):
        assert roles[role], role
        assert all(roles[role]), (role, roles[role])
    assert roles["log"] == ["Translation: English"]
    assert sorted(roles["slider"]) == ["Characters a second", "Threshold θ"]


def test_the_keyboard_goes_through_the_page_in_its_order_and_one_sees_where(page):
    page.run("document.querySelector('.skip').focus()")
    visited = ["skip"]
    for _ in range(19):
        page.press("Tab")
        visited.append(
            page.run("document.activeElement.id || document.activeElement.className || document.activeElement.tagName")
        )
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", visited[-1]
    text = ["skip", "anew", "source", "type", "unit", "speak", "copy", "txt", "vtt", "translation"]
    controls = ["sample", "play", "speed", "SUMMARY", "SUMMARY", "theta", "words", "staircase", "decisions", "SUMMARY"]
    assert visited == [*text, *controls]


def test_a_screen_reader_hears_whole_words(page):
    """The log is busy while words are written, and told once the model reads on, or waits for more to read."""
    type_in(page, "站在那")
    until(page, WRITTEN, "one")
    busy = "document.querySelector('#translation p').getAttribute('aria-busy')"
    assert page.run(busy) == "true"
    until(page, busy, "false", patience=2)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_it_fits_a_window_in_light_and_dark(browser, scripted, tmp_path, width, scheme):
    connected(browser, scripted, width=width, scheme=scheme)
    type_in(browser, f"{SENTENCE * 6}w{'o' * 90}。")
    until(browser, STATE, "open")
    until(browser, "document.getElementById('counts').textContent.split(' ')[0]", "134")
    assert browser.outside(".scroll", ".skip", ".hidden") == []
    paper = browser.run("getComputedStyle(document.getElementById('type')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 26)"}[scheme]
    assert browser.complaints() == []


def test_the_policy_stops_whoever_would_ask(page):
    assert page.stopped() == ["connect-src", "img-src", "script-src-elem", "style-src-attr"]


@pytest.mark.parametrize("text", PIECES)
def test_pieces_of_a_character_end_no_sentence_and_count_as_the_tokens_they_are(browser, scripted, text):
    scripted.in_pieces, scripted.names = {"😀", *text}, ["😀", *NAMES]
    page = connected(browser, scripted)
    type_in(page, f"站{text[0]}")
    until(page, COUNTS, "5 / 3")
    time.sleep(0.7)  # in which nothing of the translation has a text that could be spoken
    type_in(page, f"{text[1:]}在那边")
    tokens = 4 + len(text.encode())
    until(page, COUNTS, f"{tokens} / {tokens - 2}")
    marks = [mark for one in text for mark in [*["·"] * (len(one.encode()) - 1), one]]
    assert page.run(f"{UNDER}.map(column => column[0])") == ["站", *marks, "在", "那", "边"]
    assert page.run("document.querySelectorAll('#decisions .forced').length") == 0
    delays = [event["delay"] for event in scripted.events() if event["event"] == "write"]
    lagging = average_lagging(delays, tokens, len(delays))
    until(page, "document.getElementById('al').textContent", f"{lagging:.2f}")
    type_in(page, "。")
    until(page, f"{UNDER}.at(-1)[0]", "■")
    assert page.run(f"{UNDER}.filter(column => column[0] === '■').length") == 1
    until(page, COUNTS, f"{tokens + 1} / {tokens + 1}")
    assert page.complaints() == []
