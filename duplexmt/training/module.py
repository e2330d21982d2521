"""The training loop of Section V as a LightningModule: model → heatmap → best path → mask → losses."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..grid.cells import Cells
from ..grid.model import EMIT, GridModel
from ..policy.calibration import BINS, calibration_error, calibration_sums
from ..policy.heatmap import cells_at_once, loss_heatmap
from ..policy.losses import GridLoss, grid_loss
from ..policy.path import best_path, check_lam, emit_mask
from .base import TranslationModule
from .throughput import step_flops


@dataclass(frozen=True)
class Guided:
    """What a model makes of a batch: its heatmap, and the path it will train its EMIT head on."""

    cells: Cells  # layout of the scored cells
    hidden: Tensor  # [N, D], final-normed target states
    heatmap: Tensor  # [N], nats
    y_at: Tensor  # [B, X], best path
    mask: Tensor  # [N], EMIT where true
    area: Tensor  # mean area fraction below the paths


def guide(model: GridModel, tokens: StreamTokens, batch: Batch, lam: float) -> Guided:
    """Heatmap, best path and EMIT mask of a batch (Section V-A and V-B); states inside prefixes are not scored."""
    cells = Cells.of(batch.shapes, batch.source.device)
    source, target = batch.source.flatten()[cells.source_slot], batch.target.flatten()[cells.target_slot]
    hidden = model.states(source, target, cells, batch.source_lengths)
    labels = cells.over_columns(batch.labels.flatten()[cells.target_slot])
    rows, columns = len(tokens.source_prefix), len(tokens.target_prefix)
    if rows or columns:
        cells, scored = cells.without(rows, columns)
        hidden, labels = hidden[scored], labels[scored]

    head = model.text_head
    heatmap = loss_heatmap(hidden, head.weight, head.bias, labels, cells_at_once(head.out_features))
    source_lengths, target_lengths = batch.source_lengths - rows, batch.target_lengths - columns
    y_at = best_path(cells.padded(heatmap.detach()), source_lengths, target_lengths, lam)
    mask = cells.flat(emit_mask(y_at, cells.width[1]))
    return Guided(cells, hidden, heatmap, y_at, mask, (y_at.sum(1) / (source_lengths * target_lengths)).mean())


class GridTranslation(TranslationModule):
    """Trains a grid model on its own best paths.

    Args:
        model: the grid model.
        tokens: the stream tokens its data was made with; states inside prefixes are not scored.
        lam: λ of the path score.
        emit_weight: of `L_emit` in the loss.
        optimisation: learning_rate, warmup_steps, schedule, betas, optimizer, as for `TranslationModule`.
    """

    def __init__(
        self, model: GridModel, tokens: StreamTokens, *, lam: float, emit_weight: float = 1.0, **optimisation: Any
    ) -> None:
        super().__init__(model, tokens, **optimisation)
        self.lam, self.emit_weight = check_lam(lam), emit_weight
        self.cells_of_step: tuple[Tensor, Tensor] | None = None
        self.validation_sums: Tensor | None = None
        self.calibration: Tensor | None = None

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """One batch of the self-guided loop; returns the loss whose gradient is that of the whole step's mean."""
        loss, area = self.losses(batch)
        emit_cells, valid = self.step_cells(batch, loss)
        # Lightning averages gradients over devices and divides by the number of accumulated batches; both are undone
        # here, as the denominators already run over the whole step.
        share = self.trainer.world_size * self.trainer.accumulate_grad_batches
        lm_loss, emit_loss = loss.lm_sum.detach() / loss.emit_cells, loss.emit_sum.detach() / loss.valid_cells
        self.last_losses = {"LM": lm_loss, "EMIT": emit_loss}
        self.log("train/lm_loss", lm_loss, prog_bar=True)
        self.log("train/emit_loss", emit_loss, prog_bar=True)
        self.log("train/area", area, prog_bar=True)
        self.log("train/emit_accuracy", loss.correct / loss.valid_cells, prog_bar=True)
        return loss.total(emit_cells, valid, self.emit_weight) * share

    def step_flops(self, batch: Batch) -> int:
        """Model FLOPs of a training step on a batch."""
        return step_flops(self.model, batch.shapes)

    def losses(self, batch: Batch) -> tuple[GridLoss, Tensor]:
        """Loss sums of a batch, and its mean path area fraction."""
        guided = guide(self.model, self.tokens, batch, self.lam)
        return grid_loss(guided.heatmap, self.model.emit_logits(guided.hidden), guided.mask), guided.area

    def step_cells(self, batch: Batch, loss: GridLoss) -> tuple[Tensor, Tensor]:
        """`|M_+|` and `|𝒱|` over all devices and all accumulated batches of this optimiser step.

        With accumulation the masks of later batches are needed before the first backward pass, so the first batch of a
        step runs all of them once without gradients.
        """
        if self.trainer.accumulate_grad_batches == 1:
            return self.over_devices(loss)
        if batch.step is not None:
            with torch.no_grad():
                sums = [self.losses(other)[0] for other in batch.step[1:]]
            counts = [loss, *sums]
            total = torch.stack([torch.stack((part.emit_cells, part.valid_cells)) for part in counts]).sum(0)
            emit_cells, valid = self.reduce_sum(total).unbind()
            self.cells_of_step = (emit_cells, valid)
        assert self.cells_of_step is not None, "the first batch of a step brings the whole step"
        return self.cells_of_step

    def over_devices(self, loss: GridLoss) -> tuple[Tensor, Tensor]:
        """The batch's own `|M_+|` and `|𝒱|`, summed over devices."""
        emit_cells, valid = self.reduce_sum(torch.stack((loss.emit_cells, loss.valid_cells))).unbind()
        return emit_cells, valid

    def on_validation_epoch_start(self) -> None:
        """Start the sums of `validation_step` afresh."""
        precise = torch.float32 if self.device.type == "mps" else torch.float64
        self.validation_sums = torch.zeros(7, dtype=precise, device=self.device)
        self.calibration = torch.zeros(BINS, 3, dtype=precise, device=self.device)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add one batch to the sums of the validation set."""
        guided = guide(self.model, self.tokens, batch, self.lam)
        emit_logits = self.model.emit_logits(guided.hidden)
        loss, area = grid_loss(guided.heatmap, emit_logits, guided.mask), guided.area
        pairs = torch.tensor(len(batch.source), device=self.device)
        parts = (loss.lm_sum, loss.emit_cells, loss.emit_sum, loss.valid_cells, loss.correct, area * pairs, pairs)
        assert self.validation_sums is not None
        assert self.calibration is not None
        self.validation_sums += torch.stack([part.to(self.validation_sums.dtype) for part in parts])
        probabilities = emit_logits.to(self.calibration.dtype).softmax(-1)[:, EMIT]
        self.calibration += calibration_sums(probabilities, guided.mask)

    def on_validation_epoch_end(self) -> None:
        """Log the means over all validation cells of all devices."""
        assert self.validation_sums is not None
        assert self.calibration is not None
        lm, emit_cells, emit, valid, correct, area, pairs = self.reduce_sum(self.validation_sums).unbind()
        self.log("validation/lm_loss", lm / emit_cells, prog_bar=True)
        self.log("validation/emit_loss", emit / valid)
        self.log("validation/emit_accuracy", correct / valid, prog_bar=True)
        self.log("validation/area", area / pairs, prog_bar=True)
        self.log("validation/emit_calibration", calibration_error(self.reduce_sum(self.calibration)))
