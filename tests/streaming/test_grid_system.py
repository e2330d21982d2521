"""The grid system: its events against a literal reading of the state machine, and what follows from θ."""

import itertools
import math
import time
from dataclasses import replace

import pytest
import torch

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.policy.decoding_options import PAPER_RULE, EmitRule
from duplexmt.streaming.events import End, Read, Write, collect
from duplexmt.streaming.states import GridStates

from ..helpers import grid_system, tiny_backbone, tiny_grid

END, SEED = 0, 1
TOKENS = StreamTokens(end=END, seed=SEED)
PREFIXED = StreamTokens(end=END, seed=SEED, source_prefix=(3, 4, 2), target_prefix=(5, 2))
OPTIONS = [
    {},
    {"attention": "exact"},
    {"attention": "exact", "input_attends_output": False},
    {"input_attends_output": False},
    {"softmax": "separate"},
    {"anchor": 0},
    {"anchor": 20, "input_attends_output": False},
    {"emit_hidden": 5},
    {"emit_hidden": 5, "attention": "exact", "input_attends_output": False},
]
SOURCES = [[2, 3, 4, 5, 6, 2, 3], [4], [6, 6, 5], [5, 2, 2, 4, 3], [3, 2]]
both_tokens = pytest.mark.parametrize("tokens", [TOKENS, PREFIXED], ids=["plain", "prefixed"])


def small_talk(seed=0, **options):
    """A float64 model of seven words, so that it often predicts the end token."""
    return tiny_grid(tiny_backbone(vocab_size=7, layers=2, seed=seed), seed=seed, **options).double()


@torch.no_grad()
def one_by_one(model, tokens, source, theta, limit=64, rule=PAPER_RULE):
    """Table duplex-inference for one stream alone: the whole visible grid at every step, no batch, no padding."""
    stream = [*tokens.source_prefix, *source, tokens.end]
    x, target = len(tokens.source_prefix), [tokens.seed, *tokens.target_prefix]  # row x is the last one visible
    events = [("read", stream[x], None)]
    written = 0
    while True:
        hidden = model(torch.tensor([stream[: x + 1]]), torch.tensor([target]), torch.tensor([len(stream)]))[0, -1, -1]
        token = int(model.text_logits(hidden).argmax())
        p_emit = float(model.emit_logits(hidden).softmax(-1)[1])
        if rule.certainty:
            q = float(model.text_logits(hidden).softmax(-1).max())
            odds = p_emit / (1 - p_emit) * (q / (1 - q)) ** rule.certainty
            p_emit = odds / (1 + odds)
        ended = x == len(stream) - 1
        if rule.k_min and not ended and x + 1 - len(tokens.source_prefix) - written < rule.k_min:
            p_emit = 0.0
        within = rule.words is not None and written > 0 and bool(rule.words[token])
        forced = within or (rule.k_max > 0 and x + 1 - len(tokens.source_prefix) - written >= rule.k_max)
        p_emit = 1.0 if forced else p_emit
        if ended and token == tokens.end:
            return [*events, ("end", "end_token")]
        if ended or ((forced or p_emit > theta) and token != tokens.end):
            if written == limit:
                return [*events, ("end", "max_target_tokens")]
            target.append(token)
            written += 1
            text_read = min(x + 1 - len(tokens.source_prefix), len(source))
            events.append(("write", token, text_read, p_emit))
        else:
            x += 1
            events.append(("read", stream[x], p_emit))


def by_stream(events, count):
    """Events of each stream as the tuples of `one_by_one`."""
    streams = [[] for _ in range(count)]
    for event in events:
        match event:
            case Read(stream, token, probability):
                streams[stream].append(("read", token, probability))
            case Write(stream, token, delay, probability):
                streams[stream].append(("write", token, delay, probability))
            case End(stream, reason):
                streams[stream].append(("end", reason))
    return streams


def assert_same_events(found, expected):
    assert [event[:2] for event in found] == [event[:2] for event in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6) if ours[0] == "write" else ours[-1] == pytest.approx(theirs[-1])


def always(model, token=None, p_emit=None):
    """Make a model predict one token, or one p(EMIT), whatever it sees."""
    if token is not None:
        model.text_logits = lambda hidden: torch.eye(7, dtype=hidden.dtype)[token].expand(len(hidden), 7)
    if p_emit is not None:
        logits = torch.tensor([1 - p_emit, p_emit], dtype=torch.float64).log()
        model.emit_logits = lambda hidden: logits.expand(len(hidden), 2)
    return model


def cached(system):
    """A system as it is."""
    return system


def recomputing(system):
    """Let a system do without its cache, and compute the grid anew at every step."""
    system.states = GridStates(system.model, None)
    return system


def delays(system, sources):
    return [hypothesis.delays for hypothesis in collect(system.translate(sources), len(sources))]


# --- against the literal state machine ---------------------------------------------------------------------------


CASES = list(zip(range(3), (0.35, 0.5, 0.65), strict=True))  # seed and θ


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_batch_of_streams_does_what_each_does_alone_step_by_step(options):
    for (seed, theta), tokens in zip(CASES, (TOKENS, PREFIXED, TOKENS), strict=True):
        model = small_talk(seed, **options)
        expected = [one_by_one(model, tokens, source, theta, limit=6) for source in SOURCES[:3]]
        for how in (cached, recomputing):
            system = how(grid_system(model, tokens, theta, max_target_tokens=6))
            for ours, theirs in zip(by_stream(system.translate(SOURCES[:3]), 3), expected, strict=True):
                assert_same_events(ours, theirs)


PIECES = torch.tensor([False, False, True, False, True, True, True])  # of the seven words
RULES = [
    EmitRule(certainty=0.5), EmitRule(certainty=2.0), EmitRule(k_min=2), EmitRule(words=PIECES),
    EmitRule(words=PIECES, k_min=2), EmitRule(words=PIECES, certainty=0.5),
    EmitRule(k_max=2), EmitRule(k_max=2, k_min=2), EmitRule(words=PIECES, k_max=3), EmitRule(certainty=0.5, k_max=2),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("options", [{}, OPTIONS[-1]], ids=str)
def test_by_a_rule_each_stream_does_what_it_does_alone_and_not_what_it_does_without(options, rule):
    without = PAPER_RULE if rule.words is None else replace(rule, words=None)
    told_apart = pieces = 0
    cases = [(1, 0.6, PREFIXED), *((seed, 0.65, TOKENS) for seed in range(6))]
    for number, (seed, theta, tokens) in enumerate(cases):
        if number > 2 and told_apart and (pieces or rule.words is None):
            break
        model = small_talk(seed, **options)
        plain, expected = (
            [one_by_one(model, tokens, source, theta, 6, one) for source in SOURCES[:3]] for one in (without, rule)
        )
        told_apart += [[e[:2] for e in s] for s in expected] != [[e[:2] for e in s] for s in plain]
        pieces += sum(event[0] == "write" and event[3] == 1 for events in expected for event in events)
        for how in (cached, recomputing):
            system = how(grid_system(model, tokens, theta, max_target_tokens=6, rule=rule))
            for ours, theirs in zip(by_stream(system.translate(SOURCES[:3]), 3), expected, strict=True):
                assert_same_events(ours, theirs)
    assert told_apart, "decisions that the rule does not change show nothing"
    assert pieces or rule.words is None


def test_the_lag_keeps_its_bound_even_with_theta_1():
    model = always(small_talk(0), token=2, p_emit=0.1)
    system = grid_system(model, TOKENS, 1.0, max_target_tokens=9, rule=EmitRule(k_max=3))
    (events,) = by_stream(system.translate([[3, 4, 5, 6, 2]]), 1)
    assert [event[0] for event in events[:7]] == ["read", "read", "read", "write", "read", "write", "read"]
    delays = [event[2] for event in events if event[0] == "write"]
    assert delays[:3] == [3, 4, 5], "wait-3, as nothing is written sooner"


def test_a_word_is_finished_even_where_theta_has_risen_to_1_meanwhile():
    model = always(small_talk(0), token=2, p_emit=0.6)
    stream = grid_system(model, TOKENS, 0.5, max_target_tokens=4, rule=EmitRule(words=PIECES)).open(source_length=5)
    stream.read([3, 4])
    assert isinstance(next(stream.write()), Read)
    assert isinstance(next(stream.write()), Write)
    stream.theta = 1.0
    events = list(stream.write())
    assert [type(event) for event in events] == [Write, Write, Write, End]
    assert {event.emit_probability for event in events[:3]} == {1.0}


def test_the_streams_compared_above_show_every_transition():
    seen = set()
    for (seed, theta), source in itertools.product(CASES, SOURCES[:3]):
        events = one_by_one(small_talk(seed), TOKENS, source, theta, limit=6)
        seen |= {event[1] for event in events if event[0] == "end"}
        seen |= {"early" for event in events if event[0] == "write" and event[2] < len(source)}
        seen |= {"wait" for event in events if event[0] == "read" and event[2] is not None and event[2] <= theta}
        seen |= {"early end" for event in events if event[0] == "read" and event[2] is not None and event[2] > theta}
    assert seen == {"end_token", "max_target_tokens", "early", "wait", "early end"}


@pytest.mark.parametrize(("batch_size", "how"), [(1, recomputing), (2, cached)])
def test_the_size_of_the_batch_changes_nothing(batch_size, how):
    model = small_talk(3)
    expected = by_stream(grid_system(model, TOKENS, 0.5, 9).translate(SOURCES), len(SOURCES))
    system = how(grid_system(model, TOKENS, 0.5, 9, batch_size=batch_size))
    for ours, theirs in zip(by_stream(system.translate(SOURCES), len(SOURCES)), expected, strict=True):
        assert_same_events(ours, theirs)


def test_computing_time_grows_along_a_stream_and_leaves_out_what_its_reader_does():
    stream, waited, begun = [], 0.0, time.perf_counter()
    for event in grid_system(small_talk(3), TOKENS, 0.5, 9).translate(SOURCES):
        started = time.perf_counter()
        time.sleep(0.002)
        waited += time.perf_counter() - started
        stream.append(event)
    total = time.perf_counter() - begun
    for index in range(len(SOURCES)):
        times = [event.elapsed for event in stream if event.stream == index]
        assert times[0] == 0
        assert times == sorted(times)
        assert 0 < times[-1] <= total - waited


# --- what follows from θ and the end token -----------------------------------------------------------------------


@pytest.mark.parametrize(("theta", "delay"), [(0.49, 1), (0.5, 3), (0.51, 3)])
def test_emit_needs_a_probability_above_theta(theta, delay):
    model = always(small_talk(), token=3, p_emit=0.5)
    assert delays(grid_system(model, TOKENS, theta, 1), [[2, 3, 4]]) == [[delay]]


def test_a_translation_that_ends_at_its_limit_has_ended():
    model = small_talk()
    tokens_left = iter([3, 3, END])
    model.text_logits = lambda hidden: torch.eye(7, dtype=hidden.dtype)[next(tokens_left)].expand(len(hidden), 7)
    system = recomputing(grid_system(always(model, p_emit=0.1), TOKENS, 0.5, 2))
    (hypothesis,) = collect(system.translate([[2]]), 1)
    # Row 0 is a WAIT, for which no token is asked; then 3, 3 and the end token follow.
    assert (hypothesis.tokens, hypothesis.stopped) == ([3, 3], "end_token")


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_source_without_tokens_is_refused_by_its_number_before_anything_is_decoded():
    with pytest.raises(ValueError, match="source 1 has no tokens"):
        next(grid_system(small_talk(), TOKENS, 0.5, 9).translate([[2, 3], []]))


def test_sources_longer_than_the_model_takes_are_all_named_before_the_first_step():
    model = tiny_grid(tiny_backbone(vocab_size=7, layers=1, max_position_embeddings=12))
    sources = [[4], [3] * 11, [2] * 20, [3] * 12]
    cases = [(TOKENS, r"2 of 4 .*: number 2 \(21\), number 3 \(13\)\. "), (PREFIXED, "3 of 4 .*: number 1 ")]
    for tokens, named in cases:
        events = grid_system(model, tokens, 0.5, 4).translate(sources)
        with pytest.raises(ValueError, match=named + ".*leave them out") as error:
            next(events)
        assert "longer than the 12 tokens this model takes" in str(error.value)
        assert "stream" not in str(error.value)
    assert len(collect(grid_system(model, TOKENS, 0.5, 4).translate(sources[:2]), 2)) == 2
    windowed = tiny_grid(tiny_backbone("mistral", vocab_size=7, layers=1, sliding_window=16))
    with pytest.raises(
        ValueError, match=r"the 11 tokens this model takes .the backbone's sliding window of 16 tokens holds both"
    ):
        next(grid_system(windowed, TOKENS, 0.5, 4).translate(sources))


# --- rows taken ahead ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchor", [3, "source_length", "visible_length"])
@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_a_stream_alone_is_taken_rows_ahead_in_fewer_passes_to_the_same_events(theta, anchor):
    model = small_talk(attention="exact", input_attends_output=False, anchor=anchor)
    alone, many = (list(grid_system(model, TOKENS, theta, 9, n).translate(SOURCES)) for n in (1, 2))
    for index in range(len(SOURCES)):
        own, other = ([event for event in events if event.stream == index] for events in (alone, many))
        assert signature(own) == signature(other)
    calls, all_calls = (sum(event.calls for event in events if isinstance(event, End)) for events in (alone, many))
    assert calls < all_calls
    if theta == 1.0:  # two reads of three are known
        assert all_calls - calls == sum(len(source) + 1 - math.ceil((len(source) + 1) / 3) for source in SOURCES)


@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_each_token_of_a_row_taken_ahead_is_computed_once(theta):
    system = grid_system(small_talk(attention="exact", input_attends_output=False, anchor=3), TOKENS, theta, 9, 1)
    cache, computed = system.states.cache, []
    append = cache.append

    def noted(asked):
        for run in asked[0].runs:
            computed.extend((run.sees, run.line, run.place + n) for n in range(len(run.tokens)))
        return append(asked)

    cache.append = noted
    for source in SOURCES:
        computed.clear()
        events = list(system.translate([source]))
        reads, writes = (sum(isinstance(event, kind) for event in events) for kind in (Read, Write))
        assert len(set(computed)) == len(computed)
        assert len(computed) >= reads + writes


def signature(events):
    """What they say, without probabilities, whose last digits differ with the company."""
    return [
        (type(event).__name__, getattr(event, "token", None), getattr(event, "delay", getattr(event, "reason", None)))
        for event in events
    ]
