"""The streaming engine: live streams that read source tokens as they come, and write when p(EMIT) > θ.

An `Engine` steps all its streams together in one batch; a `Stream` joins and leaves at any time, and what it writes
does not depend on the others. Steps of the state machine (Section III-A): a WAIT reads the next source token, or stalls
until there is one; an EMIT writes. An end token predicted before the source has ended is a WAIT; once the source has
ended the stream writes until the end token, or until a guard stops it.

The anchor of the target's positions has to be known before the first step (`eq:rope-anchor`). A constant anchor needs
nothing. With anchor `source_length` a stream is told the length of its source when it is opened, or takes the typical
length of a training source for it; either is then kept, whatever arrives: so how the source was cut into pieces on its
way changes nothing.
"""

import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import torch

from ..data.tokenizer import StreamTokens
from ..grid.model import GridModel
from ..policy.knobs import check_theta
from .events import End, Event, Read, Write
from .states import CachedStates, RecomputedStates, States, StaticStates, StreamState
from .text import GrowingText

LONGEST_REPEATED_BLOCK = 8


class Engine:
    """Live streams of one model, decoded side by side.

    States come from the incremental cache: on CUDA in fixed shapes, replayed as graphs. Exact attention has one with
    I←O off (`grid.row_cache`); with I←O on it is decoded by recomputing the grid of all that is visible, which is
    slower and the same.

    Args:
        model: in evaluation mode, on its device (`artifact.load_model_folder` merges LoRA).
        tokens: end, seed and prefix tokens the model was trained with.
        theta: EMIT threshold of streams that bring none of their own.
        max_target_tokens: length at which a translation is stopped.
        max_streams: streams that may be live at a time.
        max_source_tokens: longest source a stream takes, prefix and end token included; by default as many positions as
            the backbone was made for, or its sliding window leaves beside the target.
        max_repeats: how often in a row a block of up to 8 tokens may be written before the translation is stopped; None
            for as often as the model likes.
        typical_source_length: what the anchor `source_length` takes for the length of a source nobody knows.
        tokenizer: for the text of what is written; without one, events carry no text.
        recompute: whether to do without the cache.
        static: whether to step in fixed shapes, where attention is approximate; by default on CUDA.
        compiled: whether fixed shapes are compiled first (see `grid.graphs`).

    Raises:
        ValueError: for θ outside [0, 1], a limit below its least value, or a sliding window that cannot hold both
            streams.
    """

    def __init__(
        self,
        model: GridModel,
        tokens: StreamTokens,
        *,
        theta: float,
        max_target_tokens: int,
        max_streams: int = 64,
        max_source_tokens: int | None = None,
        max_repeats: int | None = None,
        typical_source_length: int | None = None,
        tokenizer: Any = None,
        recompute: bool = False,
        static: bool | None = None,
        compiled: bool = False,
    ) -> None:
        limits: dict[str, int | None] = {"policy.max_target_tokens": max_target_tokens, "max_streams": max_streams}
        limits |= {"max_source_tokens": max_source_tokens, "typical_source_length": typical_source_length}
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ValueError(f"{name}={limit}: must be at least 1")
        check_repeats(max_repeats)
        config = model.causal_lm.config
        self.model, self.tokens, self.theta = model, tokens, check_theta(theta)
        self.max_target_tokens, self.max_streams, self.max_repeats = max_target_tokens, max_streams, max_repeats
        least = max_source_tokens or len(tokens.source_prefix) + 2
        room = self.window_room(1 + len(tokens.target_prefix), least)
        self.max_source_tokens = max_source_tokens or min(config.max_position_embeddings, room)
        self.typical_source_length, self.tokenizer = typical_source_length, tokenizer
        self.vocabulary = config.vocab_size
        self.streams: dict[int, Stream] = {}
        self.opened = 0
        on_cuda = model.device.type == "cuda"
        self.states: States
        if recompute or not (model.cacheable or model.row_cacheable):
            self.states = RecomputedStates(model)
        elif model.cacheable and (on_cuda if static is None else static):
            self.states = StaticStates(model, max_streams, compiled=compiled)
        else:
            self.states = CachedStates(model)

    def open(
        self,
        *,
        name: int | None = None,
        source_length: int | None = None,
        theta: float | None = None,
        context: Sequence[int] = (),
        target_prefix: Sequence[int] = (),
    ) -> "Stream":
        """Let a stream join.

        Args:
            name: what its events call it; by default a running number that no live stream has.
            source_length: text tokens of its source, where they are known; read with anchor `source_length` only.
            theta: EMIT threshold of its own, which may be changed between steps.
            context: text tokens of the previous sentence, for a model trained with context.
            target_prefix: tokens its translation is made to begin with, after those of the model.

        Raises:
            ValueError: if all streams are taken, the name is, a value breaks its rule, or a sliding window cannot hold
                the target prefix beside the rest.
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
        self.check_tokens(name, [*context, *target_prefix])
        target = [self.tokens.seed, *self.tokens.target_prefix, *target_prefix]
        room = self.window_room(len(target), len(prefix) + 2)
        state = StreamState(index=name, source=list(prefix), target=target, source_length=length, read=len(prefix))
        theta = self.theta if theta is None else theta
        stream = Stream(self, state, theta, min(self.max_source_tokens, room))
        self.streams[name] = stream
        self.opened += 1
        return stream

    def window_room(self, target: int, least: int) -> int:
        """Source tokens that fit a sliding window, which holds both streams, beside a target that begins with so many.

        ValueError where that is less than `least`.
        """
        if self.model.window is None:
            return sys.maxsize
        room = self.model.window - target - self.max_target_tokens
        if room < least:
            raise ValueError(
                f"the backbone's sliding window of {self.model.window} tokens holds both streams: a target of {target} "
                f"(seed and prefix) + max_target_tokens={self.max_target_tokens} leaves {max(room, 0)} for a source "
                f"that needs {least}, end token included"
            )
        return room

    @torch.no_grad()
    def step(self, streams: "Sequence[Stream] | None" = None) -> list[Event]:
        """Take every stream that can go on (all, or those given) to its next event, in one forward of the model.

        Returns:
            At most one event a stream. None at all means that every stream waits for its source.

        Raises:
            ValueError: where the states of some find no room in memory; no stream has gone on then.
        """
        live = [s for s in (self.streams.values() if streams is None else streams) if s.can_step()]
        new = [s for s in live if not s.begun]
        going = [s for s in live if s.begun]
        events: list[Event] = []
        if going:
            begin = perf_counter()
            if unknown := [s for s in going if s.emit_probability is None]:
                for stream, p_emit in zip(unknown, self.states([s.state for s in unknown]), strict=True):
                    stream.emit_probability = p_emit if stream.has_read_ahead() else 0.0
                    stream.calls += 1
            if asking := [s for s in going if s.token is None and s.may_write()]:
                for stream, token in zip(asking, self.states.tokens([s.state for s in asking]), strict=True):
                    stream.token = token
            seconds = perf_counter() - begin
            for stream in going:
                stream.elapsed += seconds
                if (event := stream.act()) is not None:
                    events.append(event)
        return [*(s.begin() for s in new), *events]

    def close_idle(self, seconds: float) -> list[End]:
        """Close the streams whose source has neither ended nor gone on for so long: their clients have left."""
        now = perf_counter()
        idle = [s for s in self.streams.values() if not s.source_ended and now - s.heard >= seconds]
        return [stream.over_for("idle") for stream in idle]

    def leave(self, stream: "Stream") -> None:
        """Free what is held for a stream."""
        if self.streams.get(stream.name) is stream:
            del self.streams[stream.name]
            self.states.forget(stream.state)

    def check_tokens(self, name: int, tokens: Sequence[int]) -> None:
        """Raise `ValueError` for a token id outside the vocabulary."""
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"stream {name}: token {token} is not in the vocabulary of {self.vocabulary}")


class Stream:
    """One live translation; opened by `Engine.open`.

    Attributes:
        theta: EMIT threshold; may be set between steps.
        over: whether the translation has ended, or the stream was closed.
        elapsed: seconds of computation in the steps it took part in.
        calls: of the model, for this stream.
        max_source_tokens: longest source it takes, prefix and end token included.
    """

    def __init__(self, engine: Engine, state: StreamState, theta: float, max_source_tokens: int) -> None:
        self.engine, self.state, self.name = engine, state, state.index
        self.theta, self.max_source_tokens = theta, max_source_tokens
        self.prefix = len(state.source)
        self.source_ended = self.over = self.begun = False
        self.elapsed, self.calls = 0.0, 0
        self.heard = perf_counter()  # when its source went on
        self.emit_probability: float | None = None  # of the present cell, once known
        self.token: int | None = None  # most probable next token there, once it was asked for
        self.growing = GrowingText(engine.tokenizer) if engine.tokenizer is not None else None

    @property
    def theta(self) -> float:
        """EMIT threshold."""
        return self._theta

    @theta.setter
    def theta(self, theta: float) -> None:
        self._theta = check_theta(theta)

    @property
    def text_tokens(self) -> int:
        """Source text tokens that have arrived."""
        return len(self.state.source) - self.prefix - self.source_ended

    def read(self, tokens: Sequence[int]) -> None:
        """Take source tokens that have arrived; they become visible one by one, as the policy asks for them.

        Raises:
            ValueError: after the end of the source, for tokens outside the vocabulary, and for more than the stream's
                limit; nothing is taken then.
        """
        if self.over or self.source_ended:
            what = "is over" if self.over else "has the end of its source"
            raise ValueError(f"stream {self.name} {what}: open another one for further text")
        self.engine.check_tokens(self.name, tokens)
        length, limit = len(self.state.source) + len(tokens) + 1, self.max_source_tokens
        if length > limit:
            window = self.engine.model.window
            held = "" if window is None else f" (the backbone's sliding window of {window} holds the target, too)"
            raise ValueError(
                f"stream {self.name}: a source of {length} tokens, end token included, exceeds "
                f"max_source_tokens={limit}{held}: end the stream and open another one"
            )
        self.state.source.extend(tokens)
        self.heard = perf_counter()

    def end(self) -> None:
        """Say that the source is complete.

        Raises:
            ValueError: if no text has arrived, or the end was said before.
        """
        if not self.text_tokens:
            raise ValueError(f"stream {self.name} has no source: close it instead")
        if self.over or self.source_ended:
            raise ValueError(f"stream {self.name} has the end of its source already")
        self.state.source.append(self.engine.tokens.end)
        self.source_ended = True

    def go_on(self, read: int, written: Sequence[int]) -> None:
        """Stand where another stream stood that was left: with so many of the source tokens given (and of its end)
        visible, and these target tokens written. What comes next is what would have come there."""
        assert not self.begun
        assert self.prefix + read <= len(self.state.source)
        self.begun = read > 0
        self.state.read += read
        self.state.target += written
        self.state.written += written
        if self.growing is not None:
            for token in written:
                self.growing.add(token)

    def step(self) -> Event | None:
        """The next event of this stream alone; None while it waits for its source, and once it is over.

        Raises:
            ValueError: before the first source token has arrived.
        """
        if not self.over and not self.text_tokens:
            raise ValueError(f"stream {self.name} has read nothing yet: give it source tokens before it can write")
        while self.can_step():
            if events := self.engine.step([self]):
                return events[0]
        return None

    def write(self) -> Iterator[Event]:
        """All events until this stream waits for its source, or is over."""
        while (event := self.step()) is not None:
            yield event

    def close(self) -> None:
        """Leave, whatever is still to be written."""
        self.over = True
        self.engine.leave(self)

    # What follows is the engine's side.

    def begin(self) -> Event:
        """Read the first text token."""
        self.begun = True
        self.state.read += 1
        return Read(self.name, self.state.source[self.state.read - 1], None, self.elapsed)

    def at_source_end(self) -> bool:
        """Whether the end token is visible."""
        return self.source_ended and self.state.read == len(self.state.source)

    def has_read_ahead(self) -> bool:
        """Whether as much more was read than written as the model's `k_min` asks for, or all was (`read_ahead`)."""
        written = len(self.state.target) - 1 - len(self.engine.tokens.target_prefix)
        k_min = self.engine.model.k_min
        return not k_min or self.at_source_end() or self.state.read - self.prefix - written >= k_min

    def may_write(self) -> bool:
        """Whether the next token matters here."""
        return self.at_source_end() or (self.emit_probability is not None and self.emit_probability > self.theta)

    def can_step(self) -> bool:
        """Whether there is something to be computed, or to be read."""
        if self.over or not self.text_tokens:
            return False
        if self.emit_probability is None or self.state.read < len(self.state.source):
            return True
        return self.may_write() and not (self.token == self.engine.tokens.end and not self.at_source_end())

    def act(self) -> Event | None:
        """One transition of the state machine at the present cell; None where it waits for its source."""
        state, end = self.state, self.engine.tokens.end
        p_emit, token = self.emit_probability, self.token
        assert p_emit is not None
        if not self.at_source_end() and (not p_emit > self._theta or token == end):
            if state.read == len(state.source):
                return None
            state.read += 1
            self.emit_probability = self.token = None
            return Read(self.name, state.source[state.read - 1], p_emit, self.elapsed)
        assert token is not None
        if token == end:
            return self.over_for("end_token")
        if len(state.written) == self.engine.max_target_tokens:
            return self.over_for("max_target_tokens")
        if self.engine.max_repeats is not None and ends_in_repetition([*state.written, token], self.engine.max_repeats):
            return self.over_for("repetition")
        state.target.append(token)
        state.written.append(token)
        self.emit_probability = self.token = None
        delay = min(state.read - self.prefix, self.text_tokens)
        text = self.growing.add(token) if self.growing else ""
        return Write(self.name, token, delay, p_emit, self.elapsed, text)

    def over_for(self, reason: str) -> End:
        """End, for whatever reason."""
        self.close()
        return End(self.name, reason, self.elapsed, self.growing.finish() if self.growing else "", self.calls)


def check_repeats(repeats: int | None) -> None:
    """Raise `ValueError` for a guard that would stop what is written once or twice."""
    if repeats is not None and repeats < 2:
        raise ValueError(f"max_repeats={repeats}: must be at least 2, or null for no guard")


def ends_in_repetition(tokens: Sequence[int], repeats: int) -> bool:
    """Whether tokens end in one block of up to 8 tokens more than `repeats` times in a row."""
    for size in range(1, LONGEST_REPEATED_BLOCK + 1):
        length = size * (repeats + 1)
        if length > len(tokens):
            return False
        tail = tokens[-length:]
        if tail[size:] == tail[:-size]:
            return True
    return False
