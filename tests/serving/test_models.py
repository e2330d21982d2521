"""Several models in one server: a session chooses one of them."""

import pytest

from duplexmt.serving.engine_process import named

from .live_server import Speaker, serving, translated, until
from .test_other_clients import api, post

TEXT = "他没有看见那个人。我们看书。\n"
PAIRS = ["zh-en", "de-en"]


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch, serving(patch, engine={"model_folders": PAIRS}) as started:
        yield started


def started(server, **start):
    speaker = Speaker(server.address, {"type": "start", **start})
    return speaker, speaker.until("ready")


def test_ready_lists_the_models_and_a_session_has_the_one_it_chose(server):
    expected = {pair: translated(TEXT, languages=pair) for pair in PAIRS}
    assert expected["zh-en"] != expected["de-en"]
    for start, pair in (({}, "zh-en"), *(({"model": pair}, pair) for pair in PAIRS)):
        speaker, ready = started(server, **start)
        assert [model["name"] for model in ready["models"]] == PAIRS
        assert ready["model"] in ready["models"]
        assert (ready["model"]["name"], ready["model"]["source_language"]) == (pair, pair[:2])
        speaker.say(type="text", at=0, text=TEXT)
        assert speaker.whole() == expected[pair]


def test_sessions_of_several_models_go_side_by_side_and_over_an_engine_that_dies(server):
    speakers = [(pair, started(server, model=pair)[0]) for pair in PAIRS * 2]
    for _, speaker in speakers:
        speaker.say(type="text", at=0, text=TEXT[:5])
    starts = server.hub.link.starts
    server.kill.set()
    until(lambda: server.hub.link.starts > starts and server.hub.link.is_ready)
    for pair, speaker in speakers:
        speaker.say(type="text", at=5, text=TEXT[5:])
        assert speaker.whole() == translated(TEXT, languages=pair)


def test_a_model_that_is_not_there_is_refused_by_name(server):
    speaker = Speaker(server.address, {"type": "start", "model": "fr-en"})
    assert speaker.rest() == 4400
    assert speaker.error["message"] == "model=fr-en: there is no such model here; there are zh-en, de-en"


def test_other_interfaces_find_the_model_by_its_languages(server):
    found = {one["code"]: one["targets"] for one in api(server).languages()}
    assert found == {"zh": ["en"], "de": ["en"], "en": []}
    for source, pair in (("de", "de-en"), ("zh-Hans", "zh-en"), ("auto", "zh-en")):
        _, answer = post(server, {"q": TEXT, "source": source, "target": "en"})
        assert answer["translatedText"] == translated(TEXT, languages=pair)


class Model:
    def __init__(self, languages):
        self.languages, self.description = languages, {}


def test_models_of_the_same_languages_are_told_apart_by_their_folders():
    models = [Model("zh-en"), Model("zh-en"), Model("de-en")]
    assert [*named(models, ["runs/small", "runs/large", "models/de-en"])] == ["zh-en small", "zh-en large", "de-en"]
    assert models[0].description == {"name": "zh-en small"}
    with pytest.raises(ValueError, match="b/model: another model is called 'zh-en model', too: rename"):
        named(models[:2], ["a/model", "b/model"])
