"""A browser before a live server without a model."""

import pytest

from tests.report.chromium import Chromium

from .live_page import connected
from .scripted_server import serving


@pytest.fixture(scope="session")
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
