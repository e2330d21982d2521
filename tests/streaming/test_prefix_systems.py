"""Policies of prefix models: against their definitions, and what follows from k, n and the ends of other knobs."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder.cache import DecoderCache
from duplexmt.decoder.layout import SOURCE
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.drafting import AlignAtt, Draft, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.policies import Confidence, Lsg, WaitK, divergence

from ..helpers import float64, policy_system, tiny_prefix
from . import slow_policies as slow
from .test_grid_system import END, PREFIXED, SEED, SOURCES, TOKENS, both_tokens

SEEDS = range(2)  # whose models have the two kinds of anchor
BATCH_SIZES = (1, 3, 64)
LIMIT = 6
BOUNDS = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
UNSURE = Adaptive(k_min=2, k_max=3, alpha=1, divergence="code")
DEFINITIONS = {
    WaitK: slow.wait_k, LocalAgreement: slow.local_agreement, Confidence: slow.confidence, Lsg: slow.lsg,
    WholeLsg: slow.lsg_of_whole_sources, AlignAtt: slow.alignatt, Hold: slow.hold,
}  # fmt: skip
SETTINGS = {
    WaitK: [1, 4, None], LocalAgreement: [1, 2, 3], Confidence: [0, 0.2, 0.5, 0.8], Lsg: [0.05, 0.5],
    WholeLsg: [0.05, 0.5], AlignAtt: [1, 2], Hold: [1, 3],
}  # fmt: skip


@cache
def small_talk(seed=0, **options):
    """A float64 model of seven words, so that it often predicts the end token."""
    return float64(tiny_prefix(vocab_size=7, layers=2, seed=seed, **options))


def timeless(events, index=0):
    """The events of one stream without their times."""
    return [replace(event, elapsed=0.0, stream=0) for event in events if event.stream == index]


def model_of(seed, heads=None, **options):
    model = small_talk(seed, anchor="source_length" if seed else 12, **options)
    model.alignment_heads = heads
    return model


# --- against the definitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "bounds", "heads"),
    [(TOKENS, BOUNDS, None), (PREFIXED, UNSURE, [[0, 3], [1, 1]])],
    ids=["plain", "prefixed, unsure, calibrated"],
)
@pytest.mark.parametrize(("policy", "setting"), [(policy, one) for policy in SETTINGS for one in SETTINGS[policy]])
def test_a_policy_does_in_a_batch_what_its_definition_does_alone(policy, setting, tokens, bounds, heads):
    delays, adaptive = set(), [bounds] if policy in (Confidence, Lsg, WholeLsg) else []
    for seed in range(4):
        if seed > 1 and len(delays) > 3:
            break
        model = model_of(seed, heads)
        alone = [DEFINITIONS[policy](model, tokens, source, setting, *adaptive, LIMIT) for source in SOURCES]
        for batch_size in BATCH_SIZES:
            system = policy_system(policy, model, tokens, setting, LIMIT, batch_size, *adaptive)
            events = list(system.translate(SOURCES))
            assert [timeless(events, index) for index in range(len(SOURCES))] == alone
        delays |= {event.delay for events in alone for event in events if isinstance(event, Write)}
    assert len(delays) > 3


def test_the_streams_compared_above_show_every_case():
    waits, agreements = [], []
    for seed in SEEDS:
        for source in SOURCES:
            waits.append((source, slow.wait_k(small_talk(seed), TOKENS, source, 2, 6)))
            agreements.append((source, slow.local_agreement(small_talk(seed), TOKENS, source, 2, 6)))
    seen = set()
    for source, events in waits:
        writes = [event for event in events if isinstance(event, Write)]
        seen |= {events[-1].reason}
        seen |= {"early end" for i, w in enumerate(writes) if min(2 + i, len(source)) < w.delay}
        seen |= {"early" for w in writes if w.delay < len(source)}
    for source, events in agreements:
        delays = [event.delay for event in events if isinstance(event, Write)]
        seen |= {"agreed" for delay in delays if delay < len(source)} | {"rest" for d in delays if d == len(source)}
    assert seen == {"end_token", "max_target_tokens", "early end", "early", "agreed", "rest"}


@pytest.mark.parametrize("which", ["paper", "code"])
@pytest.mark.parametrize(("system", "definition"), [(Lsg, slow.lsg), (WholeLsg, slow.lsg_of_whole_sources)])
def test_divergences_are_those_of_the_definition(system, definition, which, monkeypatch):
    found, expected = [], []
    for module in ("policies", "drafting"):
        monkeypatch.setattr(
            f"duplexmt.streaming.{module}.divergence",
            lambda now, *others: found.append(told := divergence(now, *others)) or told,
        )
    bounds = Adaptive(k_min=1, k_max=4, alpha=1, divergence=which)
    for seed in SEEDS:
        list(policy_system(system, model_of(seed), TOKENS, 0.5, LIMIT, 1, bounds).translate(SOURCES))
        for text in sorted(SOURCES, key=len):
            definition(model_of(seed), TOKENS, text, 0.5, bounds, LIMIT, expected)
    found = torch.cat([told.flatten() for told in found])
    expected = torch.tensor(expected, dtype=torch.float64)
    if system is Lsg:  # which computes it where the bounds decide, too; every one of the definition's is there
        assert len(found) > len(expected) > 20
        assert (found[:, None] - expected).abs().min(0).values.max() < 1e-9
    else:
        assert len(expected) > 20
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "mistral", "qwen3"])
def test_recorded_attention_is_that_of_each_head(model_type):
    model = float64(tiny_prefix(vocab_size=7, model_type=model_type, sliding_window=None))
    seen = []

    class Kept(AlignAtt):
        def safe(self, stream, draft):
            read = stream.source[len(PREFIXED.source_prefix) : stream.visible]
            seen.append((read, list(draft.text), torch.stack(draft.attention, 1)))
            return (yield from super().safe(stream, draft))

    list(policy_system(Kept, model, PREFIXED, 1, LIMIT, 3).translate(SOURCES[:3]))
    for read, draft, weights in seen:
        expected = slow.rests_on(model, PREFIXED, read, draft)[1]
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-9)
    assert len(seen) == sum(map(len, SOURCES[:3]))


# --- the ends of the knobs -----------------------------------------------------------------------------------------


def same_as(system, other):
    for source in SOURCES:
        assert timeless(system.translate([source])) == timeless(other.translate([source]))


@both_tokens
def test_confidence_and_lsg_are_wait_k_at_the_ends(tokens):
    for seed in SEEDS:
        model = model_of(seed)
        wait = {k: policy_system(WaitK, model, tokens, k, LIMIT) for k in (2, 3, 5)}
        for least, most, which in ((2, 3, "code"), (2, 5, "paper"), (5, 5, "paper")):
            bounds = Adaptive(least, most, 1, which)
            same_as(policy_system(Confidence, model, tokens, 0, LIMIT, adaptive=bounds), wait[least])
            same_as(policy_system(Confidence, model, tokens, 1, LIMIT, adaptive=bounds), wait[most])
            same_as(policy_system(Lsg, model, tokens, 1e-12, LIMIT, adaptive=bounds), wait[least])
            same_as(policy_system(Lsg, model, tokens, 1e9, LIMIT, adaptive=bounds), wait[most])


def test_what_drafts_is_offline_or_local_agreement_of_one_at_the_ends():
    for seed in SEEDS:
        model = model_of(seed)
        offline = policy_system(WaitK, model, TOKENS, None, LIMIT)
        at_once = policy_system(LocalAgreement, model, TOKENS, 1, LIMIT)
        same_as(policy_system(Hold, model, TOKENS, 0, LIMIT), at_once)
        same_as(policy_system(AlignAtt, model, TOKENS, 0, LIMIT), at_once)
        never = Adaptive(k_min=1, k_max=99, alpha=1, divergence="paper")
        for late in (
            policy_system(Hold, model, TOKENS, LIMIT, LIMIT),
            policy_system(AlignAtt, model, TOKENS, 7, LIMIT),
            policy_system(WholeLsg, model, TOKENS, 1e9, LIMIT, adaptive=never),
        ):
            same_as(late, offline)


# --- what follows from n -------------------------------------------------------------------------------------------


class Scripted(LocalAgreement):
    """Local agreement whose hypotheses come from a table: one text for each number of source tokens read."""

    def __init__(self, table, n, adaptive=None):
        super().__init__(n, adaptive)
        self.table = table

    def draft(self, stream, read, written):
        yield from ()
        return Draft(list(self.table[read - 1]), "end_token")


A, B, C, D = 2, 3, 4, 5
TABLE = [[A, B], [A, C, B], [A, C, D, D], [A, C, D, B]]


@pytest.mark.parametrize(
    ("n", "table", "written"),
    [
        (1, [[A], [A, B], [A, B, C], [A, B, C, D]], [(A, 1), (B, 2), (C, 3), (D, 4)]),
        (2, TABLE, [(A, 2), (C, 3), (D, 4), (B, 4)]),  # AB, ACB: A; ACB, ACDD: AC; ACDD, ACDB: ACD; then the rest
        (3, TABLE, [(A, 3), (C, 4), (D, 4), (B, 4)]),
        (4, TABLE, [(A, 4), (C, 4), (D, 4), (B, 4)]),
        (5, TABLE, [(A, 4), (C, 4), (D, 4), (B, 4)]),  # more than there are hypotheses: offline
        (2, [[], [A], [], [A, B]], [(A, 4), (B, 4)]),  # an empty hypothesis agrees on nothing
        (2, [[A, B], [A, B], [A, B], [A, B]], [(A, 2), (B, 2)]),  # that they also end alike is not agreed on
    ],
)
def test_local_agreement_writes_what_the_last_n_hypotheses_share(n, table, written):
    events = timeless(policy_system(partial(Scripted, table), small_talk(), TOKENS, n, 9).translate([[6, 6, 6, 6]]))
    assert [(e.token, e.delay) for e in events if isinstance(e, Write)] == written
    assert [e.token for e in events if isinstance(e, Read)] == [6, 6, 6, 6, END]
    assert events[-1] == End(0, "end_token")


# --- the sentence before -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [WaitK, LocalAgreement])
def test_a_previous_sentence_is_read_in_the_place_kept_for_it(policy):
    tokens = StreamTokens(end=END, seed=SEED, source_prefix=(3, END, END), context=2)
    model, contexts = small_talk(2), [[5, 6, 4], [], [2]]
    found = list(policy_system(policy, model, tokens, 2, 6).translate(SOURCES[:3], contexts))
    for index, (source, context) in enumerate(zip(SOURCES, contexts, strict=False)):
        same = StreamTokens(end=END, seed=SEED, source_prefix=tokens.prefix(context))
        alone = list(policy_system(policy, model, same, 2, 6).translate([source]))
        assert timeless(found, index) == timeless(alone)
    with pytest.raises(ValueError, match="trained without the previous sentence"):
        list(policy_system(policy, model, TOKENS, 2, 6).translate(SOURCES[:1], [[2]]))


# --- what a system needs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", SETTINGS)
def test_no_source_token_is_encoded_twice_and_calls_of_the_model_are_counted(policy, monkeypatch):
    encoded, calls = [], []
    original = DecoderCache.append

    def counted(self, asked):
        calls.append(len(asked))
        runs = [run for one in asked for run in one.runs if run.line == SOURCE]
        encoded.extend((run.position + at, token) for run in runs for at, token in enumerate(run.tokens))
        return original(self, asked)

    monkeypatch.setattr(DecoderCache, "append", counted)
    system = policy_system(policy, model_of(2), TOKENS, SETTINGS[policy][1], LIMIT, adaptive=BOUNDS)
    ends = [event for event in system.translate(SOURCES) if hasattr(event, "reason")]
    assert sum(end.calls for end in ends) == sum(calls)
    text = [(place, token) for place, token in encoded if token != TOKENS.end]
    assert sorted(text) == sorted((place, token) for source in SOURCES for place, token in enumerate(source))
