"""The options of a training and their rules, which the schema of `conf/` has, too; no torch."""

from math import inf
from typing import Any

ROUND, PACKED = 128, 8192  # tokens: packed lists are multiples of the one, and as long as the other by default on CUDA
EMIT_LOSSES = ("mask", "regret")
LM_CELLS = ("mask", "visits", "drawn_visits")
SCHEDULES = ("constant", "linear")
OPTIMIZERS = ("adam", "muon")
STRATEGIES = ("auto", "ddp", "fsdp", "deepspeed", "deepspeed_stage_1", "deepspeed_stage_2")
PRECISIONS = ("auto", "32", "16-mixed", "bf16-mixed", "32-true", "16", "bf16")  # the last three: Lightning's aliases


def check_batch_tokens(batch_tokens: object, batch_cells: int | None) -> None:
    """Raise ValueError for a length of packed lists that there cannot be."""
    if batch_tokens in ("auto", None):
        return
    whole = isinstance(batch_tokens, int) and not isinstance(batch_tokens, bool)
    if not whole or batch_tokens < 2 * ROUND or batch_tokens % ROUND:  # type: ignore[operator]
        raise ValueError(
            f"data.batch_tokens={batch_tokens}: must be a multiple of {ROUND}, at least {2 * ROUND}, such as 8192, or "
            "auto, or null for data.batch_size pairs"
        )
    if batch_cells is not None:
        raise ValueError(
            f"data.batch_tokens={batch_tokens} with data.batch_cells={batch_cells}: a batch has one size; give one of "
            "them, and null for the other"
        )


def check_not_packed(batch_tokens: object) -> None:
    """Raise ValueError where a length of packed lists is given for a grid of padded pairs."""
    if batch_tokens not in ("auto", None):
        raise ValueError(
            f"data.batch_tokens={batch_tokens}: exact attention of rows that read each other pads its pairs; give "
            "data.batch_cells, or model.attention=approximate, or model.input_attends_output=false model.softmax=joint"
        )


def settled_batch_tokens(batch_tokens: Any, batch_cells: int | None, cuda: bool) -> int | None:
    """The length of packed lists that `auto` stands for: none but on CUDA, or if `batch_cells` says how large a batch
    is."""
    if batch_tokens != "auto":
        return batch_tokens  # type: ignore[no-any-return]
    return PACKED if cuda and batch_cells is None else None


def check_losses(emit_loss: str, lm_cells: str) -> None:
    """Raise ValueError for a loss of a grid that there is not."""
    if emit_loss not in EMIT_LOSSES:
        raise ValueError(f"training.emit_loss={emit_loss!r}: must be one of {', '.join(EMIT_LOSSES)}")
    if lm_cells not in LM_CELLS:
        raise ValueError(f"training.lm_cells={lm_cells!r}: must be one of {', '.join(LM_CELLS)}")


def check_optimisation(
    *,
    learning_rate: float,
    emit_learning_rate: float | None,
    warmup_steps: int,
    schedule: str,
    optimizer: str,
    dropout: float,
) -> None:
    """Raise ValueError for an option of `TranslationModule` out of its range."""
    if schedule not in SCHEDULES:
        raise ValueError(f"training.schedule={schedule!r}: must be one of {', '.join(SCHEDULES)}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"training.optimizer={optimizer!r}: must be one of {', '.join(OPTIMIZERS)}")
    for name, rate in (("learning_rate", learning_rate), ("emit_learning_rate", emit_learning_rate)):
        if rate is not None and not 0 < rate < inf:
            raise ValueError(f"training.{name}={rate}: must be a finite number above 0")
    if warmup_steps < 0:
        raise ValueError(f"training.warmup_steps={warmup_steps}: must be at least 0")
    if not 0 <= dropout < 1:
        raise ValueError(f"training.dropout={dropout}: a share of what is added must be at least 0 and below 1")


def check_precision(precision: str) -> None:
    """Raise ValueError for a precision in which trained weights would not stay in float32."""
    if precision not in PRECISIONS:
        raise ValueError(
            f"trainer.precision={precision!r}: trained weights stay in float32; must be one of {', '.join(PRECISIONS)}"
        )


def check_strategy(strategy: str, precision: str) -> None:
    """Raise ValueError for a strategy under which no model could be looked at, or saved, here: one whose processes hand
    none back, or whose checkpoints scatter it."""
    if strategy not in STRATEGIES:
        raise ValueError(f"trainer.strategy={strategy}: must be one of {', '.join(STRATEGIES)}")
    if strategy == "fsdp" and precision == "16-mixed":
        raise ValueError(
            "trainer.strategy=fsdp with trainer.precision=16-mixed: each process would scale its gradients by itself; "
            "give trainer.precision=bf16-mixed, or 32"
        )
