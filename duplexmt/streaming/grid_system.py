"""The grid system: greedy simultaneous decoding by the EMIT threshold θ (`tab:duplex-inference`)."""

from collections import deque
from collections.abc import Iterator, Sequence

from ..data.tokenizer import StreamTokens
from ..grid.model import GridModel
from .engine import Engine
from .events import Event
from .lengths import check_lengths


class GridSystem:
    """EMIT where `p(EMIT) > θ`; once the source has ended, EMIT until the end token.

    Whole sentences through the streaming engine: as many live streams as the batch holds, and the place of a sentence
    that has ended is taken by the next at once.

    Args:
        model: in evaluation mode, on its device.
        tokens: end, seed and prefix tokens the model was trained with.
        theta: EMIT threshold in [0, 1].
        max_target_tokens: length at which a translation is stopped.
        batch_size: streams decoded side by side.
        recompute: whether to do without the cache; exact attention with I←O on always does.
        static: whether to step in fixed shapes; by default on CUDA.

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
        static: bool | None = None,
    ) -> None:
        self.engine = Engine(
            model,
            tokens,
            theta=theta,
            max_target_tokens=max_target_tokens,
            max_streams=batch_size,
            recompute=recompute,
            static=static,
        )

    def translate(
        self, sources: Sequence[Sequence[int]], contexts: Sequence[Sequence[int]] | None = None
    ) -> Iterator[Event]:
        """Yield the read and write events of every source, sentences of similar length side by side.

        Args:
            sources: text tokens of each sentence.
            contexts: those of the sentence before each, for a model trained with context.

        Raises:
            ValueError: for a source without tokens, and for those that are longer than the model takes; before the
                first step.
        """
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} has no tokens: remove empty sentences before translating")
        engine = self.engine
        check_lengths(sources, engine.tokens, engine.model.causal_lm.config, engine.max_target_tokens)
        for stream in list(engine.streams.values()):  # of a translation that was not read to its end
            stream.close()
        waiting = deque(sorted(range(len(sources)), key=lambda index: len(sources[index])))
        while waiting or engine.streams:
            while waiting and len(engine.streams) < engine.max_streams:
                index = waiting.popleft()
                stream = engine.open(
                    name=index, source_length=len(sources[index]), context=contexts[index] if contexts else ()
                )
                stream.read(sources[index])
                stream.end()
            yield from engine.step()
