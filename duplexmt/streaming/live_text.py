"""From a text as it arrives to sentences and settled tokens; no model in it.

Characters arrive at any pace. The text is cut at line ends, at sentence ends, and where a sentence would have more
tokens than it may. Within a sentence a token is read as soon as no later character can change it; what is held back
counts as delay, in characters. A pause in the text lets go what is held back, and ends a sentence that is complete; an
end of the text ends any. Characters are taken one by one, so how they were cut on their way changes nothing.

A sentence that is too long is cut behind a clause mark near the limit, else between words. So in its second half a word
is read when the next begins, and in its last quarter what follows a clause mark when that is seen to fit.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import regex

from ..data.settled import SettledTokens
from .sentences import Sentences

LINE_ENDS = "\n\r"  # and not where `splitlines` has some: U+2028, say
CLAUSE_MARKS = ",;:–—，、；：،؛՝·"
# Between words, or graphemes where words have no spaces between them; behind marks, before what opens.
GAP = regex.compile(rf"(?w)(?<=[\s\w\p{{Pe}}\p{{Pf}}{CLAUSE_MARKS}])\b(?=[\w¿¡\p{{Ps}}\p{{Pi}}])")
MOST_NAMED = 5  # kinds of invisible characters in a warning
KEPT = "position", "characters", "arrived", "returned", "line_is_open", "context", "passed_over"  # for `restore`
# Characters held back that settle no token: white space, say, or marks upon marks. At each of them all are looked at.
MOST_HELD = 1_000


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
    text: str = "\n"


@dataclass(slots=True)
class TextEnd:
    """The text has ended."""

    position: int


Part = SentenceBegin | Settled | SentenceEnd | LineEnd | TextEnd


@dataclass(slots=True)
class LiveSource:
    """Text as it arrives, as settled tokens: a sentence, or the rest of one that was cut."""

    settled_tokens: SettledTokens
    clean: Callable[[str], str]  # what training did to a source text
    settled_text: Callable[[str], str]  # what of a cleaned text that is still arriving later characters cannot change
    text: str = ""  # that has arrived
    settled: int = 0  # where the text ended when the last of the tokens was
    tokens: list[int] = field(default_factory=list)  # that are settled
    begin: int = 0  # of the text that is tokenised as one: where it was last let go, if it went on in another way
    _first: int = 0  # `tokens[_first:]` are from `begin` on
    _flushed: int = 0
    _cut: int = 0  # of the cleaned text, see `SettledTokens.after`
    _before: int = 0  # its tokens up to there

    def settle(self, whole: bool = False) -> None:
        """Look for further tokens in a text that is still arriving, or let go what is held back as if it ended here.

        Should it go on in a way that would have made other tokens of that, what follows is tokenised by itself.
        """
        known, tokens = self._tokens(whole)
        out = self.tokens[self._first + known :]
        if tokens[: len(out)] != out[: len(tokens)]:
            self.begin, self._first, self._cut, self._before = self._flushed, len(self.tokens), 0, 0
            known, tokens = self._tokens(whole)
        if new := tokens[len(self.tokens) - self._first - known :]:
            self.tokens += new
            self.settled = len(self.text)
        if whole:
            self._flushed = len(self.text)

    def before(self, place: int) -> list[int]:
        """The tokens of the text up to a place, not before `begin`, if it ended there."""
        return self.tokens[: self._first] + self.settled_tokens.complete(self.clean(self.text[self.begin : place]))

    def _tokens(self, whole: bool) -> tuple[int, list[int]]:
        """Tokens from the last cut on, and how many come before."""
        part, known = self.text[self.begin :], self._before
        if whole:
            return 0, self.settled_tokens.complete(self.clean(part))
        tokens, before, self._cut = self.settled_tokens.after(self.settled_text(part), self._cut)
        self._before += before
        return known, tokens


class LiveText:
    """A text that is still arriving, in parts.

    Args:
        settled_tokens, clean, settled_text: see `LiveSource`.
        max_sentence_tokens: at which a sentence is cut, with a warning; a character is not.
        cut: whether to cut at sentence ends too, not at line ends only.
        invisible: whether a character is to be passed over.
        foreign: whether a sentence is in another script than the source language's, which is said once a text.
        between: what stands between the translations of two sentences of a line.

    Attributes:
        position: number of characters taken so far, without those that may belong to the next sentence.
        tokens: of the sentence at hand, so far.
        context: the tokens of the sentence before.
        passed_over: invisible characters of the line so far.
        given: all characters since the last `forget`, taken or not, and "" for a pause.
    """

    def __init__(
        self,
        settled_tokens: SettledTokens,
        clean: Callable[[str], str],
        settled_text: Callable[[str], str],
        *,
        language: str,
        max_sentence_tokens: int,
        cut: bool = True,
        warn: Callable[[str], None] = lambda message: None,
        invisible: Callable[[str], bool] = lambda character: False,
        foreign: Callable[[str], bool] = lambda text: False,
        between: str = " ",
    ) -> None:
        self.foreign, self.language = foreign, language
        self.new_source = partial(LiveSource, settled_tokens, clean, settled_text)
        self.between = between
        self.limit, self.cut, self.warn, self.invisible = max_sentence_tokens, cut, warn, invisible
        self.new_sentences = partial(Sentences, language, invisible)
        self.passed_over: Counter[str] = Counter()
        if settled_tokens.warning is not None:
            warn(settled_tokens.warning)
        # Visible characters since the last line or sentence end, and those there were when the last one was cut.
        self.position = self.characters = self.arrived = 0
        self.returned = self.line_is_open = False  # whether the last character was \r; whether it was no line end
        self.tokens, self.context = list[int](), list[int]()
        self.sentences = self.new_sentences()
        self.given = deque[str]()
        self._begin()

    def _begin(self, text: str = "", places: Iterable[int] = ()) -> None:
        self.source = self.new_source(text)
        self.places = [*places]  # positions behind each character of the source's text

    # Each of these is to be read to its end before the next one begins, at any pace; None is a moment to stop at.

    def take(self, text: str) -> Iterator[Part | None]:
        """Take characters that have arrived."""
        self.given += text
        return self._take_text(text)

    def pause(self) -> Iterator[Part | None]:
        """Let go what is held back, and end a sentence that is complete: nothing has arrived for a while."""
        self.given.append("")
        return self._pause()

    def _take_text(self, text: str) -> Iterator[Part | None]:
        for character in text:
            if character in LINE_ENDS:
                yield from self.finish()
                self._tell_passed_over()
                self.position += 1
                first = not (self.returned and character == "\n")  # \r\n is one line end
                self.returned, self.line_is_open = character == "\r", False
                yield LineEnd(self.position) if first else None
            else:
                self.returned, self.line_is_open = False, True
                yield from self._take(self.sentences.take(character) if self.cut else character)
                yield None

    def _pause(self) -> Iterator[Part | None]:
        yield from self._take(chain(self.sentences.take() if self.cut else (), [""]))

    def finish(self) -> Iterator[Part | None]:
        """End the sentence, if there is one, and what belongs together."""
        yield from self._pause()
        self.sentences = self.new_sentences()
        yield from self._end_sentence()

    def end(self) -> Iterator[Part | None]:
        """End the text, and its last line if that is open."""
        yield from self.finish()
        self._tell_passed_over()
        if self.line_is_open:
            self.line_is_open = False
            yield LineEnd(self.position)
        yield TextEnd(self.position)

    def _take(self, characters: Iterable[str | None]) -> Iterator[Part | None]:
        """Take characters of which it is certain to which sentence they belong; it ends at None."""
        for character in characters:
            if not character:
                yield from self._settle(whole=True) if character == "" else self._end_sentence()
                continue
            self.position += 1
            if self.invisible(character):
                self.passed_over[character] += 1
                continue
            self.characters += 1
            self.source.text += character
            self.places.append(self.position)
            yield from self._settle()
            if len(self.source.text) - self.source.settled > MOST_HELD:
                yield from self._take(("", None))

    def _end_sentence(self) -> Iterator[Part | None]:
        self._look_at_script()
        self._begin()
        self.characters = self.arrived = 0
        if self.tokens:
            self.context, self.tokens = self.tokens, []
            yield SentenceEnd(self.position)

    def _tell_passed_over(self) -> None:
        """Say once a line what of it was not translated."""
        if self.passed_over:
            kinds = ", ".join(f"U+{ord(character):04X}" for character in sorted(self.passed_over)[:MOST_NAMED])
            more = ", …" if len(self.passed_over) > MOST_NAMED else ""
            self.warn(f"{self.passed_over.total():,} invisible characters passed over ({kinds}{more})")
            self.passed_over.clear()

    def _settle(self, whole: bool = False) -> Iterator[Part | None]:
        """Tell of settled tokens, or of all, cutting the sentence where it becomes too long."""
        self.source.settle(whole)
        while (count := len(self.source.tokens)) > self.limit:
            yield from self._cut_sentence()
            self.source.settle(whole)
        if count > self.limit // 2 and not whole:
            count = next(self._cuts(len(self.source.text)), (0, 0))[1]
        yield from self._tell(count)

    def _tell(self, count: int) -> Iterator[Part]:
        """Tell of the sentence's tokens up to a number."""
        if new := self.source.tokens[len(self.tokens) : count]:
            if not self.tokens:
                yield SentenceBegin(self.context)
            self.tokens += new
            yield Settled(new, max(self.characters, self.arrived), self.position)

    def _look_at_script(self) -> None:
        if self.foreign(self.source.text):
            self.foreign = lambda text: False
            told = f"{self.source.text.strip()[:40]!r} is not in the script of the model's source language"
            self.warn(f"{told}, {self.language}: expect nonsense")

    def _cut_sentence(self) -> Iterator[Part]:
        """Cut the sentence where it is best; the rest begins another one."""
        self._look_at_script()
        source, text = self.source, self.sentences.text
        # A beginning of a word may have more tokens than the word, but no words have twice their tokens.
        place = next(self._cuts(self._longest(2 * self.limit)), (0, 0))[0]
        place = place or max(1, source.begin, self._longest(self.limit))  # one character may have more tokens
        yield from self._tell(max(1, len(source.before(place))))
        self.warn(f"cut at {self.limit} tokens, the longest sentence the model takes: expect a poor translation")
        self.context, self.tokens = self.tokens, []
        places, rest, self.arrived = self.places[place:], source.text[place:], self.characters
        here = self.position, self.characters, text
        # Who goes on elsewhere is given the rest again.
        self.position, self.characters = places[0] - 1 if places else self.position, self.characters - len(rest)
        self.sentences.text = text[: max(0, len(text) - len(rest))]
        yield SentenceEnd(self.position)
        self.position, self.characters, self.sentences.text = here
        self._begin(rest, places)

    def _longest(self, tokens: int) -> int:
        """Where the longest beginning of the sentence's text ends that has no more tokens."""
        places = range(len(self.source.text) + 1)
        return bisect_right(places, tokens, key=lambda place: len(self.source.before(place))) - 1

    def _cuts(self, most: int) -> Iterator[tuple[int, int]]:
        """Places up to one where the text falls in two as its tokens do, the best first; how many are before each.

        They are behind a clause mark near the limit, between words in the second half, or anywhere.
        """
        source, text = self.source, self.source.text
        places = range(most, max(1, source.begin) - 1, -1)
        gaps = [place for place in places if GAP.match(text, place)]
        clauses = [place for place in gaps if text[:place].rstrip()[-1:] in CLAUSE_MARKS]
        for least, some in ((self.limit * 3 // 4, clauses), (self.limit // 2 + 1, gaps), (1, places)):
            for place in some:
                tokens = source.before(place)
                if len(tokens) < max(least, len(self.tokens)):
                    break
                if len(tokens) <= self.limit and tokens == source.tokens[: len(tokens)]:
                    yield place, len(tokens)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, where a sentence or a line has just ended: plain values."""
        sentence = [self.sentences.line, self.sentences.text, self.sentences.over]
        return {name: copy(getattr(self, name)) for name in KEPT} | {"sentence": sentence}

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where another one stood, or this one has stood, to take what comes after its `position`."""
        for name in KEPT:
            setattr(self, name, state[name])
        self.passed_over, self.tokens, self.sentences = Counter(self.passed_over), [], self.new_sentences()
        self.sentences.line, self.sentences.text, self.sentences.over = state["sentence"]
        self.given.clear()
        self._begin()

    def forget(self, characters: int) -> None:
        """So many will not be taken again."""
        while characters > 0:
            characters -= len(self.given.popleft())

    def again(self, state: dict[str, Any], position: int) -> Iterator[Part | None]:
        """Stand where this one stood at the last `forget`, and take what was given since, up to a position."""
        given, at = [*self.given], state["position"]
        self.restore(state)
        counted = [at := at + len(one) for one in given]
        kept = given[: bisect_right(counted, position)]
        return chain.from_iterable([self.take(one) if one else self.pause() for one in kept])
