"""Pictures of one sentence pair's grid: what is drawn, whatever its tokens hold, and what is refused."""

import random
import warnings

import pytest
from matplotlib.figure import Figure

from duplexmt.drawing.grid_figures import SentenceGrid, heatmap_figure, output_figure, short
from duplexmt.drawing.style import shown
from duplexmt.drawing.table import terminal_width

from .test_style import NASTY

WORDS = ["man", " standing", " internationalisation", "a", " there", "."]
CHINESE = ["站", "在", "那边", "的", "男人", "曾", "棒球运动员手册"]


def random_grid(X, Y, source=CHINESE, target=WORDS, seed=0):
    draw = random.Random(seed)
    return SentenceGrid(
        source=[*(source[x % len(source)] for x in range(X - 1)), "■"],
        target=[*(target[y % len(target)] for y in range(Y - 1)), "■"],
        heatmap=[[draw.random() * 9 for _ in range(Y)] for _ in range(X)],
        emit=[[draw.random() for _ in range(Y)] for _ in range(X)],
        top=[[draw.choice([*source, *target, "■"]) for _ in range(Y)] for _ in range(X)],
        y_at=[*sorted(draw.randint(0, Y) for _ in range(X - 1)), Y],
        lam=0.1,
    )


def drawn(monkeypatch, draw, grid, folder):
    """The axes of a figure, and its size in pixels."""
    kept, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *rest, **more: kept.append(figure) or save(figure, *rest, **more)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # among them: a glyph is missing, there is no room for the axes
        path = draw(grid, folder)
    return kept[0].axes[0], tuple(int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))


@pytest.mark.parametrize("draw", [heatmap_figure, output_figure])
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (9, 14), pytest.param((130, 90), marks=pytest.mark.slow)])
def test_characters_of_any_kind_and_sentences_of_any_length_are_drawn(monkeypatch, tmp_path, draw, size):
    grid = random_grid(*size, source=NASTY, target=NASTY[::-1])
    axes, (width, height) = drawn(monkeypatch, draw, grid, tmp_path)
    assert (width < 3000, height < 1500) == (True, True)
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == [short(token, 16) for token in grid.source[:40]]
    assert len(axes.texts) == (0 if draw is heatmap_figure else min(40, size[0]) * min(40, size[1]))
    assert (f"of {size[0]} × {size[1]} tokens" in axes.get_title("left")) == (max(size) > 40)


def test_the_path_encloses_the_mask(monkeypatch, tmp_path):
    grid = random_grid(6, 5)
    axes, _ = drawn(monkeypatch, heatmap_figure, grid, tmp_path)
    xs, ys = axes.lines[1].get_path().vertices.T
    assert (xs[0], ys[0], xs[-1], ys[-1]) == (0, 0, 6, 5)
    below = sum((b - a) * y for a, b, y in zip(xs, xs[1:], ys, strict=False))
    assert below == sum(grid.y_at) == pytest.approx(grid.area * 30)


@pytest.mark.parametrize(("X", "Y"), [(60, 50), (60, 30), (30, 60)])
def test_the_path_of_a_cut_grid_is_that_of_the_whole(X, Y):
    whole = random_grid(X, Y)
    part = whole.cut(40)
    assert list(part.y_at) == [min(height, 40) for height in whole.y_at[:40]]
    assert whole.cut(60) == whole


def test_long_tokens_are_cut_and_say_so():
    for token in ("棒球手在那边", "international", "a", "\u0301" * 50, "a" * 10**4):
        for columns in (3, 7, 16):
            text = short(token, columns)
            assert terminal_width(text) <= columns
            assert text == shown(token) or text.endswith("…")
