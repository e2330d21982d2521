"""When the end of a sentence is certain in a text that is still arriving.

`sentencex` knows marks, abbreviations, ordinals and quotations, by language. It is asked as soon as the character after
a mark is there and, where that one's word might change the answer, once more when the word has ended.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate

from sentencex import segment

LONGEST_SHOWN, LONGEST_WORD = 300, 30  # characters of a line; of what follows a mark
# Version 1.0.32 panics over spaces of several bytes, and does not know these marks and brackets. Of parentheses with
# ASCII's it makes lists.
_KNOWN = {ord(c): " " for c in map(chr, range(0x3001)) if c.isspace()} | str.maketrans(
    "()。។៕\u037e＂〔【〖『〈［｛〕】〗』〉］｝", '（）。。。;"（（（（（（（）））））））'
)
_CLOSED_BY = {"“": "”", "‘": "’", '"': '"', "'": "'", "«": "»", "»": "«"}  # a mark that opens is closed some time
_CLOSING = re.compile(r"(?:[\s）\]}…]|(?<=\S)[”’»」』》。！？!?])*")  # that nothing has opened
_NO_WORDS = re.compile(r"[\W_]*((\d+|[A-Za-z])\.)?")  # or the number of a list's item
_SHORT = re.compile(r"(\d|\b\w)\W\Z")  # may be an ordinal or an initial


@lru_cache(4096)
def is_mark(language: str, character: str) -> bool:
    """Whether a character ends sentences of a language."""
    return not character.isalnum() and len(segment(language, f"word{character} Word")) > 1


class Sentences:
    """The sentences of a line as it arrives.

    Args:
        language: of the text.
        unseen: whether a character counts for nothing.

    Attributes:
        line, text: the line before the sentence, the end of it, and the sentence so far, as `sentencex` knows them.
        over: whether a pause has ended the sentence before, so that marks which come late are blank.
    """

    def __init__(self, language: str, unseen: Callable[[str], bool]) -> None:
        self.language, self.unseen, self.line, self.text, self.over = language, unseen, "", "", False
        self._held: list[str] = []  # undecided: characters after a mark, each with the unseen ones behind it

    def add(self, character: str) -> Iterator[str | None]:
        """Take a character; yields those of which it is certain where they belong; between sentences "" and None."""
        if self.unseen(character):
            self._held[-1:] = [one + character for one in self._held[-1:]]
            yield from "" if self._held else character
        elif self._held or self.over or is_mark(self.language, self.text.rstrip()[-1:]):
            self._held.append(character)
            yield from self._decide()
        else:
            yield from self._give([character])

    def pause(self) -> Iterator[str | None]:
        """Decide about what is held; yields None, too, where a sentence would end if another one came."""
        if self._held or is_mark(self.language, self.text.rstrip()[-1:]):
            yield from self._decide(paused=True)

    def _give(self, characters: list[str]) -> Iterator[str]:
        for one in characters:
            self.text = (self.text + one[0].translate(_KNOWN))[-LONGEST_SHOWN:]
            yield from one

    def _decide(self, paused: bool = False) -> Iterator[str | None]:
        """Let go what is held, if it is certain by now whether a sentence ends before it."""
        seen = "".join(one[0] for one in self._held).translate(_KNOWN)
        marked = f"{self.line} {self.text}".strip()[-LONGEST_SHOWN:]
        word, plain = re.sub(r"\A[\W_]+", "", seen), marked[-1].isascii()
        gap = seen[: len(seen) - len(word)]
        at_once = paused or len(seen) > LONGEST_WORD
        if not word and not at_once:
            return
        end = self._end(marked, gap, word if plain else "X" * bool(word))
        if plain and word[:1].isupper() and word.isalnum() and not at_once and (end is None or _SHORT.search(marked)):
            return
        held, self._held = self._held, []
        if self.over:
            end = len(gap) if end is None else end
            self.line, self.over = self.line + seen[:end], not word
            yield from "".join(" " + one[1:] for one in held[:end])
        elif end is not None:
            yield from self._give(held[:end])
            yield ""
            self.line, self.text, self.over = marked + seen[:end], "", paused and not word
            yield None
        last = len(held) - (len(word) > 1 and not word.isalnum())  # which may be a mark
        yield from self._give(held[end or 0 : last])
        for character in "".join(held[last:]):
            yield from self.add(character)

    def _end(self, marked: str, gap: str, word: str) -> int | None:
        """Where in the gap after a mark a sentence ends, given the word that follows, or none for a pause."""
        tight = word and not gap and (marked[-2:] + word[0]).isascii()  # as in addresses
        if tight or (not self.over and _NO_WORDS.fullmatch(self.text)):
            return None
        if word:
            following = f"{gap}{word} {''.join(_CLOSED_BY.get(one, '') for one in gap)}"
        else:  # of an ordinal, say, languages have small letters go on with the sentence
            following = " x" if re.search(r"\d\.\Z", marked) else " X"
        ends = accumulate(map(len, segment(self.language, marked + following)), initial=-len(marked))
        end = next(end for end in ends if end >= 0)
        if end > len(gap or " "):
            return None
        closed = _CLOSING.match(marked + gap, len(marked) + end)
        assert closed is not None  # it matches nothing, too
        return closed.end() - len(marked) if word else len(gap)
