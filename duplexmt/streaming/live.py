"""Live text in, read and write events out: sentence after sentence, for as long as the text goes on.

Characters arrive at any pace. The text is cut at line ends, at sentence ends, and where a sentence has as many tokens
as it may; each sentence is a grid of its own, and nothing of it is kept once it has been translated, but the tokens of
the last one where the model was trained to read them first. Within a sentence a token is read as soon as no later
character can change it; what is held back counts as delay, in characters. A pause in the text lets go what is held
back, an end of the text ends the sentence. Characters are taken one by one, so how they were cut on their way changes
nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace

from ..data.tokenizer import SourceTokens
from .engine import Engine, Stream
from .events import Event
from .prefix_engine import LiveStream, PrefixEngine
from .settled import SettledTokens

LINE_ENDS = "\n\r"
MOST_NAMED = 5  # kinds of invisible characters in a warning
MOST_HELD = 10_000  # characters held back that settle no token: white space, say, or invisible ones
CLOSING = "\"'”’»」』）)]》】"
_WIDE, _NARROW = "。！？", ".!?…"
_AFTER_WIDE = CLOSING + _WIDE + "!?…"
# A full stop after these, or after a single letter, is no sentence end.
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "no", "fig"))
_LOOK_BACK = 1 + max(map(len, _ABBREVIATIONS))  # characters that tell whether a text ends in one of them
_MARKS = re.compile(rf"[{re.escape(CLOSING + _WIDE + _NARROW)}]++\s*+")
_LAST_OF_MARKS = re.compile(rf"[{re.escape(_AFTER_WIDE)}]++|\s++")  # where alone a sentence may end


def ends_sentence(text: str, following: str) -> bool:
    """Whether a sentence ends where `text` does, given the character that follows.

    。！？ end one, with the closing marks after them; . ! ? … where white space follows, and then no small letter. Not
    after abbreviations such as Dr. and initials.
    """
    marks = text[len(text.rstrip(_AFTER_WIDE)) :]
    if any(mark in marks for mark in _WIDE):
        return following not in _AFTER_WIDE
    unspaced = text.rstrip()
    if unspaced == text or following.isspace():
        return False
    marked = unspaced.rstrip(CLOSING)
    words = marked.rstrip(_NARROW)
    if words == marked or following.islower():
        return False
    last = re.split(r"\W", words[-_LOOK_BACK:])[-1]
    return marked != words + "." or not (len(last) == 1 or last.lower() in _ABBREVIATIONS)


@dataclass(frozen=True)
class LiveEvent:
    """An event of a live text."""

    event: Event  # its `stream` is the number of the sentence
    characters: int  # that had arrived when the last visible token was settled, since the last line or sentence end


class LiveSource:
    """One sentence's text as it arrives, as settled tokens.

    Args:
        settled_tokens: see there.
        clean: what training did to a source text.
        settled_text: what of a cleaned text that is still arriving later characters cannot change.

    Attributes:
        text: what has arrived, or the end of it.
        characters: number of characters that have arrived.
    """

    def __init__(
        self, settled_tokens: SettledTokens, clean: Callable[[str], str], settled_text: Callable[[str], str]
    ) -> None:
        self.settled_tokens, self.clean, self.settled_text = settled_tokens, clean, settled_text
        self.text, self.characters = "", 0
        self._begin = self._flushed = 0  # of the text that is tokenised as one, and where it was last let go
        self._out: list[int] = []  # its tokens so far
        self._settled = 0  # where the text ended when the last of them was settled

    def add(self, character: str) -> list[int]:
        """Take a character; the tokens that are now settled."""
        self.text += character
        self.characters += 1
        if len(self.text) - self._settled > MOST_HELD:
            return self.cut()
        return self._new(lambda part: self.settled_tokens(self.settled_text(part)))

    def flush(self) -> list[int]:
        """Let go what is held back, as if the text ended here.

        Should it go on in a way that would have made other tokens of that, what follows is tokenised by itself.
        """
        tokens = self._new(lambda part: self.settled_tokens.complete(self.clean(part)))
        self._flushed = len(self.text)
        return tokens

    def cut(self) -> list[int]:
        """Let go what is held back, and keep no more of the text than what follows may depend on."""
        tokens = self.flush()
        text = self.text.rstrip()
        self.text = text[-_LOOK_BACK:] + self.text[len(text) :][:1]
        self._begin, self._flushed, self._settled = 0, len(self.text), len(self.text)
        self._out = self.settled_tokens.complete(self.clean(self.text))
        return tokens

    def count_ahead(self, text: str) -> int:
        """How many tokens this text will bring, if it is all that is still to come."""
        ahead = copy(self)
        ahead.text, ahead._out = self.text + text, list(self._out)
        return len(ahead.flush())

    def _new(self, tokenise: Callable[[str], list[int]]) -> list[int]:
        tokens = tokenise(self.text[self._begin :])
        if any(one != other for one, other in zip(tokens, self._out, strict=False)):
            self._begin, self._out = self._flushed, []
            tokens = tokenise(self.text[self._begin :])
        new = tokens[len(self._out) :]
        self._out += new
        if new:
            self._settled = len(self.text)
        return new


def longest_sentence(engine: Engine | PrefixEngine) -> int:
    """Tokens of the longest source sentence the engine has positions for, without its prefix and its end."""
    return engine.max_source_tokens - len(engine.tokens.source_prefix) - 1


class LiveTranslator:
    """Translates a text that is still arriving.

    Args:
        engine: of the model.
        sources: how source texts become tokens, as in training.
        clean: what training did to a source text.
        settled_text: what of a cleaned text that is still arriving later characters cannot change.
        max_sentence_tokens: at which a sentence is cut, with a warning; None for the engine's own limit.
        cut: whether to cut at sentence ends too, not at line ends only.
        warn: is told what goes wrong.
        invisible: whether a character is to be passed over.

    Attributes:
        sentences: number of sentences begun.
        passed_over: invisible characters of the line so far.
    """

    def __init__(
        self,
        engine: Engine | PrefixEngine,
        sources: SourceTokens,
        clean: Callable[[str], str],
        settled_text: Callable[[str], str],
        *,
        max_sentence_tokens: int | None = None,
        cut: bool = True,
        warn: Callable[[str], None] = lambda message: None,
        invisible: Callable[[str], bool] = lambda character: False,
    ) -> None:
        room = longest_sentence(engine)
        if max_sentence_tokens is not None and not 1 <= max_sentence_tokens <= room:
            raise ValueError(f"max_sentence_tokens={max_sentence_tokens}: must lie between 1 and {room}")
        self.engine, self.sources, self.clean, self.settled_text = engine, sources, clean, settled_text
        self.limit, self.cut, self.warn, self.invisible = max_sentence_tokens or room, cut, warn, invisible
        self.passed_over: Counter[str] = Counter()
        self.settled_tokens = SettledTokens(sources.tokenizer, sources.segmentation)
        if self.settled_tokens.holds_everything:
            warn("this tokenizer's tokens are settled at sentence ends and pauses only: train with characters for less")
        self.sentences = 0
        self.to_come: str | None = None  # of the sentence, where that is known
        self.context: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self.source = LiveSource(self.settled_tokens, self.clean, self.settled_text)
        self._begin_stream()

    def _begin_stream(self) -> None:
        self.stream: Stream | LiveStream | None = None
        self.tokens: list[int] = []  # of the sentence so far
        self.arrived: list[int] = []  # characters when each was settled

    def feed(self, text: str) -> Iterator[LiveEvent]:
        """Take characters that have arrived; the events they bring about."""
        for character in text:
            if character in LINE_ENDS:
                yield from self.finish()
                self._tell_passed_over()
                continue
            if self.invisible(character):
                self.passed_over[character] += 1
                continue
            if self.cut and ends_sentence(self.source.text, character):
                yield from self.finish()
            yield from self._read(self.source.add(character))

    def pause(self) -> Iterator[LiveEvent]:
        """Let go what is held back: nothing has arrived for a while."""
        yield from self._read(self.source.flush())

    def finish(self) -> Iterator[LiveEvent]:
        """End the sentence, if there is one."""
        yield from self._read(self.source.flush())
        if self.stream is not None:
            if not self.stream.over:
                self.stream.end()
            yield from self._events()
            self.context = self.tokens
        self._begin()

    def whole(self, text: str) -> Iterator[LiveEvent]:
        """Translate a text that is known as a whole: every sentence's length is, too, and the anchor knows it."""
        for line in re.split(f"[{LINE_ENDS}]", text):  # and not where `splitlines` does: at U+2028, say
            self.passed_over.update(filter(self.invisible, line))
            line = "".join(character for character in line if character not in self.passed_over)
            for sentence in cut_sentences(line) if self.cut else [line]:
                for number, character in enumerate(sentence, start=1):
                    self.to_come = sentence[number:]
                    yield from self._read(self.source.add(character))
                yield from self.finish()
            self._tell_passed_over()
        self.to_come = None

    def _tell_passed_over(self) -> None:
        """Say once a line what of it was not translated."""
        if self.passed_over:
            kinds = ", ".join(f"U+{ord(character):04X}" for character in sorted(self.passed_over)[:MOST_NAMED])
            more = ", …" if len(self.passed_over) > MOST_NAMED else ""
            self.warn(f"{self.passed_over.total():,} invisible characters passed over ({kinds}{more})")
            self.passed_over.clear()

    def _open(self, tokens: int) -> Stream | LiveStream:
        """Open a stream for so many tokens, and for what is known to come."""
        length = None if self.to_come is None else min(tokens + self.source.count_ahead(self.to_come), self.limit)
        context = self.context if self.engine.tokens.context else ()
        self.stream = self.engine.open(source_length=length, context=context)
        self.sentences += 1
        return self.stream

    def _read(self, tokens: list[int]) -> Iterator[LiveEvent]:
        """Read tokens, cutting the sentence where it becomes too long."""
        while tokens:
            stream = self.stream or self._open(len(tokens))
            room = self.limit - len(self.tokens)
            taken, tokens = tokens[:room], tokens[room:]
            if not stream.over:
                stream.read(taken)
            self.tokens += taken
            self.arrived += [self.source.characters] * len(taken)
            yield from self._events()
            if len(self.tokens) == self.limit and tokens:
                self.warn(
                    f"cut at {self.limit} tokens, the longest sentence the model takes: expect a poor translation"
                )
                if not stream.over:
                    stream.end()
                yield from self._events()
                tokens += self.source.cut()  # so that nothing is kept of a text without end
                self.context = self.tokens
                self._begin_stream()

    def _events(self) -> Iterator[LiveEvent]:
        assert self.stream is not None
        if self.stream.over:
            return
        for event in self.stream.write():
            seen = self.stream.state.read - self.stream.prefix
            event = replace(event, stream=self.sentences - 1)  # the engine may have other streams
            yield LiveEvent(event, self.arrived[min(seen, len(self.arrived)) - 1])


def cut_sentences(text: str) -> list[str]:
    """A text's sentences, nothing left out."""
    sentences, begin = [], 0
    for marks in _MARKS.finditer(text):
        for last in _LAST_OF_MARKS.finditer(text, *marks.span()):
            end = last.end()
            if end < len(text) and ends_sentence(text[max(begin, marks.start() - _LOOK_BACK) : end], text[end]):
                sentences.append(text[begin:end])
                begin = end
    return [*sentences, text[begin:]]
