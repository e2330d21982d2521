"""Live text in, read and write events out: sentence after sentence, for as long as the text goes on.

Characters arrive at any pace. The text is cut at line ends, at sentence ends, and where a sentence has as many tokens
as it may; each sentence is a grid of its own, and nothing of it is kept once it has been translated, but the tokens of
the last one where the model was trained to read them first. Within a sentence a token is read as soon as no later
character can change it; what is held back counts as delay, in characters. A pause in the text lets go what is held
back, an end of the text ends the sentence. Characters are taken one by one, so how they were cut on their way changes
nothing.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..data.tokenizer import SourceTokens
from .engine import Engine, Stream
from .events import Event
from .settled import SettledTokens

CLOSING = "\"'”’»」』）)]》】"
_WIDE_END = re.compile(rf"[。！？]+[{re.escape(CLOSING)}。！？!?…]*\Z")
_NARROW_END = re.compile(rf"(\w*)([.!?…]+)[{re.escape(CLOSING)}]*\s+\Z")
# A full stop after these, or after a single letter, is no sentence end.
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "no", "fig"))


def ends_sentence(text: str, following: str) -> bool:
    """Whether a sentence ends where `text` does, given the character that follows.

    。！？ end one, with the closing marks after them; . ! ? … where white space follows, and then no small letter. Not
    after abbreviations such as Dr. and initials.
    """
    if _WIDE_END.search(text):
        return following not in CLOSING and following not in "。！？!?…"
    if (end := _NARROW_END.search(text)) and not following.isspace():
        abbreviation = end[2] == "." and (len(end[1]) == 1 or end[1].lower() in _ABBREVIATIONS)
        return not following.islower() and not abbreviation
    return False


@dataclass(frozen=True)
class LiveEvent:
    """An event of a live text."""

    event: Event  # its `stream` is the number of the sentence
    characters: int  # of the sentence that had arrived when its last visible token was settled


class LiveSource:
    """One sentence's text as it arrives, as settled tokens.

    Args:
        settled_tokens: see there.
        clean: what training did to a source text.
        settled_text: what of a cleaned text that is still arriving later characters cannot change.
    """

    def __init__(
        self, settled_tokens: SettledTokens, clean: Callable[[str], str], settled_text: Callable[[str], str]
    ) -> None:
        self.settled_tokens, self.clean, self.settled_text = settled_tokens, clean, settled_text
        self.text = ""
        self._begin = self._flushed = 0  # of the text that is tokenised as one, and where it was last let go
        self._out: list[int] = []  # its tokens so far

    def add(self, character: str) -> list[int]:
        """Take a character; the tokens that are now settled."""
        self.text += character
        return self._new(lambda part: self.settled_tokens(self.settled_text(part)))

    def flush(self) -> list[int]:
        """Let go what is held back, as if the text ended here.

        Should it go on in a way that would have made other tokens of that, what follows is tokenised by itself.
        """
        tokens = self._new(lambda part: self.settled_tokens.complete(self.clean(part)))
        self._flushed = len(self.text)
        return tokens

    def _new(self, tokenise: Callable[[str], list[int]]) -> list[int]:
        tokens = tokenise(self.text[self._begin :])
        if any(one != other for one, other in zip(tokens, self._out, strict=False)):
            self._begin, self._out = self._flushed, []
            tokens = tokenise(self.text[self._begin :])
        new = tokens[len(self._out) :]
        self._out += new
        return new


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

    Attributes:
        sentences: number of sentences begun.
    """

    def __init__(
        self,
        engine: Engine,
        sources: SourceTokens,
        clean: Callable[[str], str],
        settled_text: Callable[[str], str],
        *,
        max_sentence_tokens: int | None = None,
        cut: bool = True,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        room = engine.max_source_tokens - len(engine.tokens.source_prefix) - 1
        if max_sentence_tokens is not None and not 1 <= max_sentence_tokens <= room:
            raise ValueError(f"max_sentence_tokens={max_sentence_tokens}: must lie between 1 and {room}")
        self.engine, self.sources, self.clean, self.settled_text = engine, sources, clean, settled_text
        self.limit, self.cut, self.warn = max_sentence_tokens or room, cut, warn
        self.settled_tokens = SettledTokens(sources.tokenizer, sources.segmentation)
        if self.settled_tokens.holds_everything:
            warn("this tokenizer's tokens are settled at sentence ends and pauses only: train with characters for less")
        self.sentences = 0
        self.context: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self.source = LiveSource(self.settled_tokens, self.clean, self.settled_text)
        self.stream: Stream | None = None
        self.tokens: list[int] = []  # of the sentence so far
        self.arrived: list[int] = []  # characters when each was settled

    def feed(self, text: str) -> Iterator[LiveEvent]:
        """Take characters that have arrived; the events they bring about."""
        for character in text:
            if character in "\n\r":
                yield from self.finish()
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
        for line in text.splitlines():
            for sentence in cut_sentences(line) if self.cut else [line]:
                tokens = self.settled_tokens.complete(self.clean(sentence))
                length = min(len(tokens), self.limit)
                if length:
                    self._open(length)
                for character in sentence:
                    yield from self._read(self.source.add(character))
                yield from self.finish()

    def _open(self, source_length: int | None = None) -> Stream:
        context = self.context if self.engine.tokens.context else ()
        self.stream = self.engine.open(name=self.sentences, source_length=source_length, context=context)
        self.sentences += 1
        return self.stream

    def _read(self, tokens: list[int]) -> Iterator[LiveEvent]:
        """Read tokens, cutting the sentence where it becomes too long."""
        while tokens:
            room = self.limit - len(self.tokens)
            taken, tokens = tokens[:room], tokens[room:]
            stream = self.stream or self._open()
            if not stream.over:
                stream.read(taken)
            self.tokens += taken
            self.arrived += [len(self.source.text)] * len(taken)
            yield from self._events()
            if len(self.tokens) == self.limit and tokens:
                self.warn(
                    f"cut at {self.limit} tokens, the longest sentence the model takes: expect a poor translation"
                )
                if not stream.over:
                    stream.end()
                yield from self._events()
                tokens += self.source.flush()  # so that nothing is kept of a text without end
                self.context = self.tokens
                self._begin()

    def _events(self) -> Iterator[LiveEvent]:
        assert self.stream is not None
        if self.stream.over:
            return
        for event in self.stream.write():
            seen = self.stream.state.read - self.stream.prefix
            yield LiveEvent(event, self.arrived[min(seen, len(self.arrived)) - 1])


def cut_sentences(text: str) -> list[str]:
    """A text's sentences, nothing left out."""
    sentences, begin = [], 0
    for end in range(1, len(text)):
        if ends_sentence(text[begin:end], text[end]):
            sentences.append(text[begin:end])
            begin = end
    return [*sentences, text[begin:]]
