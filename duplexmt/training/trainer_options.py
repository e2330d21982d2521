"""The options of a training and their rules, which the schema of `conf/` has, too; no torch."""

from typing import Any

ROUND, PACKED = 128, 8192  # tokens: packed lists are multiples of the one, and as long as the other by default on CUDA
# Under another strategy no model could be looked at, or saved: its processes hand none back, or checkpoints scatter it.
STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed", "deepspeed_stage_1", "deepspeed_stage_2")
# Trained weights stay in float32; the last three are Lightning's aliases.
PRECISIONS = ("auto", "32", "16-mixed", "bf16-mixed", "32-true", "16", "bf16")


def check_not_packed(batch_tokens: object) -> None:
    """Raise ValueError where a length of packed lists is given for a grid of padded pairs."""
    if batch_tokens not in ("auto", None):
        raise ValueError(
            f"data.batch_tokens={batch_tokens}: exact attention of rows that read each other pads its pairs; give "
            "data.batch_size, or model.attention=approximate, or model.input_attends_output=false model.softmax=joint"
        )


def settled_batch_tokens(batch_tokens: Any, cuda: bool) -> int | None:
    """The length of packed lists that `auto` stands for: none but on CUDA."""
    if batch_tokens != "auto":
        return batch_tokens  # type: ignore[no-any-return]
    return PACKED if cuda else None
