"""A browser before a live server without a model; and a model folder, for servers with one."""

import pytest

from tests.report.chromium import Chromium

from .live_page import connected
from .live_server import tiny_folder
from .scripted_server import serving


@pytest.fixture(scope="module")  # a page that is left open goes on drawing, and takes a tenth of a core
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture
def scripted():
    """On another port each time, so that the browser remembers nothing."""
    with serving() as scripted:
        yield scripted
        assert scripted.mistakes == []


@pytest.fixture
def page(browser, scripted):
    return connected(browser, scripted)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("run") / "model", "characters")
