"""The joint training loss (`eq:lm-loss`, `eq:emit-loss`, `eq:total-loss`) as sums and counts.

The paper's means run over all cells of a batch, so sums and counts are kept apart: with several devices or
accumulation steps the counts are added up first, and N devices equal one device with N times the pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class GridLoss:
    """Sums over the cells of one batch; all scalars."""

    lm_sum: Tensor  # nats, over M_+
    emit_sum: Tensor  # nats, over 𝒱
    emit_cells: Tensor  # |M_+|
    valid_cells: Tensor  # |𝒱|
    correct: Tensor  # cells of 𝒱 whose EMIT decision agrees with the mask

    def total(self, emit_cells: Tensor, valid_cells: Tensor) -> Tensor:
        """`L_total = L_LM + L_emit` (`eq:total-loss`) under the given denominators `|M_+|` and `|𝒱|`."""
        return self.lm_sum / emit_cells + self.emit_sum / valid_cells


def grid_loss(heatmap: Tensor, emit_logits: Tensor, mask: Tensor, valid: Tensor) -> GridLoss:
    """Sums of `eq:lm-loss` and `eq:emit-loss`.

    Args:
        heatmap: `L(x, y)` `[B, X, Y]`.
        emit_logits: `[B, X, Y, 2]`, WAIT and EMIT.
        mask: the EMIT mask `[B, X, Y]`.
        valid: cells of the pairs, `[B, X, Y]`.
    """
    emitted = mask & valid
    decisions = emit_logits[valid]
    decisions = decisions.to(torch.promote_types(decisions.dtype, torch.float32))
    labels = mask[valid].long()
    return GridLoss(
        lm_sum=heatmap[emitted].sum(),
        emit_sum=F.cross_entropy(decisions, labels, reduction="sum"),
        emit_cells=emitted.sum(),
        valid_cells=valid.sum(),
        correct=(decisions.argmax(-1) == labels).sum(),
    )
