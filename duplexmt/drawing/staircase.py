"""Simultaneous translations for people and programs: which target text was written after which source text
(`tab:infer-process`), and a live translation as text, as steps, or as JSON lines."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from ..streaming.events import End, Event, Read, Replaced, Write
from ..streaming.growing_text import GrowingText
from ..streaming.live import LiveEvent
from .table import terminal_width


def read_write_steps(events: Iterable[Event], tokenizer: Any, end_token: int) -> Iterator[tuple[str, str]]:
    """Group the events of one stream: each source token's text with the target text written before the next.

    The end token is shown as `⏹`. A source token that ends inside a character shows no text of its own.
    """
    source = GrowingText(tokenizer)
    read, written = "", ""
    started = False
    for event in events:
        if isinstance(event, Read):
            if started:
                yield read, written
            started = True
            read, written = ("⏹" if event.token == end_token else source.add(event.token)), ""
        elif isinstance(event, Write):
            written += event.text
        else:
            yield read, written + event.text


def staircase(events: Iterable[Event], tokenizer: Any, end_token: int) -> str:
    """The steps of one stream as lines of text, one for each source token."""
    steps = list(read_write_steps(events, tokenizer, end_token))
    width = max([12, *(terminal_width(read) for read, _ in steps)])
    return "\n".join(f"  {read}{' ' * (width - terminal_width(read))}  {written}".rstrip() for read, written in steps)


def event_line(event: Event, tokenizer: Any) -> dict[str, Any]:
    """One event, which brings the text it makes certain, as a JSON object."""
    if isinstance(event, End):
        return {"event": "end", "reason": event.reason, "text": event.text, "elapsed": event.elapsed}
    return {
        "event": "write" if isinstance(event, Write) else "read",
        "token": tokenizer.convert_ids_to_tokens(event.token),
        **({"text": event.text, "delay": event.delay} if isinstance(event, Write) else {}),
        "emit_probability": event.emit_probability,
        "elapsed": event.elapsed,
    }


class LiveReport:
    """Writes the events of a live text to a file, a line for each line of the text.

    Args:
        end_token: its end token, shown as `⏹`.
        form: `text` as it becomes certain, `steps` of each sentence, or `events` as JSON lines.

    Attributes:
        line: number of the present line, from 1.
        line_is_open: whether the last line that was written goes on; one who has ended it otherwise may say so.
    """

    def __init__(self, out: TextIO, tokenizer: Any, end_token: int, form: str) -> None:
        self.out, self.tokenizer, self.end_token, self.form = out, tokenizer, end_token, form
        self.line, self.line_is_open = 1, False
        self._sentences = 0  # of this line, those that have shown something
        self._sentence = -1  # number of the last of them
        self._steps: list[Event] = []  # of this sentence

    def show(self, events: Iterable[LiveEvent]) -> list[str]:
        """Write events down as they come; returns the reasons of translations that were cut off."""
        stopped = []
        for live in events:
            event = live.event
            if isinstance(event, Replaced):
                continue  # no command's text is replaced
            if event.stream != self._sentence:
                self._sentences, self._sentence = self._sentences + 1, event.stream
            if self.form == "events":
                shown = event_line(event, self.tokenizer) | {"text": live.text}
                place = {"line": self.line, "sentence": self._sentences, "characters": live.characters}
                self._write(json.dumps(place | shown, ensure_ascii=False) + "\n")
            elif self.form == "steps":
                self._steps.append(event)
                if isinstance(event, End):
                    self._write(f"{staircase(self._steps, self.tokenizer, self.end_token)}\n\n")
                    self._steps.clear()
            else:
                self._write(live.text)
            if isinstance(event, End) and event.reason != "end_token":
                stopped.append(event.reason)
        return stopped

    def end_line(self) -> bool:
        """Go on to the next line; returns whether anything was translated on this one."""
        translated = self._sentences > 0
        if self.form == "text":
            self._write("\n")
        self.line, self._sentences, self._sentence = self.line + 1, 0, -1  # other lines may count theirs anew
        return translated

    def _write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self.out.flush()
            self.line_is_open = not text.endswith("\n")
