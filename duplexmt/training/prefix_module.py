"""Training of the baselines as a LightningModule: next-token prediction under the mask of their schedule."""

import torch
from torch import Tensor

from ..data.batch import Batch
from ..policy.heatmap import losses_of_head
from ..policy.plan import Plan, PrefixPlanner
from .base import TranslationModule
from .throughput import step_flops


class PrefixTranslation(TranslationModule):
    """Trains a `DecoderModel` without EMIT head for wait-k or offline translation, with the k it was made for; every
    target prefix of a pair in one pass. Positions inside the target prefix are not scored.
    """

    @property
    def planner(self) -> PrefixPlanner:
        """What plans a step."""
        return PrefixPlanner(self.tokens.prefixes, self.model.anchor, self.model.k)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """One batch; returns the loss whose gradient is that of the mean over the whole step's target tokens."""
        lm_sum = self.lm_sum(batch, self.current_epoch)
        scored = self.scored(batch)
        lm_loss = lm_sum.detach() / scored
        self.keep_losses(batch, LM=lm_loss)
        self.log("train/lm_loss", lm_loss, prog_bar=True)
        return lm_sum / self.step_weights(batch, scored, self.scored) * self.undo_means()

    def step_flops(self, batch: Batch) -> int:
        """Model FLOPs of a training step on a batch."""
        written = sum(Y for _, Y in batch.shapes)
        return step_flops(self.model, batch.shapes, written, written)

    def lm_sum(self, batch: Batch, epoch: int = 0) -> Tensor:
        """Cross-entropy of a batch's target tokens, end tokens included, in nats.

        Args:
            batch: on the model's device.
            epoch: by which, with the pairs, multi-path training draws each pair's k.
        """
        plan = batch.plan or self.planner(batch, epoch).to(batch.source.device)
        losses = self.planned_losses(plan)
        return (losses if plan.real is None else losses.where(plan.real, 0.0)).sum()

    def planned_losses(self, plan: Plan) -> Tensor:
        """Of each scored place of a plan `[N]`."""
        hidden = self.model.states(plan.tokens, plan.layout)
        return losses_of_head(hidden, self.model.text_head, plan.labels, self.model.logit_cap, learnt=len(hidden))

    def token_losses(self, batch: Batch) -> Tensor:
        """See `TranslationModule`."""
        return self.planned_losses(batch.plan or self.planner(batch, self.current_epoch).to(batch.source.device))

    def scored(self, batch: Batch) -> Tensor:
        """Target tokens of a batch that the loss counts."""
        return (batch.target_lengths - len(self.tokens.target_prefix)).sum()

    def on_validation_epoch_start(self) -> None:
        """Start the sums of `validation_step` afresh."""
        self.validation_sums = self.precise_zeros(2)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Add one batch to the sums of the validation set."""
        self.validation_sums += torch.stack((self.lm_sum(batch), self.scored(batch))).to(self.validation_sums.dtype)

    def on_validation_epoch_end(self) -> None:
        """Log the mean over all validation tokens of all devices."""
        lm, tokens = self.reduce_sum(self.validation_sums).unbind()
        self.log("validation/lm_loss", lm / tokens, prog_bar=True)
