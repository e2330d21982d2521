"""The report as HTML: texts are harmless, nothing may be asked of any network, what is missing is left out."""

import re
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO

import pytest
from fontTools.ttLib import TTFont

from duplexmt.report.examples import examples
from duplexmt.report.page import Figure, Report, Results, embedded_font, render

from .scripted_viewer import IMAGE, NASTY, SCRIPT, viewer
from .test_examples import RECORDS, record

CURVES = {"train/lm_loss": [(9, 3.0), (19, 2.0)], "validation/AL": [(20, -0.5)], "validation/BLEU": [(20, 30.0)]}


def nasty_report(with_viewer=True):
    records = [*RECORDS[1:3], record(0, NASTY, SCRIPT, source=f"人{IMAGE}")]
    rows = [{"system": NASTY, "BLEU": 30.0, "COMET": None}, {"system": "grid", "BLEU": 31.5, "COMET": None}]
    table = {"caption": NASTY, "rows": rows, "footnotes": [NASTY]}
    return Report(
        title=SCRIPT + IMAGE,
        facts=[(NASTY, NASTY)],
        notes=[NASTY],
        viewer=viewer() if with_viewer else None,
        no_viewer="" if with_viewer else NASTY,
        results=[Results(NASTY, [table], [Figure(b"<svg onload='alert(3)'/>", NASTY)], [NASTY])],
        curves=CURVES,
        examples=examples(records, "en", 1, systems={NASTY: {entry["id"]: entry for entry in records}}),
        examples_of=NASTY,
        configuration=[(NASTY, NASTY)],
        source_language="zh",
        target_language="en",
    )


@pytest.fixture(scope="module")
def nasty():
    return render(nasty_report())


class Elements(HTMLParser):
    """Tags with their attributes, and the contents of scripts and styles, as a browser takes them apart."""

    def __init__(self, text):
        super().__init__()
        self.found, self.contents, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag in ("script", "style")
        if self.inside:
            self.contents.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.contents[-1][2] += data


def test_texts_never_become_elements_or_attributes(nasty):
    elements = Elements(nasty)
    assert [attrs.get("type") for tag, attrs in elements.found if tag == "script"] == ["application/json", None]
    assert not any(name.startswith("on") or name == "style" for _, attrs in elements.found for name in attrs)
    for tag, attrs in elements.found:
        for name in ("src", "href", "action", "data", "xlink:href"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    assert "alert(1)" in nasty  # it is there, as text


def test_the_policy_allows_the_pages_own_script_and_style_only(nasty):
    elements = Elements(nasty)
    policy = next(attrs["content"] for tag, attrs in elements.found if attrs.get("http-equiv"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == rules["font-src"] == "data:"
    assert "unsafe" not in policy
    for tag, attrs, content in elements.contents:
        if attrs.get("type") == "application/json":
            continue
        digest = sha256(content.encode()).digest()
        (allowed,) = re.findall(r"'sha256-([^']+)'", rules[f"{tag}-src"])
        assert b64decode(allowed) == digest


def test_without_a_viewer_there_is_no_script_and_the_page_says_why():
    text = render(nasty_report(with_viewer=False))
    assert "<script" not in text
    assert "There is no viewer: <bdi>&lt;script&gt;" in text
    assert "script-src &#39;none&#39;" in text or "script-src 'none'" in text


def test_a_report_of_nothing_is_a_page():
    text = render(Report(title="nothing", notes=["No evaluation was given."]))
    assert "No evaluation was given." in text
    for heading in ("Results", "Training", "Examples", "Configuration"):
        assert f">{heading}</h2>" not in text


def test_missing_metrics_are_dashes_and_curves_not_logged_are_left_out(nasty):
    assert "<bdi>—</bdi>" in nasty
    assert "validation/AL</bdi>" in nasty
    assert "validation/emit_calibration" not in nasty
    assert render(Report(title="run", curves={"speed/mfu": [(1, 0.1)]})).count("<figure") == 0


def test_the_viewer_opens_at_the_recorded_threshold():
    for theta, first in ((0.5, 2), (0.8, 3), (0.05, 0)):
        text = render(Report(title="one", viewer=replace(viewer(), theta=theta)))
        assert re.search(r'id="theta"[^>]* value="(\d+)"', text)[1] == str(first)


def test_what_is_written_when_stands_in_a_row_for_each_source_token_and_a_column_for_each_system_or_threshold():
    both = {"grid": {0: record(0, "a b", "a b", delays=[1, 1, 2])}, "offline": {0: record(0, "c", "a b")}}
    text = render(Report(title="one", viewer=viewer(), examples=examples([both["grid"][0]], "en", 1, systems=both)))
    rows = [re.sub(r"<[^>]*>", "|", row) for row in re.findall(r"<tr>.*?</tr>", text)]
    assert [list(filter(None, row.split("|"))) for row in rows if row.startswith("|||人")][-1:] == [["人", "a "]]
    assert [list(filter(None, row.split("|"))) for row in rows if row.startswith("|||好")] == [["好", "b", "c"]]
    (heads,) = (re.findall("θ = [^<]*", row) for row in re.findall(r"<tr>.*?</tr>", text) if "θ = " in row)
    assert heads == [f"θ = {theta}" for theta in ("0.25", "0.5", "0.75", "1")]
    assert "tab:infer-process" in text


def test_the_font_holds_the_characters_of_the_page_and_its_licence(nasty):
    address = embedded_font("站在那边 man θ 站")
    font = TTFont(BytesIO(b64decode(address.partition("base64,")[2])))
    assert {chr(code) for code in font.getBestCmap()} == set("站在那边")
    assert any("SIL" in entry.toUnicode() for entry in font["name"].names)
    assert embedded_font("no Chinese") == ""
    assert "data:font/woff;base64," in nasty
