"""A stream that goes on as its source arrives has written, after each token, what one decoded anew would have."""

from types import SimpleNamespace

import pytest

from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.policy.knobs import Adaptive
from duplexmt.streaming.events import End, Read, Write, collect
from duplexmt.streaming.systems import build_system

from ..helpers import spoken_grid, tiny_prefix, tiny_tokenizer

LIMIT = 12
SOURCES = ["站在那边的男人曾是棒球手。", "我昨天买了一本书。"]


class Going:
    """What a system has written once it has read some of a sentence's tokens, by a stream that goes on."""

    def __init__(self, engine):
        self.engine, self.sentence, self.stream, self.writes = engine, None, None, []

    def __call__(self, sentence, known, finished):
        """What is written by now, and whether the translation has ended."""
        if sentence != self.sentence:
            if self.stream is not None:
                self.stream.close()
            self.sentence, self.stream, self.writes = sentence, None, []
        if not known:
            return [], False
        self.stream = self.stream or self.engine.open()
        if not self.stream.over:
            self.stream.read(known[self.stream.text_tokens :])
            if finished:
                self.stream.end()
            self.writes += [event for event in self.stream.write() if isinstance(event, Write)]
        return list(self.writes), self.stream.over


def grid(options):
    """The engine of a random grid; where the anchor asks for lengths, each source is taken to have nine tokens."""
    loaded = SimpleNamespace(model=spoken_grid(seed=5, **options), tokens=stream_tokens(tiny_tokenizer()))
    loaded.typical_source_length = 9
    return build_system(loaded, "grid", 0.5, max_target_tokens=LIMIT)


def multi_path():
    """A random model of all k."""
    return tiny_prefix("multi", seed=5, vocab_size=len(tiny_tokenizer()))


def written(system, known, finished, filler):
    """What a system has written once it has read some source tokens, and whether it has ended, decoded anew.

    What follows is a token that no decision depends on: the events are taken up to its read, so this holds for every
    system that does not look ahead.
    """
    source = [*known] if finished else [*known, filler]
    writes, reads = [], 0
    for event in system.translate([source]):
        if isinstance(event, Read):
            reads += 1
            if reads > len(known) and not finished:
                return writes, False
        elif isinstance(event, Write):
            writes.append(event)
        elif isinstance(event, End):
            return writes, True
    return writes, finished


def answers(live, system, number, source, filler):
    """What a stream that goes on has written after each token: what a system has that is run anew."""
    for read in range(1, len(source) + 1):
        finished = read == len(source)
        found, ended = live(number, source[:read], finished)
        expected, expected_end = written(system, source[:read], finished, filler)
        assert [(w.token, w.delay) for w in found] == [(w.token, w.delay) for w in expected]
        assert ended == expected_end
        yield found


@pytest.mark.parametrize("options", [{}, {"anchor": 0}, {"attention": "exact"}], ids=["length", "constant", "exact"])
def test_what_is_written_before_the_next_read_depends_on_nothing_unread(options):
    system, tokens = grid(options), stream_tokens(tiny_tokenizer())
    for source in token_ids(tiny_tokenizer(), SOURCES):
        (whole,) = collect(system.translate([source]), 1)
        for read in range(1, len(source) + 1):
            finished = read == len(source)
            writes, ended = written(system, source[:read], finished, filler=tokens.seed)
            expected = [token for token, delay in zip(whole.tokens, whole.delays, strict=True) if delay <= read]
            assert [write.token for write in writes] == expected
            assert ended == finished or len(writes) == LIMIT


@pytest.mark.parametrize("options", [{}, {"anchor": 0}, {"attention": "exact"}], ids=["length", "constant", "exact"])
def test_a_stream_that_goes_on_answers_as_one_decoded_again_at_each_unit(options, monkeypatch):
    system, live, tokens = grid(options), Going(grid(options)), stream_tokens(tiny_tokenizer())
    for number, source in enumerate(token_ids(tiny_tokenizer(), SOURCES)):
        steps = []
        monkeypatch.setattr(live.engine, "states", Counted(live.engine.states, steps))
        assert live(number, [], False) == ([], False)
        found = list(answers(live, system, number, source, tokens.seed))
        assert len(steps) <= len(found) + 2 + LIMIT, "each state is computed once"
        monkeypatch.undo()
    for number in (8, 9):  # an unfinished sentence is left for the next
        live(number, source[:1], False)
        assert len(live.engine.streams) == 1


PREFIX_SYSTEMS = [("waitk", 2), ("hold", 1), ("alignatt", 1), ("lsg", 0.3), ("confidence", 0.4)]


@pytest.mark.parametrize(("name", "setting"), PREFIX_SYSTEMS)
def test_streams_of_other_systems_answer_as_ones_decoded_again_at_each_unit(name, setting):
    model, tokens = multi_path(), stream_tokens(tiny_tokenizer())
    loaded = SimpleNamespace(model=model, tokens=tokens, typical_source_length=9)
    how = {"max_target_tokens": LIMIT, "adaptive": Adaptive(1, 4, 0.9, "paper")}
    system, engine = (build_system(loaded, name, setting, **how) for _ in range(2))
    live, early = Going(engine), 0
    for number, source in enumerate(token_ids(tiny_tokenizer(), SOURCES)):
        *before, _ = answers(live, system, number, source, tokens.seed)
        early += sum(map(len, before))
    assert early


class Counted:
    """The states of an engine, and a list that grows with every computation."""

    def __init__(self, states, steps):
        self.states, self.steps = states, steps
        self.forget, self.likeliest = states.forget, states.likeliest

    def __call__(self, states):
        self.steps.append(len(states))
        return self.states(states)
