"""What all figures share: fonts that hold Chinese, texts that can be shown, colours, files.

matplotlib brings DejaVu Sans; Chinese comes from a subset font beside this file (`fonts/README.md`), so that figures
look the same on every machine. In SVG files text is drawn as outlines, for the same reason.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE_FONT = Path(__file__).parent / "fonts" / "DuplexmtSansSC.otf"
FAMILIES = ["DejaVu Sans", "Duplexmt Sans SC"]
LOSS_COLOURS, EMIT_COLOURS = "cividis_r", "Blues"  # darker = more; lightness alone tells values apart
# Okabe and Ito's colours, which colour-blind people tell apart, from dark to light; lines differ in dashes, too.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
MARKERS = "os^Dv*PX"
END = "■"  # how the end token is shown
FORMATS = ("pdf", "svg", "png")
DATES = {"svg": "Date", "pdf": "CreationDate"}  # that a format puts down, if it is let


def line(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line of a figure."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


@contextmanager
def figure_style() -> Iterator[None]:
    """matplotlib's settings while a figure is made and saved."""
    import matplotlib
    from matplotlib import font_manager

    if not any(font.name == FAMILIES[1] for font in font_manager.fontManager.ttflist):
        font_manager.fontManager.addfont(CHINESE_FONT)
    settings: Any = {
        "font.family": FAMILIES,
        "text.parse_math": False,  # a "$" in a sentence is a dollar
        "svg.fonttype": "path",
        "svg.hashsalt": "duplexmt",
        "axes.linewidth": 0.6,
    }
    with matplotlib.rc_context(settings):
        yield


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write `name.pdf`, `.svg` and `.png`, the same bytes for the same figure; the folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    if figure.get_layout_engine() is not None:  # once, and not for each format
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    for path, suffix in zip(paths, FORMATS, strict=True):
        figure.savefig(path, **({"metadata": {DATES[suffix]: None}} if suffix in DATES else {"dpi": 160}))
    return paths


def no_picture(character: str) -> bool:
    """Whether a character controls something, or no font of ours can draw it."""
    return category(character)[0] == "C" or character not in drawable()


def shown(text: str, spelt_out: Callable[[str], bool] = no_picture) -> str:
    """A token as it can be drawn: every character that has no picture of its own is spelt out as `⟨HEX⟩`.

    One space at the beginning, which most tokens of a word have, is left out; other white space is shown as `␣`, line
    ends as `⏎`. A combining character at the beginning is put on a circle. Control characters and those that turn the
    direction of text are spelt out, so that they do nothing.
    """
    text = text[1:] if len(text) > 1 and text[0] == " " else text
    text = text.replace("⏹", END)
    drawn = []
    for character in text:
        if character in "\r\n":
            drawn.append("⏎")
        elif character.isspace():
            drawn.append("␣" if character != " " or not drawn or not text.strip() else " ")
        elif spelt_out(character):
            drawn.append(f"⟨{ord(character):X}⟩")
        elif category(character)[0] == "M" and not drawn:
            drawn.append(f"◌{character}")
        else:
            drawn.append(character)
    return "".join(drawn)


@cache
def drawable() -> frozenset[str]:
    """The characters that one of the fonts can draw."""
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    paths = findfont(FAMILIES[0]), str(CHINESE_FONT)
    return frozenset(chr(code) for path in paths for code in FT2Font(path).get_charmap())


def ink(colour: Sequence[float]) -> str:
    """Black or white, whichever is easier to read on a colour `(red, green, blue, …)` in [0, 1]."""
    return "black" if lightness(colour) > 0.5 else "white"


def lightness(colour: Sequence[float]) -> float:
    """How light a colour is to the eye: CIE L* of an sRGB colour, from 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 1.16 * luminance ** (1 / 3) - 0.16 if luminance > 0.008856 else 9.033 * luminance
