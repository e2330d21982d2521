"""Figures of the studies; that they are drawn from end to end is tested in `studies/test_scripts.py`."""

import pytest

from benchmarks.studies.study_figures import decay_figure, evolution_figure, lambda_figure, layer_figure, loop_figure
from tests.drawing.test_grid_figures import random_grid


def test_layers_that_have_no_cross_attention_leave_its_line_out(tmp_path):
    rows = [
        {"layer": 0, "stream": "source", "context": 0.0, "self_context": 0.0, "states": 0.0},
        {"layer": 0, "stream": "target", "context": 0.1, "self_context": 0.2, "cross_context": 0.3, "states": 0.0},
        {"layer": 1, "stream": "target", "states": 0.2},
    ]
    svg, png = layer_figure({"a model": rows}, tmp_path)
    assert svg.stat().st_size > 1000
    assert png.stat().st_size > 1000


def test_errors_that_are_all_zero_cannot_be_drawn(tmp_path):
    with pytest.raises(ValueError, match="every layer is exact"):
        decay_figure({"m": [{"layer": 0, "stream": "source", "exact": True}]}, tmp_path, "decay")


def test_measures_without_gold_are_left_out(tmp_path):
    row = {"lam": 0.1, "BLEU": 3.0, "BLEU_whole": 4.0, "AL_all": 1.0, "area": 0.5, "emit_agreement": 0.9}
    runs = {"λ = 0.1": [{"step": step, "content_not_early": None, **row} for step in (0, 10)]}
    assert all(path.exists() for path in loop_figure(runs, tmp_path))
    assert all(path.exists() for path in lambda_figure([row, row | {"lam": 1.0}], tmp_path))


def test_a_sentences_grids_stand_side_by_side(tmp_path):
    assert all(
        path.exists() for path in evolution_figure([(0, random_grid(5, 6)), (10, random_grid(5, 6))], tmp_path, "e")
    )
