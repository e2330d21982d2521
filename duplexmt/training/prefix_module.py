"""Training of the baselines as a LightningModule: next-token prediction under the mask of their schedule."""

import torch
from torch import Tensor

from ..data.batch import Batch
from ..decoder.knobs import MULTI_PATH
from ..decoder.layout import Layout
from ..decoder.schedules import drawn_delays, visible_source
from ..policy.heatmap import losses_of_head
from .base import TranslationModule
from .throughput import step_flops


class PrefixTranslation(TranslationModule):
    """Trains a `DecoderModel` without EMIT head for wait-k or offline translation, with the k it was made for; every
    target prefix of a pair in one pass. Positions inside the target prefix are not scored.
    """

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
        before, first, model = len(self.tokens.source_prefix), len(self.tokens.target_prefix), self.model
        k = drawn_delays(batch.keys, batch.shapes, epoch, before) if model.k == MULTI_PATH else model.k
        X, Y = torch.tensor(batch.shapes).unbind(1)
        y = torch.arange(int(Y.max())).expand(len(Y), -1)
        there = y < Y[:, None]
        sees = visible_source(k, X, y.shape[1], before, first)[there]
        layout = Layout.packed(batch.shapes, torch.ones_like(Y), Y, sees, model.anchor, device=batch.source.device)
        source, target, labels = batch.packed()
        hidden = model.states(source, target, layout)
        if first:
            scored = (y[there] >= first).nonzero().squeeze(-1).to(hidden.device)
            hidden, labels = hidden[scored], labels[scored]
        return losses_of_head(hidden, model.text_head, labels, model.logit_cap, learnt=len(hidden)).sum()

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
