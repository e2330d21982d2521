"""The report in a browser: it opens clean, asks for nothing, and answers to mouse, keyboard and narrow windows."""

import subprocess

import pytest

from duplexmt.report.page import Report, render

from .chromium import Chromium, needs_chromium
from .scripted_viewer import grid, sentence, viewer
from .test_page import nasty_report

pytestmark = [needs_chromium, pytest.mark.slow]

WRITTEN = "document.getElementById('written').textContent"
THETA = "document.getElementById('theta').value"
FOCUS = "document.getElementById('{}').focus()"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(nasty_report()), encoding="utf-8")
    return path.as_uri()


def drawing(browser, part):
    return browser.run(f"document.getElementById('{part}').innerHTML")


def test_it_opens_without_a_complaint_and_asks_for_nothing_but_itself(browser, page):
    browser.open(page)
    for step in ("later", "later", "earlier"):
        browser.run(f"document.getElementById('{step}').click()")
    assert browser.complaints() == []
    assert browser.requests() == [page]
    assert not any(method == "Page.javascriptDialogOpening" for method, _ in browser.events)


def test_the_policy_stops_whoever_would_ask(browser, page):
    browser.open(page)
    assert browser.stopped() == ["connect-src", "img-src", "script-src-elem", "style-src-attr"]


def test_the_slider_changes_the_text_and_both_grids(browser, page):
    browser.open(page)
    seen = []
    for index in (0, 2, 4):
        browser.slide("theta", index)
        seen.append(
            (browser.run(WRITTEN), drawing(browser, "loss"), drawing(browser, "emit"), drawing(browser, "steps"))
        )
    for parts in zip(*seen, strict=True):
        assert len(set(parts)) == 3
    assert seen[0][0] == "The"
    assert browser.run("document.getElementById('theta').getAttribute('aria-valuetext')") == "θ = 1"
    assert "cut off at the length limit" in browser.run("document.getElementById('about').textContent")


def test_picking_a_sentence_changes_texts_and_figures(browser, page):
    browser.open(page)
    before = (browser.run(WRITTEN), drawing(browser, "loss"), drawing(browser, "emit"))
    browser.run("document.querySelector('input[name=sentence]').focus()")
    browser.press("ArrowDown")
    after = (browser.run(WRITTEN), drawing(browser, "loss"), drawing(browser, "emit"))
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert browser.run("document.querySelector('input[name=sentence]:checked').value") == "1"


def test_the_reference_has_a_grid_of_its_own_and_the_page_says_whose_it_is(browser, page):
    browser.open(page)
    browser.run("document.getElementById('later').click()")
    own = drawing(browser, "emit")
    assert browser.run("document.querySelectorAll('#emit .taken').length") == 1
    browser.run("document.querySelector('input[value=reference]').click()")
    assert drawing(browser, "emit") != own
    assert browser.run("document.querySelectorAll('#emit .taken').length") == 0
    assert "the reference" in browser.run("document.getElementById('emit-caption').textContent")
    assert "another text here" in browser.run("document.getElementById('which').textContent")


def test_the_keyboard_alone_moves_threshold_and_cells(browser, page):
    browser.open(page)
    browser.run(FOCUS.format("theta"))
    before = (browser.run(THETA), browser.run(WRITTEN))
    browser.press("End")
    assert browser.run(THETA) == "4" != before[0]
    assert browser.run(WRITTEN) != before[1]
    browser.press("Home")
    assert browser.run(THETA) == "0"
    browser.run(FOCUS.format("emit"))
    told = [browser.run("document.getElementById('cell').textContent")]
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowLeft"):
        browser.press(key)
        told.append(browser.run("document.getElementById('cell').textContent"))
    assert [text.split(" read")[0] for text in told] == [
        "1 source token",
        *["2 source tokens"] * 2,
        *["1 source token"] * 2,
    ]
    assert "target token 2, “■”: loss" in told[2]
    assert browser.run("document.querySelector('#emit .cursor').getAttribute('visibility')") == "visible"


def test_everything_that_can_be_operated_has_a_name(browser, page):
    browser.open(page)
    roles = browser.roles()
    for role in ("slider", "button", "radio", "application", "img", "image", "link", "table"):
        named = roles.get(role, [])
        assert all(named) or role == "table", (role, named)
    assert roles["slider"] == ["Threshold θ"]
    assert len(roles["application"]) == 2


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_overflows_a_window(browser, tmp_path, width):
    path = tmp_path / "report.html"
    long = sentence(label="a label that is longer than a narrow window is wide " * 2, source=("人" * 40, "w" * 90, "x"))
    wide = [("name" * 40, "value" * 40)]
    path.write_text(
        render(
            Report(title="t" * 120, facts=wide, viewer=viewer(long), configuration=[("c" * 90, "name" * 90 + ": 1")])
        )
    )
    browser.open(path.as_uri(), width=width)
    browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.outside(".scroll", ".legend", ".skip") == []


def test_chinese_is_drawn_by_the_machines_chinese_font_or_the_pages_own(browser, page):
    listed = subprocess.run(["fc-list", ":lang=zh", "family"], capture_output=True, text=True, check=True).stdout
    browser.open(page)
    for selector in ("#source", ".list bdi", "#emit .label[text-anchor=middle]"):
        root = browser.send("DOM.getDocument")["root"]["nodeId"]
        node = browser.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        fonts = browser.send("CSS.getPlatformFontsForNode", nodeId=node)["fonts"]
        assert any(font["isCustomFont"] or font["familyName"] in listed for font in fonts), fonts


def test_long_sentences_scroll_and_say_how_much_is_drawn(browser, tmp_path):
    path = tmp_path / "long.html"
    words = [f"word{i}" for i in range(50)]
    long = sentence(("a", "b", "c"), "long")
    object.__setattr__(long, "grids", [grid(["人"] * 60, words)] * 3)
    path.write_text(render(Report(title="long", viewer=viewer(long))), encoding="utf-8")
    browser.open(path.as_uri(), width=400)
    assert "the first 40 of 60 source and 40 of 50 target" in browser.run(
        "document.getElementById('which').textContent"
    )
    assert browser.run("document.getElementById('loss').scrollWidth > 1000")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_on_paper_everything_is_open(browser, page):
    browser.open(page)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("[...document.querySelectorAll('details')].every(part => part.open)")
    assert len(browser.send("Page.printToPDF")["data"]) > 10_000
