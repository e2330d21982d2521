"""Policies: what looks at the states of a stream and says read or write.

A policy is written for one stream, as a generator over the moves of its translation, and runs in batches: the engine
computes what all streams ask for in one forward of the model, and `predict` reads all their states at once. It yields

    an event    a token was read or written, or the translation is over
    an `Append` tokens to be computed; what `predict` makes of their states comes back
    None        it waits for more of the source

The grid's policy is θ; wait-k and offline follow a schedule; confidence and LSG decide in between two of them. Local
agreement, hold-n, AlignAtt, and LSG on models of whole sentences draft (`drafting`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ..decoder.cache import REFERENCE, Append
from ..decoder.heads import TwoHeads
from ..policy.decoding_options import PAPER_RULE, Adaptive, EmitRule, check_knob
from .beam import end_as_planned, end_by_beam, likely_next, look_ahead
from .stream import Moves, Stream

S = TypeVar("S")
Requests = Sequence[tuple[Stream, Append]]  # what streams ask for


class Policy(ABC, Generic[S]):
    """What every policy is.

    Args:
        adaptive: what confidence and LSG have beside their knob.

    Attributes:
        lines: of the cache that a translation takes.

    Raises:
        ValueError: for a setting it cannot take.
    """

    lines = 2

    def __init__(self, setting: Any = None, adaptive: Adaptive | None = None) -> None:
        self.setting: Any = self.check_setting(setting)
        self.adaptive: Any = adaptive

    @staticmethod
    @abstractmethod
    def check_setting(setting: Any, /) -> Any:
        """Return a setting that the policy can take, else raise `ValueError`."""

    @abstractmethod
    def run(self, stream: Stream) -> Moves:
        """A stream's moves, from its first to its last."""

    @abstractmethod
    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[Any]:
        """What is to be known of states `[Σ wanted, D]`, for each stream that asked for some."""

    def p_emit(self, model: TwoHeads, states: Tensor) -> Sequence[float | None]:
        """p(EMIT) of states `[n, D]`, told with what is written; None where the policy knows none."""
        return [None] * len(states)


class Theta(Policy[EmitRule]):
    """Writes where p(EMIT) > θ; once the source has ended, until the end token (`tab:duplex-inference`).

    An end token predicted before the source has ended is a WAIT. θ is each stream's own; the setting is what else is
    looked at. With its `k_min` it reads where fewer than so many source tokens more were read than target tokens
    written; with its `k_max` it writes where so many were. With its `words` it reads nothing while the most probable
    next token goes on with the word written last, but for a copy token whose run may go on.
    """

    @staticmethod
    def check_setting(rule: Any, /) -> Any:
        """An `EmitRule`, None for the paper's."""
        return rule or PAPER_RULE

    def run(self, stream: Stream) -> Moves:
        """A cell of the grid after the other."""
        if stream.visible == stream.prefix:
            yield from stream.take()
        while not stream.ends_by_beam:
            p_emit, token, forced = yield stream.present()
            while True:
                may_write = stream.at_source_end or forced or p_emit > stream.theta
                if may_write and token is None:  # θ has fallen meanwhile
                    p_emit, token, forced = yield stream.present()
                    continue
                if may_write and stream.may_have_ended:
                    token = yield from likely_next(stream)
                elif may_write and stream.looks_ahead and stream.may_put(token):
                    token = yield from look_ahead(stream)
                if may_write and stream.may_put(token):
                    yield stream.put(token, p_emit)
                    break
                elif stream.visible < len(stream.source):
                    yield from stream.take(p_emit)
                    break
                else:
                    yield None
        yield from end_as_planned(stream)

    def p_emit(self, model: TwoHeads, states: Tensor) -> list[float]:
        """As for `predict`, whatever the lag."""
        found: list[float] = model.decide(states, self.setting.certainty)[0].tolist()
        return found

    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[tuple[float, int | None, bool]]:
        """p(EMIT), the most probable next token where one may be written (the text head is the larger part), and
        whether it is written whatever θ, as the lag is at its bound or it goes on with a word; then p(EMIT) is 1."""
        rule: EmitRule = self.setting
        decided, tokens = model.decide(states, rule.certainty)
        p_emit, streams = decided.tolist(), [stream for stream, _ in requests]
        if k_min := rule.k_min:
            p_emit = [p if s.at_source_end or s.lag >= k_min else 0.0 for p, s in zip(p_emit, streams, strict=True)]
        likely: list[int | None] = [None] * len(streams) if tokens is None else tokens.tolist()
        forced = [0 < rule.k_max <= stream.lag for stream in streams]
        inside = [rule.words is not None and len(stream.written) > 0 for stream in streams]  # perhaps
        writing = [
            n
            for n, s in enumerate(streams)
            if p_emit[n] > (s.theta or 0.0) or s.at_source_end or forced[n] or inside[n]
        ]
        if writing and tokens is None:
            some = states if len(writing) == len(streams) else states[torch.tensor(writing, device=states.device)]
            for number, token in zip(writing, streams[0].engine.states.likeliest(some).tolist(), strict=True):
                likely[number] = token
        if rule.words is not None:
            goes_on = rule.words[[token or 0 for token in likely]].tolist()
            forced = [bound or (maybe and own) for bound, maybe, own in zip(forced, inside, goes_on, strict=True)]
        p_emit = [1.0 if known else p for p, known in zip(p_emit, forced, strict=True)]
        return list(zip(p_emit, likely, forced, strict=True))


class WaitK(Policy[int | None]):
    """Reads k tokens, then writes and reads in turn; once the source has ended, writes until the end token.

    An end token predicted before the source has ended makes it read one token more and predict again; the schedule then
    waits until the target has caught up. The setting is k, text tokens; None, the whole source and its end token, is
    the offline system, to which nobody has to tell the source's length.
    """

    @staticmethod
    def check_setting(k: Any, /) -> Any:
        """A whole number of at least 1 (`check_k`), or None."""
        return k

    def run(self, stream: Stream) -> Moves:
        """Predict, then write or read."""
        yield from self.reach_k(stream)
        while not stream.ends_by_beam:
            token, certain = yield self.ask(stream)
            if not stream.at_source_end and not (certain and stream.may_put(token)):
                yield from stream.take()
            else:
                yield stream.put((yield from look_ahead(stream)) if stream.looks_ahead else token)
                yield from self.reach_k(stream)
        yield from end_by_beam(stream, whole=False)

    def reach_k(self, stream: Stream) -> Moves:
        """Read until the lag is k (of an adaptive policy k_min), or the source has ended."""
        k = self.adaptive.k_min if self.adaptive else self.setting
        while not stream.at_source_end and (k is None or stream.lag < k):
            yield from stream.take()
        if k is None:
            stream.source_length = len(stream.source)

    def ask(self, stream: Stream) -> Append:
        """For the state that predicts the next token."""
        return stream.present()

    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[tuple[int, bool]]:
        """The most probable next token, and whether it may be written."""
        tokens = requests[0][0].engine.states.likeliest(states).tolist()
        return [(token, True) for token in tokens]


class Confidence(WaitK):
    """Adaptive wait-k (Zheng et al., "Simultaneous Translation Policies: From Fixed to Adaptive", 2020).

    With lag k: read while k < k_min, write when k ≥ k_max or the source has ended, and in between write if the most
    probable next token has a probability of at least ρ_k (of an end token: read). The paper lets ρ_k fall linearly in
    k, and draws its curve in two runs: ρ at k_max is 0 and ρ at k_min goes up to 1, then ρ at k_min is 1 and ρ at k_max
    goes up. One knob runs through both: ρ is the mean of the two ends, so ρ_k falls from min(1, 2ρ) at k_min to
    max(0, 2ρ − 1) at k_max. ρ = 0 is wait-k_min. With ρ = 1 no probability is high enough, not even one that rounds to
    1: that is wait-k_max. The setting is ρ, the model a multi-path one.
    """

    check_setting = staticmethod(partial(check_knob, "confidence"))

    def threshold(self, lag: int) -> float:
        """ρ_k; 0 for a lag of k_max or more."""
        least, most = self.adaptive.k_min, self.adaptive.k_max
        if lag >= most:
            return 0.0
        first, last = min(1.0, 2 * self.setting), max(0.0, 2 * self.setting - 1)
        return float(first + (last - first) * (lag - least) / (most - least))

    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[tuple[int, bool]]:
        """As for wait-k; what may be written has a probability of at least ρ_k."""
        found = precise(model.text_logits(states)).softmax(-1).max(-1)
        thresholds = [0.0 if stream.at_source_end else self.threshold(stream.lag) for stream, _ in requests]
        return [
            (token, least < 1 and p >= least)
            for token, p, least in zip(found.indices.tolist(), found.values.tolist(), thresholds, strict=True)
        ]


class Lsg(WaitK):
    """LSG on a model that knows prefixes (Guo et al., "Large Language Models Are Read/Write Policy-Makers for
    Simultaneous Generation", AAAI 2025): writes where the source read so far tells more of the next token than wait-1
    would have known.

    With lag k: read while k < k_min, write when k ≥ k_max or the source has ended, and in between write if what has
    been read beyond wait-1 tells something about the next token, or if it is certain: if KL(p_now ‖ p_ref) > δ or
    max p_now > α (of an end token: read). p_now is the next token's distribution by all that is read, p_ref that of the
    wait-1 view: the same translation, each token of which has seen what wait-1 had read when it wrote it. That is how
    the paper's text has it; its code takes KL(p_ref ‖ p_now), `adaptive.divergence=code`.

    The wait-1 view is a second line of target tokens in the cache, over the same source tokens. The setting is δ, in
    nats; the model a multi-path one.
    """

    lines = 3
    check_setting = staticmethod(partial(check_knob, "lsg"))

    def ask(self, stream: Stream) -> Append:
        """The present state, and that of the wait-1 view where the last target token is new to it."""
        append, before = stream.present(), stream.forced - 1
        known: int = stream.memory.get("in wait-1's view", 0)
        read = stream.prefix + 1  # before the first is written; none is read for forced tokens
        wait_1 = [
            stream.target_run(y, y + 1, min(read + max(0, y - before), stream.visible), line=REFERENCE)
            for y in range(known, len(stream.target))
        ]
        stream.memory["in wait-1's view"] = len(stream.target)
        if not wait_1:
            return append
        return Append([*wait_1, *append.runs], (len(wait_1) - 1, -1))  # the present one last (`Stream.hidden`)

    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[tuple[int, bool]]:
        """As for wait-k; what may be written differs from the wait-1 view's prediction, or is certain."""
        logits = precise(model.text_logits(states)).log_softmax(-1)
        present = []
        each = logits.split([len(append.wanted) for _, append in requests])
        for (stream, _), own in zip(requests, each, strict=True):
            present.append(own[-1])
            if len(own) == 2:
                stream.memory["wait-1"] = own[0].clone()
        now = torch.stack(present)
        reference = torch.stack([stream.memory["wait-1"] for stream, _ in requests])
        likely, told = now.max(-1), divergence(now, reference, self.adaptive.divergence)
        certain = (told > self.setting) | (likely.values.exp() > self.adaptive.alpha)
        return [
            (token, tells or stream.lag >= self.adaptive.k_max)
            for token, tells, (stream, _) in zip(likely.indices.tolist(), certain.tolist(), requests, strict=True)
        ]


def precise(logits: Tensor) -> Tensor:
    """Logits in at least float32, for probabilities that are compared with a threshold."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def divergence(now: Tensor, reference: Tensor, which: str) -> Tensor:
    """KL(now ‖ reference) as in the paper's text, or KL(reference ‖ now) as in its code.

    Args:
        now, reference: log-probabilities `[…, vocabulary]`.
        which: `paper` or `code`.

    Returns:
        `[…]`, in nats.
    """
    first, second = (now, reference) if which == "paper" else (reference, now)
    return (first.exp() * (first - second)).sum(-1)
