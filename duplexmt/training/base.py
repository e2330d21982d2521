"""What all training modules share: the optimiser, its schedule, and checkpoints of trained weights only."""

import logging
import random
import zlib
from collections.abc import Callable, Iterable
from math import inf, isfinite
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..kernels.triton_use import refuse
from ..policy.decoding_options import PAPER_RULE, EmitRule
from .optimizers import may_skip, optimizer_of
from .sharded import ShardedStrategy

SKIPS_IN_A_ROW = 20  # optimiser steps without a finite gradient after which training gives up
PRECISION = "trainer_precision"  # in a checkpoint
COMPILED_MAY_DIFFER = {False: 1e-2, True: 0.1}  # of their norm, in full and in half precision
COMPILED = "torch.compile of the layers"
FROZEN = "frozen_weights"  # the same: their checksums
OVERFLOWS_IN_A_ROW = 50  # the same in fp16, whose scaler starts at 2¹⁶ and halves its scale with each of them
log = logging.getLogger("train")


def drop_residuals(decoder: Any, share: float) -> None:
    """Zero a share of what embedding, attention and MLP of a Hugging Face decoder add to the residual stream, while it
    trains; what is left is scaled up, so that its mean stays. Pretrained decoders come without, as they saw more data.

    Raises:
        ValueError: for a decoder whose layers have no attention and MLP of the usual names.
    """
    if share == 0:
        return

    def drop(module: nn.Module, _: Any, added: Any) -> Any:
        if isinstance(added, tuple):  # of an attention, with its weights
            return F.dropout(added[0], share, module.training), *added[1:]
        return F.dropout(added, share, module.training)

    for layer in decoder.layers:
        for part, last in (("self_attn", "o_proj"), ("mlp", "down_proj")):
            module = getattr(layer, part, None)
            if module is None:
                kind = decoder.config.model_type
                raise ValueError(f"training.dropout={share}: layers of a {kind} have no {part} to drop of; give 0")
            getattr(module, last, module).register_forward_hook(drop)
    decoder.get_input_embeddings().register_forward_hook(drop)


def checksums(weights: Iterable[Tensor]) -> dict[str, int]:
    """CRC-32 of weights, one for all of a type, by its name; takes about half a second for each GB, and no copies."""
    found: dict[str, int] = {}
    for weight in weights:
        kind = str(weight.dtype)
        content = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found[kind] = zlib.crc32(content.numpy().data, found.get(kind, 0))
    return found


def far_apart(found: list[Tensor], expected: list[Tensor], half: bool) -> str | None:
    """In words, where the largest distance of two results, each by its norm, is more than rounding brings; else None.

    What is small beside all of them together, as the gradients of an adapter that still is 0, is measured by these.
    """
    tolerance = COMPILED_MAY_DIFFER[half]
    norms = torch.stack([torch.linalg.vector_norm(one.double()) for one in expected])
    offs = [torch.linalg.vector_norm(a.double() - b) for a, b in zip(found, expected, strict=True)]
    off = (torch.stack(offs) / (norms + 1e-3 * norms[1:].max())).max().item()
    if off <= tolerance:  # not a number is too far, too
        return None
    return f"losses or gradients of the first step differ from the plain ones by {off:.2g}, and may by {tolerance:.2g}"


class TranslationModule(L.LightningModule):
    """A model in training.

    Args:
        model: a `GridModel` or `DecoderModel`.
        tokens: the stream tokens its data was made with.
        warmup_steps: optimiser steps over which the learning rate rises linearly.
        schedule: after warm-up, `constant` (the paper's) or `linear` decay to 0 at the last step.
        optimizer: `adam` or `muon`, see `optimizer_of`.
        emit_learning_rate: of an EMIT head, after warm-up; None: `learning_rate`.
        seed: of dropout.
        dropout: share of what embedding, attention and MLP add to the residual stream that a training step zeroes.
    """

    def __init__(
        self,
        model: Any,
        tokens: StreamTokens,
        *,
        learning_rate: float,
        warmup_steps: int,
        schedule: str = "constant",
        betas: tuple[float, float] = (0.9, 0.999),
        optimizer: str = "adam",
        emit_learning_rate: float | None = None,
        seed: int = 1,
        dropout: float = 0.0,
        rule: EmitRule = PAPER_RULE,
    ) -> None:
        super().__init__()
        self.model, self.tokens, self.rule = model, tokens, rule
        self.words: Tensor | None  # the rule's, on the device
        self.register_buffer("words", rule.words, persistent=False)
        self.frozen = checksums(weight for weight in self.parameters() if not weight.requires_grad)
        drop_residuals(model.decoder, dropout)
        self.learning_rate, self.warmup_steps, self.schedule, self.betas = learning_rate, warmup_steps, schedule, betas
        self.optimizer, self.emit_learning_rate, self.seed = optimizer, emit_learning_rate, seed
        self.last_losses: dict[str, Tensor] = {}  # of the step at hand, by name
        self.skipped = 0  # optimiser steps left out in a row
        self.outcomes: list[
            tuple[str, Tensor, dict[str, Tensor]]
        ] = []  # of steps nobody has looked at, see `look_back`
        self.validated_step: int | None = None  # optimiser steps at the last validation
        self.weights_of_step: Tensor | None = None  # see `step_weights`
        self.batch_index = 0  # of the epoch, at hand
        self.train()  # Hugging Face hands out pretrained models in evaluation mode
        self.strict_loading = False  # checkpoints leave frozen weights out; on_load_checkpoint checks the rest

    @property
    def typical_source_length(self) -> int:
        """What the anchor `source_length` takes for the length of a source nobody knows."""
        return int(self.trainer.datamodule.typical_source_length)  # type: ignore[attr-defined]

    def reduce_sum(self, values: Tensor) -> Tensor:
        """Sum of a tensor over all devices."""
        return self.trainer.strategy.reduce(values.clone(), reduce_op="sum")

    def step_weights(self, batch: Batch, own: Tensor, weights_of: Callable[[Batch], Tensor]) -> Tensor:
        """Denominators of the losses: their weights summed over a step's devices and accumulated batches.

        With accumulation those of later batches are needed before the first backward pass, so the first batch of a
        step, which brings the others along, asks for them without gradients, under the dropout each will have.

        Args:
            weights_of: gives those of another batch.
        """
        if self.trainer.accumulate_grad_batches == 1:
            return self.reduce_sum(own)
        if batch.step is not None:
            others = []
            for ahead, other in enumerate(batch.step[1:], start=1):
                self.draw_dropout(self.batch_index + ahead)
                with torch.no_grad():
                    others.append(weights_of(other))
            self.weights_of_step = self.reduce_sum(torch.stack([own, *others]).sum(0))
        assert self.weights_of_step is not None, "the first batch of a step brings the whole step"
        return self.weights_of_step

    def undo_means(self) -> int:
        """By what to multiply a loss whose denominators run over the whole step: Lightning averages gradients over
        devices, and divides by the number of accumulated batches."""
        return self.trainer.world_size * self.trainer.accumulate_grad_batches

    def precise_zeros(self, *size: int) -> Tensor:
        """Where sums over the validation set begin: in float64, if the device has it."""
        precise = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.zeros(*size, dtype=precise, device=self.device)

    def on_train_batch_start(self, batch: Batch, batch_index: int) -> None:
        """Draw dropout by the batch, so that a run that goes on draws what it would have drawn."""
        self.batch_index = batch_index
        if self.model.blocks.unproven and not isinstance(self.trainer.strategy, ShardedStrategy):
            self.prove_compiled(batch)
        self.draw_dropout(batch_index)

    def token_losses(self, batch: Batch) -> Tensor:
        """Losses of the text head at each scored place of a training batch `[N]`, in nats."""
        raise NotImplementedError

    def prove_compiled(self, batch: Batch) -> None:
        """Compare a batch's losses, and gradients of their mean, by compiled layers with those by plain ones. Where
        they differ, or nothing can be compiled, one warning says so, and training goes on with plain layers."""
        blocks, weights = self.model.blocks, [weight for weight in self.parameters() if weight.requires_grad]
        compiled = dict(vars(blocks), unproven=False)

        def results() -> list[Tensor]:
            self.draw_dropout(self.batch_index)
            with self.trainer.precision_plugin.forward_context():
                losses = self.token_losses(batch)
            gradients = torch.autograd.grad(losses.mean(), weights, allow_unused=True)
            return [losses.detach(), *(one for one in gradients if one is not None)]

        blocks.plain()
        expected = results()
        vars(blocks).update(compiled)
        try:
            unlike = far_apart(results(), expected, str(self.trainer.precision).endswith("-mixed"))
        except Exception as error:  # whatever a compiler may raise
            unlike = f"{type(error).__name__}: {error}"
        if unlike:
            blocks.plain()
            refuse(COMPILED, unlike, "The layers as they are")

    def draw_dropout(self, batch_index: int) -> None:
        """Have dropout leave out what is left out in a batch of the epoch."""
        place = f"{self.seed}/{self.current_epoch}/{batch_index}/{self.global_rank}"
        torch.manual_seed(random.Random(place).getrandbits(63))

    def keep_losses(self, batch: Batch, **losses: Tensor) -> None:
        """Remember the losses of a batch with those of the batches before it in the step, any of which may spoil it."""
        count = self.trainer.accumulate_grad_batches
        before = {} if count == 1 or batch.step is not None else self.last_losses
        self.last_losses = {name: before.get(name, 0) + loss / count for name, loss in losses.items()}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Skip a step whose gradient is not finite: nothing is learnt from it, and it is named; where the device skips
        it by itself, which nobody waits for, up to `SKIPS_IN_A_ROW` steps later.

        The gradient is that of all devices, so all of them skip. In fp16 an overflow under finite losses is the
        gradient scaler's business, which skips and lowers its scale without a word, until no scale can be to blame.

        Raises:
            ValueError: after too many such steps in a row.
        """
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # of gradients that are shared out
        finite = torch.isfinite(norm)
        where = f"epoch {self.current_epoch}, batch {self.trainer.fit_loop.batch_idx}, step {self.global_step}"
        self.outcomes.append((where, finite, self.last_losses))
        if may_skip(optimizer, finite):
            if len(self.outcomes) == SKIPS_IN_A_ROW:
                self.look_back()
        elif self.look_back():
            optimizer.zero_grad(set_to_none=True)  # weights without a gradient stay as they are

    def look_back(self) -> bool:
        """Name the steps since the last look that had to be skipped; whether the last one is, and by nothing else.

        Raises:
            ValueError: after too many in a row.
        """
        seen, self.outcomes, skip = self.outcomes, [], False
        finite = torch.stack([one for _, one, _ in seen]).tolist() if seen else []
        for fine, (where, _, losses) in zip(finite, seen, strict=True):
            self.skipped = 0 if fine else self.skipped + 1
            skip = not fine and self._told(where, losses)
        return skip

    def on_train_end(self) -> None:
        """Name what is left to be named."""
        self.look_back()

    def _told(self, where: str, last_losses: dict[str, Tensor]) -> bool:
        """Name a step without a finite gradient; False where a gradient scaler skips it."""
        losses = {name: value.item() for name, value in last_losses.items()}
        overflow = self.trainer.precision == "16-mixed" and all(map(isfinite, losses.values()))
        if not overflow:
            shown = ", ".join(f"{name} loss {value:.4g}" for name, value in losses.items())
            log.warning("%s: skipped, its gradient is not finite (%s)", where, shown)
        if self.skipped >= (OVERFLOWS_IN_A_ROW if overflow else SKIPS_IN_A_ROW):
            raise ValueError(
                f"{where}: {self.skipped} steps in a row without a finite gradient; lower training.learning_rate "
                f"(now {self.learning_rate}), or look for weights that are not finite in the backbone"
            )
        return not overflow

    def fresh_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of the trainable weights, before its first step."""
        return optimizer_of(self.optimizer, self, self.learning_rate, self.betas, self.emit_learning_rate)

    def configure_optimizers(self) -> Any:
        """The optimiser of the trainable weights, with warm-up (`tab:train-hparam`).

        Raises:
            ValueError: for a linear schedule without a last step.
        """
        optimizer = self.fresh_optimizer()
        total = self.trainer.estimated_stepping_batches if self.schedule == "linear" else None
        if total == inf:
            raise ValueError(
                f"training.schedule=linear with trainer.max_epochs={self.trainer.max_epochs} and "
                f"trainer.max_steps={self.trainer.max_steps}: the learning rate falls to 0 at the last step, so there "
                "must be one; give trainer.max_epochs or trainer.max_steps, or training.schedule=constant"
            )

        def factor(step: int) -> float:
            if step < self.warmup_steps:
                return (step + 1) / self.warmup_steps
            if total is None:
                return 1.0
            return max(0.0, (total - step) / max(1.0, total - self.warmup_steps))

        scheduler = LambdaLR(optimizer, factor)
        asked = ("initial_lr", "betas")
        self.given_groups = [{name: group[name] for name in asked if name in group} for group in optimizer.param_groups]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        """Train with the learning rates and betas asked for now; a checkpoint has restored those of before."""
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        scheduler.base_lrs = [given["initial_lr"] for given in self.given_groups]
        for group, asked, factor in zip(
            scheduler.optimizer.param_groups, self.given_groups, scheduler.lr_lambdas, strict=True
        ):
            group.update(asked, lr=asked["initial_lr"] * factor(scheduler.last_epoch))

    def on_validation_end(self) -> None:
        """Remember which weights the validation scores are those of."""
        if not self.trainer.sanity_checking:
            self.validated_step = self.global_step

    def trained(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of the module's weights by name those that are trained."""
        names = {name for name, weight in self.named_parameters(remove_duplicate=False) if weight.requires_grad}
        return {name: weight for name, weight in weights.items() if name in names}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep trained weights only: frozen ones come from the backbone, and leave their checksums. And the precision
        they were trained in."""
        checkpoint[PRECISION] = self.trainer.precision
        checkpoint[FROZEN] = self.frozen
        checkpoint["state_dict"] = self.trained(checkpoint["state_dict"])

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that does not hold exactly the trained weights, was trained over other frozen ones, or by
        another optimiser; frozen weights are compared if they are kept in the same precision, and the checkpoint is no
        old one.

        Raises:
            ValueError: naming a weight that is missing or unknown, or the setting of the frozen ones or the optimiser.
        """
        shapes = {name: weight.shape for name, weight in checkpoint["state_dict"].items()}
        own = {name: weight.shape for name, weight in self.trained(self.state_dict()).items()}
        odd = sorted(name for name in shapes.keys() | own.keys() if shapes.get(name) != own.get(name))
        if odd:
            raise ValueError(
                f"the checkpoint does not fit this model: {len(odd)} weights differ, such as {odd[0]!r}; "
                "resume with the settings the run was started with"
            )
        before = checkpoint.get(FROZEN, {})
        for kind in before.keys() & self.frozen.keys():
            if before[kind] != self.frozen[kind]:
                raise ValueError(
                    f"the checkpoint was trained over another base: its frozen weights have the checksum "
                    f"{before[kind]:08x}, this model's {self.frozen[kind]:08x}; give the model.backbone the run was "
                    "begun with (runs/latest may be another by now), or the training.seed of its random weights"
                )
        groups = self.fresh_optimizer().param_groups
        for state in checkpoint.get("optimizer_states", []):
            if [len(group["params"]) for group in state["param_groups"]] != [len(group["params"]) for group in groups]:
                rate = "null" if self.emit_learning_rate is None else self.emit_learning_rate
                raise ValueError(
                    f"training.optimizer={self.optimizer}, training.emit_learning_rate={rate}: the checkpoint has "
                    "other groups of weights, each with running means of its own; resume with both settings as the run "
                    "was begun (of the rate the number may change, not whether there is one), or start a new run"
                )
            for saved, fresh in zip(state["param_groups"], groups, strict=True):  # machines differ in how Adam is fast
                saved.update({name: fresh[name] for name in ("fused", "foreach") if name in fresh})
