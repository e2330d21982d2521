"""Steps in a few fixed shapes: they recur, and are recorded once where that proves itself; a stand-in records here."""

import pytest
import torch

from duplexmt.decoder import cache as decoder_cache
from duplexmt.decoder import graphs
from duplexmt.decoder.cache import DecoderCache
from duplexmt.decoder.graphs import GRAPHS, Graphs
from duplexmt.kernels.triton_use import refused
from tests.accelerator import accelerator, moved
from tests.helpers import tiny_grid
from tests.test_accelerator import DECODINGS, decoded, no_gpu  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_verdicts")
ROWS = {"attention": "exact", "input_attends_output": False}


class Recorder:
    """In the place of `graphs.record`: a replay computes anew, and may go wrong."""

    def __init__(self, fault=None):
        self.fault, self.records, self.replays = fault, 0, 0

    def __call__(self, step, given, pools):
        self.records += 1
        if self.fault == "raises":
            raise RuntimeError("no such stream")
        given = given.clone()
        found = step(given)

        def replay():
            self.replays += 1
            found.copy_(step(given) + (1 if self.fault == "wrong" else 0))

        return given, replay, found


@pytest.mark.parametrize(("fault", "told"), [(None, ""), ("wrong", "differs"), ("raises", "no such stream")])
def test_a_shape_is_recorded_once_and_replayed_unless_it_goes_wrong(monkeypatch, caplog, fault, told):
    recorder, recorded = Recorder(fault), Graphs()
    monkeypatch.setattr(graphs, "record", recorder)
    for number in range(6):
        given = torch.full((3,), float(number))
        found = recorded(number % 2, given, lambda given: given * 2)
        assert torch.equal(found, given * 2)
    assert told in caplog.text
    if fault is None:
        assert (recorder.records, recorder.replays) == (2, 6)
        recorded.forget()
        recorded(0, torch.ones(3), lambda given: given * 2)
        assert recorder.records == 3
    else:
        assert recorder.records == 1
        assert GRAPHS in refused


@DECODINGS
def test_decoding_in_fixed_shapes_is_that_in_any_and_its_steps_are_replayed(
    monkeypatch, build, options, system, setting
):
    recorder, streams = Recorder(), 3
    monkeypatch.setattr(graphs, "record", recorder)
    expected = decoded(build, options, system, setting, streams)
    with accelerator():
        assert decoded(build, options, system, setting, streams, move=moved) == expected
    assert GRAPHS not in refused
    if build is not tiny_grid or options == ROWS:
        assert system == "alignatt" or recorder.replays > recorder.records > 0


def test_shapes_recur(monkeypatch):
    """32 sentences of 3 to 34 tokens, eight at a time."""
    seen, inner = [], decoder_cache.in_fixed_shape
    monkeypatch.setattr(decoder_cache, "in_fixed_shape", lambda *a: seen.append(inner(*a)) or seen[-1])
    monkeypatch.setattr("duplexmt.streaming.states.DecoderCache", lambda *a, **k: DecoderCache(*a, **k, fixed=True))
    monkeypatch.setattr("tests.test_accelerator.SOURCES", [[5 + n % 60] * (3 + n) for n in range(32)])
    decoded(tiny_grid, ROWS, "grid", 0.5, 8)
    shapes = [shape for _, shape, _, _ in seen]
    assert len(shapes) > 100
    assert len(set(shapes)) < 0.2 * len(shapes)
