"""Which target text was written after which source text, for people and for programs."""

import json
from dataclasses import replace

from duplexmt.data.tokenizer import token_ids
from duplexmt.drawing.staircase import event_line, read_write_steps, staircase
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.text import GrowingText

from ..helpers import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
END = TOKENIZER.eos_token_id


def ids(text):
    return token_ids(TOKENIZER, [text])[0]


def stream(*steps, stopped="end_token"):
    """Events that read a token each and write a text after it; p(EMIT) is 0.25 on a WAIT and 0.75 on an EMIT."""
    events = []
    for number, (token, text) in enumerate(steps, start=1):
        events.append(Read(0, token, 0.25 if events else None))
        events += [Write(0, written, number, 0.75) for written in ids(text)]
    return [*events, End(0, stopped)]


REN, WO = ids("人")[0], ids("我")[0]  # characters of the vocabulary; 好 is three byte tokens


def test_each_source_token_comes_with_what_was_written_before_the_next():
    events = stream((REN, ""), (WO, "a man"), (END, " is"))
    assert list(read_write_steps(events, TOKENIZER, END)) == [("人", ""), ("我", "a man"), ("⏹", " is")]


def test_a_stream_that_is_cut_off_early_shows_what_it_wrote():
    events = stream((REN, "a man"), stopped="max_target_tokens")
    assert list(read_write_steps(events, TOKENIZER, END)) == [("人", "a man")]


def test_a_source_character_is_shown_with_its_last_byte():
    events = stream(*[(token, "") for token in ids("好")], (END, "good"))
    assert list(read_write_steps(events, TOKENIZER, END)) == [("", ""), ("", ""), ("好", ""), ("⏹", "good")]


def test_a_target_character_is_shown_where_it_is_complete():
    first, second, third = ids("好")
    events = [
        Read(0, REN),
        Write(0, first, 1, 0.9),
        Write(0, second, 1, 0.9),
        Read(0, END, 0.1),
        Write(0, third, 1, 0.9),
    ]
    assert list(read_write_steps([*events, End(0, "end_token")], TOKENIZER, END)) == [("人", ""), ("⏹", "好")]
    cut = list(read_write_steps([*events[:-1], End(0, "max_target_tokens")], TOKENIZER, END))
    assert cut[0] == ("人", "")
    assert set(cut[1][1]) == {"\N{REPLACEMENT CHARACTER}"}, "what stays broken is shown at the end"


def test_all_written_text_is_somewhere_in_the_steps():
    events = stream((REN, "the "), (WO, "好 ma"), (END, "n"))
    assert "".join(text for _, text in read_write_steps(events, TOKENIZER, END)) == "the 好 man"


def test_the_staircase_aligns_wide_characters():
    events = stream((REN, ""), (WO, "a man"), (END, "is"))
    assert staircase(events, TOKENIZER, END).splitlines() == [
        "  人",
        "  我" + " " * 10 + "  a man",  # a column of 12, of which 我 takes two
        "  ⏹" + " " * 11 + "  is",
    ]


def test_events_are_json_objects_with_text_as_it_becomes_certain():
    growing = GrowingText(TOKENIZER)
    events = stream((REN, "好"), (END, "a"))
    events = [replace(event, text=growing.add(event.token)) if isinstance(event, Write) else event for event in events]
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
