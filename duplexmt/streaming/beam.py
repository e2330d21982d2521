"""Beam search for what is left of a translation once its source has ended, where nothing is gained by being early.

"Tail beam search" of Ma et al., "STACL: Simultaneous Translation with Implicit Anticipation and Controllable Latency",
2019. Until the source ends each token is final as it is written, so a policy writes the likeliest. Behind the end
several endings are weighed, `policy.beam` at a time, and the best is written. Not in the paper, which stays greedy.

A live source has often ended before that is certain, as what follows 。 may be a bracket. Behind such a mark the grid
still decides by p(EMIT) whether to write, but then takes the tokens of the best ending of the source as it stands.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ..decoder.cache import Append
from ..decoder.layout import SOURCE
from .stream import Move, Moves, Stream


@dataclass
class Ending:
    """One way to end a translation.

    Attributes:
        stream: a copy of it with this ending; it is asked what a token would come to, and never steps.
        chosen: each token that was taken, and p(EMIT) where it was; the last one ends the translation, in time.
        score: sum of their log-probabilities.
        line: of the cache, where its target tokens are.
        reason: why the translation ends with it; "" while it goes on.
    """

    stream: Stream
    chosen: list[tuple[int, float | None]]
    score: float
    line: int | None
    reason: str = ""

    @property
    def mean(self) -> float:
        """Log-probability a token, so that long endings are no worse than short ones."""
        return self.score / max(1, len(self.chosen))

    def followed_by(self, token: int, score: float, p_emit: float | None) -> "Ending":
        """The same with one token more, which may end it."""
        stream = self.stream.fork()
        meant = stream.meant(token)
        reason = stream.ends_with(meant)
        if not reason:
            stream.add(meant)
        return Ending(stream, [*self.chosen, (token, p_emit)], self.score + score, self.line, reason)


def end_by_beam(stream: Stream, whole: bool) -> Moves:
    """Write what is left of a translation whose source has ended.

    Args:
        whole: whether all target tokens see the whole source now; else each sees what it saw (`Stream.seen`).
    """
    begun, written = begin(stream)
    for token, p_emit in (yield from best_ending(begun, whole))[written:]:
        yield stream.put(token, p_emit)


def likely_next(stream: Stream, plans: dict[int, list[int]]) -> Generator[Move, Any, int]:
    """The next token of the best ending of a source that looks as if it had ended, should it have.

    Args:
        plans: the best ending by source tokens read, which is filled.
    """
    begun, written = begin(stream)
    if stream.visible not in plans:
        known = min(stream.cached[SOURCE], stream.visible)  # tokens behind these make room for the end token
        begun.source = [*stream.source[: stream.visible], stream.engine.tokens.end]
        begun.source_ended, begun.visible, begun.cached = True, stream.visible + 1, [known, 0]
        plans[stream.visible] = [token for token, _ in (yield from best_ending(begun, whole=True))]
        stream.cached[SOURCE] = stream.visible
    return [*plans[stream.visible], stream.engine.tokens.end][written]


def begin(stream: Stream) -> tuple[Stream, int]:
    """A copy as the stream was when it had read its last source token, and how many tokens it has written since: so one
    that was left goes on as it would have."""
    before = sum(read < stream.visible for read in stream.reads)
    return stream.fork(before), len(stream.written) - before


def best_ending(stream: Stream, whole: bool) -> Generator[Move, Any, list[tuple[int, float | None]]]:
    """What is chosen token by token, with p(EMIT), for the ending of the highest log-probability a token.

    Args:
        stream: a copy, whose source has ended.
        whole: see `end_by_beam`.
    """
    width, first = stream.engine.beam, stream.engine.states.first_free_line
    lines: dict[int, list[int]] = {first + number: [] for number in range(width)}  # target tokens that each holds
    going, ended = [Ending(stream, [], 0.0, first)], list[Ending]()
    runs = stream.source_run(stream.visible)
    while going and len(ended) < width and not (ended and max(each.mean for each in ended) >= going[0].mean):
        wanted = list[int]()
        for each in going:
            assert each.line is not None
            target = each.stream.target
            runs = [*runs, *each.stream.target_runs(shared(lines[each.line], target), whole, each.line)]
            lines[each.line] = target
            wanted.append(sum(len(run.tokens) for run in runs) - 1)
        found, runs = (yield Append(runs, wanted, best=width + 1)), []
        offered = [
            (each.score + score, score, token, each, p_emit)
            for each, (scores, tokens, p_emit) in zip(going, found, strict=True)
            for score, token in zip(scores, tokens, strict=True)
        ]
        going, seen = [], set[tuple[int, ...]]()
        for _, score, token, each, p_emit in sorted(offered, key=lambda one: -one[0])[: 2 * width]:
            longer = each.followed_by(token, score, p_emit)
            if longer.reason:
                ended.append(longer)
            elif (written := tuple(longer.stream.written)) not in seen:  # two tokens may stand for the same copy
                seen.add(written)
                going.append(longer)
            if len(going) == width:
                break
        place_in_lines(going, lines)
    return max(ended, key=lambda each: (each.reason == "end_token", each.mean)).chosen


def place_in_lines(endings: list[Ending], lines: dict[int, list[int]]) -> None:
    """Give each ending a line of its own: the first that goes on with what a line holds keeps it."""
    free = dict.fromkeys(lines)
    for each in endings:
        if each.line in free:
            del free[each.line]
        else:
            each.line = None
    for each in endings:
        if each.line is None:
            each.line, _ = free.popitem()


def shared(held: list[int], target: list[int]) -> int:
    """How many tokens of a target a line holds already; its last one is asked for anyway."""
    same = next((n for n, (one, other) in enumerate(zip(held, target, strict=False)) if one != other), len(held))
    return min(same, len(target) - 1)
