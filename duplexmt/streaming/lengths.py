"""Which sources are longer than a model takes: told by its configuration, before anything is decoded."""

from collections.abc import Sequence
from typing import Any

from ..data.tokenizer import StreamTokens

MOST_SHOWN = 5  # sources that are too long, in a message


def longest_source(config: Any, window: int | None, target: int, max_target_tokens: int) -> tuple[int, str]:
    """Tokens of the longest source a model takes, prefix and end token included, and what limits it.

    Args:
        window: that holds both streams in the paper's grid; None without one, and for other models.
        target: tokens a target begins with, seed and prefix.
    """
    positions: int = config.max_position_embeddings
    if window is None or window - target - max_target_tokens >= positions:
        return positions, f"the backbone was made for {positions} positions"
    return window - target - max_target_tokens, f"the backbone's sliding window of {window} tokens holds both streams"


def check_lengths(
    sources: Sequence[Sequence[int]], tokens: StreamTokens, config: Any, window: int | None, max_target_tokens: int
) -> None:
    """Refuse sources that are longer than a model takes.

    Args:
        sources: text tokens of each sentence.
        tokens: the stream tokens the model was trained with.
        config, window: see `longest_source`.

    Raises:
        ValueError: naming them, their lengths (with prefix and end token), and the limit.
    """
    limit, why = longest_source(config, window, 1 + len(tokens.target_prefix), max_target_tokens)
    lengths = [len(tokens.source_prefix) + len(source) + 1 for source in sources]
    too_long = [f"number {index} ({length})" for index, length in enumerate(lengths) if length > limit]
    if too_long:
        shown = ", ".join(too_long[:MOST_SHOWN]) + (", …" if len(too_long) > MOST_SHOWN else "")
        raise ValueError(
            f"{len(too_long)} of {len(sources)} sources are longer than the {limit} tokens this model takes "
            f"({why}), prefix and end token included; counted from 0: {shown}. Shorten them or leave them out "
            "(data.test_path=FILE; limit=… for the first sentences), or use a backbone with more positions"
        )
