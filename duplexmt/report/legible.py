"""Texts and tokens as a page can show them: whatever controls, hides or turns text is spelt out.

A page draws with the reader's fonts, so that, unlike in `style.shown`, characters need no glyph of ours. HTML is not
escaped here: the template does that.
"""

from collections.abc import Sequence
from unicodedata import category

from ..drawing.style import shown

JOINERS = "\u200c\u200d"  # scripts need them between letters, and they turn nothing


def hidden(character: str) -> bool:
    """Whether a character controls, hides or turns text."""
    return category(character)[0] == "C" and character not in JOINERS


def legible(text: str) -> str:
    """A whole text: what is `hidden` becomes `⟨HEX⟩`, but for tabs and line ends."""
    return "".join(f"⟨{ord(c):X}⟩" if hidden(c) and c not in "\t\n" else c for c in text)


def legible_token(text: str) -> str:
    """A token, see `style.shown`."""
    return shown(text, hidden)


def pieces(text: str, ends: Sequence[int], names: Sequence[str]) -> list[str]:
    """A text cut after each of its tokens; a token that completes no character has its own name instead.

    Args:
        ends: characters complete after each token, never falling.
        names: what the tokenizer calls each token.

    Raises:
        ValueError: for another number of names than of ends.
    """
    if len(ends) != len(names):
        raise ValueError(f"a text of {len(names)} tokens has {len(ends)} ends of tokens: its record is damaged")
    starts = [0, *ends[:-1]] if ends else []
    return [text[start:end] or name for start, end, name in zip(starts, ends, names, strict=True)]
