"""Confidence, LSG, AlignAtt and hold-n: against their definitions, at the ends of their knobs, and live."""

import random
from functools import partial

import pytest
import torch

from duplexmt.decoder.cache import DecoderCache
from duplexmt.decoder.layout import SOURCE
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.events import Write
from duplexmt.streaming.policies import Confidence, Lsg, WaitK, divergence

from ..helpers import float64, policy_system, tiny_prefix
from . import slow_policies as slow
from .test_grid_system import PREFIXED, SOURCES, TOKENS, both_tokens
from .test_prefix_systems import BATCH_SIZES, SEEDS, small_talk, timeless

BOUNDS = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
UNSURE = Adaptive(k_min=2, k_max=3, alpha=1, divergence="code")
each_bounds = pytest.mark.parametrize(
    ("bounds", "tokens"), [(BOUNDS, TOKENS), (UNSURE, PREFIXED)], ids=["1-4, paper", "2-3, code, prefixed"]
)
LIMIT = 6


def model_of(seed, heads=None, **options):
    model = small_talk(seed, anchor="source_length" if seed else 12, **options)
    model.alignment_heads = heads
    return model


def in_all_batches(build, alone):
    """Whether a system does in batches of any size what a slow version does one by one; how many delays there are."""
    expected = [alone(source) for source in SOURCES]
    for batch_size in BATCH_SIZES:
        events = list(build(batch_size).translate(SOURCES))
        assert [timeless(events, index) for index in range(len(SOURCES))] == expected
    return {event.delay for events in expected for event in events if isinstance(event, Write)}


# --- against the definitions ---------------------------------------------------------------------------------------


@each_bounds
@pytest.mark.parametrize("rho", [0, 0.2, 0.5, 0.8])
def test_confidence_does_in_a_batch_what_its_definition_does_alone(rho, bounds, tokens):
    delays = set()
    for seed in range(4):
        if seed > 1 and len(delays) > 4:
            break
        model = model_of(seed)
        build = partial(policy_system, Confidence, model, tokens, rho, LIMIT, adaptive=bounds)
        delays |= in_all_batches(build, lambda text, m=model: slow.confidence(m, tokens, text, rho, bounds, LIMIT))
    assert len(delays) > 4


@each_bounds
@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize(
    ("system", "definition"), [(Lsg, slow.lsg), (WholeLsg, slow.lsg_of_whole_sources)], ids=["", "whole"]
)
def test_lsg_does_in_a_batch_what_its_definition_does_alone(system, definition, delta, bounds, tokens):
    delays = set()
    for seed in SEEDS:
        model = model_of(seed)
        build = partial(policy_system, system, model, tokens, delta, LIMIT, adaptive=bounds)
        delays |= in_all_batches(build, lambda text, m=model: definition(m, tokens, text, delta, bounds, LIMIT))
    assert len(delays) > 4


@pytest.mark.parametrize(
    ("heads", "tokens"), [(None, TOKENS), ([[0, 3], [1, 1]], PREFIXED)], ids=["all", "calibrated, prefixed"]
)
@pytest.mark.parametrize("frames", [1, 2])
def test_alignatt_does_in_a_batch_what_its_definition_does_alone(frames, heads, tokens):
    delays = set()
    for seed in SEEDS:
        model = model_of(seed, heads)
        build = partial(policy_system, AlignAtt, model, tokens, frames, LIMIT)
        delays |= in_all_batches(build, lambda text, m=model: slow.alignatt(m, tokens, text, frames, LIMIT))
    assert len(delays) > 3


@pytest.mark.parametrize(("n", "tokens"), [(1, PREFIXED), (3, TOKENS)], ids=["1, prefixed", "3"])
def test_hold_does_in_a_batch_what_its_definition_does_alone(n, tokens):
    for seed in SEEDS:
        model = model_of(seed)
        build = partial(policy_system, Hold, model, tokens, n, LIMIT)
        in_all_batches(build, lambda text, m=model: slow.hold(m, tokens, text, n, LIMIT))


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


# --- what a system needs, and live ---------------------------------------------------------------------------------

SYSTEMS = {
    "wait-k": lambda m, t: policy_system(WaitK, m, t, 2, LIMIT),
    "offline": lambda m, t: policy_system(WaitK, m, t, None, LIMIT),
    "local agreement": lambda m, t: policy_system(LocalAgreement, m, t, 2, LIMIT),
    "confidence": lambda m, t: policy_system(Confidence, m, t, 0.4, LIMIT, adaptive=BOUNDS),
    "lsg": lambda m, t: policy_system(Lsg, m, t, 0.3, LIMIT, adaptive=BOUNDS),
    "whole lsg": lambda m, t: policy_system(WholeLsg, m, t, 0.3, LIMIT, adaptive=BOUNDS),
    "alignatt": lambda m, t: policy_system(AlignAtt, m, t, 1, LIMIT),
    "hold": lambda m, t: policy_system(Hold, m, t, 1, LIMIT),
}
every_system = pytest.mark.parametrize("name", SYSTEMS)


@every_system
@both_tokens
def test_a_source_that_arrives_piece_by_piece_is_translated_as_one_that_is_known(name, tokens):
    draw = random.Random(name)
    for seed in SEEDS[:2]:
        system = SYSTEMS[name](model_of(seed), tokens)
        engine = system
        for source in SOURCES:
            stream, events, arrived = engine.open(source_length=len(source)), [], 0
            while arrived < len(source):
                piece = source[arrived : arrived + draw.randrange(1, 4)]
                stream.read(piece)
                arrived += len(piece)
                events += list(stream.write())
                assert list(stream.write()) == []
                assert stream.visible - stream.prefix == arrived, "reads all that there is before it waits"
            stream.end()
            events += list(stream.write())
            assert stream.over
            known = [event for event in system.translate([source])]
            assert timeless(events, events[0].stream) == timeless(known)
            assert events[-1].calls == known[-1].calls


@every_system
def test_no_source_token_is_encoded_twice_and_calls_of_the_model_are_counted(name, monkeypatch):
    encoded, calls = [], []
    original = DecoderCache.append

    def counted(self, asked):
        calls.append(len(asked))
        runs = [run for one in asked for run in one.runs if run.line == SOURCE]
        encoded.extend((run.position + at, token) for run in runs for at, token in enumerate(run.tokens))
        return original(self, asked)

    monkeypatch.setattr(DecoderCache, "append", counted)
    system = SYSTEMS[name](model_of(2), TOKENS)
    ends = [event for event in system.translate(SOURCES) if hasattr(event, "reason")]
    assert sum(end.calls for end in ends) == sum(calls)
    text = [(place, token) for place, token in encoded if token != TOKENS.end]
    assert sorted(text) == sorted((place, token) for source in SOURCES for place, token in enumerate(source))
