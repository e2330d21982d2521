"""The grid system: greedy simultaneous decoding by the EMIT threshold θ (`tab:duplex-inference`)."""

from collections.abc import Iterator, Sequence
from time import perf_counter

import torch

from ..data.tokenizer import StreamTokens
from ..grid.model import EMIT, GridModel
from .events import End, Event, Read, Write
from .states import CachedStates, RecomputedStates, StreamState


def check_theta(theta: float) -> float:
    """Return θ if it lies in [0, 1], else raise `ValueError`."""
    if not 0.0 <= theta <= 1.0:
        raise ValueError(f"policy.theta={theta}: the EMIT threshold must lie between 0 and 1")
    return theta


class GridSystem:
    """EMIT where `p(EMIT) > θ`; once the source has ended, EMIT until the end token.

    An end token predicted before the source has ended is a WAIT. States come from the incremental cache where the model
    has approximate attention; `recompute` takes them from the grid of all that is visible, which is slower and the
    same.

    Args:
        model: in evaluation mode, on its device.
        tokens: end, seed and prefix tokens the model was trained with.
        theta: EMIT threshold in [0, 1].
        max_target_tokens: length at which a translation is stopped.
        batch_size: streams decoded side by side.
        recompute: whether to do without the cache; exact attention always does.

    Raises:
        ValueError: for θ outside [0, 1], or a limit below 1.
    """

    def __init__(
        self,
        model: GridModel,
        tokens: StreamTokens,
        theta: float,
        max_target_tokens: int,
        batch_size: int = 64,
        recompute: bool = False,
    ) -> None:
        if max_target_tokens < 1:
            raise ValueError(f"policy.max_target_tokens={max_target_tokens}: must be at least 1")
        self.model, self.tokens, self.theta = model, tokens, check_theta(theta)
        self.max_target_tokens, self.batch_size = max_target_tokens, batch_size
        self.recompute = recompute or model.attention == "exact"

    @torch.no_grad()
    def translate(self, sources: Sequence[Sequence[int]]) -> Iterator[Event]:
        """Yield the read and write events of every source; sentences of similar length are decoded side by side.

        Raises:
            ValueError: for a source without tokens.
        """
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} has no tokens: remove empty sentences before translating")
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        for begin in range(0, len(order), self.batch_size):
            yield from self._translate_batch([(i, sources[i]) for i in order[begin : begin + self.batch_size]])

    def _translate_batch(self, sources: list[tuple[int, Sequence[int]]]) -> Iterator[Event]:
        hidden_states = (RecomputedStates if self.recompute else CachedStates)(self.model)
        states = [
            StreamState(
                index=index,
                source=[*self.tokens.source_prefix, *source, self.tokens.end],
                target=[self.tokens.seed, *self.tokens.target_prefix],
                read=len(self.tokens.source_prefix) + 1,
            )
            for index, source in sources
        ]
        for state in states:
            yield Read(state.index, state.source[state.read - 1])
        elapsed = 0.0  # the same for all: they start together, and each takes part in every step until its end
        while states:
            going_on = []
            started = perf_counter()
            predictions = self._predict(hidden_states(states))
            elapsed += perf_counter() - started
            for state, token, emit_probability in zip(states, *predictions, strict=True):
                event = self._act(state, token, emit_probability, elapsed)
                yield event
                if not isinstance(event, End):
                    going_on.append(state)
            states = going_on

    def _act(self, state: StreamState, token: int, emit_probability: float, elapsed: float) -> Event:
        """One transition of the state machine (Section III-A)."""
        source_ended = state.read == len(state.source)
        if not source_ended and (emit_probability <= self.theta or token == self.tokens.end):
            state.read += 1
            return Read(state.index, state.source[state.read - 1], emit_probability, elapsed)
        if token == self.tokens.end:
            return End(state.index, "end_token", elapsed)
        if len(state.written) == self.max_target_tokens:
            return End(state.index, "max_target_tokens", elapsed)
        state.target.append(token)
        state.written.append(token)
        text_tokens = len(state.source) - len(self.tokens.source_prefix) - 1
        delay = min(state.read - len(self.tokens.source_prefix), text_tokens)
        return Write(state.index, token, delay, emit_probability, elapsed)

    def _predict(self, hidden: torch.Tensor) -> tuple[list[int], list[float]]:
        """Most probable next token and p(EMIT) of each stream's present cell, from its target state `[n, D]`."""
        tokens = self.model.text_logits(hidden).argmax(-1)
        emit = self.model.emit_logits(hidden).float().softmax(-1)[:, EMIT]
        return tokens.tolist(), emit.tolist()
