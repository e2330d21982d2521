"""Wait-k, offline and local agreement: what the prefix model writes, and when."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from time import perf_counter
from typing import Any

import torch

from ..baselines.mask import check_k
from ..baselines.prefix_cache import SOURCE, TARGET, PrefixCache, Slot
from ..baselines.prefix_model import PrefixModel
from ..data.tokenizer import StreamTokens
from .events import End, Event, Read, Write


def check_agreement(n: Any) -> int:
    """Return `n` if it is a whole number of at least 1, else raise `ValueError`."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n={n!r}: local agreement compares the last n hypotheses: n must be a whole number ≥ 1")
    return n


@dataclass
class Stream:
    """One sentence on its way."""

    index: int
    source: list[int]  # prefix, text and end token
    target: list[int]  # seed, prefix, and what was written
    read: int = 0  # source tokens visible
    written: int = 0
    elapsed: float = 0.0  # seconds of computation it took part in
    hypotheses: deque[list[int]] = field(default_factory=deque)  # local agreement: text tokens of the last n


class PrefixSystem(ABC):
    """What wait-k and local agreement share: batches of streams, and how their tokens enter the cache.

    Args:
        model: in evaluation mode, on its device.
        tokens: end, seed and prefix tokens the model was trained with.
        max_target_tokens: length at which a translation is stopped.
        batch_size: streams decoded side by side.

    Raises:
        ValueError: for a limit below 1.
    """

    def __init__(self, model: PrefixModel, tokens: StreamTokens, max_target_tokens: int, batch_size: int) -> None:
        if max_target_tokens < 1:
            raise ValueError(f"policy.max_target_tokens={max_target_tokens}: must be at least 1")
        self.model, self.tokens = model, tokens
        self.max_target_tokens, self.batch_size = max_target_tokens, batch_size
        self.prefix = len(tokens.source_prefix)

    @torch.no_grad()
    def translate(
        self, sources: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]] | None = None
    ) -> Iterator[Event]:
        """Yield the read and write events of every source; sentences of similar length are decoded side by side.

        Args:
            sources: text tokens of each sentence.
            contexts: those of the sentence before each, for a model trained with context.

        Raises:
            ValueError: for a source without tokens, and for context where the model was trained without.
        """
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} has no tokens: remove empty sentences before translating")
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for begin in range(0, len(order), self.batch_size):
            batch = [
                Stream(
                    index,
                    source=[*self.tokens.prefix(contexts[index] if contexts else ()), *sources[index], self.tokens.end],
                    target=[self.tokens.seed, *self.tokens.target_prefix],
                )
                for index in order[begin : begin + self.batch_size]
            ]
            yield from self.translate_batch(batch)

    @abstractmethod
    def translate_batch(self, streams: list[Stream]) -> Iterator[Event]:
        """Yield the events of streams that begin together."""

    def read(self, stream: Stream) -> Read:
        """Make one more source token visible."""
        stream.read += 1
        return Read(stream.index, stream.source[stream.read - 1], None, stream.elapsed)

    def write(self, stream: Stream, token: int) -> Write:
        """Write one more target token."""
        stream.target.append(token)
        stream.written += 1
        delay = min(stream.read - self.prefix, len(stream.source) - self.prefix - 1)
        return Write(stream.index, token, delay, None, stream.elapsed)

    def predict(self, cache: PrefixCache, slots: Sequence[Sequence[Slot]], streams: Sequence[Stream]) -> list[int]:
        """Append to the cache; the most probable next token after each stream's last one. `streams` pay the time."""
        start = perf_counter()
        predictions = self.model.text_logits(cache.append(slots)).argmax(-1).tolist()
        seconds = perf_counter() - start
        for stream in streams:
            stream.elapsed += seconds
        return predictions

    def source_slots(self, stream: Stream, first: int) -> list[Slot]:
        """Visible source tokens from position `first` on."""
        return [Slot(stream.source[i], SOURCE, i) for i in range(first, stream.read)]

    def target_slots(self, target: list[int], source_length: int, first: int = 0) -> list[Slot]:
        """Target tokens from the `first` on, behind a source of that many tokens."""
        anchor = source_length if self.model.anchor == "source_length" else int(self.model.anchor)
        return [Slot(target[y], TARGET, anchor + y) for y in range(first, len(target))]


class WaitKSystem(PrefixSystem):
    """Reads k tokens, then writes and reads in turn; once the source has ended, writes until the end token.

    An end token predicted before the source has ended makes it read one token more and predict again; the schedule then
    waits until the target has caught up. With `k=None` it is the offline system.

    Args:
        model, tokens, max_target_tokens, batch_size: as for `PrefixSystem`.
        k: source text tokens read before the first token is written; None for the whole source and its end token.

    Raises:
        ValueError: for k or a limit below 1.
    """

    def __init__(
        self, model: PrefixModel, tokens: StreamTokens, k: int | None, max_target_tokens: int, batch_size: int = 64
    ) -> None:
        super().__init__(model, tokens, max_target_tokens, batch_size)
        self.k = None if k is None else check_k(k, "k")

    def due(self, stream: Stream) -> int:
        """Source tokens to be read before the next target token is written."""
        whole = len(stream.source)
        return whole if self.k is None else min(self.prefix + self.k + stream.written, whole)

    def translate_batch(self, streams: list[Stream]) -> Iterator[Event]:
        """All streams take one step at a time: each predicts one token, and writes it or reads."""
        cache, slots = PrefixCache(self.model), []
        for stream in streams:
            stream.read = self.prefix
            while stream.read < self.due(stream):
                yield self.read(stream)
            slots.append([*self.source_slots(stream, 0), *self.target_slots(stream.target, len(stream.source))])
        while streams:
            predictions = self.predict(cache, slots, streams)
            kept, repeated, slots = [], [], []
            for row, (stream, token) in enumerate(zip(streams, predictions, strict=True)):
                seen = stream.read
                if token == self.tokens.end and seen < len(stream.source):
                    yield self.read(stream)
                    repeated.append(row)  # the last target token is to see what has just been read
                elif token == self.tokens.end or stream.written == self.max_target_tokens:
                    reason = "end_token" if token == self.tokens.end else "max_target_tokens"
                    yield End(stream.index, reason, stream.elapsed)
                    continue
                else:
                    yield self.write(stream, token)
                    while stream.read < self.due(stream):
                        yield self.read(stream)
                last = self.target_slots(stream.target, len(stream.source), len(stream.target) - 1)
                slots.append([*self.source_slots(stream, seen), *last])
                kept.append(row)
            cache.forget_last(repeated)
            if len(kept) < len(streams):
                cache.keep(kept)
                streams = [streams[row] for row in kept]


class LocalAgreementSystem(PrefixSystem):
    """Local agreement (LA-n): writes what the last n greedy translations of the growing source agree on.

    After each text token read, the source so far is translated as if it were whole: with an end token behind it, with
    the target position its length gives, and what was written forced. Their longest common prefix is then written, once
    there are n of them. An end token is never agreed on. When the source's end token is read, the latest hypothesis is
    that of the whole source already: what is left of it is written, agreed on or not, and the sentence ends.

    Args:
        model, tokens, max_target_tokens, batch_size: as for `PrefixSystem`.
        n: hypotheses that must agree; with 1 every hypothesis is written at once.

    Raises:
        ValueError: for n or a limit below 1.
    """

    def __init__(
        self, model: PrefixModel, tokens: StreamTokens, n: int, max_target_tokens: int, batch_size: int = 64
    ) -> None:
        super().__init__(model, tokens, max_target_tokens, batch_size)
        self.n = check_agreement(n)

    def translate_batch(self, streams: list[Stream]) -> Iterator[Event]:
        """All streams read one token at a time, so that their source takes the same slots of the cache."""
        cache = PrefixCache(self.model)
        for stream in streams:
            stream.read = self.prefix
        while streams:
            for stream in streams:
                yield self.read(stream)
            going_on = []
            for row, (stream, (text, reason)) in enumerate(zip(streams, self.hypotheses(cache, streams), strict=True)):
                stream.hypotheses.append(text)
                if len(stream.hypotheses) == self.n:
                    for token in common_prefix(stream.hypotheses)[stream.written :]:
                        yield self.write(stream, token)
                    stream.hypotheses.popleft()
                if stream.read < len(stream.source) - 1:
                    going_on.append(row)
                    continue
                yield self.read(stream)
                for token in text[stream.written :]:
                    yield self.write(stream, token)
                yield End(stream.index, reason, stream.elapsed)
            if len(going_on) < len(streams):
                cache.keep(going_on)
                streams = [streams[row] for row in going_on]

    def hypotheses(self, cache: PrefixCache, streams: list[Stream]) -> list[tuple[list[int], str]]:
        """Translate the visible source of each stream, what was written forced; text tokens, and why they end.

        The cache keeps the source and forgets the rest.
        """
        known = cache.length  # source tokens in the cache, the same number of each stream
        drafts = [list(stream.target) for stream in streams]
        reasons = ["max_target_tokens"] * len(streams)
        active = list(range(len(streams)))
        slots = [
            [
                *self.source_slots(stream, known),
                Slot(self.tokens.end, SOURCE, stream.read),
                *self.target_slots(draft, stream.read + 1),
            ]
            for stream, draft in zip(streams, drafts, strict=True)
        ]
        forced = 1 + len(self.tokens.target_prefix)  # before the text
        while active:
            predictions = self.predict(cache, slots, [streams[row] for row in active])
            slots, going_on = [[] for _ in streams], []
            for row in active:
                draft = drafts[row]
                if predictions[row] == self.tokens.end:
                    reasons[row] = "end_token"
                elif len(draft) - forced < self.max_target_tokens:
                    draft.append(predictions[row])
                    slots[row] = self.target_slots(draft, streams[row].read + 1, len(draft) - 1)
                    going_on.append(row)
            active = going_on
        cache.crop(streams[0].read)
        return [(draft[forced:], reason) for draft, reason in zip(drafts, reasons, strict=True)]


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The longest sequence that all of them begin with."""
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False))
    return [tokens[0] for tokens in alike]
