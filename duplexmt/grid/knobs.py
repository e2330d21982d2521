"""The options of a grid and their rules, which the schema of `conf/` has, too; no torch."""

ATTENTION_KINDS = ("approximate", "exact")
SOFTMAX_KINDS = ("joint", "separate")
VISIBLE_LENGTH = "visible_length"  # the naive alternative that the paper rejects: x_vis + y, which moves at every read


def check_grid(attention: str, softmax: str, emit_hidden: int) -> None:
    """Raise ValueError for an option of `GridModel` that it does not have."""
    if attention not in ATTENTION_KINDS:
        raise ValueError(f"model.attention={attention!r}: must be one of {', '.join(ATTENTION_KINDS)}")
    if softmax not in SOFTMAX_KINDS:
        raise ValueError(f"model.softmax={softmax!r}: must be one of {', '.join(SOFTMAX_KINDS)}")
    if emit_hidden < 0:
        raise ValueError(f"model.emit_hidden={emit_hidden}: a number of units, or 0 for the paper's linear head")


def check_lora(rank: int, alpha: int, dropout: float) -> None:
    """Raise ValueError for a number of LoRA's out of its range."""
    if rank < 1:
        raise ValueError(f"model.lora.rank={rank}: must be at least 1 (the paper uses 64)")
    if alpha < 1:
        raise ValueError(
            f"model.lora.alpha={alpha}: must be at least 1 (the paper uses 128); what LoRA adds is multiplied by alpha "
            "over rank, so 0 would leave the backbone as it is"
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"model.lora.dropout={dropout}: must be at least 0 and below 1 (the paper uses 0)")


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


def rows_stand_alone(attention: str, input_attends_output: bool, softmax: str) -> bool:
    """Whether no cell of a grid reads another row, so that some rows can be computed without the others."""
    return attention == "exact" and not input_attends_output and softmax == "joint"


def check_rows_stand_alone(attention: str, input_attends_output: bool, softmax: str) -> None:
    """Raise ValueError where some rows cannot be computed without the others."""
    if not rows_stand_alone(attention, input_attends_output, softmax):
        raise ValueError(
            f"rows of a grid with model.attention={attention}, model.input_attends_output={input_attends_output}, "
            f"model.softmax={softmax} read each other, so all must be computed: give training.rows=null, or "
            "model.attention=exact model.input_attends_output=false model.softmax=joint"
        )
