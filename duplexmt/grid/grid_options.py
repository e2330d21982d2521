"""What the options of a grid make of it, which the schema of `conf/` asks, too; no torch."""


def rows_stand_alone(attention: str, input_attends_output: bool, softmax: str) -> bool:
    """Whether no cell of a grid reads another row, so that some rows can be computed without the others."""
    return attention == "exact" and not input_attends_output and softmax == "joint"
