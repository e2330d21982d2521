"""A stream that is left at any event goes on in another one, of whatever policy, as if nothing had happened."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.policy.knobs import Adaptive
from duplexmt.streaming.drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import Read, Write
from duplexmt.streaming.policies import Confidence, Lsg, Theta, WaitK

from .test_grid_system import PREFIXED, TOKENS
from .test_grid_system import small_talk as small_grid
from .test_prefix_systems import small_talk

BOUNDS = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
POLICIES = {
    "theta": (Theta, None), "theta, rows": (Theta, None), "theta, words": (Theta, None),
    "wait-1": (WaitK, 1), "wait-3": (WaitK, 3), "offline": (WaitK, None), "confidence": (Confidence, 0.3),
    "lsg": (Lsg, 0.2), "whole lsg": (WholeLsg, 0.2),
    "la-1": (LocalAgreement, 1), "la-2": (LocalAgreement, 2), "la-3": (LocalAgreement, 3), "hold": (Hold, 1),
    "alignatt": (AlignAtt, 1),
}  # fmt: skip
LIMIT = 6
MODELS = {}


def engine_of(name, seed, anchor, tokens):
    kind, setting = POLICIES[name]
    key = name if kind is Theta else "prefix", seed, anchor
    if key not in MODELS:
        rows = {"attention": "exact", "input_attends_output": False} if name == "theta, rows" else {}
        MODELS[key] = small_grid(seed, anchor=anchor, **rows) if kind is Theta else small_talk(seed, anchor=anchor)
        if name == "theta, words":
            MODELS[key].words = torch.tensor([False, False, True, False, True, False, True])
    limits = {"max_target_tokens": LIMIT, "typical_source_length": 7}
    return Engine(
        MODELS[key], tokens, policy=kind(setting, BOUNDS if kind in (Confidence, Lsg, WholeLsg) else None),
        theta=0.5 if kind is Theta else None, **limits,
    )  # fmt: skip


def told(stream, source, arrived):
    """Events of a stream whose source arrives in two parts, each with how much had arrived."""
    while True:
        for event in stream.write():
            yield replace(event, elapsed=0.0, **({"calls": 0} if hasattr(event, "calls") else {})), stream.text_tokens
        if stream.source_ended or stream.over:
            return
        if stream.text_tokens < arrived:
            stream.read(source[stream.text_tokens : arrived])
        else:
            stream.read(source[stream.text_tokens :])
            stream.end()


def assert_same(found, expected):
    assert [plain(event) for event in found] == [plain(event) for event in expected]
    both = ([getattr(event, "emit_probability", None) for event in events] for events in (found, expected))
    assert next(both) == pytest.approx(next(both), abs=1e-9)


def plain(event):
    return replace(event, emit_probability=None) if hasattr(event, "emit_probability") else event


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 3),
    st.sampled_from(["source_length", 12]),
    st.sampled_from([TOKENS, PREFIXED]),
    st.lists(st.integers(2, 6), min_size=1, max_size=7),
    st.data(),
)
def test_what_follows_is_what_would_have_followed(name, seed, anchor, tokens, source, data):
    arrived = data.draw(st.integers(1, len(source)))
    stream = engine_of(name, seed, anchor, tokens).open(name=0)
    stream.read(source[:1])
    events = list(told(stream, source, arrived))
    left = data.draw(st.integers(0, len(events) - 1), label="events before it is left")
    read, written, reads = 0, [], []
    for event, _ in events[:left]:
        if isinstance(event, Read):
            read += 1
        elif isinstance(event, Write):
            written.append(event.token)
            reads.append(read)
    engine = engine_of(name, seed, anchor, tokens)
    other = engine.open(name=1)  # another text goes on beside it
    other.read([5, 4])
    other.step()
    again = engine.open(name=0)
    ended = read > len(source)
    again.read(source[: max(read - ended, events[left - 1][1] if left else 1)])
    if ended:
        again.end()
    again.go_on(read, written, reads)
    assert_same([event for event, _ in told(again, source, arrived)], [event for event, _ in events[left:]])


def test_the_streams_compared_above_are_left_between_writes_too():
    between = set()
    for name in POLICIES:
        for seed in range(4):
            stream = engine_of(name, seed, 12, PREFIXED).open(name=0)
            stream.read([4, 2, 5, 6, 3])
            stream.end()
            kinds = [type(event) for event in stream.write()]
            between |= {name for pair in pairwise(kinds) if pair == (Write, Write)}
    assert between == {*POLICIES}
