"""The streaming engine: live streams that read source tokens as they come, and write as their policy says.

An `Engine` steps all its streams together in one batch; a `Stream` joins and leaves at any time, and what it writes
does not depend on the others. A read makes the next source token visible, or stalls until there is one. An end token
predicted before the source has ended is a read; once the source has ended the stream writes until the end token, or
until a guard stops it (Section III-B).

The anchor of the target's positions has to be known before the first step (`eq:rope-anchor`). A constant anchor needs
nothing. With anchor `source_length` a stream is told the length of its source when it is opened, or takes the typical
length of a training source for it; either is then kept, whatever arrives: so how the source was cut into pieces on its
way changes nothing.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..data.tokenizer import StreamTokens
from ..decoder.heads import TwoHeads
from ..decoder.model import DecoderModel
from ..grid.cache import GridCache
from ..policy.decoding_options import check_theta
from .events import Event
from .lengths import check_lengths, longest_source
from .policies import Policy, Requests, Theta, precise
from .states import DecoderStates, GridStates, States
from .stream import Stream, check_repeats


class Engine:
    """Live streams of one model, decoded side by side.

    States come from the incremental cache. A grid that cannot be cached is decoded by recomputing all that is visible,
    which is slower and the same.

    Args:
        model: in evaluation mode, on its device (`artifact.load_model_folder` merges LoRA).
        tokens: end, seed and prefix tokens the model was trained with.
        policy: that says read or write; θ's by default.
        theta: EMIT threshold of streams that bring none of their own; None for other policies than θ.
        max_target_tokens: length at which a translation is stopped.
        max_streams: streams that may be live at a time.
        max_repeats: how often in a row a block of up to 8 tokens may be written before the translation is stopped; None
            for as often as the model likes.
        typical_source_length: what the anchor `source_length` takes for the length of a source nobody knows.
        told_length: whether `translate` tells streams the length of their source, which nobody live can know.
        beam: ways to go on that are weighed once a source has ended (`beam`); 1: none, the likeliest token is written.
        lookahead: further tokens of each way that are weighed before a token is written sooner; 0: none are.
        tokenizer: for the text of what is written and copied; without one, events carry no text.

    Attributes:
        max_source_tokens: longest source a stream takes, prefix and end token included: as many as the backbone has
            positions for (its sliding window leaves, in the paper's grid) beside the target.

    Raises:
        ValueError: for θ outside [0, 1], a limit below its least value, copy tokens without a tokenizer, or a sliding
            window that cannot hold both streams.
    """

    def __init__(
        self,
        model: Any,
        tokens: StreamTokens,
        *,
        policy: Policy[Any] | None = None,
        theta: float | None = None,
        max_target_tokens: int,
        max_streams: int = 64,
        max_repeats: int | None = None,
        typical_source_length: int | None = None,
        told_length: bool = False,
        beam: int = 1,
        lookahead: int = 0,
        tokenizer: Any = None,
    ) -> None:
        limits: dict[str, int | None] = {"policy.max_target_tokens": max_target_tokens, "max_streams": max_streams}
        limits["typical_source_length"] = typical_source_length
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ValueError(f"{name}={limit}: must be at least 1")
        if tokens.copy_tokens and tokenizer is None:
            raise ValueError("this model has copy tokens: give the tokenizer, for the text they stand for")
        check_repeats(max_repeats)
        self.beam, self.lookahead = beam, lookahead
        self.model, self.tokens, self.rows = model, tokens, model.rows
        self.config, self.window = model.causal_lm.config, getattr(model, "window", None)
        self.policy = Theta() if policy is None else policy
        self.theta = check_theta(theta) if isinstance(self.policy, Theta) else None
        self.max_target_tokens, self.max_streams, self.max_repeats = max_target_tokens, max_streams, max_repeats
        self.first_target = [tokens.seed, *tokens.target_prefix]
        held, least = len(self.first_target), len(tokens.source_prefix) + 2
        self.max_source_tokens, why = longest_source(self.config, self.window, held, max_target_tokens)
        if self.max_source_tokens < least:
            raise ValueError(
                f"{why}: a target of {held} (seed and prefix) + max_target_tokens={max_target_tokens} leaves "
                f"{max(self.max_source_tokens, 0)} for a source that needs {least}, end token included"
            )
        self.typical_source_length, self.told_length, self.tokenizer = typical_source_length, told_length, tokenizer
        self.vocabulary = self.config.vocab_size
        self.streams: dict[int, Stream] = {}
        self.opened = 0
        self.states: States
        if isinstance(model, DecoderModel):
            self.states = DecoderStates(model, self.policy.lines, beam, alone=max_streams == 1)
        elif beam > 1:
            raise ValueError(
                f"policy.beam={beam}: the paper's grid keeps one translation a stream; leave it at 1, or train with "
                "experiment=past_paper, whose rows can be searched"
            )
        else:
            self.states = GridStates(model, GridCache(model) if model.cacheable else None)

    def open(
        self,
        *,
        name: int | None = None,
        source_length: int | None = None,
        theta: float | None = None,
        context: Sequence[int] = (),
    ) -> Stream:
        """Let a stream join.

        Args:
            name: what its events call it; by default a running number that no live stream has.
            source_length: text tokens of its source, where they are known; read with anchor `source_length` only.
            theta: EMIT threshold of its own, which may be changed between steps.
            context: text tokens of the previous sentence, for a model trained with context.

        Raises:
            ValueError: if all streams are taken, the name is, or a value breaks its rule.
        """
        if len(self.streams) >= self.max_streams:
            raise ValueError(f"max_streams={self.max_streams} streams are live: close one first")
        if name is None:
            while self.opened in self.streams:
                self.opened += 1
            name = self.opened
        if name in self.streams:
            raise ValueError(f"stream {name} is live already: close it first")
        prefix = self.tokens.prefix(context)
        if source_length is None:
            length = self.typical_source_length
            if self.model.anchor == "source_length" and length is None:
                raise ValueError(
                    "this model places the target after the whole source (anchor source_length): give the stream's "
                    "source_length, or typical_source_length to be taken for it, or use a model with a constant anchor"
                )
            length = length or 1
        else:
            if source_length < 1:
                raise ValueError(f"source_length={source_length}: must be at least 1, end token not counted")
            length = len(prefix) + source_length + 1
        self.check_tokens(name, context)
        stream = Stream(self, name, list(prefix), length, self.theta if theta is None else theta)
        self.streams[name] = stream
        self.opened += 1
        return stream

    @torch.no_grad()
    def step(self, streams: Sequence[Stream] | None = None, once: bool = False) -> list[Event]:
        """Take every stream that can go on (all, or those given) to its next event, in one forward of the model; where
        none has one yet, as drafts take several, in further forwards, unless `once` is set.

        Returns:
            At most one event a stream. None at all means that every stream waits for its source (or, with `once`, has
            not come to an event yet).

        Raises:
            ValueError: where the states of some find no room in memory; no stream has gone on then.
        """
        events: list[Event] = []
        while not events:
            live = [s for s in (self.streams.values() if streams is None else streams) if s.can_step()]
            if not live:
                break
            events += [event for stream in live if (event := stream.move()) is not None]
            if asking := [stream for stream in live if stream.asks is not None]:
                try:
                    self._answer(asking)
                except ValueError:
                    if events:  # which are told first; what found no room is asked for again
                        return events
                    raise
                events += [event for stream in asking if (event := stream.move()) is not None]
            if once:
                break
        return events

    def _answer(self, streams: Sequence[Stream]) -> None:
        """Compute what streams ask for, and tell them."""
        begin = perf_counter()
        asks = [(stream, stream.asks) for stream in streams if stream.asks is not None]
        found = dict[int, Tensor]()
        if computed := [(stream, append) for stream, append in asks if append.runs]:
            states = self.states(computed)
            for (stream, append), own in zip(computed, states.split([len(a.wanted) for _, a in computed]), strict=True):
                found[stream.name], stream.hidden = own, own[-1:]
                stream.note(append)
        for searching in (False, True):
            some = [(stream, append) for stream, append in asks if bool(append.best) == searching]
            if not some:
                continue
            if len(some) < len(found) or len(computed) < len(asks):  # some of which are known
                each = (found.get(stream.name, stream.hidden) for stream, _ in some)
                states = torch.cat([own for own in each if own is not None])
            predict = self._likeliest if searching else self.policy.predict
            for (stream, _), answer in zip(some, predict(self.model, some, states), strict=True):
                stream.asks, stream.answer = None, answer
        seconds = perf_counter() - begin
        for stream, _ in asks:
            stream.elapsed += seconds

    def _likeliest(self, model: TwoHeads, requests: Requests, states: Tensor) -> list[Any]:
        """Of each state that was asked for: log-probabilities of the likeliest next tokens, these, and p(EMIT)."""
        best = precise(model.text_logits(states)).log_softmax(-1).topk(min(self.beam + 1, self.vocabulary))
        each = list(zip(*[t.tolist() for t in best], self.policy.p_emit(model, states), strict=True))
        ends = list(accumulate(len(append.wanted) for _, append in requests))
        return [each[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def leave(self, stream: Stream) -> None:
        """Free what is held for a stream."""
        if self.streams.get(stream.name) is stream:
            del self.streams[stream.name]
            self.states.forget(stream.name)
            stream.hidden = stream.answer = stream.asks = None
            stream.memory.clear()

    def check_tokens(self, name: int, tokens: Sequence[int]) -> None:
        """Raise `ValueError` for a token id outside the vocabulary."""
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"stream {name}: token {token} is not in the vocabulary of {self.vocabulary}")

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        contexts: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[Event]:
        """Yield the read and write events of whole sentences, those of similar length side by side; the place of one
        that has ended is taken by the next at once. Events of a stream come in order.

        Args:
            sources: text tokens of each sentence, without end token.
            contexts: those of the sentence before each, for a model trained with context.

        Raises:
            ValueError: for a source without tokens, and for those that are longer than the model takes; before the
                first step.
        """
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} has no tokens: remove empty sentences before translating")
        check_lengths(sources, self.tokens, self.config, self.window, self.max_target_tokens)
        for stream in list(self.streams.values()):  # of a translation that was not read to its end
            stream.close()
        waiting = deque(sorted(range(len(sources)), key=lambda index: len(sources[index])))
        while waiting or self.streams:
            while waiting and len(self.streams) < self.max_streams:
                index = waiting.popleft()
                length = len(sources[index]) if self.told_length else None
                stream = self.open(name=index, source_length=length, context=contexts[index] if contexts else ())
                stream.read(sources[index])
                stream.end()
            yield from self.step()
