"""The options of a decoder and their rules, which the schema of `conf/` has, too; no torch."""

from typing import Any

# What is computed again in the backward pass rather than kept: nothing; all but matrix products; or whole layers, of
# which only the input is kept.
RECOMPUTE = ("nothing", "elementwise", "layers")
# How LoRA's frozen matrices are kept: as the trainer's precision has them, or rounded.
FROZEN = ("auto", "int8", "int4")
MULTI_PATH = "multi"  # the k of a model trained at all of them
BFLOAT16 = "bfloat16"  # of decoding
VISIBLE_LENGTH = "visible_length"  # the naive alternative that the paper rejects: x_vis + y, which moves at every read


def check_anchor(anchor: str | int, naive: bool = False) -> str | int:
    """Return `anchor` if it is `source_length` or a position ≥ 0 (or `visible_length`, where that is possible).

    Raises:
        ValueError: for anything else.
    """
    if anchor == "source_length" or (isinstance(anchor, int) and not isinstance(anchor, bool) and anchor >= 0):
        return anchor
    if anchor == VISIBLE_LENGTH and naive:
        return anchor
    raise ValueError(
        f"model.anchor={anchor!r}: must be 'source_length' or a position of at least 0, such as 0 or 128"
        + (f" (or {VISIBLE_LENGTH!r}, an ablation)" if naive else "")
    )


def check_quantize(value: str | None) -> None:
    """Raise ValueError for another way to make a trained model's weights smaller than there is."""
    if value not in (None, "int8", BFLOAT16):
        raise ValueError(f"quantize={value}: must be 'int8' or {BFLOAT16!r}, or null for weights as they are")


def check_k(k: Any, setting: str = "system.k") -> int:
    """Return `k` if it is a whole number of at least 1, else raise `ValueError`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        multi = f" (or {MULTI_PATH!r}: one model trained at every k)" if setting == "system.k" else ""
        raise ValueError(
            f"{setting}={k}: wait-k writes once k source tokens are read: k must be a whole number of at least 1{multi}"
        )
    return k


def check_trained_k(k: Any) -> None:
    """Raise `ValueError` for a k to be trained with that is neither one schedule's nor `multi`."""
    if k != MULTI_PATH:
        check_k(k)
