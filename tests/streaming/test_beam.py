"""Beam search, behind the end, behind marks and some tokens ahead: against a search without cache or batch."""

from dataclasses import replace

import pytest
import torch

from duplexmt.data.tokenizer import token_ids
from duplexmt.policy.decoding_options import PAPER_RULE, EmitRule
from duplexmt.streaming.drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.policies import Confidence, Lsg, WaitK
from duplexmt.streaming.stream import Stream
from duplexmt.streaming.systems import build_system

from ..helpers import grid_system, policy_system, tiny_backbone, tiny_grid, tiny_tokenizer, trained
from . import slow_policies as slow
from .test_grid_system import OPTIONS, PREFIXED, SOURCES, TOKENS, both_tokens, by_stream, one_by_one, small_talk
from .test_prefix_systems import BOUNDS, DEFINITIONS, model_of, timeless

ROWS = OPTIONS[-1]  # a grid of exact rows
MARKS = (3, 5, 6)  # of the seven words
LIMIT, WIDTH = 6, 3


@torch.no_grad()
def grid_by_beam(model, tokens, text, theta, limit, marks=(), lookahead=0):
    """`one_by_one`, but that an ending is searched for at the end, and behind a mark for the tokens written there; and
    for each token elsewhere a continuation, with `lookahead`."""

    def state(source, target):
        return model(torch.tensor([source]), torch.tensor([target]), torch.tensor([len(text) + 1 + before]))[0, -1, -1]

    def next_of(source, target):
        return lambda chosen: model.text_logits(state(source, [*target, *chosen])).log_softmax(-1)

    def searched(source, target):
        """The best ending of a target, as if the source had ended here, and p(EMIT) of each token."""
        chosen = slow.beam_search(next_of(source, target), WIDTH, tokens.end, limit - len(target) + forced)
        states = [state(source, [*target, *chosen[:n]]) for n in range(len(chosen))]
        return [(t, float(model.emit_logits(s).softmax(-1)[1])) for t, s in zip(chosen, states, strict=True)]

    before = len(tokens.source_prefix)
    source, x = [*tokens.source_prefix, *text, tokens.end], len(tokens.source_prefix)
    target, events, forced = [tokens.seed, *tokens.target_prefix], [("read", source[x], None)], 1
    forced += len(tokens.target_prefix)
    at_read = list(target)  # as it was when the last source token was read
    while x < len(source) - 1:
        hidden = state(source[: x + 1], target)
        token, p_emit = int(model.text_logits(hidden).argmax()), float(model.emit_logits(hidden).softmax(-1)[1])
        written = len(target) - forced
        if p_emit > theta and source[x] in marks:
            plan = searched([*source[: x + 1], tokens.end], at_read)
            token = [*(token for token, _ in plan), tokens.end][len(target) - len(at_read)]
        elif p_emit > theta and lookahead and token != tokens.end:
            token = slow.look_ahead(next_of(source[: x + 1], target), WIDTH, lookahead, tokens.end, limit - written)
        if p_emit > theta and token != tokens.end:
            if written == limit:
                return [*events, ("end", "max_target_tokens")]
            target.append(token)
            events.append(("write", token, x + 1 - len(tokens.source_prefix), p_emit))
        else:
            x += 1
            events.append(("read", source[x], p_emit))
            if x < len(source) - 1:
                at_read = list(target)
    ending = searched(source, at_read) if source[-2] in marks else []
    since = target[len(at_read) :]
    if ending and [token for token, _ in ending[: len(since)]] == since:
        ending = ending[len(since) :]
    else:
        ending = searched(source, target)
    events += [("write", token, len(text), p_emit) for token, p_emit in ending[:-1]]
    return [*events, ("end", "end_token" if ending[-1][0] == tokens.end else "max_target_tokens")]


def with_marks(monkeypatch):
    """Have streams without a tokenizer know which of the seven words is a mark."""
    monkeypatch.setattr(Stream, "is_mark", lambda own, read: own.source[read - 1] in MARKS)


@pytest.mark.parametrize(("marks", "lookahead"), [((), 0), (MARKS, 0), ((), 1), (MARKS, 2)])
@both_tokens
def test_a_grid_goes_on_as_a_search_without_cache_does_and_not_as_without_one(tokens, marks, lookahead, monkeypatch):
    if marks:
        with_marks(monkeypatch)
    told_apart = by_both = ends = 0
    for seed, theta in ((0, 0.35), (1, 0.6), (2, 0.35)):
        model = small_talk(seed, **ROWS)
        greedy = [one_by_one(model, tokens, source, theta, LIMIT) for source in SOURCES]
        plain = [grid_by_beam(model, tokens, source, theta, LIMIT) for source in SOURCES]
        expected = [grid_by_beam(model, tokens, source, theta, LIMIT, marks, lookahead) for source in SOURCES]
        told_apart += [[e[:2] for e in s] for s in greedy] != [[e[:2] for e in s] for s in expected]
        by_both += [[e[:2] for e in s] for s in plain] != [[e[:2] for e in s] for s in expected]
        ends += sum(stream[-1] == ("end", "end_token") for stream in expected)
        for batch_size in (1, 3):
            system = grid_system(model, tokens, theta, LIMIT, batch_size, beam=WIDTH, lookahead=lookahead)
            for ours, theirs in zip(by_stream(system.translate(SOURCES), len(SOURCES)), expected, strict=True):
                assert [event[:2] for event in ours] == [event[:2] for event in theirs]
                assert [e[3] for e in ours if e[0] == "write"] == pytest.approx(
                    [e[3] for e in theirs if e[0] == "write"]
                )
    assert told_apart > 1
    assert (by_both > 0) is bool(marks or lookahead)
    assert ends > 5


@pytest.mark.parametrize("tokens", [TOKENS, PREFIXED], ids=["plain", "prefixed"])
@pytest.mark.parametrize(
    ("policy", "setting"),
    [(WaitK, 1), (WaitK, 3), (WaitK, None), (Confidence, 0.5), (Lsg, 0.1), (LocalAgreement, 2), (Hold, 2),
     (AlignAtt, 1), (WholeLsg, 0.1)],
)  # fmt: skip
def test_each_policy_goes_on_as_a_search_without_cache_does(policy, setting, tokens):
    told_apart = ahead = 0
    adaptive = [BOUNDS] if policy in (Confidence, Lsg, WholeLsg) else []
    whole = policy in (LocalAgreement, Hold, AlignAtt, WholeLsg)
    for seed in range(5):
        if seed > 1 and told_apart and (whole or setting in (3, None) or ahead):
            break
        model, plain = model_of(seed), None
        greedy = [DEFINITIONS[policy](model, tokens, source, setting, *adaptive, LIMIT) for source in SOURCES]
        for lookahead in (0,) if whole else (0, 2):  # drafts have none
            how = {"beam": (WIDTH, lookahead)} if lookahead else {}
            expected = [
                slow.ended_by_beam(
                    DEFINITIONS[policy](model, tokens, source, setting, *adaptive, LIMIT, **how),
                    model, tokens, source, WIDTH, LIMIT, whole,
                )
                for source in SOURCES
            ]  # fmt: skip
            told_apart += greedy != expected
            ahead += plain is not None and plain != expected
            plain = expected
            for batch_size in (1, 3):
                engine = policy_system(
                    policy, model, tokens, setting, LIMIT, batch_size, *adaptive, beam=WIDTH, lookahead=lookahead
                )
                events = list(engine.translate(SOURCES))
                assert [timeless(events, index) for index in range(len(SOURCES))] == expected
    assert told_apart
    assert whole or setting in (3, None) or ahead  # the sources are short


@pytest.mark.parametrize(("marks", "lookahead"), [(False, 0), (True, 0), (True, 1)])
def test_a_stream_that_is_left_within_an_ending_goes_on_as_it_would_have(marks, lookahead, monkeypatch):
    if marks:
        with_marks(monkeypatch)
    cut = 0
    for seed in range(4):
        system = grid_system(small_talk(seed, **ROWS), TOKENS, 0.4, LIMIT, beam=WIDTH, lookahead=lookahead)
        for source in SOURCES:

            def stream(source=source, system=system):
                opened = system.open(source_length=len(source))
                opened.read(source)
                opened.end()
                return opened

            whole = [replace(event, elapsed=0.0, stream=0) for event in stream().write()]
            for left in range(1, len(whole)):
                before, after = whole[:left], whole[left:]
                read = sum(isinstance(event, Read) for event in before)
                written = [event.token for event in before if isinstance(event, Write)]
                reads = [
                    sum(isinstance(other, Read) for other in before[:place])
                    for place, event in enumerate(before)
                    if isinstance(event, Write)
                ]
                again = stream()
                again.go_on(read, written, reads)
                found = [replace(event, elapsed=0.0, stream=0) for event in again.write()]
                calls = {"calls": 0}
                assert [replace(e, **calls) if isinstance(e, End) else e for e in found] == [
                    replace(e, **calls) if isinstance(e, End) else e for e in after
                ]
                cut += isinstance(after[0], Write) and not any(isinstance(event, Read) for event in after)
    assert cut > 10, "within endings"


def test_nothing_is_written_behind_a_mark_but_where_p_emit_is_above_theta(monkeypatch):
    with_marks(monkeypatch)
    system = grid_system(small_talk(0, **ROWS), TOKENS, 1.0, LIMIT, beam=WIDTH)
    for events in by_stream(system.translate(SOURCES), len(SOURCES)):
        kinds = [event[0] for event in events]
        assert "write" not in kinds[: len(kinds) - kinds[::-1].index("read")]


def test_marks_are_told_by_the_text_of_tokens():
    tokenizer = tiny_tokenizer()
    model = tiny_grid(tiny_backbone(vocab_size=len(tokenizer)), **ROWS)
    for text, mark in (("I read.", True), ("I read", False)):
        ids = token_ids(tokenizer, [text])[0]
        for beam in (1, 2):
            stream = grid_system(model, TOKENS, 0.5, 8, beam=beam, tokenizer=tokenizer).open(source_length=len(ids))
            stream.read(ids)
            stream.visible = len(stream.source)
            assert stream.may_have_ended is (mark and beam == 2)


def test_a_rule_says_how_many_endings_and_the_papers_grid_knows_but_one():
    assert (
        build_system(trained(small_talk(0, **ROWS), TOKENS, EmitRule(beam=2)), "grid", 0.5, max_target_tokens=4).beam
        == 2
    )
    with pytest.raises(ValueError, match=r"policy\.beam=4: the paper's grid keeps one .* experiment=past_paper"):
        build_system(trained(small_talk(0), TOKENS, EmitRule(beam=4)), "grid", 0.5, max_target_tokens=4)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=rf"policy\.beam={bad}: must be a whole number of at least 1"):
            EmitRule(beam=bad)
    assert (PAPER_RULE.beam, PAPER_RULE.lookahead) == (1, 0)
    assert EmitRule(beam=4, lookahead=1).unusual() == {"beam": 4, "lookahead": 1}
    with pytest.raises(ValueError, match=r"policy\.lookahead=1: with policy\.beam=1 there is nothing to weigh"):
        EmitRule(lookahead=1)
    with pytest.raises(ValueError, match=r"policy\.lookahead=-1: must be a whole number of at least 0"):
        EmitRule(beam=2, lookahead=-1)


def test_one_ending_is_the_greedy_one():
    model = small_talk(2, **ROWS)
    plain, one = (
        by_stream(grid_system(model, TOKENS, 0.5, LIMIT, **beam).translate(SOURCES), len(SOURCES))
        for beam in ({}, {"beam": 1})
    )
    assert plain == one
