"""Wait-k, offline and local agreement: their events against literal loops, and what follows from k and n."""

import copy
from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.streaming.drafting import Draft, LocalAgreement
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.policies import WaitK

from ..helpers import float64, policy_system, prefix_states, tiny_prefix
from .test_grid_system import END, SEED, SOURCES, TOKENS, both_tokens
from .test_grid_system import always as always_on

SEEDS = range(2)  # whose models have the two kinds of anchor
BATCH_SIZES = (1, 3, 64)


@cache
def small_talk(seed=0, **options):
    """A float64 model of seven words, so that it often predicts the end token."""
    return float64(tiny_prefix(vocab_size=7, layers=2, seed=seed, **options))


def timeless(events, index=0):
    """The events of one stream without their times."""
    return [replace(event, elapsed=0.0, stream=0) for event in events if event.stream == index]


@torch.no_grad()
def predicted(model, source, target, length, visible):
    """The next token by a forward over the whole sequence, under the training mask."""
    return int(model.text_logits(prefix_states(model, source, target, length, visible)[-1]).argmax())


def wait_k_one_by_one(model, tokens, text, k, limit):
    """Wait-k for one stream, literally: no cache, no batch; only what has been read is given to the model."""
    source = [*tokens.source_prefix, *text, tokens.end]
    target, visible, events, written = [tokens.seed, *tokens.target_prefix], [], [], 0
    read = len(tokens.source_prefix)
    while True:
        while read < len(source) and (k is None or read - len(tokens.source_prefix) - written < k):
            events.append(Read(0, source[read]))
            read += 1
        visible += [read] * (len(target) - len(visible))
        token = predicted(model, source[:read], target, len(source), visible)
        if token == tokens.end and read < len(source):
            events.append(Read(0, source[read]))
            read += 1
            visible = visible[:-1] if written else []
        elif token == tokens.end:
            return [*events, End(0, "end_token")]
        elif written == limit:
            return [*events, End(0, "max_target_tokens")]
        else:
            events.append(Write(0, token, min(read - len(tokens.source_prefix), len(text)), None))
            target.append(token)
            written += 1


def agreement_one_by_one(model, tokens, text, n, limit):
    """LA-n for one stream, literally: every prefix of the source translated from the start as a sentence of its own."""
    committed, history, events = [], [], []
    for read in range(1, len(text) + 1):
        source = [*tokens.source_prefix, *text[:read], tokens.end]
        events.append(Read(0, text[read - 1]))
        draft, reason = list(committed), "max_target_tokens"
        while True:
            target = [tokens.seed, *tokens.target_prefix, *draft]
            token = predicted(model, source, target, len(source), [len(source)] * len(target))
            if token == tokens.end:
                reason = "end_token"
                break
            if len(draft) == limit:
                break
            draft.append(token)
        history.append(draft)
        if len(history) >= n:
            agreed = list(committed)
            while len(draft) > (i := len(agreed)) and all(h[i : i + 1] == [draft[i]] for h in history[-n:]):
                agreed.append(draft[i])
            events += [Write(0, token, read, None) for token in agreed[len(committed) :]]
            committed = agreed
    events.append(Read(0, tokens.end))
    return [*events, *(Write(0, token, len(text), None) for token in draft[len(committed) :]), End(0, reason)]


# --- against literal loops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchor", ["source_length", 12])
@both_tokens
@pytest.mark.parametrize("k", [1, 4, None])
def test_wait_k_does_in_a_batch_what_the_literal_loop_does_alone(k, tokens, anchor):
    for seed in SEEDS:
        model = small_talk(seed, anchor=anchor)
        alone = [wait_k_one_by_one(model, tokens, source, k, 6) for source in SOURCES]
        for batch_size in BATCH_SIZES:
            events = list(policy_system(WaitK, model, tokens, k, 6, batch_size).translate(SOURCES))
            assert [timeless(events, index) for index in range(len(SOURCES))] == alone


@both_tokens
@pytest.mark.parametrize("n", [1, 2, 3])
def test_local_agreement_does_in_a_batch_what_the_literal_loop_does_alone(n, tokens):
    for seed in SEEDS:
        model = small_talk(seed, anchor="source_length" if seed else 12)
        alone = [agreement_one_by_one(model, tokens, source, n, 6) for source in SOURCES]
        for batch_size in BATCH_SIZES:
            events = list(policy_system(LocalAgreement, model, tokens, n, 6, batch_size).translate(SOURCES))
            assert [timeless(events, index) for index in range(len(SOURCES))] == alone


def test_the_streams_compared_above_show_every_case():
    waits, agreements = [], []
    for seed in SEEDS:
        for source in SOURCES:
            waits.append((source, wait_k_one_by_one(small_talk(seed), TOKENS, source, 2, 6)))
            agreements.append((source, agreement_one_by_one(small_talk(seed), TOKENS, source, 2, 6)))
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


# --- what follows from k -------------------------------------------------------------------------------------------


def always(model, token):
    """A model that predicts one token whatever it sees."""
    return always_on(copy.copy(model), token)


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
