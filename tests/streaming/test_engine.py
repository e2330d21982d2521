"""Live streams: what they write does not depend on how their source arrives, or on who else is there."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.stream import ends_in_repetition

from ..helpers import spoken_grid, tiny_backbone, tiny_grid, tiny_tokenizer
from .test_grid_system import END, PREFIXED, SEED, SOURCES, TOKENS, always, both_tokens
from .test_grid_system import small_talk as model_of

ROWS = {"attention": "exact", "input_attends_output": False}
OPTIONS = [{}, {"input_attends_output": False}, {"anchor": 0}, {"attention": "exact"}, ROWS]
model_with = cache(model_of)  # the same between examples


def engine_of(model=None, tokens=TOKENS, theta=0.5, limit=6, **values):
    return Engine(model or model_with(), tokens, theta=theta, max_target_tokens=limit, **values)


def whole(stream, source):
    """Give a stream its whole source."""
    stream.read(source)
    stream.end()
    return stream


def alone(model, source, tokens=TOKENS, theta=0.5, limit=6):
    """Events of a source that is known from the start, in an engine of its own."""
    return list(whole(engine_of(model, tokens, theta, limit).open(name=0, source_length=len(source)), source).write())


def assert_same(found, expected):
    assert [(type(event), getattr(event, "token", None)) for event in found] == [
        (type(event), getattr(event, "token", None)) for event in expected
    ]
    for ours, theirs in zip(found, expected, strict=True):
        if not isinstance(theirs, End):
            assert ours.emit_probability == pytest.approx(theirs.emit_probability, abs=1e-9)
        if isinstance(theirs, Write):
            assert ours.delay == theirs.delay


# --- arrival and company -------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.sampled_from(OPTIONS),
    st.booleans(),
    st.lists(st.integers(2, 6), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_how_the_source_arrives_changes_nothing(options, prefixed, source, draw):
    model, tokens = model_with(**options), PREFIXED if prefixed else TOKENS
    stream = engine_of(model, tokens).open(name=0, source_length=len(source))
    events, given_tokens = [], 0
    while given_tokens < len(source) and not stream.over:
        size = draw.randint(1, len(source) - given_tokens)
        stream.read(source[given_tokens : given_tokens + size])
        given_tokens += size
        events += stream.write()
    if not stream.over:
        stream.end()
    events += stream.write()
    assert_same(events, alone(model, source, tokens))


@both_tokens
def test_streams_the_cache_had_no_room_for_go_on_once_there_is_some(tokens):
    engine = engine_of(tokens=tokens, max_streams=2)

    def live(name):
        return whole(engine.open(name=name, source_length=len(SOURCES[name])), SOURCES[name])

    assert list(live(2).write())  # leaves its slot to the next
    engine.states.cache.max_bytes = engine.states.cache.bytes
    first, second = live(0), live(1)
    found = [event for event in engine.step() if event.stream == 0]
    with pytest.raises(ValueError, match="a cache of 2 streams"):
        engine.step()
    second.close()
    assert_same(found + list(first.write()), alone(model_with(), SOURCES[0], tokens))


# --- the stream's own life -----------------------------------------------------------------------------------------


def test_the_text_head_is_read_only_where_a_token_may_be_written():
    model, asked = always(model_of(anchor=0), token=3), []
    logits = model.text_logits
    model.text_logits = lambda hidden: asked.append(len(hidden)) or logits(hidden)
    stream = engine_of(model, theta=1.0, limit=4).open()
    stream.read([2, 3, 4])
    assert len(list(stream.write())) == 3
    assert asked == [], "WAITs ask for p(EMIT) alone"
    stream.end()
    events = list(stream.write())
    assert [type(event) for event in events] == [Read, *[Write] * 4, End]
    assert asked == [1] * 5


def test_events_carry_the_time_computed_and_the_text_that_is_certain():
    tokenizer = tiny_tokenizer()
    model = spoken_grid(seed=1, anchor=0)
    engine = engine_of(model, TOKENS, theta=0.3, limit=12, tokenizer=tokenizer)
    stream = whole(engine.open(), [200, 201, 202])
    events = list(stream.write())
    times = [event.elapsed for event in events]
    assert times == sorted(times)
    assert times[0] == 0 < times[-1] == stream.elapsed
    written = [event.token for event in events if isinstance(event, Write)]
    shown = "".join(event.text for event in events if not isinstance(event, Read))
    assert shown == stream.growing.text
    assert stream.growing.tokens == written


# --- anchors -------------------------------------------------------------------------------------------------------


def test_a_source_of_unknown_length_is_taken_to_be_of_typical_length_and_keeps_that_anchor():
    with pytest.raises(ValueError, match=r"anchor source_length.*: give the stream's source_length, or typical"):
        engine_of(model_with()).open()
    stream = whole(engine_of(model_with(), typical_source_length=9).open(name=0), SOURCES[0])
    told = engine_of(model_with()).open(name=0, source_length=8)  # and its end token
    whole(told, SOURCES[0])
    assert stream.source_length == told.source_length == 9
    assert_same(list(stream.write()), list(told.write()))
    assert int(stream.engine.states.cache.start[0]) == 9


# --- guards and mistakes -------------------------------------------------------------------------------------------


def test_a_translation_that_repeats_itself_is_stopped_with_that_reason():
    stream = engine_of(always(model_of(anchor=0), token=3), theta=0.0, limit=50, max_repeats=4).open()
    stream.read([2])
    events = list(stream.write())
    assert [type(event) for event in events] == [Read, *[Write] * 4, End]
    assert events[-1].reason == "repetition"


def test_repetition_is_a_block_that_follows_itself_too_often():
    assert not ends_in_repetition([3, 3, 3], 3)
    assert ends_in_repetition([3, 3, 3, 3], 3)
    assert ends_in_repetition([9, 1, 2, 1, 2, 1, 2], 2)
    assert not ends_in_repetition([1, 2, 1, 2, 1, 2, 9], 2)
    assert not ends_in_repetition([], 2)


def test_a_target_prefix_leaves_less_of_a_sliding_window():
    model = tiny_grid(tiny_backbone("mistral", vocab_size=7, sliding_window=12), anchor=0)
    with pytest.raises(ValueError, match=r"sliding window of 12 tokens .* a target of 6 .* leaves 1 for a source that"):
        engine_of(model, StreamTokens(end=END, seed=SEED, target_prefix=(2,) * 5), limit=5)
    engine = engine_of(model, StreamTokens(end=END, seed=SEED, target_prefix=(2,) * 3), theta=1.0, limit=5)
    first, second = engine.open(), engine.open()
    with pytest.raises(ValueError, match=r"exceeds max_source_tokens=3 \(the backbone's sliding window of 12"):
        first.read([2] * 3)
    for stream in (first, second):
        whole(stream, [2] * 2)
    while engine.step():
        pass
    assert first.over
    assert second.over


def test_a_sliding_window_too_small_for_both_streams_is_named():
    model = tiny_grid(tiny_backbone("mistral", vocab_size=7, sliding_window=12), anchor=0)
    assert engine_of(model, limit=9).max_source_tokens == 2
    for limit in (10, 12, 18):
        with pytest.raises(ValueError, match=rf"sliding window of 12 tokens .* max_target_tokens={limit} leaves [01] "):
            engine_of(model, limit=limit)
    most, more = (StreamTokens(end=END, seed=SEED, source_prefix=(2,) * n) for n in (3, 4))
    assert engine_of(model, most, limit=6).max_source_tokens == 5
    with pytest.raises(ValueError, match="leaves 5 for a source that needs 6"):
        engine_of(model, more, limit=6)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda s: next(s.write()), "stream 0 has read nothing yet"),
        (lambda s: s.end(), "stream 0 has no source"),
        (lambda s: s.read([7]), "token 7 is not in the vocabulary of 7"),
        (lambda s: s.read([-1]), "token -1 is not in the vocabulary"),
        (lambda s: s.read([2] * 10), "a source of 11 tokens, end token included, exceeds max_source_tokens=10"),
        (lambda s: (s.read([2]), s.end(), s.read([3])), "stream 0 has the end of its source: open another"),
        (lambda s: (s.read([2]), s.end(), s.end()), "stream 0 has the end of its source already"),
        (lambda s: (s.close(), s.read([2])), "stream 0 is over"),
    ],
)
def test_a_mistake_is_told_by_the_streams_name(mistake, message):
    model = tiny_grid(tiny_backbone(vocab_size=7, layers=1, max_position_embeddings=10))
    stream = engine_of(model).open(source_length=5)
    with pytest.raises(ValueError, match=message):
        mistake(stream)


def test_more_streams_than_there_is_room_for_are_refused():
    engine = engine_of(max_streams=1)
    first = engine.open(source_length=2)
    with pytest.raises(ValueError, match="max_streams=1 streams are live: close one first"):
        engine.open(source_length=2)
    first.close()
    engine.open(source_length=2)
    with pytest.raises(ValueError, match="stream 1 is live already"):
        engine_of(max_streams=2).open(name=1, source_length=2).engine.open(name=1, source_length=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_streams": 0}, "max_streams=0: must be at least 1"),
        ({"max_repeats": 1}, "max_repeats=1: must be at least 2"),
        ({"typical_source_length": 0}, "typical_source_length=0"),
    ],
)
def test_limits_have_limits(values, message):
    with pytest.raises(ValueError, match=message):
        engine_of(**values)


# --- what finds no room --------------------------------------------------------------------------------------------


def test_what_others_did_is_told_before_a_stream_that_finds_no_room(monkeypatch):
    engine = engine_of(max_streams=3)
    for name in (0, 2):
        whole(engine.open(name=name, source_length=len(SOURCES[name])), SOURCES[name])
    assert {event.stream for event in engine.step()} == {0, 2}
    whole(engine.open(name=3, source_length=len(SOURCES[3])), SOURCES[3])

    def full(asked):
        raise ValueError("no room")

    monkeypatch.setattr(engine, "states", full)
    (event,) = engine.step()
    assert isinstance(event, Read)
    assert event.stream == 3
    with pytest.raises(ValueError, match="no room"):
        engine.step()


def test_a_stream_of_the_papers_grid_goes_on_where_another_found_no_room():
    model = model_with(anchor=0)
    expected = alone(model, SOURCES[0])
    engine = engine_of(model, max_streams=2)
    first = whole(engine.open(name=0), SOURCES[0])
    found = [next(first.write())]
    long = engine.open(name=1)
    long.read([2] * 90)
    long.go_on(80, [], [])
    engine.states.cache.max_bytes = 2 * engine.states.cache.bytes

    def steps():
        while True:
            found.extend(event for event in engine.step() if event.stream == 0)

    with pytest.raises(ValueError, match="a cache of"):
        steps()
    long.close()
    assert_same(found + list(first.write()), expected)
