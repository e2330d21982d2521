"""The optimisers of a training run: Adam, the paper's, and Muon for the matrices of the layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
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
        betas: of Adam.
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
    """Adam, on a CPU in one pass over each weight, which takes a third of the time."""
    if any(w.device.type != "cpu" for group in groups for w in group["params"]):
        return Adam(groups, learning_rate, betas, foreach=True)
    adam: Any = Adam(groups, learning_rate, betas, fused=True)
    adam._step_supports_amp_scaling = False  # it need not, on a CPU; Lightning does not clip gradients of one that does
    return adam  # type: ignore[no-any-return]


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
            part.step()
        return loss
