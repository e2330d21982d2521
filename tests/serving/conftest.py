"""A browser before a live server without a model; and a model folder, for servers with one."""

import pytest

from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder.artifact import save_model_folder
from tests.helpers import spoken_grid, tiny_tokenizer
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a tiny grid that says something."""
    tokenizer = tiny_tokenizer(460)
    return save_model_folder(
        tmp_path_factory.mktemp("run") / "model",
        spoken_grid(tokenizer=tokenizer, anchor=0),
        tokenizer,
        stream_tokens(tokenizer),
        data={
            "source_language": "zh", "target_language": "en", "path": "pairs.tsv", "train_path": None, "max_tokens": 32,
            "licence": "CC0", "segmentation": "characters",
        },
        policy={"lam": 0.1, "theta": 0.5},
        training={},
        backbone=None,
        scores={},
    )  # fmt: skip
