"""Policies that draft: after each source token the source so far is translated as if it were whole, and a part of the
draft is written. They differ in which part: local agreement, hold-n and AlignAtt here, LSG in `lsg_systems`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from ..baselines.attention import AttentionRecord, recording
from ..baselines.prefix_cache import SOURCE, PrefixCache, Slot
from ..policy.knobs import check_alignatt, check_hold
from .events import Event
from .prefix_systems import PrefixSystem, Stream

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


class DraftSystem(PrefixSystem):
    """After each text token read, the source so far is translated greedily as if it were whole: with an end token
    behind it, with the target position its length gives, and what was written forced. A part of that draft is written,
    never its end token. When the source's end token is read, the last draft is that of the whole source already: what
    is left of it is written, and the sentence ends.

    Source tokens stay in the cache, which forgets the draft; target tokens see all that has been read, so they are
    computed anew for each draft.
    """

    @abstractmethod
    def safe(self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft]) -> list[int]:
        """How many tokens of each draft may stand written now; less than there are already change nothing."""

    def observe(self, draft: Draft, stream: Stream, logits: Tensor) -> None:
        """See a draft's next token predicted, from logits `[vocabulary]`."""

    def translate_batch(self, streams: list[Stream]) -> Iterator[Event | None]:
        """All streams read one token at a time, so that their source takes the same slots of the cache."""
        cache = PrefixCache(self.model)
        for stream in streams:
            stream.read = self.prefix
        while streams:
            for stream in streams:
                yield from self.read(stream)
            drafts = self.drafts(cache, streams)
            going_on = []
            for row, (stream, draft, safe) in enumerate(
                zip(streams, drafts, self.safe(cache, streams, drafts), strict=True)
            ):
                for token in draft.text[stream.written : safe]:
                    yield self.write(stream, token)
                yield from self.arrival(stream)
                if not stream.source_ended or stream.read < len(stream.source) - 1:
                    going_on.append(row)
                    continue
                yield from self.read(stream)
                for token in draft.text[stream.written :]:
                    yield self.write(stream, token)
                yield self.end(stream, draft.reason)
            if len(going_on) < len(streams):
                cache.keep(going_on)
                streams = [streams[row] for row in going_on]

    def drafts(self, cache: PrefixCache, streams: list[Stream]) -> list[Draft]:
        """Translate the visible source of each stream. The cache keeps the source and forgets the rest."""
        known = cache.length  # source tokens in the cache, the same number of each stream
        targets, forced = [list(stream.target) for stream in streams], len(self.first_target())
        drafts = [Draft(target[forced:]) for target in targets]
        active = list(range(len(streams)))
        slots = [
            [
                *self.source_slots(stream, known),
                Slot(self.tokens.end, SOURCE, stream.read),
                *self.target_slots(target, stream.read + 1),
            ]
            for stream, target in zip(streams, targets, strict=True)
        ]
        while active:
            with self.called([streams[row] for row in active]):
                logits = self.model.text_logits(self.append(cache, slots, streams, drafts))
                predictions = logits.argmax(-1).tolist()
                for row in active:
                    self.observe(drafts[row], streams[row], logits[row])
            slots, going_on = [[] for _ in streams], []
            for row in active:
                draft, target = drafts[row], targets[row]
                if predictions[row] == self.tokens.end:
                    draft.reason = "end_token"
                elif len(draft.text) < self.max_target_tokens:
                    draft.text.append(predictions[row])
                    target.append(predictions[row])
                    slots[row] = self.target_slots(target, streams[row].read + 1, len(target) - 1)
                    going_on.append(row)
            active = going_on
        cache.crop(streams[0].read)
        return drafts

    def append(self, cache: PrefixCache, slots: list[list[Slot]], streams: list[Stream], drafts: list[Draft]) -> Tensor:
        """Append to the cache; the states `[n, D]` from which next tokens are predicted."""
        return cache.append(slots)


class LocalAgreementSystem(DraftSystem):
    """Local agreement (LA-n): writes what the last n drafts agree on, once there are n of them.

    The setting is n; with n = 1 every draft is written at once.
    """

    check_setting = staticmethod(check_agreement)

    def safe(self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft]) -> list[int]:
        """The longest common prefix of the last n drafts."""
        agreed = []
        for stream, draft in zip(streams, drafts, strict=True):
            stream.hypotheses.append(draft.text)
            enough = len(stream.hypotheses) == self.setting
            agreed.append(len(common_prefix(stream.hypotheses)) if enough else 0)
            if enough:
                stream.hypotheses.popleft()
        return agreed


class HoldSystem(DraftSystem):
    """Hold-n (Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by
    Partial Hypothesis Selection", 2020): writes each draft but for its last n tokens (the end token is none of them).

    The setting is n. With n = 0 each draft is written whole, as LA-1 does; with n as large as drafts are long nothing
    is written before the source has ended, as offline.
    """

    check_setting = staticmethod(check_hold)

    def safe(self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft]) -> list[int]:
        """All but the last n."""
        return [max(0, len(draft.text) - self.setting) for draft in drafts]


class AlignAttSystem(DraftSystem):
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

    check_setting = staticmethod(check_alignatt)

    def append(self, cache: PrefixCache, slots: list[list[Slot]], streams: list[Stream], drafts: list[Draft]) -> Tensor:
        """As for all, and keep what the predicting positions attend to."""
        record = AttentionRecord(self.model.alignment_heads, slice(self.prefix, streams[0].read))
        with recording(self.model):
            states = cache.append(slots, record=record)
        for draft, own, weights in zip(drafts, slots, record.weights, strict=True):
            predicted = len(draft.text) - len(draft.attention) + 1  # all of what was forced, at first
            if own:
                draft.attention += weights[:, len(own) - predicted : len(own)].unbind(1)
        return states

    def safe(self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft]) -> list[int]:
        """Up to the first token that rests on one of the last f."""
        found = []
        for stream, draft in zip(streams, drafts, strict=True):
            rests_on = self.rests_on(torch.stack(draft.attention, dim=1))[stream.written : len(draft.text)]
            first_unsafe = stream.read - self.prefix - self.setting
            found.append(stream.written + len([*takewhile(first_unsafe.__gt__, rests_on)]))
        return found

    def rests_on(self, weights: Tensor) -> list[int]:
        """Which source text token each token of a draft rests on.

        Args:
            weights: attention `[heads, tokens, text tokens read]`.
        """
        if self.model.alignment_heads is None:
            spread = weights.std(1, correction=0, keepdim=True) + STEADY
            weights = (weights - weights.mean(1, keepdim=True)) / spread
        places: list[int] = weights.mean(0).argmax(-1).tolist()
        return places


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The longest sequence that all of them begin with."""
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False))
    return [tokens[0] for tokens in alike]
