"""The training loop of Section V as a LightningModule: model → heatmap → best path → mask → losses."""

import logging
from dataclasses import dataclass
from math import isfinite
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..grid.cells import Cells
from ..grid.model import GridModel
from ..policy.heatmap import cells_at_once, loss_heatmap
from ..policy.losses import GridLoss, grid_loss
from ..policy.path import best_path, check_lam, emit_mask

SCHEDULES = ("constant", "linear")
SKIPS_IN_A_ROW = 20  # optimiser steps without a finite gradient after which training gives up
log = logging.getLogger("train")


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


class GridTranslation(L.LightningModule):
    """Trains a grid model on its own best paths.

    Args:
        model: the grid model.
        tokens: the stream tokens its data was made with; states inside prefixes are not scored.
        lam: λ of the path score.
        learning_rate: of Adam, after warm-up.
        warmup_steps: optimiser steps over which the learning rate rises linearly.
        schedule: after warm-up, `constant` (the paper's) or `linear` decay to 0 at the last step.
        betas: of Adam.
    """

    def __init__(
        self,
        model: GridModel,
        tokens: StreamTokens,
        *,
        lam: float,
        learning_rate: float,
        warmup_steps: int,
        schedule: str = "constant",
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__()
        if schedule not in SCHEDULES:
            raise ValueError(f"training.schedule={schedule!r}: must be one of {', '.join(SCHEDULES)}")
        if not learning_rate > 0:
            raise ValueError(f"training.learning_rate={learning_rate}: must be above 0")
        if warmup_steps < 0:
            raise ValueError(f"training.warmup_steps={warmup_steps}: must be at least 0")
        self.model, self.tokens, self.lam = model, tokens, check_lam(lam)
        self.learning_rate, self.warmup_steps, self.schedule, self.betas = learning_rate, warmup_steps, schedule, betas
        self.skipped = 0  # optimiser steps left out in a row
        self.cells_of_step: tuple[Tensor, Tensor] | None = None
        self.validation_sums: Tensor | None = None
        self.strict_loading = False  # checkpoints leave frozen weights out; on_load_checkpoint checks the rest

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """One batch of the self-guided loop; returns the loss whose gradient is that of the whole step's mean."""
        loss, area = self.losses(batch)
        emit_cells, valid = self.step_cells(batch, loss)
        # Lightning averages gradients over devices and divides by the number of accumulated batches; both are undone
        # here, as the denominators already run over the whole step.
        share = self.trainer.world_size * self.trainer.accumulate_grad_batches
        lm_loss, emit_loss = loss.lm_sum.detach() / loss.emit_cells, loss.emit_sum.detach() / loss.valid_cells
        self.last_loss = torch.stack((lm_loss, emit_loss))
        self.log("train/lm_loss", lm_loss, prog_bar=True)
        self.log("train/emit_loss", emit_loss, prog_bar=True)
        self.log("train/area", area, prog_bar=True)
        self.log("train/emit_accuracy", loss.correct / loss.valid_cells, prog_bar=True)
        return loss.total(emit_cells, valid) * share

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

    def reduce_sum(self, values: Tensor) -> Tensor:
        """Sum of a tensor over all devices."""
        return self.trainer.strategy.reduce(values.clone(), reduce_op="sum")

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Skip a step whose gradient is not finite: nothing is learnt from it, and it is named.

        The gradient is that of all devices, so all of them skip. In fp16 an overflow under finite losses is the
        gradient scaler's business, which skips and lowers its scale without a word.

        Raises:
            ValueError: after too many such steps in a row.
        """
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        if torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            self.skipped = 0
            return
        losses = self.last_loss.tolist()
        if self.trainer.precision == "16-mixed" and all(map(isfinite, losses)):
            return
        optimizer.zero_grad(set_to_none=True)  # Adam leaves weights without a gradient as they are
        self.skipped += 1
        where = f"epoch {self.current_epoch}, batch {self.trainer.fit_loop.batch_idx}, step {self.global_step}"
        log.warning("%s: skipped, its gradient is not finite (LM loss %.4g, EMIT loss %.4g)", where, *losses)
        if self.skipped == SKIPS_IN_A_ROW:
            raise ValueError(
                f"{where}: {SKIPS_IN_A_ROW} steps in a row without a finite gradient; lower training.learning_rate "
                f"(now {self.learning_rate}), or look for weights that are not finite in the backbone"
            )

    def on_validation_epoch_start(self) -> None:
        """Start the sums of `validation_step` afresh."""
        precise = torch.float32 if self.device.type == "mps" else torch.float64
        self.validation_sums = torch.zeros(7, dtype=precise, device=self.device)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add one batch to the sums of the validation set."""
        loss, area = self.losses(batch)
        pairs = torch.tensor(len(batch.source), device=self.device)
        parts = (loss.lm_sum, loss.emit_cells, loss.emit_sum, loss.valid_cells, loss.correct, area * pairs, pairs)
        assert self.validation_sums is not None
        self.validation_sums += torch.stack([part.to(self.validation_sums.dtype) for part in parts])

    def on_validation_epoch_end(self) -> None:
        """Log the means over all validation cells of all devices."""
        assert self.validation_sums is not None
        lm, emit_cells, emit, valid, correct, area, pairs = self.reduce_sum(self.validation_sums).unbind()
        self.log("validation/lm_loss", lm / emit_cells, prog_bar=True)
        self.log("validation/emit_loss", emit / valid)
        self.log("validation/emit_accuracy", correct / valid, prog_bar=True)
        self.log("validation/area", area / pairs, prog_bar=True)

    def configure_optimizers(self) -> Any:
        """Adam over the trainable weights, with warm-up (`tab:train-hparam`)."""
        trainable = [weight for weight in self.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(trainable, lr=self.learning_rate, betas=self.betas)
        total = self.trainer.estimated_stepping_batches if self.schedule == "linear" else None

        def factor(step: int) -> float:
            if step < self.warmup_steps:
                return (step + 1) / self.warmup_steps
            if total is None:
                return 1.0
            return max(0.0, (total - step) / max(1.0, total - self.warmup_steps))

        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep trained weights only: frozen ones come from the backbone."""
        trained = {name for name, weight in self.named_parameters(remove_duplicate=False) if weight.requires_grad}
        checkpoint["state_dict"] = {name: w for name, w in checkpoint["state_dict"].items() if name in trained}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that does not hold exactly the trained weights.

        Raises:
            ValueError: naming a weight that is missing or unknown.
        """
        trained = {name for name, weight in self.named_parameters(remove_duplicate=False) if weight.requires_grad}
        shapes = {name: weight.shape for name, weight in checkpoint["state_dict"].items()}
        own = {name: weight.shape for name, weight in self.state_dict().items() if name in trained}
        odd = sorted(name for name in shapes.keys() | own.keys() if shapes.get(name) != own.get(name))
        if odd:
            raise ValueError(
                f"the checkpoint does not fit this model: {len(odd)} weights differ, such as {odd[0]!r}; "
                "resume with the settings the run was started with"
            )
