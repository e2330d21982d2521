"""Simultaneous translations for people: which target text was written after which source text (`tab:infer-process`)."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..streaming.events import Event, Read, Write
from ..streaming.text import GrowingText
from .table import terminal_width


def read_write_steps(events: Iterable[Event], tokenizer: Any, end_token: int) -> Iterator[tuple[str, str]]:
    """Group the events of one stream: each source token's text with the target text written before the next.

    The end token is shown as `⏹`. A source token that ends inside a character shows no text of its own.
    """
    source, target = GrowingText(tokenizer), GrowingText(tokenizer)
    read, written = "", ""
    started = False
    for event in events:
        if isinstance(event, Read):
            if started:
                yield read, written
            started = True
            read, written = ("⏹" if event.token == end_token else source.add(event.token)), ""
        elif isinstance(event, Write):
            written += target.add(event.token)
        else:
            yield read, written + target.finish()


def staircase(events: Iterable[Event], tokenizer: Any, end_token: int) -> str:
    """The steps of one stream as lines of text, one for each source token."""
    steps = list(read_write_steps(events, tokenizer, end_token))
    width = max([12, *(terminal_width(read) for read, _ in steps)])
    return "\n".join(f"  {read}{' ' * (width - terminal_width(read))}  {written}".rstrip() for read, written in steps)


def event_line(event: Event, tokenizer: Any) -> dict[str, Any]:
    """One event, which brings the text it makes certain, as a JSON object."""
    if isinstance(event, Read):
        return {
            "event": "read",
            "token": tokenizer.convert_ids_to_tokens(event.token),
            "emit_probability": event.emit_probability,
            "elapsed": event.elapsed,
        }
    if isinstance(event, Write):
        return {
            "event": "write",
            "token": tokenizer.convert_ids_to_tokens(event.token),
            "text": event.text,
            "delay": event.delay,
            "emit_probability": event.emit_probability,
            "elapsed": event.elapsed,
        }
    return {"event": "end", "reason": event.reason, "text": event.text, "elapsed": event.elapsed}
