"""Figures are drawn for tests that look at them."""

import pytest


@pytest.fixture
def figure():
    """Asked for by tests that look at the figure: in all others none is drawn."""


@pytest.fixture(autouse=True)
def figure_is_drawn_where_asked_for(request, monkeypatch):
    if "figure" not in request.fixturenames:
        for name in ("pareto_figure", "latencies_figure"):
            monkeypatch.setattr(f"duplexmt.evaluation.results.{name}", lambda curves, metrics, folder: None)
