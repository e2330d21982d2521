"""What the report's viewer shows, worked out beforehand: all translations of a sentence, and the grids of their texts.

A translation changes at certain thresholds θ only, so each stands once, with the range of θ that makes it. The EMIT
head is asked about the text that was written, not about the reference: so each text has a grid of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..drawing import style
from ..drawing.grid_figures import SentenceGrid
from .legible import legible, legible_token

MOST_TOKENS = 40  # rows or columns of a grid that are shown
COLOUR_STEPS = 64


@dataclass(frozen=True)
class Visit:
    """What happens from the reading of one source token to that of the next."""

    written: Sequence[tuple[str, float]]  # text of each token written (may be empty), and p(EMIT) at its cell
    left_at: float | None  # p(EMIT) where the next token was read instead; None at the last token


@dataclass(frozen=True)
class Way:
    """One translation of a sentence, and which thresholds make it."""

    first: int  # index of the lowest threshold
    last: int  # of the highest
    visits: Sequence[Visit]  # of each source token read; the last of a whole translation is the end token
    stopped: str  # end_token, or what stopped it
    al: float | None  # AL in model tokens; None where nothing was written
    grid: int  # index of the grid of its text

    @property
    def heights(self) -> list[int]:
        """Tokens written before each source token is left; the end token, where it was predicted, is one of them."""
        heights, written = [], 0
        for visit in self.visits:
            written += len(visit.written)
            heights.append(written)
        return [*heights[:-1], heights[-1] + 1] if self.stopped == "end_token" else heights


@dataclass(frozen=True)
class ViewerSentence:
    """A sentence at all thresholds."""

    label: str
    source: str
    reference: str
    grids: Sequence[SentenceGrid]  # the reference's first
    ways: Sequence[Way]  # from the lowest thresholds to the highest, one at each threshold


@dataclass(frozen=True)
class Viewer:
    """All sentences of the viewer, at least one."""

    thetas: Sequence[float]  # rising
    sentences: Sequence[ViewerSentence]
    source_language: str
    target_language: str
    theta: float = 0.5  # what is shown first: the nearest of `thetas`


def viewer_data(viewer: Viewer) -> dict[str, Any]:
    """What the page's script reads, as JSON can hold it; texts are made legible, not escaped."""
    return {
        "thetas": list(viewer.thetas),
        "languages": [viewer.source_language, viewer.target_language],
        "lossColours": colours(style.LOSS_COLOURS),
        "emitColours": colours(style.EMIT_COLOURS),
        "sentences": [_sentence(sentence) for sentence in viewer.sentences],
    }


def script_json(data: Any) -> str:
    """JSON that may stand inside a `<script>`: nothing in it ends the script or begins a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def colours(name: str) -> list[list[str]]:
    """A colour map from 0 to 1, with the ink that can be read on each of its colours."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    chosen = [colormaps[name](step / (COLOUR_STEPS - 1)) for step in range(COLOUR_STEPS)]
    return [[to_hex(colour), "#000" if style.ink(colour) == "black" else "#fff"] for colour in chosen]


def _sentence(sentence: ViewerSentence) -> dict[str, Any]:
    names: dict[str, int] = {}
    return {
        "label": legible(sentence.label),
        "source": legible(sentence.source),
        "reference": legible(sentence.reference),
        "tokens": [legible_token(token) for token in sentence.grids[0].source],
        "highest": max((max(map(max, grid.heatmap)) for grid in sentence.grids), default=0.0),
        "ways": [_way(way) for way in sentence.ways],
        "grids": [_grid(grid, names) for grid in sentence.grids],
        "names": list(names),  # after the grids, which fill it
    }


def _way(way: Way) -> dict[str, Any]:
    return {
        "first": way.first,
        "last": way.last,
        "visits": [
            [[[legible(text), _rounded(p)] for text, p in visit.written], _rounded(visit.left_at)]
            for visit in way.visits
        ],
        "heights": way.heights,
        "stopped": way.stopped,
        "al": None if way.al is None else round(way.al, 2),
        "grid": way.grid,
    }


def _grid(grid: SentenceGrid, names: dict[str, int]) -> dict[str, Any]:
    """A grid, cut to what is shown; tokens are numbers in `names`, which grows."""
    shown = grid.cut(MOST_TOKENS)
    return {
        "size": [len(grid.source), len(grid.target)],
        "target": [names.setdefault(legible_token(token), len(names)) for token in shown.target],
        "loss": [[round(value, 2) for value in row] for row in shown.heatmap],
        "emit": [[_rounded(value) for value in row] for row in shown.emit],
        "top": [[names.setdefault(legible_token(token), len(names)) for token in row] for row in shown.top],
        "best": list(shown.y_at),
        "area": round(grid.area, 3),
        "lam": grid.lam,
    }


def _rounded(probability: float | None) -> float | None:
    """To five significant digits: one above θ = 0 stays above it."""
    return None if probability is None else float(f"{probability:.5g}")
