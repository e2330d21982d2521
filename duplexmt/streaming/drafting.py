"""Policies that draft: after each source token the source so far is translated as if it were whole, and a part of the
draft is written. They differ in which part.
"""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from ..decoder.cache import REFERENCE, Append, Run
from ..decoder.heads import TwoHeads
from ..decoder.layout import SOURCE
from ..policy.decoding_options import check_knob
from .beam import end_by_beam
from .policies import Policy, Requests, divergence, precise
from .stream import Move, Moves, Stream

STEADY = 0.01  # beside a standard deviation of attention weights: two tokens alone would have z = ±1 whatever they are


def check_agreement(n: Any) -> int:
    """Return `n` if it is a whole number of at least 1, else raise `ValueError`."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n={n!r}: local agreement compares the last n hypotheses: n must be a whole number ≥ 1")
    return n


@dataclass
class Draft:
    """A translation of the source so far."""

    text: list[int]  # tokens, what was written before among them
    reason: str = "max_target_tokens"  # why it ends
    attention: list[Tensor] = field(default_factory=list)  # AlignAtt: `[heads, text tokens read]` of each, end included
    likely: list[Tensor] = field(default_factory=list)  # LSG: log-probabilities `[vocabulary]` of what is not written


class Drafting(Policy[Any]):
    """After each text token read, the source so far is translated greedily as if it were whole: with an end token
    behind it, with the target position its length gives, and what was written forced. A part of that draft is written,
    never its end token. When the source's end token is read, the last draft is that of the whole source already: what
    is left of it is written, and the sentence ends.
    """

    attends = False  # whether it asks what a draft attends to

    def run(self, stream: Stream) -> Moves:
        """A draft after the other."""
        begun = stream.visible > stream.prefix  # it was left, and had read so much
        while True:
            if not begun:
                yield from stream.take()
            begun = False
            draft = yield from self.draft(stream, stream.visible - stream.at_source_end, stream.written)
            if not stream.at_source_end:
                safe = yield from self.safe(stream, draft)
                for token in takewhile(stream.may_put, draft.text[len(stream.written) : safe]):
                    yield stream.put(token)
                while stream.visible == len(stream.source):
                    yield None
                if not stream.source_ended or stream.visible < len(stream.source) - 1:
                    continue
                yield from stream.take()
            if stream.ends_by_beam:
                stream.source_length = len(stream.source)  # as a draft's
                yield from end_by_beam(stream, whole=True)
                return
            for token in draft.text[len(stream.written) :]:
                yield stream.put(token)
            while draft.reason == "end_token" and not stream.over:
                yield stream.put(stream.engine.tokens.end)
            yield stream.over_for(draft.reason)

    @abstractmethod
    def safe(self, stream: Stream, draft: Draft) -> Generator[Move, Any, int]:
        """How many tokens of a draft may stand written now; less than there are already change nothing."""

    def draft(self, stream: Stream, read: int, written: Sequence[int]) -> Generator[Move, Any, Draft]:
        """Translate the first tokens read. The next token read takes the place of the end token behind them."""
        engine, length = stream.engine, read + 1
        draft, target = Draft(list(written)), [*stream.target[: stream.forced], *written]
        runs = [
            *stream.source_run(read),
            Run(SOURCE, read, [engine.tokens.end], read),
            stream.target_run(0, len(target), length, length, target),
        ]
        while True:
            append = Append(runs, attended=slice(stream.prefix, read) if self.attends else None)
            likely, logits = yield append
            stream.cached[SOURCE] = read  # without the end token
            self.observe(draft, stream, logits, append)
            if likely == engine.tokens.end:
                draft.reason = "end_token"
                return draft
            if len(draft.text) == engine.max_target_tokens:
                return draft
            draft.text.append(likely)
            target.append(likely)
            runs = [stream.target_run(len(target) - 1, len(target), length, length, target)]

    def observe(self, draft: Draft, stream: Stream, logits: Tensor, append: Append) -> None:
        """See a draft's next token predicted, from logits `[vocabulary]`."""

    def predict(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[tuple[int, Tensor]]:
        """The most probable next token, and all logits."""
        logits = model.text_logits(states)
        return list(zip(logits.argmax(-1).tolist(), logits, strict=True))


class LocalAgreement(Drafting):
    """Local agreement (LA-n): writes what the last n drafts agree on, once there are n of them.

    The setting is n; with n = 1 every draft is written at once.
    """

    check_setting = staticmethod(check_agreement)

    def run(self, stream: Stream) -> Moves:
        """As for all; a stream that was left elsewhere drafts again what it compares with."""
        drafts: list[list[int]] = []
        for read in range(max(stream.prefix + 1, stream.visible - self.setting + 1), stream.visible):
            written = [token for token, at in zip(stream.written, stream.reads, strict=True) if at < read]
            draft = yield from self.draft(stream, read, written)
            drafts.append(draft.text)
        stream.memory["drafts"] = drafts
        yield from super().run(stream)

    def safe(self, stream: Stream, draft: Draft) -> Generator[Move, Any, int]:
        """The longest common prefix of the last n drafts."""
        yield from ()
        drafts: list[list[int]] = stream.memory["drafts"]
        drafts.append(draft.text)
        if len(drafts) < self.setting:
            return 0
        agreed = len(common_prefix(drafts))
        del drafts[0]
        return agreed


class Hold(Drafting):
    """Hold-n (Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by
    Partial Hypothesis Selection", 2020): writes each draft but for its last n tokens (the end token is none of them).

    The setting is n. With n = 0 each draft is written whole, as LA-1 does; with n as large as drafts are long nothing
    is written before the source has ended, as offline.
    """

    check_setting = staticmethod(partial(check_knob, "hold"))

    def safe(self, stream: Stream, draft: Draft) -> Generator[Move, Any, int]:
        """All but the last n."""
        yield from ()
        return max(0, len(draft.text) - self.setting)


class AlignAtt(Drafting):
    """AlignAtt (Papi, Turchi and Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments as a Guide for
    Simultaneous Speech Translation", 2023): writes each draft up to the first token that rests on what was read last.

    A token rests on the source text token that gets most attention where it is predicted; it is safe if that one is not
    among the last f read. With f = 0 all tokens are safe, as LA-1; with f as large as the source none is before the
    source has ended, as offline. The setting is f.

    There is no cross-attention to look at. Where the model folder says which heads align best (`python -m
    duplexmt.analysis.alignment_heads`), attention is their mean. Without that it is the mean over all heads of z: each
    head's weight on a source token, minus its mean over the tokens of the draft, divided by their standard deviation
    (plus 0.01). A sink, which everything attends to, so stands out nowhere.
    """

    attends = True
    check_setting = staticmethod(partial(check_knob, "alignatt"))

    def observe(self, draft: Draft, stream: Stream, logits: Tensor, append: Append) -> None:
        """Keep what the predicting positions attend to."""
        predicted = len(draft.text) - len(draft.attention) + 1  # all of what was forced, at first
        weights = torch.cat(append.weights)
        draft.attention += weights[:, len(append) - predicted :].unbind(1)

    def safe(self, stream: Stream, draft: Draft) -> Generator[Move, Any, int]:
        """Up to the first token that rests on one of the last f."""
        yield from ()
        weights = torch.stack(draft.attention, dim=1)
        places = self.rests_on(weights, stream.engine.model.alignment_heads)[len(stream.written) : len(draft.text)]
        first_unsafe = stream.visible - stream.prefix - self.setting
        return len(stream.written) + len([*takewhile(first_unsafe.__gt__, places)])

    @staticmethod
    def rests_on(weights: Tensor, heads: Any) -> list[int]:
        """Which source text token each token of a draft rests on.

        Args:
            weights: attention `[heads, tokens, text tokens read]`.
            heads: which these are; None: all of the model's.
        """
        if heads is None:
            spread = weights.std(1, correction=0, keepdim=True) + STEADY
            weights = (weights - weights.mean(1, keepdim=True)) / spread
        places: list[int] = weights.mean(0).argmax(-1).tolist()
        return places


class WholeLsg(Drafting):
    """LSG (`policies.Lsg`) on a model that knows whole sentences only: each view is of a source taken for whole.

    p_now is the draft's next token's distribution, the source read so far taken for whole; p_ref is that of the same
    translation where what wait-1 had read is taken for whole. A draft is written up to the first token whose lag is
    below k_min, or which neither differs enough from p_ref nor is certain, at a lag below k_max.
    """

    lines = 3
    check_setting = staticmethod(partial(check_knob, "lsg"))

    def observe(self, draft: Draft, stream: Stream, logits: Tensor, append: Append) -> None:
        """Of the tokens that may be written, the distributions in doubt."""
        if stream.visible - stream.prefix - len(draft.text) >= self.adaptive.k_min:
            draft.likely.append(precise(logits).log_softmax(-1))

    def safe(self, stream: Stream, draft: Draft) -> Generator[Move, Any, int]:
        """Up to the first token that is not to be written."""
        safe = len(stream.written)
        while safe < len(draft.text) and (lag := stream.visible - stream.prefix - safe) >= self.adaptive.k_min:
            now = draft.likely[safe - len(stream.written)]
            if lag < self.adaptive.k_max and not now.max().exp() > self.adaptive.alpha:
                text = draft.text[:safe]
                known: tuple[list[int] | None, Tensor] = stream.memory.get("wait-1", (None, now))
                if known[0] != text:
                    _, logits = yield self.wait_1(stream, text)
                    known = stream.memory["wait-1"] = text, precise(logits).log_softmax(-1)
                if not divergence(now, known[1], self.adaptive.divergence) > self.setting:
                    break
            safe += 1
        return safe

    def wait_1(self, stream: Stream, text: list[int]) -> Append:
        """For what the wait-1 view predicts after a text: a line of its own, its end token first."""
        read = stream.prefix + 1 + len(text)
        line = [stream.engine.tokens.end, *stream.target[: stream.forced], *text]
        start = stream.start(read + 1)
        return Append([Run(REFERENCE, 0, line[:1], read, read), Run(REFERENCE, 1, line[1:], start, read)])


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The longest sequence that all of them begin with."""
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False))
    return [tokens[0] for tokens in alike]
