"""Figures of one sentence pair's grid: what is drawn, that labels keep apart, and what is refused."""

import random
import warnings

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from duplexmt.drawing import style
from duplexmt.drawing.grid_figures import SentenceGrid, heatmap_figure, output_figure

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
    """The figure a function saves, its files, and the boxes of all texts in it, measured as they are drawn."""
    kept = []
    save = style.save
    monkeypatch.setattr(
        style, "save", lambda figure, *rest, **options: kept.append(figure) or save(figure, *rest, **options)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # among them: a glyph is missing
        paths = draw(grid, folder)
    with style.figure_style():
        canvas = FigureCanvasAgg(kept[0])
        canvas.draw()
        renderer = canvas.get_renderer()
        axes = kept[0].axes[0]
        texts = [text for text in [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts] if text.get_text()]
        texts += [axes.xaxis.label, axes.yaxis.label]
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
        inside = kept[0].bbox
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 for _, box in boxes)
    return kept[0], paths, boxes


def collisions(boxes):
    return [
        (text, other)
        for i, (text, a) in enumerate(boxes)
        for other, b in boxes[:i]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 0.5
    ]


@pytest.mark.slow
@pytest.mark.parametrize("draw", [heatmap_figure, output_figure])
@pytest.mark.parametrize("source", [[*CHINESE, *WORDS]])
def test_no_labels_collide_at_32_by_32(monkeypatch, tmp_path, draw, source):
    grid = random_grid(32, 32, source=source)
    *_, boxes = drawn(monkeypatch, draw, grid, tmp_path)
    assert len(boxes) >= 66
    assert collisions(boxes) == []


@pytest.mark.parametrize("draw", [heatmap_figure, output_figure])
def test_characters_of_any_kind_are_drawn_without_missing_glyphs_or_collisions(monkeypatch, tmp_path, draw):
    grid = random_grid(9, 14, source=NASTY, target=NASTY[::-1])
    _, paths, boxes = drawn(monkeypatch, draw, grid, tmp_path)
    assert collisions(boxes) == []
    assert b"<b>" not in paths[0].read_bytes()


@pytest.mark.parametrize("draw", [heatmap_figure, output_figure])
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (130, 2)])
def test_sentences_of_any_length_fit(monkeypatch, tmp_path, draw, size):
    _, paths, boxes = drawn(monkeypatch, draw, random_grid(*size), tmp_path)
    assert collisions(boxes) == []
    for path in paths:
        assert path.stat().st_size < 2_000_000
    width, height = (int.from_bytes(paths[1].read_bytes()[at : at + 4]) for at in (16, 20))
    assert width < 3000
    assert height < 3000


def test_the_path_encloses_the_mask(monkeypatch, tmp_path):
    grid = random_grid(6, 5)
    figure, *_ = drawn(monkeypatch, heatmap_figure, grid, tmp_path)
    xs, ys = figure.axes[0].lines[0].get_path().vertices.T
    assert (xs[0], ys[0], xs[-1], ys[-1]) == (0, 0, 6, 5)
    below = sum((b - a) * y for a, b, y in zip(xs, xs[1:], ys, strict=False))
    assert below == sum(grid.y_at) == pytest.approx(grid.area * 30)


@pytest.mark.parametrize(("X", "Y"), [(60, 50), (60, 30), (30, 60)])
def test_the_path_of_a_cut_grid_is_that_of_the_whole(X, Y):
    whole = random_grid(X, Y)
    part = whole.cut(40)
    assert list(part.y_at) == [min(height, 40) for height in whole.y_at[:40]]
    assert whole.cut(60) == whole
