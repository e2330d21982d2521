"""The schematics: small files, the same every time."""

from itertools import pairwise

from matplotlib.colors import to_rgb

from duplexmt.drawing.schematics import GREY, I_COLOUR, O_COLOUR, PALE, schematics
from duplexmt.drawing.style import lightness


def test_schematics_are_small_and_the_same_every_time(tmp_path):
    first, again = schematics(tmp_path / "first"), schematics(tmp_path / "again")
    assert [path.name for path in first] == [
        f"{name}.{kind}"
        for name in ("grid", "attention-source", "attention-target", "cache")
        for kind in ("svg", "png")
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert all(path.stat().st_size < 150_000 for path in first)


def test_colours_are_told_apart_in_greyscale():
    lights = sorted(lightness(to_rgb(colour)) for colour in (I_COLOUR, O_COLOUR, PALE, GREY))
    assert all(b - a > 0.08 for a, b in pairwise(lights))
