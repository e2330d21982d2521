"""What a model makes of a sentence at every θ: worked out only where it changes, and the same as decoding at each."""

import pytest
import torch

from duplexmt.analysis.sentence_grid import sentence_grid
from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.policy.decoding_options import recorded_theta
from duplexmt.report.thresholds import _way, holds_until, translations, viewer_of
from duplexmt.streaming.events import End, Read, Write, collect
from duplexmt.streaming.systems import build_system

from ..helpers import spoken_grid, tiny_tokenizer

THETAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
SOURCES = ["人是", "我们好"]  # a token a character, three for 好
INFO = {
    "system": "grid",
    "policy": {"lam": 0.1, "theta": 0.5},
    "training": {"typical_source_length": 9},
    "data": {"source_language": "zh", "target_language": "en", "max_tokens": 24},
}


def loaded(seed=0, model=None):
    tokenizer = tiny_tokenizer()
    return ModelFolder(model or spoken_grid(seed=seed), tokenizer, stream_tokens(tokenizer), INFO)


def ids():
    return token_ids(tiny_tokenizer(), SOURCES)


@pytest.mark.parametrize(("seed", "limit"), [(0, 3), (3, 8)])
def test_translations_are_those_of_decoding_at_every_threshold(seed, limit):
    grid, sources = loaded(seed), ids()
    found = translations(grid, sources, THETAS, limit, batch_size=2)
    for index, theta in enumerate(THETAS):
        system = build_system(grid, "grid", theta, max_target_tokens=limit)
        for ways, hypothesis in zip(found, collect(system.translate(sources), len(sources)), strict=True):
            (events,) = [events for first, last, events in ways if first <= index <= last]
            assert [event.token for event in events if isinstance(event, Write)] == hypothesis.tokens
            assert [event.delay for event in events if isinstance(event, Write)] == hypothesis.delays


def test_a_translation_holds_as_far_as_its_least_sure_emit():
    events = [Read(0, 5), Write(0, 7, 1, 0.8), Write(0, 8, 1, 0.55), Read(0, 0, 0.2), Write(0, 9, 1, 0.1)]
    assert holds_until(events, 1, (0.3, 0.5, 0.55, 0.9), 0) == 1  # 0.55 > 0.55 does not hold
    assert holds_until(events[:3], 1, (0.3, 0.5, 0.55, 0.9), 0) == 0  # cut off before the source had ended


def test_text_held_back_to_the_end_belongs_to_the_last_token_written_wherever_that_was():
    for written_at in (1, 2):
        events = [Read(0, 5), Read(0, 0, 0.1), End(0, "end_token", 0, "!")]
        events.insert(written_at, Write(0, 9, 1, 0.9, 0, "a"))
        visits = _way((0, 0, events), 0, 1, 1).visits
        assert [visit.written for visit in visits if visit.written] == [[("a!", 0.9)]]


def test_grids_are_those_of_the_texts_and_paths_those_of_the_decisions():
    grid, pairs = loaded(3), [("one", SOURCES[0], "a man"), ("two", SOURCES[1], "we are")]
    viewer = viewer_of(grid, pairs, thetas=THETAS, max_target_tokens=8)
    assert viewer.theta == recorded_theta(grid.info)
    for sentence, source in zip(viewer.sentences, ids(), strict=True):
        X = len(source) + 1
        assert len(sentence.grids[0].source) == X
        target = token_ids(tiny_tokenizer(), [sentence.reference])[0]
        own = sentence_grid(grid, grid.tokenizer, source, target, 0.1, taken_for=9)
        torch.testing.assert_close(torch.tensor(own.heatmap), torch.tensor(sentence.grids[0].heatmap))
        for way in sentence.ways:
            shown, height, theta = sentence.grids[way.grid], 0, THETAS[way.first]
            for x, visit in enumerate(way.visits):
                for _, p_emit in visit.written:  # the decoder's numbers are those of the grid that is shown
                    assert shown.emit[x][height] == pytest.approx(p_emit, abs=1e-4)
                    assert p_emit > theta or x == X - 1
                    height += 1
                if visit.left_at is not None:
                    assert shown.emit[x][height] == pytest.approx(visit.left_at, abs=1e-4)
            ended = way.stopped == "end_token"
            assert way.heights[-1] == height + ended
            if ended:
                assert len(shown.target) == height + 1


def test_pairs_without_text_are_refused():
    with pytest.raises(ValueError, match="empty: a sentence of the viewer needs a source and a reference"):
        viewer_of(loaded(), [("empty", "", "a cat")])
