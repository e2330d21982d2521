"""The options of a grid and their rules, which the schema of `conf/` has, too; no torch."""

ATTENTION_KINDS = ("approximate", "exact")
SOFTMAX_KINDS = ("joint", "separate")


def check_grid(attention: str, softmax: str, emit_hidden: int) -> None:
    """Raise ValueError for an option of `GridModel` that it does not have."""
    if attention not in ATTENTION_KINDS:
        raise ValueError(f"model.attention={attention!r}: must be one of {', '.join(ATTENTION_KINDS)}")
    if softmax not in SOFTMAX_KINDS:
        raise ValueError(f"model.softmax={softmax!r}: must be one of {', '.join(SOFTMAX_KINDS)}")
    if emit_hidden < 0:
        raise ValueError(f"model.emit_hidden={emit_hidden}: a number of units, or 0 for the paper's linear head")


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
