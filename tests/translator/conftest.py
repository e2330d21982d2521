"""A tiny model for programs that use the public API."""

import pytest

import duplexmt
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder.artifact import load_model_folder

from ..helpers import float64, spoken_grid, tiny_tokenizer
from ..model_folder.test_artifact import save

TEXTS = [
    "他没有看见那个人。我们看书。\n你喜欢喝茶",
    "",
    "那本书",
    "我昨天买了一本书。\n\n老师\n",
    "这只猫。" * 5,
    "孩子们喜欢那只猫" * 4,
]
STREAMS = 3


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    model = spoken_grid(seed=2, anchor=0)
    return save(tmp_path_factory.mktemp("api") / "model", model, tokens=stream_tokens(tiny_tokenizer()))


@pytest.fixture(scope="session")
def translator(folder):
    """In float64, so that no rounding decides, whoever else is in the batch."""
    loaded = load_model_folder(folder)
    loaded.model = float64(loaded.model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duplexmt.model_folder.live_model.load_model_folder", lambda *values: loaded)
        return duplexmt.load(folder, device="cpu", max_streams=STREAMS, max_target_tokens=8)


@pytest.fixture(scope="session")
def alone(translator):
    """The translation of each text as one stream with nobody else, given whole."""
    found = []
    for text in TEXTS:
        with translator.stream() as stream:
            found.append(stream.feed(text) + stream.finish())
    assert len({*found}) == len(TEXTS), "or it shows nothing"
    return found
