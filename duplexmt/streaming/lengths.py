"""Which sources are longer than a model takes: told by its configuration, before anything is decoded."""

from collections.abc import Sequence
from typing import Any

from ..data.tokenizer import StreamTokens
from ..grid.model import check_backbone

MOST_SHOWN = 5  # sources that are too long, in a message


def check_lengths(sources: Sequence[Sequence[int]], tokens: StreamTokens, config: Any, max_target_tokens: int) -> None:
    """Refuse sources that are longer than a model takes.

    Args:
        sources: text tokens of each sentence.
        tokens: the stream tokens the model was trained with.
        config: of its backbone.
        max_target_tokens: length at which a translation is stopped.

    Raises:
        ValueError: naming them, their lengths (with prefix and end token), and the limit.
    """
    limit, why = config.max_position_embeddings, "as many positions as its backbone was made for"
    window = check_backbone(config)
    if window is not None and (room := window - 1 - len(tokens.target_prefix) - max_target_tokens) < limit:
        limit, why = room, f"what its sliding window of {window} leaves beside a target of {max_target_tokens}"
    lengths = [len(tokens.source_prefix) + len(source) + 1 for source in sources]
    too_long = [f"number {index} ({length})" for index, length in enumerate(lengths) if length > limit]
    if too_long:
        shown = ", ".join(too_long[:MOST_SHOWN]) + (", …" if len(too_long) > MOST_SHOWN else "")
        raise ValueError(
            f"{len(too_long)} of {len(sources)} sources are longer than the {limit} tokens this model takes "
            f"({why}), prefix and end token included; counted from 0: {shown}. Shorten them or leave them out "
            "(data.test_path=FILE; limit=… for the first sentences), or use a backbone with more positions"
        )
