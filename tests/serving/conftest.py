"""A live server with a tiny model; a browser before one without; and a model folder, for `serve.py`."""

import pytest

from tests.report.chromium import Chromium

from .live_page import connected
from .live_server import serving, tiny_folder
from .scripted_server import serving as scripted_serving


@pytest.fixture(scope="module")  # a page that is left open goes on drawing, and takes a tenth of a core
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture
def scripted():
    """On another port each time, so that the browser remembers nothing."""
    with scripted_serving() as scripted:
        yield scripted
        assert scripted.mistakes == []


@pytest.fixture
def page(browser, scripted):
    return connected(browser, scripted)


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as monkeypatch, serving(monkeypatch) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("run") / "model", "characters")
