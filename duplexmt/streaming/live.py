"""Live texts in, read and write events out: any number of texts share an engine, which steps once for all.

Each sentence is a grid of its own, and nothing of it is kept once it has been translated, but the tokens of the last
one where the model was trained to read them first. A text has a stream of the engine from a sentence's first token to
its end. Where there are more texts than streams, sentences wait for one in the order in which they came; meanwhile one
that has stalled, because its speaker has, leaves its stream to them, and takes up another when it goes on.

What a text leads to depends on nothing else: neither on how it was cut on its way nor on the other texts.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from typing import Any

from .engine import Engine
from .events import End, Event, Read, Replaced, Write
from .live_text import LineEnd, LiveText, Part, SentenceBegin, SentenceEnd, Settled, TextEnd
from .stream import Stream


@dataclass(slots=True)
class LiveEvent:
    """An event of a live text."""

    event: Event | Replaced  # its `stream` is the number of the sentence
    characters: int  # that had arrived when the last visible token was settled, since the last line or sentence end
    position: int = field(default=0, compare=False)  # the same in the whole text
    theta: float | None = field(default=None, compare=False)  # by which it was decided
    text: str = field(default="", compare=False)  # written, with the space before a sentence that is not a line's first


@dataclass(slots=True)
class Boundary:
    """A sentence or a line is done with: from here on a text can be gone on with by `LiveTranslator.restore`."""

    position: int  # in the whole text
    state: dict[str, Any]  # plain values


LiveOutput = LiveEvent | LineEnd | TextEnd | Boundary  # what a step brings for a text
TAKEN_UP = "read", "written", "reads", "over", "begun"  # of a sentence, where another one takes its place


@dataclass(slots=True)
class Sentence:
    """The sentence at hand, as far as it has come: enough to take it up in another stream."""

    number: int
    context: list[int]
    follows_another: bool  # on its line
    arrived: list[tuple[int, int]] = field(default_factory=list)  # characters and position when each was settled
    tokens: list[int] = field(default_factory=list)
    source_ended: bool = False
    end: int = 0  # position behind its text, once that has ended, see `SentenceEnd`
    read: int = 0  # tokens, and the end token
    written: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # tokens read when each was written
    over: bool = False
    begun: bool = False  # to be read, even if all of that was taken back


def longest_sentence(engine: Engine) -> int:
    """Tokens of the longest source sentence the engine has positions for, without its prefix and its end."""
    return engine.max_source_tokens - len(engine.tokens.source_prefix) - 1


class LiveDriver:
    """Steps the texts that share an engine.

    Args:
        engine: of the model; it may have other streams, too.
        text_seconds: to be spent on text in one step, so that a long one does not keep the others waiting.
        park_after: seconds without a new token after which a stream may be taken for another text.
        failed: is told why a stream cannot go on, as where memory is short, and its sentence is then over; None
            has the `ValueError` raised.

    Attributes:
        due: texts that have something to be looked at.
        queue: texts that wait for a stream, with the time since when.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        text_seconds: float = float("inf"),
        park_after: float = float("inf"),
        failed: Callable[[str], None] | None = None,
    ) -> None:
        self.engine, self.text_seconds, self.park_after, self.failed = engine, text_seconds, park_after, failed
        self.due: dict[LiveTranslator, None] = {}
        self.queue: dict[LiveTranslator, float] = {}
        self.streaming: dict[int, LiveTranslator] = {}

    def join(self, text: LiveText, *, theta: float | None = None, source_length: int | None = None) -> "LiveTranslator":
        """A further text.

        Args:
            text: that nothing has been taken of.
            theta: its EMIT threshold; None for the engine's (none, where no grid decodes).
            source_length: tokens of each of its sentences, where its client has said so; none is longer than its limit.

        Raises:
            ValueError: for sentences longer than the engine takes.
        """
        room = longest_sentence(self.engine)
        if type(text.limit) is not int or not 1 <= text.limit <= room:
            raise ValueError(f"max_sentence_tokens={text.limit!r}: must be a whole number between 1 and {room}")
        if source_length is not None:
            source_length = min(source_length, text.limit)
        return LiveTranslator(self, text, self.engine.theta if theta is None else theta, source_length)

    @property
    def goes_on(self) -> bool:
        """Whether a step can bring anything before more text arrives."""
        if self.due or (self.queue and (self._has_room() or self._stalled() is not None)):
            return True
        return any(translator.can_step() for translator in self.streaming.values())

    def step(self) -> "list[tuple[LiveTranslator, LiveOutput]]":
        """Take what has arrived of every text, then take the engine one step for all; at most one event a text."""
        found: list[tuple[LiveTranslator, LiveOutput]] = []
        until = perf_counter() + self.text_seconds
        for _ in range(len(self.due)):
            translator = next(iter(self.due))
            del self.due[translator]
            found += [(translator, one) for one in translator.take(until)]
            if perf_counter() > until:
                break
        while self.queue and (self._has_room() or self._park()):
            translator = next(iter(self.queue))
            del self.queue[translator]
            translator.open()
        streams = [t.stream for t in self.streaming.values() if t.stream is not None]
        for event in self._events(streams):
            translator = self.streaming[event.stream]
            found.append((translator, translator.live_event(event)))
        return found

    def _events(self, streams: list[Stream]) -> list[Event]:
        """Step the engine; where that fails, each stream by itself, and those that fail end."""
        try:
            return self.engine.step(streams, once=True)
        except ValueError:
            if self.failed is None:
                raise
        events: list[Event] = []
        for stream in streams:
            try:
                events += self.engine.step([stream], once=True)
            except ValueError as error:
                self.failed(str(error))
                events.append(stream.over_for("failed"))
        return events

    def _has_room(self) -> bool:
        return len(self.engine.streams) < self.engine.max_streams

    def _stalled(self) -> "LiveTranslator | None":
        """Whose stream has waited longest for its source, if that is long enough."""
        waiting = [t for t in self.streaming.values() if t.stream is not None and not t.can_step()]
        longest = min(waiting, key=lambda t: t.stream.heard, default=None)  # type: ignore[union-attr]
        if longest is None or longest.stream is None or perf_counter() - longest.stream.heard < self.park_after:
            return None
        return longest

    def _park(self) -> bool:
        """Take a stream that has stalled; False where there is none."""
        if (stalled := self._stalled()) is None:
            return False
        stalled.leave()
        return True


class LiveTranslator:
    """A text in a driver, and the stream of its sentence; made by `LiveDriver.join`.

    Attributes:
        text: see there.
        last: boundary, from which on the text may still be replaced.
        untold: what the next step tells first.
        sentence: the one at hand.
        stream: of the sentence, unless it waits for one.
        sentences: number of sentences begun.
        line_has_begun: whether a sentence of the line at hand has.
    """

    def __init__(self, driver: LiveDriver, text: LiveText, theta: float | None, source_length: int | None) -> None:
        self.driver, self.text, self.source_length = driver, text, source_length
        self.inputs: deque[Iterator[Part | LiveEvent | None]] = deque()
        self.last = Boundary(0, {"text": text.state(), "sentences": 0, "line_has_begun": False})
        self.untold = list[LiveOutput]()
        self._anew: Iterator[LiveEvent | None] = iter(())  # the last replacement, as far as it is still to be told
        self.sentence: Sentence | None = None
        self.stream: Stream | None = None
        self.sentences = 0
        self.line_has_begun = False
        self._theta = theta
        self._taken_up: dict[str, Any] | None = None  # how far the next sentence had come elsewhere

    def give(self, parts: Iterator[Part | LiveEvent | None]) -> None:
        """Have the driver's next steps take this, after what was given before: `text.take(…)`, say."""
        self.inputs.append(parts)
        self.driver.due[self] = None

    def replace(self, position: int, text: str) -> range | None:
        """Have the text from a position on be another one, whatever of it was given, taken or read.

        What was written of the sentence at hand stays, and the model goes on from it as if it had stood there with only
        those tokens read that are settled by the text up to the position.

        Returns the positions from the sentence at hand on where it is none of them, and all stays.
        """
        self.untold += filter(None, self._anew)
        sentence, parts = self.sentence, list[Part]()
        is_over = sentence is not None and sentence.over and sentence.source_ended
        last = self._boundary() if is_over else self.last
        places = range(last.position, last.position + len("".join(self.text.given)) + 1)
        if position not in places:
            return places
        if is_over:
            self.untold.append(last)
        elif sentence is not None:
            self._taken_up = {name: getattr(sentence, name) for name in TAKEN_UP}
        self.close()
        self._stand_at(last)
        again = self.text.again(last.state["text"], position)
        self._anew = self._take_anew(again, parts, position)
        self.give(chain(self._anew, parts, again, self.text.take(text)))
        return None

    def _take_anew(self, again: Iterator[Part | None], parts: list[Part], position: int) -> Iterator[LiveEvent | None]:
        """Gather the parts of the sentence at hand before a replacement, at any pace; then tell of it."""
        part, back = None, 0
        for part in again:
            yield None
            if part is not None:
                parts.append(part)
            if isinstance(part, SentenceEnd | LineEnd):
                break
        if (up := self._taken_up) is not None and not isinstance(part, SentenceEnd) and not up["over"]:
            back = max(0, up["read"] - len(self.text.tokens))
            up["read"] -= back
            up["reads"] = [min(read, up["read"]) for read in up["reads"]]
        yield LiveEvent(Replaced(self.sentences, back), self.text.characters, position, self.theta)

    @property
    def theta(self) -> float | None:
        """EMIT threshold, of the sentence at hand and those to come."""
        return self._theta

    @theta.setter
    def theta(self, theta: float | None) -> None:
        self._theta = theta
        if self.stream is not None:
            self.stream.theta = theta
        self._want_stream()

    def restore(self, state: dict[str, Any] | None, **sentence: Any) -> None:
        """Go on with a text that another driver has begun, before anything is given.

        Args:
            state: of its last `Boundary`; None where there was none yet.
            sentence: `TAKEN_UP` of the one after that.
        """
        self._taken_up = sentence
        if state is not None:
            self.text.restore(state["text"])
            self._stand_at(Boundary(self.text.position, state))

    def _stand_at(self, boundary: Boundary) -> None:
        self.sentence, self.last = None, boundary
        self.sentences, self.line_has_begun = boundary.state["sentences"], boundary.state["line_has_begun"]

    def close(self) -> None:
        """Leave the driver, whatever is still to come."""
        self.leave()
        self.inputs.clear()
        self.driver.due.pop(self, None)
        self.driver.queue.pop(self, None)

    # --- the driver's side -------------------------------------------------------------------------------------------

    def take(self, until: float) -> "Iterator[LiveOutput]":
        """Take what was given until the sentence's end, which has to be written first, or until time is up."""
        while self.untold:
            yield self.untold.pop(0)
        while self.inputs:
            if self.sentence is not None and self.sentence.source_ended:
                if not self.sentence.over:
                    return  # comes back when it is
                self.sentence = None
                yield self._boundary()
            part = next(self.inputs[0], self)
            if part is self:
                self.inputs.popleft()
            elif isinstance(part, LiveEvent):
                yield part
            elif isinstance(part, SentenceBegin):
                taken_up, self._taken_up = self._taken_up or {}, None
                self.sentence = Sentence(self.sentences, part.context, self.line_has_begun, **taken_up)
                self.sentences += 1
                self.line_has_begun = True
            elif isinstance(part, Settled):
                assert self.sentence is not None
                self.sentence.tokens += part.tokens
                self.sentence.arrived += [(part.characters, part.position)] * len(part.tokens)
                if self.stream is not None:
                    self.stream.read(part.tokens)
                self._want_stream()
            elif isinstance(part, SentenceEnd):
                assert self.sentence is not None
                self.sentence.source_ended, self.sentence.end = True, part.position
                if self.stream is not None:
                    self.stream.end()
                self._want_stream()
            elif isinstance(part, LineEnd | TextEnd):
                yield from self._without_source(part.position)
                self.line_has_begun = False
                yield part
                if isinstance(part, LineEnd):
                    yield self._boundary()
            if perf_counter() > until:
                self.driver.due[self] = None
                return

    def _boundary(self) -> Boundary:
        state = {"text": self.text.state(), "sentences": self.sentences, "line_has_begun": self.line_has_begun}
        before, self.last = self.last, Boundary(self.text.position, state)
        self.text.forget(self.last.position - before.position)
        return self.last

    def _without_source(self, position: int) -> Iterator[LiveEvent]:
        """End the sentence, where it has begun and the line that now ends has no text for it any more."""
        up, self._taken_up = self._taken_up, None
        if up is not None and up["begun"]:
            if not up["over"]:
                yield LiveEvent(End(self.sentences, "no_source"), 0, position, self.theta)
            self.sentences += 1

    def _want_stream(self) -> None:
        """Queue up, should the sentence go on without a stream."""
        sentence = self.sentence
        if self.stream is not None or sentence is None or sentence.over or not sentence.tokens:
            return
        if len(sentence.tokens) + sentence.source_ended >= sentence.read:  # less while it is taken up elsewhere
            self.driver.queue.setdefault(self, perf_counter())

    def open(self) -> None:
        """Open a stream for the sentence at hand, where it has come to."""
        assert self.sentence is not None
        sentence, engine = self.sentence, self.driver.engine
        context = sentence.context if engine.tokens.context else ()
        self.stream = engine.open(source_length=self.source_length, theta=self.theta, context=context)
        try:
            self.stream.read(sentence.tokens)
            if sentence.source_ended:
                self.stream.end()
            self.stream.go_on(sentence.read, sentence.written, sentence.reads)
        except ValueError:
            self.stream.close()
            raise
        self.driver.streaming[self.stream.name] = self

    def leave(self) -> None:
        """Give the stream up; `open` takes the sentence up again."""
        if self.stream is not None:
            del self.driver.streaming[self.stream.name]
            self.stream.close()
            self.stream = None

    def can_step(self) -> bool:
        """Whether the stream can go on."""
        return self.stream is not None and self.stream.can_step()

    def live_event(self, event: Event) -> LiveEvent:
        """Take note of an event of the stream."""
        assert self.sentence is not None
        assert self.stream is not None
        sentence = self.sentence
        text = getattr(event, "text", "")
        if isinstance(event, Read):
            text = self.text.between if not sentence.begun and sentence.follows_another else ""
            sentence.read, sentence.begun = sentence.read + 1, True
        elif isinstance(event, Write):
            sentence.written.append(event.token)
            sentence.reads.append(sentence.read)
        characters, position = sentence.arrived[min(sentence.read, len(sentence.arrived)) - 1]
        if isinstance(event, End):
            sentence.over = True
            position = sentence.end if sentence.source_ended else position
            del self.driver.streaming[self.stream.name]
            self.stream = None
            self.driver.due[self] = None
        event.stream = sentence.number  # the engine may have other streams
        return LiveEvent(event, characters, position, self.theta, text)
