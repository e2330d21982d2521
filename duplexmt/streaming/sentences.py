"""Where sentences end, in a text that is still arriving as in a whole one."""

import re

LINE_ENDS = "\n\r"
CLOSING = "\"'”’»」』）)]》】"
_WIDE, _NARROW = "。！？", ".!?…"
_AFTER_WIDE = CLOSING + _WIDE + "!?…"
# A full stop after these, or after a single letter, is no sentence end.
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "no", "fig"))
LOOK_BACK = 1 + max(map(len, _ABBREVIATIONS))  # characters that tell whether a text ends in one of them
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
    last = re.split(r"\W", words[-LOOK_BACK:])[-1]
    return marked != words + "." or not (len(last) == 1 or last.lower() in _ABBREVIATIONS)


def cut_sentences(text: str) -> list[str]:
    """A text's sentences, nothing left out."""
    sentences, begin = [], 0
    for marks in _MARKS.finditer(text):
        for last in _LAST_OF_MARKS.finditer(text, *marks.span()):
            end = last.end()
            if end < len(text) and ends_sentence(text[max(begin, marks.start() - LOOK_BACK) : end], text[end]):
                sentences.append(text[begin:end])
                begin = end
    return [*sentences, text[begin:]]
