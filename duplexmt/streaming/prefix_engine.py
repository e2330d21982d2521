"""Live streams of a prefix model: the engine's interface for wait-k, offline and the policies that need no grid.

Each stream is a batch of one whose source is still arriving: the same code decodes test sets. There may be any number
of streams, so none is ever left for another one to be taken up.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from .engine import check_repeats, ends_in_repetition
from .events import End, Event, Write
from .prefix_systems import PrefixSystem, Stream
from .text import GrowingText


class PrefixEngine:
    """Opens live streams of one system; each is decoded by itself.

    Args:
        system: around the model.
        max_repeats, typical_source_length, tokenizer: as for `engine.Engine`.

    Raises:
        ValueError: where the backbone has no positions, or no room in its sliding window, for source and target; for
            `max_repeats` below 2.
    """

    def __init__(
        self,
        system: PrefixSystem,
        *,
        max_repeats: int | None = None,
        typical_source_length: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        check_repeats(max_repeats)
        self.system, self.tokens, self.max_repeats = system, system.tokens, max_repeats
        self.typical_source_length, self.tokenizer = typical_source_length, tokenizer
        model = system.model
        target = len(system.first_target()) + system.max_target_tokens
        positions = model.causal_lm.config.max_position_embeddings
        self.max_source_tokens = min(positions, sys.maxsize if model.window is None else model.window) - target
        if self.max_source_tokens < len(self.tokens.source_prefix) + 2:
            raise ValueError(
                f"max_target_tokens={system.max_target_tokens}: the backbone's {positions} positions (sliding window: "
                f"{model.window}) leave no room for a source beside that; give less"
            )
        self.theta: float | None = None  # only a grid has one
        self.max_streams = sys.maxsize
        self.streams: dict[int, LiveStream] = {}
        self.opened = 0

    def open(
        self, *, source_length: int | None = None, theta: float | None = None, context: Sequence[int] = ()
    ) -> "LiveStream":
        """Let a stream begin.

        Args:
            source_length: text tokens of its source, where they are known; read with anchor `source_length` only.
            theta: None: only a grid has one.
            context: text tokens of the previous sentence, for a model trained with context.

        Raises:
            ValueError: where the anchor is a length that nobody knows.
        """
        assert theta is None
        prefix = self.tokens.prefix(context)
        length = self.typical_source_length if source_length is None else len(prefix) + source_length + 1
        if length is None and self.system.model.anchor == "source_length":
            raise ValueError("this model places the target after the whole source: give the stream's source_length")
        self.opened += 1
        state = Stream(self.opened - 1, list(prefix), self.system.first_target(), length or 1, source_ended=False)
        stream = self.streams[state.index] = LiveStream(self, state)
        return stream

    def step(self, streams: "Iterable[LiveStream]") -> list[Event]:
        """The next event of each stream that has one."""
        return [event for stream in streams if (event := stream.step()) is not None]


class LiveStream:
    """One live translation; opened by `PrefixEngine.open`.

    Attributes:
        over: whether the translation has ended, or the stream was closed.
        prefix: source tokens before the text.
    """

    def __init__(self, engine: PrefixEngine, state: Stream) -> None:
        self.engine, self.state, self.prefix, self.over = engine, state, len(state.source), False
        self.name, self.theta, self.heard = state.index, engine.theta, float("inf")
        self.waits = True  # for its source
        self.growing = GrowingText(engine.tokenizer) if engine.tokenizer is not None else None
        self.written: list[int] = []
        self.events = engine.system.translate_batch([state])

    @property
    def text_tokens(self) -> int:
        """Source text tokens that have arrived."""
        return len(self.state.source) - self.prefix - self.state.source_ended

    def read(self, tokens: Sequence[int]) -> None:
        """Take source tokens that have arrived.

        Raises:
            ValueError: after the end, or for more than the engine has room for; nothing is taken then.
        """
        self.check_open()
        length, limit = len(self.state.source) + len(tokens) + 1, self.engine.max_source_tokens
        if length > limit:
            raise ValueError(
                f"a source of {length} tokens, end token included, exceeds the {limit} this model has room for: end "
                "the stream and open another one"
            )
        self.state.source.extend(tokens)
        self.waits = self.waits and not tokens

    def end(self) -> None:
        """Say that the source is complete.

        Raises:
            ValueError: if no text has arrived, or the end was said before.
        """
        self.check_open()
        if not self.text_tokens:
            raise ValueError("the stream has no source: close it instead")
        self.state.source.append(self.engine.tokens.end)
        self.state.source_ended = True
        self.waits = False

    def go_on(self, read: int, written: Sequence[int]) -> None:
        """Begin: a stream of this engine is never left."""
        assert not read
        assert not written

    def can_step(self) -> bool:
        """Whether it may have an event before more of its source arrives."""
        return not self.over and not self.waits

    def check_open(self) -> None:
        """Raise `ValueError` where no more text is taken."""
        if self.over or self.state.source_ended:
            raise ValueError("the stream is over, or has the end of its source: open another one for further text")

    def step(self) -> Event | None:
        """The next event; None while it waits for its source, and once it is over."""
        if not self.can_step():
            return None
        with torch.no_grad():
            event = next(self.events)
        if event is None:
            self.waits = True
        elif isinstance(event, Write):
            self.written.append(event.token)
            repeats = self.engine.max_repeats
            if repeats is not None and ends_in_repetition(self.written, repeats):
                event = self.engine.system.end(self.state, "repetition")
            elif self.growing:
                event = replace(event, text=self.growing.add(event.token))
        if isinstance(event, End):
            self.close()
            event = replace(event, text=self.growing.finish() if self.growing else "")
        return event

    def write(self) -> Iterator[Event]:
        """All events until this stream waits for its source, or is over."""
        return iter(self.step, None)

    def close(self) -> None:
        """Leave, whatever is still to be written."""
        self.over = True
        self.engine.streams.pop(self.name, None)
