"""Recorded graphs, by a stand-in that replays a step's operations on the CPU."""

from contextlib import nullcontext
from weakref import WeakSet

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.grid.graphs import StaticSteps
from duplexmt.kernels import triton_use as kernels
from tests.helpers import tiny_grid


class Graph(TorchDispatchMode):
    """Operations as they were recorded: a replay does them again on the same tensors."""

    def __init__(self):
        super().__init__()
        self.done, self.users = [], None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, found))
        return found

    def recorded_into(self, users):
        """A pool is known by its users, and gone with the last of them."""
        assert users is None or len(users)
        self.users = WeakSet() if users is None else users
        self.users.add(self)
        return self

    def pool(self):
        return self.users

    def replay(self):
        for func, args, kwargs, found in self.done:
            again = func(*args, **kwargs)
            for old, new in zip(*(x if isinstance(x, tuple | list) else (x,) for x in (found, again)), strict=True):
                if old is not new and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def stand_in(monkeypatch):
    """For what CUDA has of this."""
    stream = type("Stream", (), {"wait_stream": lambda self, other: None})
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool: graph.recorded_into(pool))
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("io", [True, False])
def test_replayed_steps_equal_computed_ones_before_and_after_the_cache_grows(io, recwarn):
    model = tiny_grid(anchor=3, input_attends_output=io)
    recorded, computed = (StaticSteps(model, 2, length=16, graphs=on) for on in (True, False))
    for steps in (recorded, computed):
        steps.open([0, 1], [5, 6], [1, 1], [9, 9])
    draw = torch.Generator().manual_seed(1)
    for number in range(24):  # of at most 16 tokens, then of more
        step = [0, 1], [number % 3 == 0, True], torch.randint(97, (2,), generator=draw).tolist()
        step = step if number % 4 else tuple(part[:1] for part in step)
        torch.testing.assert_close(recorded.step(*step), computed.step(*step))
    assert recorded.graphs
    assert recorded.generation > 0
    assert not recwarn.list


@pytest.fixture
def nothing_refused():
    kernels.refused.clear()
    yield
    kernels.refused.clear()


def spoil(states, steps, what):
    """What a wrong replay leaves."""
    if what == "exception":
        raise OSError("no such driver")
    if what == "states":
        states.mul_(1.001)
    if what == "one stream":
        states[-1].neg_()
    if what == "entries":
        steps.cache.layers[0].ctx[0, steps.streams].mul_(1.001)


@pytest.mark.usefixtures("stand_in", "nothing_refused")
@pytest.mark.parametrize("what", ["states", "one stream", "entries", "exception"])
def test_a_graph_that_replays_wrong_is_found_at_once_said_once_and_left_out(what, monkeypatch, caplog):
    model, replays = tiny_grid(anchor=3), []

    class Wrong(Graph):
        def replay(self):
            super().replay()
            replays.append(self)
            ((_, _, states),) = wrong.recorded.values()
            spoil(states, wrong, what)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Wrong)
    before = torch.get_rng_state()
    wrong, computed = (StaticSteps(model, 2, length=16, graphs=on) for on in (True, False))
    for steps in (wrong, computed):
        steps.open([0, 1], [5, 6], [1, 1], [9, 9])
    for number in range(6):
        step = [0, 1], [number % 3 == 0, True], [number, 7]
        torch.testing.assert_close(wrong.step(*step), computed.step(*step))
    assert not wrong.graphs
    assert wrong.recorded == {}
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("CUDA graphs of decoding steps: ")
    assert caplog.messages[0].endswith("Single operations are used instead, which are slower")
    assert len(replays) <= 2
    assert not StaticSteps(model, 2, length=16, graphs=True).graphs  # for the process
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("stand_in", "nothing_refused")
def test_the_trial_of_a_graph_leaves_the_cache_as_it_was():
    steps = StaticSteps(tiny_grid(anchor=3), 2, length=16, graphs=True)
    steps.open([0, 1], [5, 6], [1, 1], [9, 9])
    with torch.no_grad():
        steps.recorded[2, 16] = steps._record(2, 16)
        before = [entries.clone() for entries in steps.cache.entries]
        assert steps._unlike(2, 16) is None
    assert all(map(torch.equal, steps.cache.entries, before))
