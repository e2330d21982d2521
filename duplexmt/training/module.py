"""The training loop of Section V as a LightningModule: model → heatmap → best path → mask → losses."""

from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..decoder.heads import EMIT
from ..decoder.model import DecoderModel
from ..grid.model import GridModel
from ..policy.calibration import BINS, calibration_error, calibration_sums
from ..policy.guide import Guided, cell_weights, guide
from ..policy.losses import GridLoss, grid_loss
from ..policy.plan import GridPlanner, Plan, RowPlanner
from .base import TranslationModule
from .throughput import DRAWN_CELLS, cells_of, step_flops


class GridTranslation(TranslationModule):
    """Trains a grid model on its own best paths.

    Args:
        tokens: the stream tokens its data was made with; states inside prefixes are not scored.
        emit_loss: what the EMIT head learns: `mask`, the side of the best path each cell lies on (`eq:emit-loss`), or
            `regret`, the better decision at each cell, weighted by what it is worth (`policy.regret`).
        lm_cells: what the language model learns: the cells of the `mask` alike (`eq:lm-loss`), or `visits`, each
            cell by how often decoding writes in it, over θ and fixed delays (`policy.visits`); or `drawn_visits`, in a
            training step one or two cells of each token, drawn by that: the same loss on average.
        emit_weight: of `L_emit` in the loss.
        rows: to compute of each pair in a training step (`policy.rows`); None for all. Validation computes all.
        optimisation: learning_rate, warmup_steps, schedule, betas, optimizer, as for `TranslationModule`.
    """

    def __init__(
        self,
        model: GridModel | DecoderModel,
        tokens: StreamTokens,
        *,
        lam: float,
        emit_loss: str = "mask",
        lm_cells: str = "mask",
        emit_weight: float = 1.0,
        rows: int | None = None,
        **optimisation: Any,
    ) -> None:
        super().__init__(model, tokens, **optimisation)
        self.visits, self.words_drawn = lm_cells != "mask", lm_cells == "drawn_visits"
        assert rows is None or isinstance(model, DecoderModel), "rows that read each other are all computed"
        self.rows, self.lam, self.regret, self.emit_weight = rows, lam, emit_loss == "regret", emit_weight

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """One batch of the self-guided loop; returns the loss whose gradient is that of the whole step's mean."""
        loss, area = self.losses(batch)
        # `|M_+|` and `|𝒱|` of the whole step
        step_weights = self.step_weights(batch, weights_of(loss), lambda other: weights_of(self.losses(other)[0]))
        lm_weights, emit_weights = step_weights.unbind()
        lm_loss, emit_loss = loss.lm_sum.detach() / loss.lm_weights, loss.emit_sum.detach() / loss.emit_weights
        self.keep_losses(batch, LM=lm_loss, EMIT=emit_loss)
        self.log("train/lm_loss", lm_loss, prog_bar=True)
        self.log("train/emit_loss", emit_loss)
        self.log("train/area", area)
        self.log("train/emit_accuracy", loss.correct / loss.valid_cells)
        return loss.total(lm_weights, emit_weights, self.emit_weight) * self.undo_means()

    def step_flops(self, batch: Batch) -> int:
        """Model FLOPs of a training step on a batch."""
        N, T = cells_of(batch.shapes, self.rows), sum(Y for _, Y in batch.shapes)
        learnt = DRAWN_CELLS * T if self.words_drawn else N / 2 if self.rows is None else N
        return step_flops(self.model, batch.shapes, N, learnt)

    def losses(self, batch: Batch) -> tuple[GridLoss, Tensor]:
        """Loss sums of a training batch, and its mean path area fraction."""
        plan = self.plan(batch)
        guided, loss, _ = self.guided_loss(batch, plan, plan.points)
        return loss, guided.area

    def token_losses(self, batch: Batch) -> Tensor:
        """See `TranslationModule`."""
        return self.guide(batch, self.plan(batch)).heatmap

    @property
    def planner(self) -> RowPlanner | GridPlanner:
        """What plans a step."""
        if isinstance(self.model, GridModel):
            return GridPlanner(self.tokens.prefixes, self.words_drawn)
        return RowPlanner(self.tokens.prefixes, self.model.anchor, self.rows, self.words_drawn)

    def plan(self, batch: Batch) -> Plan:
        """What this epoch computes of a batch, on its device."""
        return batch.plan or self.planner(batch, self.current_epoch).to(batch.source.device)

    def guide(self, batch: Batch, plan: Plan | None, regret: bool = False, drawn: bool = False) -> Guided:
        """The self-guided loop on a batch, see `policy.guide`."""
        return guide(self.model, self.tokens, batch, self.lam, regret, plan=plan, drawn=drawn, words=self.words)

    def guided_loss(
        self, batch: Batch, plan: Plan | None = None, points: Tensor | None = None
    ) -> tuple[Guided, GridLoss, Tensor]:
        """What the model makes of a batch, its loss sums, and the EMIT head's logits `[N, 2]`."""
        guided = self.guide(batch, plan, self.regret, drawn=points is not None)
        emit_logits = self.model.emit_logits(guided.hidden)
        weights = cell_weights(guided, emit_logits.detach(), self.visits, points)
        loss = grid_loss(guided.heatmap, emit_logits, guided.mask, guided.advantages, weights, guided.stand_for)
        return guided, loss, emit_logits

    def on_validation_epoch_start(self) -> None:
        """Start the sums of `validation_step` afresh."""
        self.validation_sums, self.calibration = self.precise_zeros(8), self.precise_zeros(BINS, 3)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add one batch to the sums of the validation set."""
        guided, loss, emit_logits = self.guided_loss(batch)
        pairs = torch.tensor(len(batch.source), device=self.device)
        parts = (
            loss.lm_sum, loss.lm_weights, loss.emit_sum, loss.emit_weights, loss.correct, loss.valid_cells,
            guided.area * pairs, pairs,
        )  # fmt: skip
        self.validation_sums += torch.stack([part.to(self.validation_sums.dtype) for part in parts])
        probabilities = emit_logits.to(self.calibration.dtype).softmax(-1)[:, EMIT]
        decided = slice(None) if guided.stand_for is None else guided.stand_for > 0
        self.calibration += calibration_sums(probabilities[decided], guided.mask[decided])

    def on_validation_epoch_end(self) -> None:
        """Log the means over all validation cells of all devices."""
        lm, lm_weights, emit, emit_weights, correct, valid, area, pairs = self.reduce_sum(self.validation_sums).unbind()
        self.log("validation/lm_loss", lm / lm_weights, prog_bar=True)
        self.log("validation/emit_loss", emit / emit_weights)
        self.log("validation/emit_accuracy", correct / valid)
        self.log("validation/area", area / pairs)
        self.log("validation/emit_calibration", calibration_error(self.reduce_sum(self.calibration)))


def weights_of(loss: GridLoss) -> Tensor:
    """The weights of a batch's cells and decisions, `[2]`."""
    kind = torch.promote_types(loss.lm_weights.dtype, loss.emit_weights.dtype)
    return torch.stack((loss.lm_weights.to(kind), loss.emit_weights.to(kind)))
