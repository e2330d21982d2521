"""The optimisers of a training run: Adam, the paper's, and Muon for the matrices of the layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Adam, Optimizer

from .muon import Muon


def optimizer_of(
    name: str,
    model: nn.Module,
    learning_rate: float,
    betas: tuple[float, float],
    emit_learning_rate: float | None = None,
) -> Optimizer:
    """An optimiser of the trainable weights of a model.

    Args:
        name: `adam` (`tab:train-hparam`), or `muon`: Muon for the matrices of the decoder layers, Adam for all else.
        model: with a backbone of Hugging Face's naming.
        learning_rate: of both; Muon's steps are scaled to be as large as Adam's.
        emit_learning_rate: of the EMIT head, which begins at random where the rest may be pretrained; None: the same.
    """
    weights = {id(w): (key, w) for key, w in model.named_parameters() if w.requires_grad}
    matrices = [w for key, w in weights.values() if name == "muon" and ".layers." in key and w.ndim == 2]
    taken = set(map(id, matrices))
    others = [(key, w) for key, w in weights.values() if id(w) not in taken]
    head = [w for key, w in others if "emit_head." in key and emit_learning_rate is not None]
    own = set(map(id, head))
    groups: list[dict[str, Any]] = [{"params": [w for _, w in others if id(w) not in own]}]
    if head:  # a baseline has none
        groups.append({"params": head, "lr": emit_learning_rate})
    adam = partial(_adam, learning_rate=learning_rate, betas=betas)
    if not matrices:
        return adam(groups)
    return Together(Muon(matrices, learning_rate), *(adam([group]) for group in groups))


def _adam(groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float]) -> Adam:
    """Adam, in one pass over each weight where there is one, which takes a third of the time on a CPU."""
    if any(w.device.type not in ("cpu", "cuda") for group in groups for w in group["params"]):
        return Adam(groups, learning_rate, betas, foreach=True)
    adam: Any = Adam(groups, learning_rate, betas, fused=True)
    adam._step_supports_amp_scaling = False  # of a scaler's: Lightning does not clip gradients of one that does
    return adam  # type: ignore[no-any-return]


def skips_itself(optimizer: Optimizer) -> bool:
    """Whether this optimiser leaves weights and means as they are where its `found_inf` says so, and nobody has to wait
    for the device to tell: on CUDA Muon, and fused Adam, whose kernel looks."""
    parts = getattr(optimizer, "parts", (optimizer,))
    known = all(isinstance(part, Muon) or (isinstance(part, Adam) and part.defaults["fused"]) for part in parts)
    return known and all(w.is_cuda for group in optimizer.param_groups for w in group["params"])


def may_skip(optimizer: Optimizer, finite: Tensor) -> bool:
    """Have an optimiser that `skips_itself` skip its next step where `finite` is false; whether it is one."""
    if not skips_itself(optimizer):
        return False
    optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]  # where a gradient scaler would put it
    return True


class Scaler(GradScaler):
    """Of fp16, which asks nobody whether a step is to be skipped where the optimiser `skips_itself`: only within the
    step it is told so, as Lightning does not clip gradients of an optimiser that says so."""

    def step(self, optimizer: Optimizer, *args: Any, **further: Any) -> Any:
        """See `GradScaler`."""
        optimizer._step_supports_amp_scaling = skips_itself(optimizer)  # type: ignore[attr-defined]
        try:
            return super().step(optimizer, *args, **further)
        finally:
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]


class Together(Optimizer):
    """Several optimisers that step as one, each over a group of weights of its own.

    Schedules, gradient scalers and checkpoints see the groups and states of all of them.
    """

    def __init__(self, *parts: Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of each; the closure is called once, before."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part, group in zip(self.parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state  # a checkpoint that was loaded has replaced them
            part.found_inf = getattr(self, "found_inf", None)  # type: ignore[attr-defined]
            part.step()
        return loss
