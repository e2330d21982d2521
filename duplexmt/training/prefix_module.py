"""Training of the baselines as a LightningModule: next-token prediction under the mask of their schedule."""

from typing import Any

import torch
from torch import Tensor

from ..baselines.prefix_model import PrefixModel
from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..decoder.knobs import MULTI_PATH
from ..decoder.schedules import drawn_delays, visible_source
from ..kernels.attention import fused
from ..policy.heatmap import losses_of_head
from .base import TranslationModule
from .throughput import linear_layers, weight_flops


class PrefixTranslation(TranslationModule):
    """Trains a prefix model for wait-k or offline translation; every target prefix of a pair in one pass.

    Args:
        model: the prefix model, with the k it is to be trained with.
        tokens: the stream tokens its data was made with; positions inside the target prefix are not scored.
        optimisation: learning_rate, warmup_steps, schedule, betas, optimizer, as for `TranslationModule`.
    """

    def __init__(self, model: PrefixModel, tokens: StreamTokens, **optimisation: Any) -> None:
        super().__init__(model, tokens, **optimisation)
        if model.causal_lm.config._attn_implementation == "sdpa":
            model.causal_lm.config._attn_implementation = fused()

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
        positions = sum(X + Y for X, Y in batch.shapes)
        layers = sum(weight_flops(linear) for _, linear in linear_layers(self.model.causal_lm.model.layers))
        (_, head), *_ = linear_layers(self.model.causal_lm.lm_head)[-1:]
        return positions * layers + sum(Y for _, Y in batch.shapes) * weight_flops(head)

    def lm_sum(self, batch: Batch, epoch: int = 0) -> Tensor:
        """Cross-entropy of a batch's target tokens, end tokens included, in nats.

        Args:
            batch: on the model's device.
            epoch: by which, with the pairs, multi-path training draws each pair's k.
        """
        before, first, (_, Y) = len(self.tokens.source_prefix), len(self.tokens.target_prefix), batch.target.shape
        k = self.model.k
        if k == MULTI_PATH:
            k = drawn_delays(batch.keys, batch.shapes, epoch, before, self.device)
        visible = visible_source(k, batch.source_lengths, Y, before, first)
        hidden = self.model(batch.source, batch.target, batch.source_lengths, visible)[:, first:]
        valid = torch.arange(first, Y, device=hidden.device) < batch.target_lengths[:, None]
        return losses_of_head(hidden[valid], self.model.causal_lm.lm_head, batch.labels[:, first:][valid]).sum()

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
