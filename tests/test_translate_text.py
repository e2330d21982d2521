"""translate.py in this process, around a tiny model: `text=` and standard input are read alike."""

import io
import itertools
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import translate
from duplexmt.config import TranslateSettings
from duplexmt.data.settled import SettledTokens
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.drawing.captions import read_cues
from duplexmt.policy.decoding_options import PAPER_RULE
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.live_text import LiveText

from .helpers import float64, spoken_grid, tiny_tokenizer

TOKENIZER = tiny_tokenizer(460)


@pytest.mark.parametrize(
    ("asked", "out", "into", "text", "shown"),
    [
        (None, True, False, None, True), (None, True, True, "我", True),  # piped in, or given
        (None, True, True, None, False), (None, False, False, None, False),  # typed; read by a program
        (True, False, False, None, True), (False, True, False, None, False),
    ],
)  # fmt: skip
def test_steps_are_shown_on_a_terminal_unless_one_types_there(monkeypatch, asked, out, into, text, shown):
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: out))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: into))
    assert translate.shows_steps(SimpleNamespace(steps=asked, text=text, input=None)) is shown


@pytest.fixture
def run(monkeypatch):
    """Runs translate.py, by default to give events."""
    data = {"source_language": "zh", "target_language": "en", "max_tokens": 32}
    loaded = SimpleNamespace(
        model=float64(spoken_grid(tokenizer=TOKENIZER, anchor=0)),  # whoever else is in the batch
        tokens=stream_tokens(TOKENIZER),
        rule=PAPER_RULE,
        tokenizer=TOKENIZER,
        settled_tokens=SettledTokens(TOKENIZER, "characters"),
        typical_source_length=None,
        info={"system": "grid", "data": data, "policy": {"theta": 0.5}},
    )
    monkeypatch.setattr("duplexmt.model_folder.live_model.load_model_folder", lambda *values: loaded)
    monkeypatch.setattr("duplexmt.model_folder.manifest.read_manifest", lambda folder: loaded.info)

    def run_with(text=None, stdin=b"", trained_max_tokens=32, trained_on=(), context_tokens=0, **values):
        data.update(trained_on, max_tokens=trained_max_tokens)
        loaded.tokens = stream_tokens(TOKENIZER, context_tokens=context_tokens)
        reader, writer = os.pipe()
        os.write(writer, stdin)
        os.close(writer)
        with open(reader) as file, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", file)
            default = dict.fromkeys(TranslateSettings.__annotations__)
            default |= {"theta": 1.0, "max_target_tokens": 3, "cut": True, "pause": 9.0}
            default |= {"model_folder": "any", "events": True, "steps": False, "device": "cpu"}
            translate.translate(TranslateSettings(**default | {"text": text} | values))

    return run_with


@pytest.fixture
def translated(run, capsys):
    """Runs translate.py; the source text of each line by its number, and what was said on stderr."""

    def translated_with(*text, **values):
        run(*text, **values)
        out, err = capsys.readouterr()
        lines = {}
        for event in map(json.loads, io.StringIO(out)):
            if event["event"] == "read" and event["token"] != TOKENIZER.eos_token:
                lines[event["line"]] = lines.get(event["line"], "") + event["token"]
        return lines, err

    return translated_with


@pytest.fixture
def ends_once(monkeypatch):
    """A live text that ends its first sentence, and fails at the next one."""
    end_sentence, ended = LiveText._end_sentence, []

    def failing(self):
        if ended:
            raise ValueError("no more")
        ended.append(True)
        yield from end_sentence(self)

    monkeypatch.setattr(LiveText, "_end_sentence", failing)


class Terminal(io.StringIO):
    """Shows standard output and error."""

    def isatty(self):
        return True


def test_events_say_when_each_token_was_read_and_written(run, capsys):
    run("他没有看见")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["event"] == "read"
    assert events[0]["emit_probability"] is None, "nothing was asked before it"
    assert [event["event"] for event in events].index("end") == len(events) - 1
    delays = [event["delay"] for event in events if event["event"] == "write"]
    assert delays == sorted(delays) != []


def test_every_kind_of_line_end_ends_a_line(translated):
    text = "他没有\r看见\r\n那个人\n我们\r"
    expected = {1: "他没有", 2: "看见", 3: "那个人", 4: "我们"}
    assert translated(stdin=text.encode())[0] == expected
    assert translated(text)[0] == expected


def test_traditional_text_is_simplified_for_a_model_trained_on_simplified_sources(translated):
    assert translated("他沒有") != translated("他没有")
    strict = {"corpus": "pairs_folder", "cleaning": "strict"}
    assert translated("他沒有", trained_on=strict)[0] == {1: "他没有"}


def test_bytes_that_are_no_utf_8_are_left_out_of_an_argument_as_of_standard_input(translated):
    raw = b"\xe4\xbb\x96\n\xff" + "看见".encode() + b"\xe4"
    argument = translated(raw.decode("utf-8", "surrogateescape"))
    assert argument == translated(stdin=raw)
    assert argument[0] == {1: "他", 2: "看见"}
    assert argument[1].count("line 2: not UTF-8") == 2


@pytest.fixture
def side_by_side(monkeypatch):
    """How many sentences were in each step of the engine."""
    sizes, answer = [], Engine._answer
    monkeypatch.setattr(Engine, "_answer", lambda self, asking: (sizes.append(len(asking)), answer(self, asking)))
    return sizes


@pytest.mark.parametrize("context", [0, 2])  # tokens that a line has of the one before
def test_lines_of_a_file_go_side_by_side_and_what_is_written_and_said_is_as_of_a_pipe(
    run, capsys, monkeypatch, tmp_path, side_by_side, context
):
    monkeypatch.setattr(translate, "SIDE_BY_SIDE", 8)
    lines = "他没有看见。那本书", "看" * 50, "", "  ", "Who are all of you?", "人\u200d们", "Nobody knows why it is so."
    text = "\n".join(lines * 3).encode() + b"\xff"
    how = {"events": False, "trained_max_tokens": 20, "context_tokens": context}
    run(stdin=text, **how)
    piped = capsys.readouterr()
    for told in ("3: no text", "6: 1 invisible", "8: cut off at 3 tokens", "9: cut at 20", "21: not UTF-8"):
        assert f"line {told}" in piped.err
    assert piped.err.count("expect nonsense") == 1
    assert max(side_by_side) == 1
    (tmp_path / "in.txt").write_bytes(text)
    run(input=str(tmp_path / "in.txt"), **how)
    assert capsys.readouterr() == piped
    assert max(side_by_side) == (1 if context else 8)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, True), ({"steps": True}, False), ({"events": True}, False), ({"captions": "a.srt"}, False),
        ({"text": "他"}, False), ({"input": "a.srt"}, False), ({"input": "/dev/null"}, False),
        ({"input": "a.txt"}, True),
    ],
)  # fmt: skip
def test_only_a_file_of_which_the_translation_alone_is_wanted_is_taken_whole(monkeypatch, tmp_path, asked, expected):
    monkeypatch.chdir(tmp_path)
    for name in ("a.srt", "a.txt"):
        Path(name).touch()
    with open("a.txt") as file:
        monkeypatch.setattr("sys.stdin", file)
        names = ("text", "input", "captions", "events")
        assert translate.is_file(SimpleNamespace(**dict.fromkeys(names) | {"steps": False} | asked)) is expected


def test_a_line_of_white_space_is_passed_over_and_said(translated):
    lines, err = translated(stdin="他\n \n看见\n".encode())
    assert lines == {1: "他", 3: "看见"}
    assert "line 2: no text to translate\n" in err


def test_a_sentence_of_no_tokens_is_refused_rather_than_ignored(translated):
    with pytest.raises(ValueError, match="max_sentence_tokens=0: must be a whole number between 1 and"):
        translated("他", max_sentence_tokens=0)


def test_a_model_trained_with_a_limit_beyond_its_positions_is_used_as_far_as_they_reach(translated):
    lines, err = translated("他没有" * 100, trained_max_tokens=1000)
    assert "".join(lines.values()) == "他没有" * 100
    assert "255 tokens" in err
    with pytest.raises(ValueError, match="max_sentence_tokens=1000: must be a whole number between 1 and 255"):
        translated("他", max_sentence_tokens=1000)


def test_on_a_terminal_a_warning_begins_a_line_and_a_file_holds_a_line_for_each_line_all_the_same(
    run, monkeypatch, capsys
):
    values = {"stdin": "他没有看见\n看\n".encode(), "events": False, "trained_max_tokens": 2}
    run(**values)
    out, err = capsys.readouterr()
    warnings = err.splitlines()
    assert [warning.partition(" tokens")[0] for warning in warnings].count("line 1: cut at 2") == 2
    assert warnings[-1] == "line 2: cut off at 3 tokens"
    assert out.count("\n") == 2
    assert err.count("\n") == len(warnings) == len(list(filter(None, warnings)))

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    run(**values)
    shown = terminal.getvalue().split("\n")
    assert shown.pop() == ""
    assert [line for line in shown if line.startswith("line ")] == warnings
    assert "".join(line for line in shown if not line.startswith("line ")) == out.replace("\n", "")
    assert "" not in shown


@pytest.mark.usefixtures("ends_once")
def test_on_a_terminal_an_error_begins_a_line(run, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    with pytest.raises(ValueError, match="no more"):
        run("他。看。", events=False)
    assert terminal.getvalue().endswith("\n")


# --- files and subtitles -------------------------------------------------------------------------------------------


def test_an_input_is_read_as_standard_input_is(translated, tmp_path):
    text = "他没有看见。\r\n我\n".encode()
    (tmp_path / "talk.txt").write_bytes(text)
    assert translated(input=str(tmp_path / "talk.txt")) == translated(stdin=text)


SUBTITLES = "1\n00:00:10,000 --> 00:00:12,000\n他没有\n看见。\n\n2\n00:00:40,000 --> 00:00:41,000\n我看\n"


def test_cues_are_one_text_and_captions_stand_at_their_times(translated, tmp_path):
    """The model writes when it has read a sentence: the first one ends in the silence, 9 s after it was said."""
    (tmp_path / "talk.SRT").write_text(SUBTITLES, encoding="utf-8")
    lines, _ = translated(input=str(tmp_path / "talk.SRT"), captions=str(tmp_path / "out.vtt"))
    assert lines == {1: "他没有看见。我看"}
    cues = read_cues((tmp_path / "out.vtt").read_text(encoding="utf-8"), "out.vtt", "\n")
    assert [cue.begin for cue in cues] == [21.0, 41.0]


@pytest.mark.parametrize("how", ["text", "input", "stdin"])
def test_captions_stand_where_the_source_had_come_at_its_rate(run, tmp_path, how):
    (tmp_path / "talk.txt").write_text("他没有看见。看。", encoding="utf-8")
    given = {"text": "他没有看见。看。", "input": str(tmp_path / "talk.txt"), "stdin": "他没有看见。看。".encode()}
    run(**{how: given[how]}, captions=str(tmp_path / "out.srt"), source_rate=0.5)
    cues = read_cues((tmp_path / "out.srt").read_text(encoding="utf-8"), "out.srt", "\n")
    assert [cue.begin for cue in cues] == [12.0, 16.0]


def test_captions_stand_where_they_were_written_by_the_clock(run, tmp_path, monkeypatch):
    seconds = itertools.count(100.0, 10.0)
    monkeypatch.setattr("duplexmt.drawing.captions.perf_counter", lambda: next(seconds))
    run("他没有看见。看。", captions=str(tmp_path / "out.srt"))
    cues = read_cues((tmp_path / "out.srt").read_text(encoding="utf-8"), "out.srt", "\n")
    assert cues[0].begin == 10.0, "of the first piece that was written"
    assert all(cue.begin % 10 == 0 for cue in cues)


@pytest.mark.usefixtures("ends_once")
def test_an_error_leaves_the_captions_written_so_far(run, tmp_path):
    with pytest.raises(ValueError, match="no more"):
        run("他。看。", captions=str(tmp_path / "out.vtt"), source_rate=1.0)
    assert len(read_cues((tmp_path / "out.vtt").read_text(encoding="utf-8"), "out.vtt", "\n")) == 1


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"captions": "a.txt"}, "captions=a.txt: must end in .srt or .vtt"),
        ({"text": "他", "input": "a.txt"}, "input=a.txt and text='他'"),
        ({"input": "a.vtt", "captions": "./a.vtt"}, "captions=./a.vtt: is the input itself"),
        ({"text": "他", "source_rate": 4.0}, "source_rate=4.0: is for the times of captions"),
        ({"input": "a.srt", "captions": "b.srt", "source_rate": 4.0}, "source_rate=4.0: the cues of input=a.srt"),
        ({"captions": "b.srt", "source_rate": 0.0}, "source_rate=0.0: must be a finite number above 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(run, values, told):
    with pytest.raises(ValueError, match=told):
        run(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"input": "none.txt"},
            "input=none.txt: there is no such file; give a file with text, .srt or .vtt, or none for",
        ),
        ({"input": "."}, "input=.: is a folder; give a file"),
        ({"input": ""}, "input=: is no name; give a file"),
        ({"captions": "none/a.vtt"}, "captions=none/a.vtt: must be a file in a folder that exists; make none, or give"),
    ],
)
def test_files_that_are_not_there_are_refused_before_a_model_is_loaded(run, monkeypatch, values, told):
    monkeypatch.setattr("duplexmt.load", None)
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        run(**values)


GBK = "今天天气很好。\n我们去公园吧。\n".encode("gbk")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("talk.txt", GBK, "pass it on by `iconv"),
        ("talk.srt", b"1\n00:00:01,000 --> 00:00:02,000\n" + GBK, r"talk\.srt is not UTF-8.* > \S*talk\.utf8\.srt`"),
        ("talk.vtt", b"WEBVTT\n", "has no subtitles"),
    ],
)
def test_an_input_that_cannot_be_read_leaves_the_captions_of_before(run, tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "keep.vtt").write_text("kept")
    with pytest.raises(ValueError, match=told):
        run(input=str(tmp_path / name), captions=str(tmp_path / "keep.vtt"))
    assert (tmp_path / "keep.vtt").read_text() == "kept"


def test_an_output_without_space_is_named_and_no_setting_that_is_none_of_these(monkeypatch, capsys):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setattr(translate, "settings", lambda _, cfg: cfg)
    monkeypatch.setattr(translate, "translate", lambda _: Path("/dev/full").write_text("He"))
    with pytest.raises(SystemExit):
        translate.main.__wrapped__(SimpleNamespace(captions=None))
    assert capsys.readouterr().err == (
        "error: the translation could not be written: no space left where standard output goes; make room, or write it "
        "elsewhere\n"
    )
