"""When the end of a sentence is certain in a text that is still arriving.

`sentencex` knows marks, abbreviations, ordinals and quotations, by language. It is asked once about each mark: as soon
as the next word's first character is there or, where that is a capital, the whole word.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate

import regex
from sentencex import segment

LONGEST_SHOWN, LONGEST_HELD = 300, 30  # characters of a line; of what follows a mark
# Version 1.0.32 does not know these marks and brackets, makes lists of ASCII's parentheses, panics over wide spaces.
_KNOWN = str.maketrans("()។៕\u037e＂〔【〖『〈［｛〕】〗』〉］｝", '（）。。;"（（（（（（（）））））））')
_CLOSED_BY = str.maketrans("“‘«»", "”’»«")  # a mark that opens is closed some time
_CLOSING = " ）]}…》」』。！？!?"  # also where nothing has opened
_UNDECIDED = regex.compile(r"([\W_]*+)(?:\p{Lu}\w*+)?")
# What ends no sentence: no words, or the number of a list's item; a mark within an address.
_NO_END = regex.compile(r"(?s)[\W_]*(?:(\d+|[A-Za-z])\.)?\n.*|.*[ -~]{2}\n[0-9A-Za-z].*")


@lru_cache(4096)
def is_mark(language: str, character: str) -> bool:
    """Whether a character ends sentences of a language."""
    return not character.isalnum() and len(segment(language, f"word{character} Word")) > 1


class Sentences:
    """The sentences of a line as it arrives.

    Args:
        unseen: whether a character counts for nothing.

    Attributes:
        line, text: the line before the sentence, and the sentence so far, as `sentencex` knows them; the end of each.
        held: what follows a mark, undecided.
        over: whether a pause has ended the sentence, so that marks which come late are blank.
    """

    def __init__(self, language: str, unseen: Callable[[str], bool]) -> None:
        self.language, self.unseen = language, unseen
        self.line, self.text, self.held, self.over = "", "", "", False

    def take(self, character: str = "") -> Iterator[str | None]:
        """Take a character, or a pause: yields those that are certain by now, and "" and None where a sentence ends."""
        self.held += character
        held, over, end = self.held, self.over, -1
        seen = "".join(" " if one.isspace() or self.unseen(one) else one for one in held).translate(_KNOWN)
        undecided, gap = _UNDECIDED.match(seen).group(0, 1)
        if over or is_mark(self.language, self.text.rstrip()[-1:]):
            if character and len(seen) < LONGEST_HELD and undecided == seen:
                return
            end = self._end(gap, seen[len(gap) :])
        self.held = ""
        for place in range(len(held) + 1):
            if place == end:
                yield ""
                self.line, self.text, self.over = (self.line + self.text)[-LONGEST_SHOWN:], "", gap == seen
                yield None
            self.text = (self.text + seen[place : place + 1])[-LONGEST_SHOWN:]
            yield from " " if over and place < end else held[place : place + 1]

    def _end(self, gap: str, word: str) -> int:
        """Where in the gap after a mark a sentence ends, given the word that follows, or none for a pause; or -1."""
        marked = (self.line + self.text)[-LONGEST_SHOWN:]
        following = f"{gap}{word if marked.rstrip()[-1:].isascii() else 'X'} {gap.translate(_CLOSED_BY)}"
        if not word:  # of an ordinal, say, languages have small letters go on with the sentence
            following = " x" if regex.search(r"\d\.\s*\Z", marked) else " X"
        found = segment(self.language, marked + following)
        end = next(end for end in accumulate(map(len, found), initial=-len(marked)) if end >= 0)
        if end > len(gap or " ") or (not self.over and _NO_END.fullmatch(f"{self.text}\n{gap}{word}")):
            return len(gap) if self.over else -1
        return len(gap) - len(gap[end:].lstrip(_CLOSING)) if word else len(gap)
