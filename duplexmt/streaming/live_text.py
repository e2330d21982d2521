"""From a text as it arrives to sentences and settled tokens; no model in it.

Characters arrive at any pace. The text is cut at line ends, at sentence ends, and where a sentence has as many tokens
as it may. Within a sentence a token is read as soon as no later character can change it; what is held back counts as
delay, in characters. A pause in the text lets go what is held back, an end of the text ends the sentence. Characters
are taken one by one, so how they were cut on their way changes nothing.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from .sentences import LINE_ENDS, LOOK_BACK, ends_sentence
from .settled import SettledTokens

MOST_NAMED = 5  # kinds of invisible characters in a warning
KEPT = (
    "position",
    "places",
    "returned",
    "line_is_open",
    "context",
    "carried",
)  # of a text that is gone on with elsewhere
MOST_HELD = 10_000  # characters held back that settle no token: white space, say, or invisible ones


@dataclass(slots=True)
class SentenceBegin:
    """Tokens of a new sentence follow."""

    context: list[int]  # the tokens of the sentence before


@dataclass(slots=True)
class Settled:
    """Source tokens that no later character can change."""

    tokens: list[int]
    characters: int  # that have arrived since the last line or sentence end
    position: int  # in the whole text, up to which it was needed for them


@dataclass(slots=True)
class SentenceEnd:
    """The sentence has all its text."""

    position: int  # where the next one's text begins: where it was cut, before what had come too late for it


@dataclass(slots=True)
class LineEnd:
    """A line of the text has ended."""

    position: int


@dataclass(slots=True)
class TextEnd:
    """The text has ended."""

    position: int


Part = SentenceBegin | Settled | SentenceEnd | LineEnd | TextEnd


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
        self._cut = self._before = 0  # of the cleaned text, see `SettledTokens.after`; its tokens up to there

    def add(self, character: str) -> list[int]:
        """Take a character; the tokens that are now settled."""
        self.text += character
        self.characters += 1
        if len(self.text) - self._settled > MOST_HELD:
            return self.cut()
        return self._new(whole=False)

    def flush(self) -> list[int]:
        """Let go what is held back, as if the text ended here.

        Should it go on in a way that would have made other tokens of that, what follows is tokenised by itself.
        """
        tokens = self._new(whole=True)
        self._flushed = len(self.text)
        return tokens

    def cut(self) -> list[int]:
        """Let go what is held back, and keep no more of the text than what follows may depend on."""
        tokens = self.flush()
        text = self.text.rstrip()
        self.text = text[-LOOK_BACK:] + self.text[len(text) :][:1]
        self._begin, self._flushed, self._settled = 0, len(self.text), len(self.text)
        self._out, self._cut, self._before = self.settled_tokens.complete(self.clean(self.text)), 0, 0
        return tokens

    def characters_of(self, count: int) -> int:
        """How many characters at the end of the text the last tokens are of, all of it being let go; rather too many.

        Args:
            count: of these tokens, at least 1.
        """
        text = self.text[self._begin :]
        tokens = self.settled_tokens.complete(self.clean(text))
        if len(tokens) < count:  # they were let go in parts
            return len(self.text)

        def head(end: int) -> list[int]:
            return self.settled_tokens.complete(self.clean(text[:end]))

        most = len(tokens) - count
        end = bisect_right(range(len(text)), most, key=lambda end: len(head(end))) - 1
        while end > 0 and (len(head(end)) > most or head(end) != tokens[: len(head(end))]):
            end -= 1  # it lies within a token
        return len(text) - max(0, end)

    def _new(self, whole: bool) -> list[int]:
        """Tokens that are new, of a text that is still arriving or that is whole."""
        known, tokens = self._tokens(whole)
        out = self._out[known:]
        if tokens[: len(out)] != out[: len(tokens)]:
            self._begin, self._out, self._cut, self._before = self._flushed, [], 0, 0
            known, tokens = self._tokens(whole)
        new = tokens[len(self._out) - known :]
        self._out += new
        if new:
            self._settled = len(self.text)
        return new

    def _tokens(self, whole: bool) -> tuple[int, list[int]]:
        """Tokens from the last cut on, and how many come before."""
        part, known = self.text[self._begin :], self._before
        if whole:
            return 0, self.settled_tokens.complete(self.clean(part))
        tokens, before, self._cut = self.settled_tokens.after(self.settled_text(part), self._cut)
        self._before += before
        return known, tokens

    def state(self) -> list[Any]:
        """All that `restore` needs."""
        return [self.text, self.characters, self._begin, self._flushed, list(self._out), self._settled]

    def restore(self, state: list[Any]) -> None:
        """Stand where another one stood."""
        self.text, self.characters, self._begin, self._flushed, out, self._settled = state
        self._out, self._cut, self._before = list(out), 0, 0


class LiveText:
    """A text that is still arriving, in parts.

    Args:
        settled_tokens: see there.
        clean: what training did to a source text.
        settled_text: what of a cleaned text that is still arriving later characters cannot change.
        max_sentence_tokens: at which a sentence is cut, with a warning.
        cut: whether to cut at sentence ends too, not at line ends only.
        warn: is told what goes wrong.
        invisible: whether a character is to be passed over.

    Attributes:
        position: number of characters taken so far.
        tokens: of the sentence at hand, so far.
        context: the tokens of the sentence before.
        passed_over: invisible characters of the line so far.
    """

    def __init__(
        self,
        settled_tokens: SettledTokens,
        clean: Callable[[str], str],
        settled_text: Callable[[str], str],
        *,
        max_sentence_tokens: int,
        cut: bool = True,
        warn: Callable[[str], None] = lambda message: None,
        invisible: Callable[[str], bool] = lambda character: False,
    ) -> None:
        self.clean, self.settled_text = clean, settled_text
        self.limit, self.cut, self.warn, self.invisible = max_sentence_tokens, cut, warn, invisible
        self.passed_over: Counter[str] = Counter()
        self.settled_tokens = settled_tokens
        if self.settled_tokens.warning is not None:
            warn(self.settled_tokens.warning)
        self.position = 0
        self.places: list[int] = []  # positions behind each character of the source's text
        self.returned = self.line_is_open = False  # whether the last character was \r; whether it was no line end
        self.tokens: list[int] = []
        self.context: list[int] = []
        self.carried: list[int] = []  # tokens of a sentence that was cut, which belong to the next
        self._begin()

    def _begin(self) -> None:
        self.source = LiveSource(self.settled_tokens, self.clean, self.settled_text)
        self.places = []

    def _add(self, character: str) -> list[int]:
        """Have the source take a character, which ends at `position`."""
        self.places.append(self.position)
        tokens = self.source.add(character)
        del self.places[: -len(self.source.text)]
        return tokens

    # Each of these is to be read to its end before the next one begins, at any pace; None is a moment to stop at.

    def take(self, text: str) -> Iterator[Part | None]:
        """Take characters that have arrived."""
        for character in text:
            if character in LINE_ENDS:
                yield from self.finish()
                self._tell_passed_over()
                self.position += 1
                first = not (self.returned and character == "\n")  # \r\n is one line end
                self.returned, self.line_is_open = character == "\r", False
                yield LineEnd(self.position) if first else None
                continue
            seen = not self.invisible(character)
            if seen and self.cut and ends_sentence(self.source.text, character):
                yield from self.finish()
            self.position += 1
            self.returned, self.line_is_open = False, True
            if not seen:
                self.passed_over[character] += 1
            elif tokens := self._add(character):
                yield from self._settle(tokens)
            yield None

    def pause(self) -> Iterator[Part | None]:
        """Let go what is held back: nothing has arrived for a while."""
        yield from self._settle(self.source.flush())

    def finish(self) -> Iterator[Part | None]:
        """End the sentence, if there is one."""
        yield from self._settle(self.source.flush())
        self._begin()
        if self.tokens:
            self.context, self.tokens = self.tokens, []
            yield SentenceEnd(self.position)

    def end(self) -> Iterator[Part | None]:
        """End the text, and its last line if that is open."""
        yield from self.finish()
        self._tell_passed_over()
        if self.line_is_open:
            self.line_is_open = False
            yield LineEnd(self.position)
        yield TextEnd(self.position)

    def _tell_passed_over(self) -> None:
        """Say once a line what of it was not translated."""
        if self.passed_over:
            kinds = ", ".join(f"U+{ord(character):04X}" for character in sorted(self.passed_over)[:MOST_NAMED])
            more = ", …" if len(self.passed_over) > MOST_NAMED else ""
            self.warn(f"{self.passed_over.total():,} invisible characters passed over ({kinds}{more})")
            self.passed_over.clear()

    def _settle(self, tokens: list[int]) -> Iterator[Part | None]:
        """Tell of tokens, cutting the sentence where it becomes too long."""
        tokens, self.carried = [*self.carried, *tokens], []
        while tokens:
            if not self.tokens:
                yield SentenceBegin(self.context)
            room = self.limit - len(self.tokens)
            taken, tokens = tokens[:room], tokens[room:]
            self.tokens += taken
            yield Settled(taken, self.source.characters, self.position)
            if len(self.tokens) == self.limit and tokens:
                self.warn(
                    f"cut at {self.limit} tokens, the longest sentence the model takes: expect a poor translation"
                )
                tokens += self.source.flush()
                begin = self.places[-self.source.characters_of(len(tokens))] - 1
                if len(tokens) <= self.limit:  # the last cut
                    self.source.cut()  # so that nothing is kept of a text without end
                self.context, self.tokens, self.carried = self.tokens, [], tokens
                yield SentenceEnd(begin)
                self.carried = []

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, where a sentence or a line has just ended: plain values."""
        kept = {name: copy(getattr(self, name)) for name in KEPT}
        return kept | {"source": self.source.state(), "passed_over": dict(self.passed_over)}

    def restore(self, state: dict[str, Any]) -> Iterator[Part | None]:
        """Stand where another one stood, to take what comes after its `position`."""
        for name in KEPT:
            setattr(self, name, state[name])
        self.source.restore(state["source"])
        self.passed_over = Counter(state["passed_over"])
        yield from self._settle([])
