"""The streaming engine: live streams that read source tokens as they come, and write as their policy says.

An `Engine` steps all its streams together in one batch; a `Stream` joins and leaves at any time, and what it writes
does not depend on the others. A read makes the next source token visible, or stalls until there is one. An end token
predicted before the source has ended is a read; once the source has ended the stream writes until the end token, or
until a guard stops it (Section III-A).

The anchor of the target's positions has to be known before the first step (`eq:rope-anchor`). A constant anchor needs
nothing. With anchor `source_length` a stream is told the length of its source when it is opened, or takes the typical
length of a training source for it; either is then kept, whatever arrives: so how the source was cut into pieces on its
way changes nothing.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.tokenizer import StreamTokens
from ..decoder.cache import TARGET, Append, Token
from ..decoder.knobs import VISIBLE_LENGTH
from ..decoder.layout import SOURCE
from ..decoder.model import DecoderModel
from ..grid.cache import GridCache
from ..grid.graphs import StaticSteps
from ..policy.knobs import check_theta
from .events import End, Event, Read, Write
from .lengths import check_lengths, longest_source
from .states import DecoderStates, GridStates, States
from .text import GrowingText

if TYPE_CHECKING:
    from .policies import Policy

LONGEST_REPEATED_BLOCK = 8
Move = Event | Append | None  # of a stream: see `policies`


@dataclass(slots=True)
class Asked:
    """What a stream asked for, and the states that came of it."""

    stream: "Stream"
    append: Append
    states: Tensor  # [wanted, D]


class Engine:
    """Live streams of one model, decoded side by side.

    States come from the incremental cache, on CUDA for the paper's grid in fixed shapes, replayed as graphs. A grid
    that cannot be cached is decoded by recomputing all that is visible, which is slower and the same.

    Args:
        model: in evaluation mode, on its device (`artifact.load_model_folder` merges LoRA).
        tokens: end, seed and prefix tokens the model was trained with.
        policy: that says read or write; θ's by default.
        theta: EMIT threshold of streams that bring none of their own; None for other policies than θ.
        max_target_tokens: length at which a translation is stopped.
        max_streams: streams that may be live at a time.
        max_source_tokens: longest source a stream takes, prefix and end token included; by default as many as the
            backbone has positions for (its sliding window leaves, in the paper's grid) beside the target.
        max_repeats: how often in a row a block of up to 8 tokens may be written before the translation is stopped; None
            for as often as the model likes.
        typical_source_length: what the anchor `source_length` takes for the length of a source nobody knows.
        told_length: whether `translate` tells streams the length of their source, which nobody live can know.
        tokenizer: for the text of what is written; without one, events carry no text.
        recompute: whether to do without the cache, of a grid.
        static: whether the paper's grid steps in fixed shapes; by default on CUDA.
        compiled: whether fixed shapes are compiled first (see `grid.graphs`).

    Raises:
        ValueError: for θ outside [0, 1], a limit below its least value, or a sliding window that cannot hold both
            streams.
    """

    def __init__(
        self,
        model: Any,
        tokens: StreamTokens,
        *,
        policy: "Policy[Any] | None" = None,
        theta: float | None = None,
        max_target_tokens: int,
        max_streams: int = 64,
        max_source_tokens: int | None = None,
        max_repeats: int | None = None,
        typical_source_length: int | None = None,
        told_length: bool = False,
        tokenizer: Any = None,
        recompute: bool = False,
        static: bool | None = None,
        compiled: bool = False,
    ) -> None:
        from .policies import Theta  # which need this module

        limits: dict[str, int | None] = {"policy.max_target_tokens": max_target_tokens, "max_streams": max_streams}
        limits |= {"max_source_tokens": max_source_tokens, "typical_source_length": typical_source_length}
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ValueError(f"{name}={limit}: must be at least 1")
        check_repeats(max_repeats)
        self.model, self.tokens = model, tokens
        self.config, self.window = model.causal_lm.config, getattr(model, "window", None)
        self.policy = Theta() if policy is None else policy
        self.theta = check_theta(theta) if isinstance(self.policy, Theta) else None
        self.max_target_tokens, self.max_streams, self.max_repeats = max_target_tokens, max_streams, max_repeats
        self.first_target = [tokens.seed, *tokens.target_prefix]
        least = max_source_tokens or len(tokens.source_prefix) + 2
        room = self.room(len(self.first_target), least)
        self.max_source_tokens = max_source_tokens or room
        self.typical_source_length, self.told_length, self.tokenizer = typical_source_length, told_length, tokenizer
        self.vocabulary = self.config.vocab_size
        self.streams: dict[int, Stream] = {}
        self.opened = 0
        self.states: States
        if isinstance(model, DecoderModel):
            self.states = DecoderStates(model, self.policy.lines)
        else:
            cache: Any = None
            if model.cacheable and not recompute:
                static = model.device.type == "cuda" if static is None else static
                cache = StaticSteps(model, max_streams, compiled=compiled) if static else GridCache(model)
            self.states = GridStates(model, cache)

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
        target = [*self.first_target, *target_prefix]
        room = self.room(len(target), len(prefix) + 2)
        theta = self.theta if theta is None else theta
        stream = Stream(self, name, list(prefix), target, length, theta, min(self.max_source_tokens, room))
        self.streams[name] = stream
        self.opened += 1
        return stream

    def room(self, target: int, least: int) -> int:
        """Source tokens that a stream has room for beside a target that begins with so many.

        ValueError where that is less than `least`.
        """
        room, why = longest_source(self.config, self.window, target, self.max_target_tokens)
        if room < least:
            raise ValueError(
                f"{why}: a target of {target} (seed and prefix) + max_target_tokens={self.max_target_tokens} leaves "
                f"{max(room, 0)} for a source that needs {least}, end token included"
            )
        return room

    @torch.no_grad()
    def step(self, streams: "Sequence[Stream] | None" = None) -> list[Event]:
        """Take every stream that can go on (all, or those given) to its next event, in one forward of the model; where
        none has one yet, as drafts take several, in further forwards.

        Returns:
            At most one event a stream. None at all means that every stream waits for its source.

        Raises:
            ValueError: where the states of some find no room in memory; no stream has gone on then.
        """
        events: list[Event] = []
        while not events:
            live = [s for s in (self.streams.values() if streams is None else streams) if s.can_step()]
            if not live:
                break
            events += [event for stream in live if (event := stream.move()) is not None]
            asking = [stream for stream in live if stream.asks is not None]
            if asking:
                self._answer(asking)
                events += [event for stream in asking if (event := stream.move()) is not None]
        return events

    def _answer(self, streams: "Sequence[Stream]") -> None:
        """Compute what streams ask for, and tell them."""
        begin = perf_counter()
        asks = [(stream, stream.asks) for stream in streams if stream.asks is not None]
        computed = [(stream, append) for stream, append in asks if append.tokens]
        states = iter(self.states(computed)) if computed else iter(())
        for stream, append in asks:
            if append.tokens:
                stream.hidden = next(states)
                stream.calls += 1
                stream.note(append)
        told = [Asked(stream, append, stream.hidden) for stream, append in asks]  # type: ignore[arg-type]
        answers = self.policy.look(self.model, told)
        seconds = perf_counter() - begin
        for (stream, _), answer in zip(asks, answers, strict=True):
            stream.asks, stream.answer = None, answer
            stream.elapsed += seconds

    def close_idle(self, seconds: float) -> list[End]:
        """Close the streams whose source has neither ended nor gone on for so long: their clients have left."""
        now = perf_counter()
        idle = [s for s in self.streams.values() if not s.source_ended and now - s.heard >= seconds]
        return [stream.over_for("idle") for stream in idle]

    def leave(self, stream: "Stream") -> None:
        """Free what is held for a stream."""
        if self.streams.get(stream.name) is stream:
            del self.streams[stream.name]
            self.states.forget(stream.name)

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


class Stream:
    """One live translation; opened by `Engine.open`.

    Attributes:
        source: prefix, text and, once it has ended, the end token, as far as they have arrived.
        target: seed, prefix, and what was written.
        source_length: whole length of the source, or what it is taken for (the anchor of the target).
        visible: source tokens the translation has read, prefix and end token included.
        written: text tokens.
        reads: how many source tokens were visible when each was written.
        theta: EMIT threshold; may be set between steps.
        over: whether the translation has ended, or the stream was closed.
        elapsed: seconds of computation in the steps it took part in.
        calls: of the model, for this stream.
        max_source_tokens: longest source it takes, prefix and end token included.
        memory: of its policy.
    """

    def __init__(
        self,
        engine: Engine,
        name: int,
        source: list[int],
        target: list[int],
        source_length: int,
        theta: float | None,
        max_source_tokens: int,
    ) -> None:
        self.engine, self.name, self.source, self.target = engine, name, source, target
        self.source_length, self.max_source_tokens = source_length, max_source_tokens
        self.prefix = self.visible = len(source)
        self.forced = len(target)
        self.written: list[int] = []
        self.reads: list[int] = []
        self.theta = theta
        self.source_ended = self.over = False
        self.waits = False  # for its source
        self.elapsed, self.calls = 0.0, 0
        self.heard = perf_counter()  # when its source went on
        self.growing = GrowingText(engine.tokenizer) if engine.tokenizer is not None else None
        self.memory: dict[str, Any] = {}
        self.cached = [0, 0]  # source and target tokens whose states are what they are to be
        self.asks: Append | None = None
        self.hidden: Tensor | None = None  # what was asked for last
        self.answer: Any = None
        self.moves: Generator[Move, Any, None] = engine.policy.run(self)

    @property
    def theta(self) -> float | None:
        """EMIT threshold; None for other policies."""
        return self._theta

    @theta.setter
    def theta(self, theta: float | None) -> None:
        self._theta = theta if theta is None else check_theta(theta)
        self.waits = False

    @property
    def text_tokens(self) -> int:
        """Source text tokens that have arrived."""
        return len(self.source) - self.prefix - self.source_ended

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
        length, limit = len(self.source) + len(tokens) + 1, self.max_source_tokens
        if length > limit:
            window = self.engine.window
            held = "" if window is None else f" (the backbone's sliding window of {window} holds the target, too)"
            raise ValueError(
                f"stream {self.name}: a source of {length} tokens, end token included, exceeds "
                f"max_source_tokens={limit}{held}: end the stream and open another one"
            )
        self.source.extend(tokens)
        self.heard, self.waits = perf_counter(), self.waits and not tokens

    def end(self) -> None:
        """Say that the source is complete.

        Raises:
            ValueError: if no text has arrived, or the end was said before.
        """
        if not self.text_tokens:
            raise ValueError(f"stream {self.name} has no source: close it instead")
        if self.over or self.source_ended:
            raise ValueError(f"stream {self.name} has the end of its source already")
        self.source.append(self.engine.tokens.end)
        self.source_ended, self.waits = True, False

    def go_on(self, read: int, written: Sequence[int], reads: Sequence[int]) -> None:
        """Stand where another stream stood that was left: with so many of the source tokens given (and of its end)
        visible, and these target tokens written, each when so many were visible. What comes next is what would have
        come there."""
        assert self.visible == self.prefix
        assert self.prefix + read <= len(self.source)
        self.visible += read
        self.target += written
        self.written += written
        self.reads += [self.prefix + count for count in reads]
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
        events = self.engine.step([self]) if self.can_step() else []
        return events[0] if events else None

    def write(self) -> Iterator[Event]:
        """All events until this stream waits for its source, or is over."""
        while (event := self.step()) is not None:
            yield event

    def close(self) -> None:
        """Leave, whatever is still to be written."""
        self.over = True
        self.engine.leave(self)

    # What follows is the side of the engine and its policy.

    def can_step(self) -> bool:
        """Whether there may be something to be computed, or to be read."""
        return not self.over and not self.waits and self.text_tokens > 0

    def move(self) -> Event | None:
        """Go on to the next event, or to what has to be computed first, or until there is more of the source."""
        if self.asks is not None:
            return None
        answer, self.answer = self.answer, None
        move = self.moves.send(answer)
        if isinstance(move, Append):
            self.asks = move
            return None
        self.waits = move is None
        return move

    @property
    def at_source_end(self) -> bool:
        """Whether the end token is visible."""
        return self.source_ended and self.visible == len(self.source)

    @property
    def lag(self) -> int:
        """Source tokens read, the end token counted, minus target tokens written."""
        return self.visible - self.prefix - len(self.written)

    @property
    def has_read_ahead(self) -> bool:
        """Whether as much more was read than written as the model's `k_min` asks for, or all was (`read_ahead`)."""
        k_min, written = self.engine.model.k_min, len(self.target) - len(self.engine.first_target)
        return not k_min or self.at_source_end or self.visible - self.prefix - written >= k_min

    def start(self, length: int) -> int:
        """Position of the seed token behind a source of that many tokens."""
        anchor = self.engine.model.anchor
        return length if anchor == "source_length" else int(anchor)

    def take(self, emit_probability: float | None = None) -> Generator[Move, Any, None]:
        """Make one more source token visible, once it has arrived."""
        while self.visible == len(self.source):
            yield None
        self.visible += 1
        # The states of the target that are to see it: all, of a model with rows, else the last, or all that is forced.
        again = 0 if getattr(self.engine.model, "rows", False) or not self.written else len(self.target) - 1
        self.cached[1] = min(self.cached[1], again)
        yield Read(self.name, self.source[self.visible - 1], emit_probability, self.elapsed)

    def put(self, token: int, emit_probability: float | None = None) -> Event:
        """Write one more target token; or end, where that is the end token or a guard says so."""
        engine = self.engine
        if token == engine.tokens.end:
            return self.over_for("end_token")
        if len(self.written) == engine.max_target_tokens:
            return self.over_for("max_target_tokens")
        if engine.max_repeats is not None and ends_in_repetition([*self.written, token], engine.max_repeats):
            return self.over_for("repetition")
        self.target.append(token)
        self.written.append(token)
        self.reads.append(self.visible)
        delay = min(self.visible - self.prefix, self.text_tokens)
        text = self.growing.add(token) if self.growing else ""
        return Write(self.name, token, delay, emit_probability, self.elapsed, text)

    def over_for(self, reason: str) -> End:
        """End, for whatever reason."""
        self.close()
        return End(self.name, reason, self.elapsed, self.growing.finish() if self.growing else "", self.calls)

    def present(self) -> Append:
        """For the state that predicts the next token: what of it is not in the cache."""
        tokens = self.source_tokens(self.visible)
        for y in range(self.cached[1], len(self.target)):
            tokens.append(self.target_token(y, self.seen(y)))
        return Append(-1, tokens)

    def seen(self, y: int) -> int:
        """Source tokens that the state of target token `y` sees: all that is visible, of a model with rows and for the
        last; of others those visible when the next token was written."""
        present = y >= len(self.target) - 1 or not self.written or getattr(self.engine.model, "rows", False)
        return self.visible if present else self.reads[max(0, y + 1 - self.forced)]

    def note(self, append: Append) -> None:
        """Remember what is in the cache now, of what `present` asked for."""
        for token in append.tokens:
            if token.line in (SOURCE, TARGET):
                self.cached[token.line] = max(self.cached[token.line], token.place + 1)

    def source_tokens(self, read: int) -> list[Token]:
        """Source tokens, up to the first `read`, that are not in the cache."""
        return [Token(SOURCE, x, self.source[x], x, x + 1) for x in range(self.cached[0], read)]

    def target_token(
        self, y: int, sees: int, length: int | None = None, target: Sequence[int] | None = None, line: int = TARGET
    ) -> Token:
        """Token `y` of the target (or of a draft), which sees so much of a source of that length."""
        if self.engine.model.anchor == VISIBLE_LENGTH:
            start = sees
        else:
            start = self.start(self.source_length if length is None else length)
        return Token(line, y, (self.target if target is None else target)[y], start + y, sees)


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
