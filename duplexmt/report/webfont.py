"""The Chinese font of the figures, cut down to the characters of one page and ready to stand in its style sheet."""

from base64 import b64encode
from io import BytesIO

from ..drawing.style import CHINESE_FONT

FIRST = 0x2E80  # radicals: what stands before it, readers' own fonts have


def embedded_font(text: str) -> str:
    """A `data:` address of a WOFF font with the Chinese characters of a text; empty where it has none of the font's."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    font = TTFont(CHINESE_FONT, recalcTimestamp=False)
    wanted = sorted({ord(character) for character in text if ord(character) >= FIRST} & set(font.getBestCmap()))
    if not wanted:
        return ""
    # Names stay: the font's licence and its copyright are there.
    options = subset.Options(flavor="woff", layout_features=[], name_IDs=["*"], notdef_outline=True)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=wanted)
    subsetter.subset(font)
    font.flavor = "woff"
    buffer = BytesIO()
    font.save(buffer)
    return f"data:font/woff;base64,{b64encode(buffer.getvalue()).decode('ascii')}"
