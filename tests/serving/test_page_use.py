"""What people do with the live page, before a server that translates by a script: send by the word, speak, show
captions, take the translation along."""

import time

import pytest

from duplexmt.drawing.captions import CaptionFile, Clock
from tests.report.chromium import needs_chromium

from .live_page import (
    CAPTION,
    PALE,
    SENTENCE,
    SOURCE,
    STATE,
    UNDER,
    WRITTEN,
    connected,
    numbers,
    taken_along,
    type_in,
    until,
)
from .live_server import until as holds
from .scripted_server import MODEL

pytestmark = [needs_chromium, pytest.mark.slow]

FIELD = "document.getElementById('type').value"
NOTE = "document.getElementById('script-note').hidden ? '' : document.getElementById('script-note').textContent"
# Stands in for a browser's recogniser: what a test has it say is in window.say(text, isFinal).
RECOGNISER = """window.SpeechRecognition = class {
    start() { window.started = (window.started ?? 0) + 1; window.ear = this; }
    stop() { window.stopped = true; this.onend?.({}); }
};
window.say = (transcript, isFinal) => ear.onresult({
    resultIndex: 0, results: [Object.assign([{transcript}], {isFinal})],
});
"""


def click(page, name):
    page.run(f"document.getElementById('{name}').click()")


def choose(page, unit):
    page.run(f"(() => {{ const unit = document.getElementById('unit'); unit.value = '{unit}';"
             " unit.dispatchEvent(new Event('change')) })()")  # fmt: skip


def test_at_first_one_reads_what_it_is_and_all_about_thresholds_is_folded(browser, scripted):
    scripted.models = [MODEL | {"theta": 0.359375}]
    browser.open(scripted.address)
    until(browser, STATE, "open")
    about = browser.run("document.getElementById('about').textContent")
    assert about.startswith("Chinese → English, word by word")
    assert "a small model (5.3 million parameters), which makes many mistakes" in about
    assert not browser.run("document.getElementById('how').open")
    shown = browser.run("document.body.innerText")
    assert "θ" not in shown
    assert "EMIT" not in shown
    browser.run("document.getElementById('how').open = true")
    assert browser.run("document.getElementById('theta-value').textContent") == "0.359", "that of the model"
    until(browser, "document.querySelector('#decisions .theta-name')?.textContent", "θ 0.359")
    right = "document.querySelector('{}').getBoundingClientRect().right"
    assert browser.run(right.format("#decisions .theta-name")) <= browser.run(right.format("#decisions svg"))


def test_text_is_sent_by_the_word_or_by_the_line_and_can_be_mended_until_then(page, scripted):
    choose(page, "line")
    type_in(page, "站在那里")
    assert (page.run(FIELD), page.run(SOURCE)) == ("站在那里", "")
    page.press("Backspace")
    type_in(page, "边")
    page.send("Page.reload")  # what was not sent is there again
    until(page, f"document.readyState === 'complete' && {STATE} === 'open' && {FIELD}", "站在那边")
    type_in(page, "\n")
    until(page, WRITTEN, f"{numbers(4)}.")
    assert (page.run(FIELD), page.run(SOURCE), scripted.session.text) == ("", "站在那边", "站在那边\n")
    choose(page, "word")
    type_in(page, "我们去公园")
    until(page, FIELD, "公园")
    type_in(page, "。")
    until(page, f"{SOURCE}.split('\\n').at(-1)", "我们去公园。")
    type_in(page, "He lef")
    until(page, FIELD, "lef")
    choose(page, "character")
    until(page, FIELD, "")
    assert page.complaints() == []


def test_text_of_another_script_is_told_from_that_of_the_language(page):
    for text, language, foreign in (
        ("He left the house.", "zh", True), ("他用iPhone和Windows。", "zh", False), ("Hello", "zh", False),
        ("他昨天买了一张沙发。", "de", True), ("Он ушёл домой.", "de", True), ("Straße und Häuser", "de", False),
        ("彼は昨日ソファーを買った", "ja", False), ("그는 어제 집에 갔다", "ja", True),
        ("whatever it is", "qqq-nothing", False),
    ):  # fmt: skip
        found = page.run(f"import('./languages.js').then(it => it.isForeign('{text}', '{language}'))")
        assert found is foreign, text


def test_one_is_warned_of_another_script_until_one_writes_in_that_of_the_language(page):
    type_in(page, "He left the house")
    until(page, f"({NOTE}).startsWith('This does not look like Chinese')", True)
    type_in(page, "\n站在那边")
    until(page, NOTE, "")


def test_text_from_right_to_left_runs_so_in_the_field_and_in_all_lines(page):
    type_in(page, "مرحبا!")
    until(page, CAPTION.format("source"), ["مرحبا!"])
    choose(page, "line")
    type_in(page, "مرحبا!")
    for part in ("#type", "#source p", ".caption.source p"):
        assert page.run(f"getComputedStyle(document.querySelector('{part}')).direction") == "rtl", part


def test_so_many_characters_wait_and_the_source_is_scrolled_to_the_first_of_them(page, scripted):
    scripted.stalls = True
    lines = "\n".join(f"{SENTENCE}{number}。" for number in range(60))
    type_in(page, lines)
    until(page, "document.getElementById('waits').textContent", f"{len(lines)} characters wait")
    top = "document.getElementById('source').scrollTop"
    until(page, top, 0)
    scripted.stalls = False
    scripted.cut()
    until(page, PALE, "")
    until(page, "document.getElementById('waits').textContent", "")
    until(page, "(() => { const it = document.getElementById('source');"
                " return Math.round(it.scrollHeight - it.clientHeight - it.scrollTop) < 2 })()", True)  # fmt: skip
    page.run("document.getElementById('source').scrollTop = 100")
    time.sleep(0.2)
    type_in(page, "站")
    until(page, PALE, "")
    assert page.run(top) == 100


@pytest.fixture
def speaking(browser):
    """A browser that has the stand-in for a recogniser."""
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=RECOGNISER)["identifier"]
    yield browser
    browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def listening(browser, scripted):
    """A page that has been allowed to listen."""
    page = connected(browser, scripted)
    click(page, "speak")
    click(page, "ask-yes")
    until(page, "window.started", 1)
    return page


def test_what_a_recogniser_says_is_sent_at_once_and_replaced_when_it_changes_its_mind(speaking, scripted):
    page = listening(speaking, scripted)
    page.run("say('站在', false)")
    until(page, WRITTEN, numbers(0))
    until(page, SOURCE, "站在")
    page.run("say('站在那边的', false)")
    until(page, WRITTEN, numbers(3))
    page.run("say('站在这边的男', false)")
    page.run("say('站到这边的男人', false)")
    page.run("say('站到这边的男人', true)")
    until(page, WRITTEN, f"{numbers(7)}.")
    assert scripted.session.text == "站到这边的男人\n"
    assert page.run(SOURCE) == "站到这边的男人"
    assert page.run(PALE) == ""
    assert scripted.session.replaced in (1, 2), "one waits for the answer to the one before"
    columns = [read for read, _ in page.run(UNDER)]
    assert "".join(columns[:7]) == "站到这边的男人"
    assert "".join(written for _, written in page.run(UNDER)).split() == f"{numbers(7)}.".split()
    page.run("say('我们', false)")
    until(page, SOURCE, "站到这边的男人\n我们")
    page.run("ear.onend({})")  # without a last word on it
    page.run("say('走', true)")
    until(page, SOURCE, "站到这边的男人\n我们\n走")
    until(page, "document.getElementById('waits').textContent", "")
    page.open(scripted.address)
    until(page, SOURCE, "站到这边的男人\n我们\n走")
    assert page.complaints() == []


def test_a_replacement_is_asked_for_again_where_the_connection_was_lost(speaking, scripted):
    page = listening(speaking, scripted)
    page.run("say('站在那边', false)")
    until(page, WRITTEN, numbers(2))
    scripted.stalls = True
    page.run("say('站在这边的', false)")
    time.sleep(0.3)
    scripted.stalls = False
    scripted.cut()
    page.run("say('站在这里的人', true)")
    until(page, WRITTEN, f"{numbers(6)}.")
    assert scripted.session.text == "站在这里的人\n"
    assert page.run(SOURCE) == "站在这里的人"


def test_one_speaks_after_a_yes_only_and_by_enter_what_is_certain_is_sent(speaking, scripted):
    page = connected(speaking, scripted)
    click(page, "speak")
    assert "Some browsers send the sound to their maker" in page.run("document.getElementById('ask-text').textContent")
    click(page, "ask-no")
    page.run("new Promise(done => setTimeout(done, 200))")
    assert page.run("[document.getElementById('ask').open, window.started]") == [False, None]
    click(page, "speak")
    click(page, "ask-yes")
    until(page, "window.started", 1)
    assert page.run("[ear.lang, ear.continuous, ear.interimResults]") == ["zh-CN", True, True]
    choose(page, "line")
    page.run("say('站在', false)")
    assert page.run("document.getElementById('heard').textContent") == "站在"
    assert page.run(SOURCE) == ""
    page.run("say('站在那边', true)")
    until(page, WRITTEN, f"{numbers(4)}.")
    assert scripted.session.text == "站在那边\n"
    page.run("ear.onerror({error: 'no-speech'}), ear.onend({})")
    assert page.run("window.started") == 2, "a silence ends the recogniser, and not the listening"
    click(page, "speak")
    assert page.run("window.stopped")
    assert page.run("document.getElementById('speak').textContent") == "microphone"
    click(page, "speak")  # which asks no more
    until(page, "window.started", 3)
    page.run("ear.onerror({error: 'network'})")
    told = "It does not listen: the browser's recogniser cannot be reached."
    until(page, "document.getElementById('notice').textContent", told)
    assert page.complaints() == []


def test_to_begin_anew_is_asked_about_where_there_is_something_to_lose(page, scripted):
    choose(page, "line")
    type_in(page, "站在")
    click(page, "anew")
    assert page.run("document.getElementById('ask').open"), "what was typed is not sent yet"
    click(page, "ask-yes")
    until(page, f"document.readyState === 'complete' && {STATE} === 'open' && {FIELD}", "")
    assert page.run("document.getElementById('unit').value") == "line"
    choose(page, "character")
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    click(page, "anew")
    assert page.run("document.getElementById('ask').open")
    page.press("Escape")
    until(page, "document.getElementById('ask').open", False)
    assert (page.run(SOURCE), len(scripted.sessions)) == (SENTENCE, 2)


def test_of_several_models_one_is_chosen_by_its_languages_or_by_the_address(page, scripted):
    assert page.run("document.getElementById('choice').hidden")
    scripted.models = [MODEL | {"name": "zh-en"}, MODEL | {"name": "de-en", "source_language": "de"}]
    page.open(f"{scripted.address}?model=zh-en")
    until(page, STATE, "open")
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    pairs = "[...document.getElementById('pair').options].map(one => one.textContent)"
    assert page.run(pairs) == ["Chinese → English", "German → English"]
    page.run("(() => { const pair = document.getElementById('pair'); pair.value = 'de-en';"
             " pair.dispatchEvent(new Event('change')) })()")  # fmt: skip
    assert page.run("document.getElementById('pair').value") == "zh-en"  # until it is agreed to
    click(page, "ask-yes")
    until(page, "document.getElementById('about')?.textContent.split(',')[0]", "German → English")
    assert page.run("location.search") == "?model=de-en"
    assert (page.run(SOURCE), scripted.session.model["name"]) == ("", "de-en")
    page.open(f"{scripted.address}?model=zh-en")  # in the same tab: the session there was another model's
    until(page, "document.getElementById('model')?.textContent", "Model: zh-en.")
    assert len(scripted.sessions) == 4
    assert page.complaints() == []


def test_a_restarted_server_is_asked_for_the_same_model_and_what_it_no_longer_has_is_told(page, scripted):
    page.slide("theta", 0.5)
    type_in(page, SENTENCE)
    until(page, WRITTEN, numbers(5))
    german = {"chosen": "", "sentences": ["Wir gehen."]}
    other = MODEL | {"name": "de-en", "source_language": "de", "samples": german}
    scripted.models = [other, MODEL | {"theta": None}]
    scripted.cut(1012)
    until(page, "document.querySelectorAll('.gap').length", 1)
    until(page, STATE, "open")
    assert scripted.session.model["name"] == "scripted"
    scripted.models = [other]
    scripted.cut(1012)
    until(page, "document.getElementById('model').textContent", "Model: de-en.")
    until(page, "document.getElementById('sample').value", "Wir gehen.")
    told = "document.getElementById('notice').hidden ? '' : document.getElementById('notice').textContent"
    until(page, told, "There is no model scripted here: de-en translates.")
    page.open(f"{scripted.address}?model=fr-en")
    until(page, told, "There is no model fr-en here: de-en translates.")
    assert page.run("location.search") == ""
    assert page.complaints() == []


def test_captions_are_the_last_lines_and_what_is_typed_meanwhile_is_taken(page):
    type_in(page, "站在那边。")
    page.run("document.getElementById('captions-part').open = true")
    click(page, "with-source")
    click(page, "full")
    until(page, "Boolean(document.fullscreenElement)", True)
    until(page, CAPTION.format("source"), ["站在那边。"])  # what was there before
    page.send("Input.insertText", text="站在。那边。男人。曾是")
    until(page, CAPTION.format("translation"), ["one two three."] * 3)
    until(page, CAPTION.format("source"), ["那边。", "男人。", "曾是"])
    assert page.roles()["log"] == ["Translation: English"], "a screen reader is told it once"
    for reached in ("leave", "type"):
        page.press("Tab")
        assert page.run("document.activeElement.id") == reached
    page.press("Escape")
    until(page, "document.getElementById('screen').hidden", True)
    until(page, "Boolean(document.fullscreenElement)", False)
    assert page.run("document.activeElement.id") == "full"
    assert page.run(SOURCE) == "站在那边。站在。那边。男人。曾是"
    assert page.complaints() == []


SENTENCES = [
    [("There", 0.0), (" were a lot of", 0.25), (" people (really),", 1.0), (" since the", 1.0),
     (" weather was fine", 2.5), ("; and so", 3.0), (" we", 3.0), (" stayed", 8.0), (" & ate", 8.5), (".", 8.5)],
    [("那里有很多人，因为天气非常好（真的），所以我们在那里待了", 9.0), ("很长时间，“然后", 9.0), ("才回家吃饭", 9.0),
     ("”。", 12.0)],
    [("Go!", 12.0)],
    [(f"https://example.org/{'a' * 90}", 12.25), (" ok", 13.0)],
    [("The next day.", 90_000.0)],
]  # fmt: skip


def test_subtitles_and_text_are_those_of_the_command(page, tmp_path):
    file = CaptionFile(str(tmp_path / "a.vtt"), Clock())
    for sentence in SENTENCES:
        file._end_cue()
        for text, now in sentence:
            file.write(text, now)
    file.close()
    pieces = [[text, number, 1000 * now] for number, sentence in enumerate(SENTENCES) for text, now in sentence]
    script = f"""import('./transcript.js').then(({{ Transcript }}) => {{
        const it = new Transcript();
        for (const one of {pieces}) it.add(...one);
        return [it.vtt, it.text];
    }})"""
    vtt, text = page.run(script)
    assert vtt == (tmp_path / "a.vtt").read_text(encoding="utf-8")
    assert text == "".join(piece for piece, *_ in pieces)


def test_the_translation_is_copied_and_downloaded_whole_after_a_reload(page, scripted):
    type_in(page, "站在那边。\n站在")
    until(page, WRITTEN, f"{numbers(5)}.")
    connected(page, scripted)
    text, named, vtt, named_vtt, copied = taken_along(page, "txt", "vtt", "copy")
    assert (text, named, named_vtt) == (scripted.translation, "translation.txt", "translation.vtt")
    assert vtt.startswith("WEBVTT\n\n1\n00:00:0")
    assert f"\n{numbers(5)}.\n" in vtt
    assert copied == text
    assert page.run("document.getElementById('copy').textContent") == "copied"


def test_what_was_missed_before_anything_was_seen_is_taken_along_without_notes_and_at_the_beginning(page, scripted):
    scripted.keeps = scripted.forgets = True
    type_in(page, "站在那边。")
    holds(lambda: scripted.session.answered == 5)
    scripted.keeps = False
    connected(page, scripted)
    until(page, WRITTEN, f"{numbers(5)}.")
    assert page.run("document.querySelectorAll('#translation .gap').length") == 1
    type_in(page, "站在那边")
    until(page, WRITTEN, f"{numbers(5)}. {numbers(2)}")
    text, _, vtt, _, copied = taken_along(page, "txt", "vtt", "copy")
    assert copied == text == scripted.translation
    assert [line[:8] for line in vtt.split("\n") if "-->" in line] == ["00:00:00", "00:00:01"]


def test_colours_that_a_reader_has_chosen_are_kept_and_what_is_unread_has_a_line(page, scripted):
    scripted.stalls = True
    type_in(page, "站在")
    features = [{"name": "forced-colors", "value": "active"}]
    page.send("Emulation.setEmulatedMedia", features=features)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert "underline" in page.run(style.format(".unread", "textDecorationLine"))
    for name in (".dot", ".key.wrote"):
        back = page.run(style.format(name, "backgroundColor"))
        assert back != page.run(style.format("body", "backgroundColor")), name
