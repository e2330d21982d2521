"""Wait-k and offline on the prefix model, and confidence, which chooses between several k token by token."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..baselines.prefix_cache import SOURCE, TARGET, PrefixCache, Slot
from ..baselines.prefix_model import PrefixModel
from ..data.tokenizer import StreamTokens
from ..decoder.knobs import check_k
from ..policy.knobs import Adaptive, check_confidence
from .events import End, Event, Read, Write
from .lengths import check_lengths


@dataclass
class Stream:
    """One sentence on its way."""

    index: int
    source: list[int]  # prefix, text and end token, as far as they have arrived
    target: list[int]  # seed, prefix, and what was written
    source_length: int  # whole length of the source, or what it is taken for (the anchor of the target)
    source_ended: bool  # whether `source` has its end token
    read: int = 0  # source tokens visible
    written: int = 0
    elapsed: float = 0.0  # seconds of computation it took part in
    calls: int = 0  # of the model, for this stream
    hypotheses: deque[list[int]] = field(default_factory=deque)  # local agreement: text tokens of the last n
    references: dict[int, Tensor] = field(default_factory=dict)  # LSG: wait-1 log-probabilities, by tokens written

    @property
    def at_source_end(self) -> bool:
        """Whether the end token is visible."""
        return self.source_ended and self.read == len(self.source)


class PrefixSystem(ABC):
    """What all systems on a prefix model share: batches of streams, and how their tokens enter the cache.

    A system is written once, for batches of whole sentences and for a stream whose source is still arriving
    (`prefix_engine`): where it wants to read what has not arrived it yields None, and is asked again later.

    Args:
        model: in evaluation mode, on its device.
        tokens: end, seed and prefix tokens the model was trained with.
        setting: the system's knob.
        max_target_tokens: length at which a translation is stopped.
        batch_size: streams decoded side by side.
        adaptive: what confidence and LSG have beside their knob.

    Raises:
        ValueError: for a setting the system cannot take, or a limit below 1.
    """

    @staticmethod
    @abstractmethod
    def check_setting(setting: Any, /) -> Any:
        """Return a setting that the system can take, else raise `ValueError`."""

    def __init__(
        self,
        model: PrefixModel,
        tokens: StreamTokens,
        setting: float | int | None,
        max_target_tokens: int,
        batch_size: int = 64,
        adaptive: Adaptive | None = None,
    ) -> None:
        if max_target_tokens < 1:
            raise ValueError(f"policy.max_target_tokens={max_target_tokens}: must be at least 1")
        self.model, self.tokens, self.setting = model, tokens, self.check_setting(setting)
        self.max_target_tokens, self.batch_size = max_target_tokens, batch_size
        self.adaptive: Any = adaptive
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
            ValueError: for a source without tokens, for those that are longer than the model takes, and for context
                where the model was trained without.
        """
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} has no tokens: remove empty sentences before translating")
        check_lengths(sources, self.tokens, self.model.causal_lm.config, self.max_target_tokens)
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for begin in range(0, len(order), self.batch_size):
            batch = []
            for index in order[begin : begin + self.batch_size]:
                prefix = self.tokens.prefix(contexts[index] if contexts else ())
                source = [*prefix, *sources[index], self.tokens.end]
                batch.append(Stream(index, source, self.first_target(), len(source), source_ended=True))
            for event in self.translate_batch(batch):
                assert event is not None, "whole sources have arrived"
                yield event

    @abstractmethod
    def translate_batch(self, streams: list[Stream]) -> Iterator[Event | None]:
        """Yield the events of streams that begin together; None where a source has to arrive first."""

    def first_target(self) -> list[int]:
        """What every target begins with."""
        return [self.tokens.seed, *self.tokens.target_prefix]

    def arrival(self, stream: Stream) -> Iterator[None]:
        """Wait until a source token has arrived that is not visible yet."""
        while stream.read == len(stream.source):
            yield None

    def read(self, stream: Stream) -> Iterator[Event | None]:
        """Make one more source token visible, once it has arrived."""
        yield from self.arrival(stream)
        stream.read += 1
        yield Read(stream.index, stream.source[stream.read - 1], None, stream.elapsed)

    def write(self, stream: Stream, token: int) -> Write:
        """Write one more target token."""
        stream.target.append(token)
        stream.written += 1
        return Write(stream.index, token, stream.read - self.prefix - stream.at_source_end, None, stream.elapsed)

    def end(self, stream: Stream, reason: str) -> End:
        """End the translation."""
        return End(stream.index, reason, stream.elapsed, calls=stream.calls)

    @contextmanager
    def called(self, streams: Sequence[Stream]) -> Iterator[None]:
        """Around a call of the model: these streams took part in it."""
        start = perf_counter()
        yield
        seconds = perf_counter() - start
        for stream in streams:
            stream.elapsed += seconds
            stream.calls += 1

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
    waits until the target has caught up. The setting is k, text tokens; None, the whole source and its end token, is
    the offline system.
    """

    @staticmethod
    def check_setting(k: Any, /) -> Any:
        """A whole number of at least 1, or None."""
        return None if k is None else check_k(k, "k")

    def lag(self, stream: Stream) -> int:
        """Source tokens read, the end token counted, minus target tokens written."""
        return stream.read - self.prefix - stream.written

    def reach_k(self, stream: Stream) -> Iterator[Event | None]:
        """Read until the lag is k (of an adaptive policy k_min), or the source has ended."""
        k = self.adaptive.k_min if self.adaptive else self.setting
        while not stream.at_source_end and (k is None or self.lag(stream) < k):
            yield from self.read(stream)

    def translate_batch(self, streams: list[Stream]) -> Iterator[Event | None]:
        """All streams take one step at a time: each predicts one token, and writes it or reads."""
        cache, slots = PrefixCache(self.model), []
        for stream in streams:
            stream.read = self.prefix
            yield from self.reach_k(stream)
            slots.append([*self.source_slots(stream, 0), *self.last_slots(stream, 0)])
        while streams:
            with self.called(streams):
                predictions = self.predict(cache, slots, streams)
            kept, slots, again = [], [], [0] * len(streams)
            for row, (stream, (token, certain)) in enumerate(zip(streams, predictions, strict=True)):
                seen = stream.read
                if not stream.at_source_end and (token == self.tokens.end or not certain):
                    yield from self.read(stream)
                    # The last target token is to see what has just been read; before the first, all that is forced.
                    again[row] = 1 if stream.written else len(stream.target)
                    last = self.last_slots(stream, len(stream.target) - again[row], again=True)
                elif token == self.tokens.end or stream.written == self.max_target_tokens:
                    yield self.end(stream, "end_token" if token == self.tokens.end else "max_target_tokens")
                    continue
                else:
                    yield self.write(stream, token)
                    yield from self.reach_k(stream)
                    last = self.last_slots(stream, len(stream.target) - 1)
                slots.append([*self.source_slots(stream, seen), *last])
                kept.append(row)
            cache.forget_last(again)
            if len(kept) < len(streams):
                cache.keep(kept)
                streams = [streams[row] for row in kept]

    def predict(
        self, cache: PrefixCache, slots: Sequence[Sequence[Slot]], streams: Sequence[Stream]
    ) -> list[tuple[int, bool]]:
        """Append to the cache; the most probable next token of each stream, and whether it may be written."""
        tokens = self.model.text_logits(cache.append(slots)).argmax(-1).tolist()
        return [(token, True) for token in tokens]

    def last_slots(self, stream: Stream, first: int, again: bool = False) -> list[Slot]:
        """Target tokens from the `first` on; `again` where they were appended before, and less was visible."""
        return self.target_slots(stream.target, stream.source_length, first)


class ConfidenceSystem(WaitKSystem):
    """Adaptive wait-k (Zheng et al., "Simultaneous Translation Policies: From Fixed to Adaptive", 2020).

    With lag k: read while k < k_min, write when k ≥ k_max or the source has ended, and in between write if the most
    probable next token has a probability of at least ρ_k (of an end token: read). The paper lets ρ_k fall linearly in
    k, and draws its curve in two runs: ρ at k_max is 0 and ρ at k_min goes up to 1, then ρ at k_min is 1 and ρ at k_max
    goes up. One knob runs through both: ρ is the mean of the two ends, so ρ_k falls from min(1, 2ρ) at k_min to
    max(0, 2ρ − 1) at k_max. ρ = 0 is wait-k_min. With ρ = 1 no probability is high enough, not even one that rounds to
    1: that is wait-k_max. The setting is ρ, the model a multi-path one.
    """

    check_setting = staticmethod(check_confidence)

    def threshold(self, lag: int) -> float:
        """ρ_k; 0 for a lag of k_max or more."""
        least, most = self.adaptive.k_min, self.adaptive.k_max
        if lag >= most:
            return 0.0
        first, last = min(1.0, 2 * self.setting), max(0.0, 2 * self.setting - 1)
        return float(first + (last - first) * (lag - least) / (most - least))

    def predict(
        self, cache: PrefixCache, slots: Sequence[Sequence[Slot]], streams: Sequence[Stream]
    ) -> list[tuple[int, bool]]:
        """As for wait-k; what may be written has a probability of at least ρ_k."""
        found = self.model.text_logits(cache.append(slots)).softmax(-1).max(-1)
        thresholds = [0.0 if stream.at_source_end else self.threshold(self.lag(stream)) for stream in streams]
        return [
            (token, least < 1 and p >= least)
            for token, p, least in zip(found.indices.tolist(), found.values.tolist(), thresholds, strict=True)
        ]
