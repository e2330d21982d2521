"""The joint training loss (`eq:lm-loss`, `eq:emit-loss`, `eq:total-loss`) as sums and counts.

The paper's means run over all cells of a batch, so sums and counts are kept apart: with several devices or
accumulation steps the counts are added up first, and N devices equal one device with N times the pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.products import at_least_float32

LEAST_WEIGHT = 1e-9  # nats; keeps the mean of a batch without any choice to make 0, and its gradient finite


@dataclass(frozen=True)
class GridLoss:
    """Sums over the cells of one batch; all scalars."""

    lm_sum: Tensor  # nats, over M_+
    emit_sum: Tensor  # nats, over 𝒱
    lm_weights: Tensor  # |M_+|, or where cells are weighted the sum of their weights
    valid_cells: Tensor  # |𝒱|
    emit_weights: Tensor  # sum of the weights of emit_sum: |𝒱|, or where decisions are weighted all they are worth
    correct: Tensor  # cells of 𝒱 whose EMIT decision agrees with the mask

    def total(self, lm_weights: Tensor, emit_weights: Tensor, emit_weight: float = 1.0) -> Tensor:
        """`L_total = L_LM + w · L_emit` (`eq:total-loss`: w = 1) under the given denominators, `|M_+|` and `|𝒱|`."""
        return self.lm_sum / lm_weights + emit_weight * self.emit_sum / emit_weights


def grid_loss(
    heatmap: Tensor,
    emit_logits: Tensor,
    mask: Tensor,
    advantages: Tensor | None = None,
    cell_weights: Tensor | None = None,
    stand_for: Tensor | None = None,
) -> GridLoss:
    """Sums of `eq:lm-loss` and `eq:emit-loss` over the cells of a batch.

    Args:
        heatmap: `L(x, y)` of each cell `[N]`.
        emit_logits: WAIT and EMIT of each cell, `[N, 2]`.
        mask: the EMIT mask, booleans `[N]`.
        advantages: of EMIT over WAIT `[N]` (`regret.emit_advantages`), to train the EMIT head on the better decision of
            each cell, weighted by what it is worth; by default it is trained on the mask.
        cell_weights: of the language model's loss `[N]`, in place of those of the mask, 1 in M_+ and 0 beside it.
        stand_for: decisions of the full grid that each one stands for `[N]`, where not all were computed; 0 of cells
            that were filled in, which do not count.
    """
    decisions = emit_logits.to(at_least_float32(emit_logits.dtype))
    agrees = decisions.argmax(-1) == mask
    if stand_for is None:
        valid_cells = torch.full((), len(mask), device=mask.device)
    else:
        counts = stand_for > 0
        agrees, valid_cells = agrees & counts, counts.sum()
    # Products and sums, not `@`: autocast would take that in half precision, whose largest number is 65504 in fp16.
    if advantages is None and stand_for is None:
        emit_sum, emit_weights = F.cross_entropy(decisions, mask.long(), reduction="sum"), valid_cells
    else:
        labels, weights = (mask, torch.ones_like(heatmap)) if advantages is None else (advantages > 0, advantages.abs())
        weights = (weights if stand_for is None else weights * stand_for).to(decisions.dtype)
        emit_weights = weights.sum().clamp(min=LEAST_WEIGHT)
        emit_sum = (F.cross_entropy(decisions, labels.long(), reduction="none") * weights).sum()
    if cell_weights is None:
        lm_sum, lm_weights = torch.where(mask, heatmap, 0.0).sum(), mask.sum()
    else:
        weighted = heatmap.masked_fill(cell_weights == 0, 0.0)  # what is infinite without weight does not count
        lm_sum, lm_weights = (weighted * cell_weights.to(heatmap.dtype)).sum(), cell_weights.sum()
    return GridLoss(
        lm_sum=lm_sum,
        emit_sum=emit_sum,
        lm_weights=lm_weights,
        valid_cells=valid_cells,
        emit_weights=emit_weights,
        correct=agrees.sum(),
    )
