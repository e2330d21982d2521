"""One live translation: what has arrived, been read and been written, and what its policy may ask of it and do."""

from collections.abc import Generator, Iterator, Sequence
from copy import copy
from time import perf_counter
from typing import Any

from torch import Tensor

from ..data.copying import IN_WORD, begins_number, copied_runs, found_whole, is_number, open_run
from ..data.tokenizer import decode
from ..decoder.cache import TARGET, Append, Run
from ..decoder.decoder_options import VISIBLE_LENGTH
from ..decoder.layout import SOURCE
from ..policy.decoding_options import check_theta
from .events import End, Event, Read, Write
from .growing_text import GrowingText, token_text

LONGEST_REPEATED_BLOCK = 8
FINAL_MARKS = frozenset("。！？｡!?.…।؟")  # that a source often ends with
Move = Event | Append | None  # of a stream: see `policies`
Moves = Generator[Move, Any, None]


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
        memory: of its policy.
    """

    def __init__(
        self,
        engine: Any,  # which opened it
        name: int,
        source: list[int],
        source_length: int,
        theta: float | None,
    ) -> None:
        self.engine, self.name, self.source, self.source_length = engine, name, source, source_length
        self.target = [*engine.first_target]
        self.prefix = self.visible = len(source)
        self.forced = len(self.target)
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
        self.hidden: Tensor | None = None  # the last state that was asked for, [1, D]
        self.answer: Any = None
        self.moves: Moves = engine.policy.run(self)

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
        length, limit = len(self.source) + len(tokens) + 1, self.engine.max_source_tokens
        if length > limit:
            window = getattr(self.engine.model, "window", None)
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
                self.growing.add(token, self.copied(token))

    def write(self) -> Iterator[Event]:
        """All events of this stream alone, until it waits for its source, or is over.

        Raises:
            ValueError: before the first source token has arrived.
        """
        if not self.over and not self.text_tokens:
            raise ValueError(f"stream {self.name} has read nothing yet: give it source tokens before it can write")
        while self.can_step() and (events := self.engine.step([self])):
            yield from events

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
    def ends_by_beam(self) -> bool:
        """Whether what is left is found by beam search (`beam`)."""
        return self.at_source_end and self.engine.beam > 1

    @property
    def looks_ahead(self) -> bool:
        """Whether further tokens are weighed before one is written (`beam`)."""
        return self.engine.lookahead > 0 and not self.at_source_end

    @property
    def may_have_ended(self) -> bool:
        """Whether endings are weighed (`beam`), as the last token read is a mark that sources end with."""
        return self.engine.beam > 1 and not self.at_source_end and self.is_mark(self.visible)

    def is_mark(self, read: int) -> bool:
        """Whether the last of so many source tokens is a mark that sources end with."""
        tokenizer = self.engine.tokenizer
        return tokenizer is not None and token_text(tokenizer, self.source[read - 1]).strip()[-1:] in FINAL_MARKS

    @property
    def lag(self) -> int:
        """Source tokens read, the end token counted, minus target tokens written."""
        return self.visible - self.prefix - len(self.written)

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
        again = 0 if self.engine.rows or not self.written else len(self.target) - 1
        self.cached[1] = min(self.cached[1], again)
        yield Read(self.name, self.source[self.visible - 1], emit_probability, self.elapsed)

    def may_put(self, token: int) -> bool:
        """Whether a token may be written here: before the source has ended neither the end token, nor a copy token
        whose run may go on or has been copied as often as it is there, nor a digit that begins a run that may go on."""
        if self.at_source_end:
            return True
        token, copy_tokens = self.meant(token), self.engine.tokens.copy_tokens
        if token in copy_tokens:
            runs = dict(zip(copy_tokens, copied_runs(self.read_text(), whole=False).values(), strict=False))
            return self.written.count(token) < runs.get(token, 0)
        if digit := self.number_begun(token):
            return not open_run(self.read_text()).startswith(digit)
        return bool(token != self.engine.tokens.end)

    def meant(self, token: int) -> int:
        """What is written for a token that was chosen, in a model with copy tokens: no run is copied more often than
        it is in the source while another one has not been, a digit that begins a number of the source stands for the
        number, and at the source's end a run that stands nowhere in the translation comes before its full stop. With
        nothing else to copy, a run comes once more than the source has it; then the translation ends."""
        copy_tokens = self.engine.tokens.copy_tokens
        digit = self.number_begun(token)
        ends = self.at_source_end and bool(copy_tokens) and self.may_end(token)
        if token not in copy_tokens and not digit and not ends:
            return token
        times = copied_runs(self.read_text())
        runs = dict(zip(copy_tokens, times, strict=False))
        waiting = [own for own in runs if own not in self.written]
        if ends:
            text = self.growing.text if self.growing else ""
            return next((own for own in waiting if not any(found_whole([runs[own]], text))), token)
        if digit:
            return next((own for own in waiting if runs[own].startswith(digit) and is_number(runs[own])), token)
        if token not in runs and not self.at_source_end:
            return token  # its run may still come
        over = self.written.count(token) - (times[runs[token]] if token in runs else 0)
        if over >= 0 and waiting:
            return waiting[0]
        return self.engine.tokens.end if over > 0 and self.at_source_end else token

    def may_end(self, token: int) -> bool:
        """Whether a token ends the translation, or its last sentence."""
        return token == self.engine.tokens.end or token_text(self.engine.tokenizer, token).strip() in (".", "?", "!")

    def number_begun(self, token: int) -> str:
        """The digit of a token that begins a number, in a model with copy tokens, else ""."""
        if not self.engine.tokens.copy_tokens or self.growing is None:
            return ""
        text = token_text(self.engine.tokenizer, token)
        return text if begins_number(text, self.growing.text) else ""

    def copied(self, token: int) -> str | None:
        """What a copy token stands for: the run of its number, or the last where the source has fewer; None for other
        tokens."""
        copy_tokens = self.engine.tokens.copy_tokens
        if token not in copy_tokens:
            return None
        runs = [*copied_runs(self.read_text())]
        space = " " if self.growing and IN_WORD.search(self.growing.text) else ""  # two runs never meet in a text
        return space + runs[min(copy_tokens.index(token), len(runs) - 1)] if runs else ""

    def read_text(self) -> str:
        """The source text that is visible."""
        return decode(
            self.engine.tokenizer, self.source[self.prefix : min(self.visible, self.prefix + self.text_tokens)]
        )

    def put(self, token: int, emit_probability: float | None = None) -> Event:
        """Write one more target token; or end, where that is the end token or a guard says so."""
        token = self.meant(token)
        if reason := self.ends_with(token):
            return self.over_for(reason)
        delay, text = min(self.visible - self.prefix, self.text_tokens), self.add(token)
        return Write(self.name, token, delay, emit_probability, self.elapsed, text)

    def ends_with(self, token: int) -> str:
        """Why the translation ends where this token would be written; "" if it does not."""
        engine = self.engine
        if token == engine.tokens.end:
            return "end_token"
        if len(self.written) == engine.max_target_tokens:
            return "max_target_tokens"
        if engine.max_repeats is not None and ends_in_repetition([*self.written, token], engine.max_repeats):
            return "repetition"
        return ""

    def add(self, token: int) -> str:
        """Take a token for written; the text that has become certain by it."""
        self.target.append(token)
        self.written.append(token)
        self.reads.append(self.visible)
        return self.growing.add(token, self.copied(token)) if self.growing else ""

    def fork(self, written: int | None = None) -> "Stream":
        """A copy with so many of the tokens written (None: all) that may go on otherwise; it never steps."""
        other = copy(self)
        other.written, other.reads = self.written[:written], self.reads[:written]
        other.target, other.cached = [*self.target[: self.forced], *other.written], [*self.cached]
        if self.growing is not None:
            other.growing = copy(self.growing)
            other.growing.tokens = [*self.growing.tokens]
            if len(other.written) < len(self.written):
                other.growing = GrowingText(self.engine.tokenizer)
                for token in other.written:
                    other.growing.add(token, self.copied(token))
        return other

    def over_for(self, reason: str) -> End:
        """End, for whatever reason."""
        self.close()
        return End(self.name, reason, self.elapsed, self.growing.finish() if self.growing else "", self.calls)

    def present(self) -> Append:
        """For the state that predicts the next token: what of it is not in the cache."""
        runs, known, Y = self.source_run(self.visible), self.cached[1], len(self.target)
        if known < Y:
            runs += self.target_runs(known, self.engine.rows)
        return Append(runs)

    def target_runs(self, known: int, whole: bool, line: int = TARGET) -> list[Run]:
        """The target tokens from `known` on, of which all see what is visible (`whole`), or each what it saw."""
        Y = len(self.target)
        if whole or not self.written:
            return [self.target_run(known, Y, self.visible, line=line)]
        return [self.target_run(y, y + 1, self.seen(y), line=line) for y in range(known, Y)]

    def seen(self, y: int) -> int:
        """Source tokens that the state of target token `y` sees, once something is written, in a model without rows:
        those visible when the next token was written, or all that are visible."""
        return self.visible if y == len(self.target) - 1 else self.reads[max(0, y + 1 - self.forced)]

    def note(self, append: Append) -> None:
        """Remember what is in the cache now, of what `present` asked for."""
        for line, place, tokens, _, _ in append.runs:
            if line <= TARGET:
                self.cached[line] = max(self.cached[line], place + len(tokens))

    def source_run(self, read: int) -> list[Run]:
        """Source tokens, up to the first `read`, that are not in the cache."""
        known = self.cached[0]
        return [Run(SOURCE, known, self.source[known:read], known)] if known < read else []

    def target_run(
        self,
        y: int,
        end: int,
        sees: int,
        length: int | None = None,
        target: Sequence[int] | None = None,
        line: int = TARGET,
    ) -> Run:
        """Tokens from `y` to before `end` of the target (or of a draft), which see so much of a source of that
        length."""
        if self.engine.model.anchor == VISIBLE_LENGTH:
            start = sees
        else:
            start = self.start(self.source_length if length is None else length)
        return Run(line, y, (self.target if target is None else target)[y:end], start + y, sees)


def check_repeats(repeats: int | None) -> None:
    """Raise `ValueError` for a guard that would stop what is written once or twice."""
    if repeats is not None and (not isinstance(repeats, int) or repeats < 2):
        raise ValueError(f"max_repeats={repeats!r}: must be at least 2, or null for no guard")


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
