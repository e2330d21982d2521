"""Which target text was written after which source text, for people and for programs; live as it comes."""

import io
import json
import pickle

from duplexmt.data.tokenizer import token_ids
from duplexmt.drawing.staircase import LiveReport, event_line, read_write_steps, staircase
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.growing_text import GrowingText
from duplexmt.streaming.live import LiveEvent

from ..helpers import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
END = TOKENIZER.eos_token_id


def ids(text):
    return token_ids(TOKENIZER, [text])[0]


def stream(*steps, stopped="end_token"):
    """Events that read a token each and write a text after it; p(EMIT) is 0.25 on a WAIT and 0.75 on an EMIT."""
    events, growing = [], GrowingText(TOKENIZER)
    for number, (token, text) in enumerate(steps, start=1):
        events.append(Read(0, token, 0.25 if events else None))
        events += [Write(0, written, number, 0.75, text=growing.add(written)) for written in ids(text)]
    return [*events, End(0, stopped, text=growing.finish())]


REN, WO = ids("人")[0], ids("我")[0]  # characters of the vocabulary; 好 is three byte tokens


def test_each_source_token_comes_with_what_was_written_before_the_next():
    events = stream((REN, ""), (WO, "a man"), (END, " is"))
    assert list(read_write_steps(events, TOKENIZER, END)) == [("人", ""), ("我", "a man"), ("⏹", " is")]


def test_a_target_character_is_shown_where_it_is_complete():
    first, second, third = ids("好")
    events = [
        Read(0, REN),
        Write(0, first, 1, 0.9),
        Write(0, second, 1, 0.9),
        Read(0, END, 0.1),
        Write(0, third, 1, 0.9, text="好"),
    ]
    assert list(read_write_steps([*events, End(0, "end_token")], TOKENIZER, END)) == [("人", ""), ("⏹", "好")]
    cut = list(read_write_steps([*events[:-1], End(0, "max_target_tokens", text="�")], TOKENIZER, END))
    assert cut == [("人", ""), ("⏹", "�")], "what stays broken is shown at the end"


def test_the_staircase_aligns_wide_characters():
    events = stream((REN, ""), (WO, "a man"), (END, "is"))
    assert staircase(events, TOKENIZER, END).splitlines() == [
        "  人",
        "  我" + " " * 10 + "  a man",  # a column of 12, of which 我 takes two
        "  ⏹" + " " * 11 + "  is",
    ]


def test_events_are_json_objects_with_text_as_it_becomes_certain():
    events = stream((REN, "好"), (END, "a"))
    lines = [event_line(event, TOKENIZER) for event in events]
    assert json.loads(json.dumps(lines)) == [
        {"event": "read", "token": "人", "emit_probability": None, "elapsed": 0.0},
        {"event": "write", "token": "<0xE5>", "text": "", "delay": 1, "emit_probability": 0.75, "elapsed": 0.0},
        {"event": "write", "token": "<0xA5>", "text": "", "delay": 1, "emit_probability": 0.75, "elapsed": 0.0},
        {"event": "write", "token": "<0xBD>", "text": "好", "delay": 1, "emit_probability": 0.75, "elapsed": 0.0},
        {"event": "read", "token": "<|endoftext|>", "emit_probability": 0.25, "elapsed": 0.0},
        {"event": "write", "token": "a", "text": "a", "delay": 2, "emit_probability": 0.75, "elapsed": 0.0},
        {"event": "end", "reason": "end_token", "text": "", "elapsed": 0.0},
    ]


# --- live ---------------------------------------------------------------------------------------------------------

SENTENCES = [
    [
        Read(0, REN), Write(0, 300, 1, 0.5, text="a "), Read(0, END, 0.25), Write(0, 301, 1, 0.5, text="man"),
        End(0, "end_token"),
    ],
    [Read(1, REN), Write(1, 302, 1, 0.5, text="yes"), End(1, "repetition", text="!")],
    [Read(2, REN), End(2, "end_token")],
]  # fmt: skip


def live(event, characters):
    """As a driver tells it: a sentence beside another one on its line begins with a space."""
    text = " " if event == Read(1, REN) else getattr(event, "text", "")
    return LiveEvent(event, characters, text=text)


def reported(form):
    out = io.StringIO()
    report = LiveReport(out, TOKENIZER, END, form)
    stopped = []
    for sentence in SENTENCES[:2]:
        stopped += report.show(live(event, 3) for event in sentence)
    assert report.end_line()
    assert not report.end_line(), "an empty line"
    report.show(live(event, 1) for event in SENTENCES[2])
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
    assert "".join(line["text"] for line in lines) == "a man yes!", "the space comes with a read"


def test_steps_are_shown_when_a_sentence_is_over():
    assert reported("steps").startswith("  人")
    assert reported("steps").count("\n\n") == 3


def test_a_line_without_end_takes_no_more_memory_and_time_with_each_sentence():
    report = LiveReport(io.StringIO(), TOKENIZER, END, "text")
    report.show(live(event, 1) for event in SENTENCES[0])
    before = pickle.dumps({name: value for name, value in vars(report).items() if name != "tokenizer"})
    for number in range(1, 50):
        report.show([LiveEvent(Read(number, REN), 1, text=" "), live(End(number, "end_token"), 1)])
    after = pickle.dumps({name: value for name, value in vars(report).items() if name != "tokenizer"})
    assert len(after) < len(before) + 60  # 49 of them the spaces written between sentences
