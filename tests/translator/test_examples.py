"""The programs of examples/, run as a user does, from another folder."""

import io
import re
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import duplexmt

from ..serving.live_server import serving, translated
from .conftest import TEXTS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(translator, tmp_path, monkeypatch, capsys):
    """Runs one; what it has printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(duplexmt, "load", lambda model_folder: {"the model": translator}[model_folder])

    def run(name, *arguments, typed=""):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_each_is_at_most_40_lines_and_uses_nothing_but_public_names():
    programs = sorted(EXAMPLES.glob("*.py"))
    assert len(programs) == 6
    for program in programs:
        text = program.read_text(encoding="utf-8")
        assert text.count("\n") <= 40, program
        assert {*re.findall(r"duplexmt\.(\w+)", text)} <= {*duplexmt.__all__}, program
        assert f"python examples/{program.name} " in text, program


def test_file_to_file(example, tmp_path, alone):
    (tmp_path / "in.txt").write_text("".join(TEXTS), encoding="utf-8")
    example("file_to_file.py", "the model", "in.txt", "out.txt")
    lines = "".join(TEXTS).splitlines(keepends=True)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").count("\n") == len(lines) - 1
    assert example("terminal.py", "the model", typed="".join(TEXTS)).splitlines() == (
        (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")
    )


def test_terminal(example, alone):
    assert example("terminal.py", "the model", typed=TEXTS[0]) == alone[0]
    assert example("terminal.py", "the model", "1.0", typed=TEXTS[0]) != alone[0]


def test_moving_picture(example, tmp_path, translator):
    text = "那本书"
    example("moving_picture.py", "the model", "0.3", text, "out.svg")
    picture = ElementTree.parse(tmp_path / "out.svg").getroot()
    *_, heard, _, written = picture.iter("{http://www.w3.org/2000/svg}text")
    assert "".join(heard.itertext()) == text
    with translator.stream(theta=0.3) as stream:
        translation = stream.feed(text) + stream.finish()
    assert "".join(written.itertext()) == "".join(filter(str.isprintable, translation))
    times = [float(one.get("keyTimes").split(";")[1]) for one in heard.iter("{http://www.w3.org/2000/svg}animate")]
    assert times == sorted({*times})


def test_many_streams(example, tmp_path, alone):
    chosen = [number for number, text in enumerate(TEXTS) if text and "\n" not in text]
    (tmp_path / "talks.txt").write_text("\n".join(TEXTS[number] for number in chosen), encoding="utf-8")
    assert example("many_streams.py", "the model", "talks.txt", "500") == "".join(alone[number] for number in chosen)


def test_client(example, tmp_path, monkeypatch):
    text = "站在那边的男人曾是棒球手。我们看书。\n你喜欢喝茶"
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    with serving(monkeypatch) as server:
        assert example("client.py", server.address, "in.txt") == translated(text)


def test_subtitles(example, tmp_path, translator):
    said = [(0.5, "他没有看见那个人。我"), (2.25, "们看书。"), (3661.0, "你喜欢喝茶")]
    (tmp_path / "said.tsv").write_text("".join(f"{time}\t{text}\n" for time, text in said), encoding="utf-8")
    example("subtitles.py", "the model", "said.tsv", "out.srt")
    cues = (tmp_path / "out.srt").read_text(encoding="utf-8").split("\n\n")
    spans = [tuple(cue.splitlines()[1].split(" --> ")) for cue in cues]
    assert [cue.splitlines()[0] for cue in cues] == ["1", "2", "3"]
    (whole,) = translator.translate(["".join(text for _, text in said)])
    shown = " ".join("\n".join(cue.splitlines()[2:]) for cue in cues)
    assert shown.split() == whole.split()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d,\d{3}", time) for span in spans for time in span)
    assert spans[0][0] == "00:00:00,500"
    assert spans[1][1] == spans[2][0] == "01:01:01,000"
    assert spans[2][1] == "01:01:04,000"


def test_subtitles_of_sentences_said_at_once_stand_one_after_the_other(example, tmp_path):
    (tmp_path / "said.tsv").write_text("2\t我们看书。他看书。你喜欢喝茶。\n", encoding="utf-8")
    example("subtitles.py", "the model", "said.tsv", "out.srt")
    spans = re.findall(r"(\S+) --> (\S+)", (tmp_path / "out.srt").read_text(encoding="utf-8"))
    assert [begin for begin, _ in spans] == ["00:00:02,000", "00:00:03,000", "00:00:04,000"]
    assert [end for _, end in spans] == ["00:00:03,000", "00:00:04,000", "00:00:05,000"]
