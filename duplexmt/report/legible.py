"""Texts and tokens as a page can show them: whatever controls, hides or turns text is spelt out.

A page draws with the reader's fonts, so that, unlike in `style.shown`, characters need no glyph of ours. HTML is not
escaped here: the template does that.
"""

from collections.abc import Sequence
from unicodedata import category, combining

from ..drawing.style import END

JOINERS = "\u200c\u200d"  # scripts need them between letters, and they turn nothing


def legible(text: str) -> str:
    """A whole text: control characters, halves of surrogate pairs and marks of direction become `⟨HEX⟩`."""
    return "".join(_spelt(character) for character in text)


def legible_token(text: str) -> str:
    """A token: as `legible`, without the one space before a word; other white space shows as `␣`, a line end as `⏎`.

    A combining character at the beginning is put on a circle.
    """
    text = text[1:] if len(text) > 1 and text[0] == " " else text
    drawn = []
    for number, character in enumerate(text):
        if character in "\r\n":
            drawn.append("⏎")
        elif character.isspace():
            drawn.append(" " if character == " " and text.strip() and number else "␣")
        elif number == 0 and (combining(character) or category(character)[0] == "M"):
            drawn.append(f"◌{character}")
        else:
            drawn.append(_spelt(character))
    return "".join(drawn).replace("⏹", END)


def pieces(text: str, ends: Sequence[int], names: Sequence[str]) -> list[str]:
    """A text cut after each of its tokens; a token that completes no character has its own name instead.

    Args:
        text: the whole.
        ends: characters complete after each token, never falling.
        names: what the tokenizer calls each token.

    Raises:
        ValueError: for another number of names than of ends.
    """
    if len(ends) != len(names):
        raise ValueError(f"a text of {len(names)} tokens has {len(ends)} ends of tokens: its record is damaged")
    starts = [0, *ends[:-1]] if ends else []
    return [text[start:end] or name for start, end, name in zip(starts, ends, names, strict=True)]


def _spelt(character: str) -> str:
    if character in JOINERS or (character in "\t\n" or category(character)[0] != "C"):
        return character
    return f"⟨{ord(character):X}⟩"
