"""Beam search: for what is left of a translation once its source has ended, and some tokens ahead before.

"Tail beam search" of Ma et al., "STACL: Simultaneous Translation with Implicit Anticipation and Controllable Latency",
2019: behind the end of the source nothing is gained by being early, so several endings are weighed, `policy.beam` at a
time, and the best is written. "Speculative beam search" of Zheng et al., 2019: before the end each token is final as it
is written, but which one it is may be decided with `policy.lookahead` tokens more in sight, which are not written. Not
in the paper, which stays greedy.

A live source has often ended before that is certain, as what follows 。 may be a bracket. Behind such a mark the grid
still decides by p(EMIT) whether to write, but then takes the tokens of the best ending of the source as it stands.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..decoder.cache import Append
from ..decoder.layout import SOURCE
from .stream import Move, Moves, Stream

UNLIKELY = 2.3
"""Looking ahead, what is less likely than the likeliest by more than so many nats (a tenth) is not followed."""
LENGTH = 1.5
"""What the log-probability of an ending is divided by is its length, to this power; above 1 it favours longer ones."""


@dataclass
class Hypothesis:
    """One way for a translation to go on.

    Attributes:
        stream: a copy of it that has gone this way; it is asked what a token would come to, and never steps.
        chosen: each token that was taken, and p(EMIT) where it was; the last one ends the translation, in time.
        score: sum of their log-probabilities.
        line: of the cache, where its target tokens are, but for the last.
        reason: why the translation ends with it; "" while it goes on.
    """

    stream: Stream
    chosen: list[tuple[int, float | None]]
    score: float
    line: int
    reason: str = ""

    @property
    def worth(self) -> float:
        """What endings of different lengths are compared by."""
        return self.score / max(1, len(self.chosen)) ** LENGTH

    def followed_by(self, token: int, score: float, p_emit: float | None) -> "Hypothesis":
        """The same with one token more, which may end it."""
        stream = self.stream.fork()
        meant = stream.meant(token)
        reason = stream.ends_with(meant)
        if not reason:
            stream.add(meant)
        return Hypothesis(stream, [*self.chosen, (token, p_emit)], self.score + score, self.line, reason)


def end_by_beam(stream: Stream, whole: bool) -> Moves:
    """Write what is left of a translation whose source has ended.

    Args:
        whole: whether all target tokens see the whole source now; else each sees what it saw (`Stream.seen`).
    """
    before = written_before(stream, stream.visible)
    best = yield from best_ending(stream.fork(before), whole)
    for token, p_emit in best.chosen[len(stream.written) - before :]:
        yield stream.put(token, p_emit)


def end_as_planned(stream: Stream) -> Moves:
    """The same of a grid's source that has ended with a mark: with the ending that was the best when it was read."""
    if stream.is_mark(stream.visible - 1):
        before, best = yield from planned(stream, stream.visible - 1)
        if best.stream.written[: len(stream.written)] == stream.written:
            for token, p_emit in best.chosen[len(stream.written) - before :]:
                yield stream.put(token, p_emit)
            return
    yield from end_by_beam(stream, whole=True)


def likely_next(stream: Stream) -> Generator[Move, Any, int]:
    """The next token of the best ending of a source that looks as if it had ended, should it have."""
    before, best = yield from planned(stream, stream.visible)
    stream.cached[SOURCE] = min(stream.cached[SOURCE], stream.visible)  # an end token has stood behind these
    rest = [token for token, _ in best.chosen[len(stream.written) - before :]]
    return [*rest, stream.engine.tokens.end][0]


def planned(stream: Stream, read: int) -> Generator[Move, Any, tuple[int, Hypothesis]]:
    """The best ending of a source of the first `read` tokens, looked for once, and how many tokens stood written before
    it. It begins where these had just been read, so that a stream that was left goes on as it would have."""
    plans: dict[int, tuple[int, Hypothesis]] = stream.memory.setdefault("endings", {})
    if read not in plans:
        before = written_before(stream, read)
        begun = stream.fork(before)
        begun.source = [*stream.source[:read], stream.engine.tokens.end]
        begun.source_ended, begun.visible, begun.cached = True, read + 1, [min(stream.cached[SOURCE], read), 0]
        plans[read] = before, (yield from best_ending(begun, whole=True))
    return plans[read]


def written_before(stream: Stream, read: int) -> int:
    """How many tokens were written before the last of so many source tokens was read."""
    return sum(earlier < read for earlier in stream.reads)


def best_ending(stream: Stream, whole: bool) -> Generator[Move, Any, Hypothesis]:
    """The likeliest ending, of those that a beam search finds.

    Args:
        stream: a copy, whose source has ended.
        whole: see `end_by_beam`.
    """
    width, first = stream.engine.beam, stream.engine.states.first_free_line
    going, ended = [Hypothesis(stream, [], 0.0, first)], list[Hypothesis]()
    append = Append([*stream.source_run(stream.visible), *stream.target_runs(0, whole, first)], best=True)
    while going and len(ended) < width:
        going, over = chosen_of(followed(going, (yield append)), width)
        ended += over
        append = on_lines(going)
    return max(ended, key=lambda each: (each.reason == "end_token", each.worth))


def look_ahead(stream: Stream) -> Generator[Move, Any, int]:
    """The next token of the likeliest way to go on by `lookahead` tokens more than it, or fewer where it then waits for
    more of its source; as long as two are likely. All of it is in the cache, as `Stream.present` was asked for last."""
    engine = stream.engine
    going, ended = [Hypothesis(stream.fork(), [], 0.0, engine.states.line(stream.visible))], list[Hypothesis]()
    append = Append([], best=True)
    for _ in range(engine.lookahead + 1):
        going, over = chosen_of(followed(going, (yield append)), engine.beam)
        going = [each for each in going if each.score >= going[0].score - UNLIKELY]
        ended += over
        if not going or len(going) + len(ended) == 1:
            break
        append = on_lines(going)
    return max([*going, *ended], key=lambda each: each.score).chosen[0][0]


def chosen_of(longer: Iterator[Hypothesis], width: int) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """The first `width` hypotheses that go on, and those before them that have ended; of at most twice as many."""
    going, ended = list[Hypothesis](), list[Hypothesis]()
    for each in islice(longer, 2 * width):
        (ended if each.reason else going).append(each)
        if len(going) == width:
            break
    return going, ended


def followed(going: Sequence[Hypothesis], found: Sequence[Any]) -> Iterator[Hypothesis]:
    """Hypotheses with one token more, the likeliest first, each text once. While the source goes on, an end token
    behind other tokens stands for a WAIT.

    Args:
        found: of each, log-probabilities of its likeliest next tokens, these, and p(EMIT).
    """
    offered = [
        (each.score + score, score, token, each, p_emit)
        for each, (scores, tokens, p_emit) in zip(going, found, strict=True)
        for score, token in zip(scores, tokens, strict=True)
        if each.stream.may_put(token) or (each.chosen and token == each.stream.engine.tokens.end)
    ]
    seen = set[tuple[int, ...]]()
    for _, score, token, each, p_emit in sorted(offered, key=lambda one: -one[0]):
        longer = each.followed_by(token, score, p_emit)
        written = tuple(longer.stream.written)
        if longer.reason:
            yield longer
        elif written not in seen:  # two tokens may stand for the same copy
            seen.add(written)
            yield longer


def on_lines(going: Sequence[Hypothesis]) -> Append:
    """Ask for what follows each hypothesis, on a line of the cache of its own: the first that goes on with what a line
    holds keeps it, the others copy it."""
    if not going:
        return Append([])
    engine = going[0].stream.engine
    free = dict.fromkeys(range(engine.states.first_free_line, engine.states.first_free_line + engine.beam))
    keeping = {each.line: each for each in reversed(going) if each.line in free}  # the first of each line
    for line in keeping:
        del free[line]
    runs, copies = [], []
    for each in going:
        last = len(each.stream.target) - 1
        if keeping.get(each.line) is not each:
            held, (each.line, _) = each.line, free.popitem()
            copies.append((held, each.line, last))
        runs.append(each.stream.target_run(last, last + 1, each.stream.visible, line=each.line))
    return Append(runs, range(len(runs)), best=True, copies=copies)
