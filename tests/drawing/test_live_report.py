"""A live translation as text, steps and JSON lines."""

import io
import json
import pickle

from duplexmt.drawing.live_report import LiveReport
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.live import LiveEvent

from ..helpers import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
REN, END = TOKENIZER.convert_tokens_to_ids("人"), TOKENIZER.eos_token_id
SENTENCES = [
    [
        Read(0, REN), Write(0, 300, 1, 0.5, text="a "), Read(0, END, 0.25), Write(0, 301, 1, 0.5, text="man"),
        End(0, "end_token"),
    ],
    [Read(1, REN), Write(1, 302, 1, 0.5, text="yes"), End(1, "repetition", text="!")],
    [Read(2, REN), End(2, "end_token")],
]  # fmt: skip


def reported(form):
    out = io.StringIO()
    report = LiveReport(out, TOKENIZER, END, form, " ")
    stopped = []
    for sentence in SENTENCES[:2]:
        stopped += report.show(LiveEvent(event, 3) for event in sentence)
    assert report.end_line()
    assert not report.end_line(), "an empty line"
    report.show(LiveEvent(event, 1) for event in SENTENCES[2])
    assert report.end_line()
    assert stopped == ["repetition"]
    assert report.line == 4
    return out.getvalue()


def test_text_has_a_line_for_each_line_and_its_sentences_side_by_side():
    assert reported("text") == "a man yes!\n\n\n"


def test_events_say_their_line_sentence_and_characters():
    lines = [json.loads(line) for line in reported("events").splitlines()]
    assert [(line["line"], line["sentence"]) for line in lines] == [(1, 1)] * 5 + [(1, 2)] * 3 + [(3, 1)] * 2
    assert lines[1] == {
        "line": 1, "sentence": 1, "characters": 3, "event": "write", "token": TOKENIZER.convert_ids_to_tokens(300),
        "text": "a ", "delay": 1, "emit_probability": 0.5, "elapsed": 0.0,
    }  # fmt: skip
    assert lines[7]["text"] == "!"


def test_steps_are_shown_when_a_sentence_is_over():
    assert reported("steps").startswith("  人")
    assert reported("steps").count("\n\n") == 3


def test_a_line_without_end_takes_no_more_memory_and_time_with_each_sentence():
    report = LiveReport(io.StringIO(), TOKENIZER, END, "text", " ")
    report.show(LiveEvent(event, 1) for event in SENTENCES[0])
    before = pickle.dumps({name: value for name, value in vars(report).items() if name != "tokenizer"})
    for number in range(1, 50):
        report.show([LiveEvent(End(number, "end_token"), 1)])
    after = pickle.dumps({name: value for name, value in vars(report).items() if name != "tokenizer"})
    assert len(after) < len(before) + 60  # 49 of them the spaces written between sentences
