"""The figure: drawn from what it is given, the same each time."""

import warnings
from pathlib import Path

from duplexmt.drawing.pareto import _panels, latencies_figure, pareto_figure

CURVES = {
    "grid": [
        {"setting": "θ=0.5", "AL": (1.0, (0.8, 1.1)), "BLEU": (20.0, (19.0, 21.0)), "COMET": (60.0, None)},
        {"setting": "θ=0.9", "AL": (3.0, (2.8, 3.3)), "BLEU": (24.0, (23.0, 25.0)), "COMET": (64.0, None)},
    ],
    "offline": [{"setting": "—", "AL": (9.0, None), "BLEU": (26.0, None)}],
}


def test_the_figure_is_written_twice_over_and_is_the_same_every_time(tmp_path: Path) -> None:
    paths = pareto_figure(CURVES, ["COMET", "BLEU"], tmp_path / "new")
    assert [path.name for path in paths] == ["pareto.pdf", "pareto.svg", "pareto.png"]
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    again = pareto_figure(CURVES, ["COMET", "BLEU"], tmp_path)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


def test_each_latency_has_a_panel_in_tokens_and_in_words_and_more_written_early_stands_left(tmp_path: Path) -> None:
    names = ("AL", "YAAL", "SWF", "AL c/w", "YAAL c/w", "SWF c/w")
    points = [
        {"setting": f"θ={n}", "BLEU": (20.0 + n, None)} | {name: (10.0 * n, (9.0 * n, 11.0 * n)) for name in names}
        for n in (1, 2)
    ]
    del points[0]["YAAL"]
    paths = latencies_figure({"grid": points, "offline": [points[0]]}, "BLEU", tmp_path)
    assert [path.name for path in paths] == ["latencies.pdf", "latencies.svg", "latencies.png"]
    figure = _panels({"grid": points}, ["BLEU"] * 6, names, columns=3)
    assert [axes.get_xlabel().split(" ")[0] for axes in figure.axes] == ["AL", "YAAL", "SWF"] * 2
    assert [axes.xaxis_inverted() for axes in figure.axes] == [False, False, True] * 2
    assert [len(axes.texts) for axes in figure.axes] == [2, 1, 2, 2, 2, 2]


def test_the_legend_stands_below_the_panels_whatever_its_length() -> None:
    long = {f"{name} of a system with a very long name": points for name, points in CURVES.items()}
    for curves in (CURVES, long):
        figure = _panels(curves, ["COMET", "BLEU"])
        figure.draw_without_rendering()
        (legend,), panels = figure.legends, figure.axes
        assert [text.get_text() for text in legend.get_texts()] == list(curves)
        box = legend.get_window_extent()
        assert box.y1 <= min(axes.get_tightbbox().y0 for axes in panels)  # type: ignore[union-attr]
        assert (box.x0 >= 0, box.x1 <= figure.bbox.x1) == (True, True)


def test_names_in_chinese_and_with_a_dollar_are_drawn_as_they_are(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = pareto_figure({"棒球 $5": CURVES["grid"][:1]}, ["BLEU"], tmp_path)  # one θ only
    assert b"<text" not in paths[1].read_bytes()


def test_names_of_points_on_one_spot_do_not_cover_each_other() -> None:
    """As wait-3 and multi-path wait-k at k = 3, which reads as much and is as good."""
    curves = {
        f"system {n}": [{"setting": f"k={n}", "AL": (3.33 + n / 100, None), "BLEU": (23.4 + n / 100, None)}]
        for n in range(8)
    }
    far = {"setting": "k=9", "AL": (9.0, None), "BLEU": (26.0, None)}
    figure = _panels(curves | {"far": [far]}, ["BLEU"])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    *near, alone = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(near) for b in near[:i])
    x, y = axes.transData.transform((9.0, 26.0))
    assert (alone.x0 > x, alone.y0 < y) == (True, True), "where there is room, below its point and to the right"
