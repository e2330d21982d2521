"""Training with weights, gradients and optimiser states shared out over the processes: `trainer.strategy=fsdp`.

It is PyTorch's `fully_shard` (FSDP2): FSDP1, on which Lightning's `FSDPStrategy` stands, refuses a CPU, and with it
weights of which some are frozen are a special case. Each decoder layer is gathered while it runs. The rest (embedding,
final norm, heads) belongs to the training module and is gathered for the whole of a step, so what reads a head's weight
itself may do so.
"""

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from ..decoder.cache import free_bytes
from ..decoder.model import DecoderModel
from ..decoder.quantised import is_quantised
from ..streaming.systems import Trained

log = logging.getLogger("train")


class ShardedStrategy(DDPStrategy):
    """As Lightning's DDP, with each process keeping its share of every weight only.

    Checkpoints are those of any other run, so either may go on from the other's. The first process keeps a whole copy
    of the model on the CPU, whose trained weights are brought up to date whenever somebody looks at the model.

    Attributes:
        whole: that copy; None in other processes.
    """

    whole: Any = None
    is_sharded = False

    def model_to_device(self) -> None:
        """Share the weights out, the first time; what stays whole goes to the device."""
        module: Any = self.lightning_module
        if not self.is_sharded:
            if self.is_global_zero:
                self.whole = copy.deepcopy(module.model).eval()
            self._share_out(module)
            self.is_sharded = True
        module.to(self.root_device)

    def _share_out(self, module: Any) -> None:
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        whole = {weight for weight in module.parameters() if is_quantised(weight)}
        if isinstance(module.model, DecoderModel):  # the paper's grid does not call its layers
            for layer in module.model.decoder.layers:
                fully_shard(layer, mesh=mesh, ignored_params=whole)
        fully_shard(module, mesh=mesh, ignored_params=whole)
        for step in ("training_step", "validation_step"):
            register_fsdp_forward_method(module, step)

    def configure_ddp(self) -> None:
        """Nothing is wrapped."""

    def setup(self, trainer: L.Trainer) -> None:
        """Likewise where nothing is trained: there is nothing to make alike."""
        if self.is_sharded:  # a validation after the training
            assert self.accelerator is not None
            self.accelerator.setup(trainer)
            self.model_to_device()
            self.setup_precision_plugin()
        else:
            super().setup(trainer)

    def gathered(self, tensor: Tensor) -> Tensor | None:
        """The whole of a tensor on the CPU, in the first process; all must ask for it."""
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return full.detach().cpu() if self.is_global_zero else None

    def on_exception(self, exception: BaseException) -> None:
        """Share out again what a step that has failed had gathered, so that the module can be put away."""
        for part in self._shared_out():
            part.set_reshard_after_forward(True)
            part.reshard()

    def _shared_out(self) -> Iterator[FSDPModule]:
        module: Any = self.lightning_module
        return (part for part in module.modules() if isinstance(part, FSDPModule))

    def trained(self, module: Any) -> Iterator[tuple[str, Tensor | None]]:
        """The trained weights of a module by name, `gathered` one by one."""
        for part in self._shared_out():
            part.reshard()  # a validation leaves some whole
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                yield name, self.gathered(weight)

    def gather(self) -> None:
        """Bring `whole` up to date, all processes together."""
        module: Any = self.lightning_module
        own = dict(self.whole.named_parameters()) if self.is_global_zero else {}
        for name, weight in self.trained(module.model):
            if weight is not None:
                own[name].data.copy_(weight)

    def on_train_end(self) -> None:
        """What was trained can be had from now on."""
        self.gather()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The trained weights, tied ones by both names; frozen ones are in no checkpoint of ours."""
        module: Any = self.lightning_module
        whole = dict(self.trained(module))
        first = {id(weight): name for name, weight in module.named_parameters()}
        every = module.named_parameters(remove_duplicate=False)
        return {name: whole[first[id(weight)]] for name, weight in every if weight.requires_grad}

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The optimiser's state as one process alone would have it."""
        state = (optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer).state_dict()
        whole = {
            number: {name: self.gathered(value) if isinstance(value, Tensor) else value for name, value in own.items()}
            for number, own in state["state"].items()
        }
        return state | {"state": whole}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """The same, shared out as the weights are."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            numbers = [number for group in state["param_groups"] for number in group["params"]]
            own = {number: dict(state["state"].get(number, {})) for number in numbers}
            for number, weight in zip(numbers, weights, strict=True):
                for name, value in own[number].items():
                    if isinstance(value, Tensor) and value.shape == weight.shape:
                        own[number][name] = share_of(value, weight)
            optimizer.load_state_dict(state | {"state": own})


def share_of(whole: Tensor, like: Tensor) -> Tensor:
    """This process's share of a tensor that all have, shared out as a weight is."""
    whole = whole.to(like.device)
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def trained_model(trainer: L.Trainer, module: Any) -> Any:
    """The model, once it is trained, with all its weights; of a sharded one in the first process only."""
    return trainer.strategy.whole if isinstance(trainer.strategy, ShardedStrategy) else module.model


def where_room_is(model: Any, device: torch.device) -> Any:
    """A model on the device, where it has room for it beside copies in float32 of what is in half precision; else on
    the CPU."""
    if device.type == "cpu":
        return model
    weights = list(model.parameters())
    half = sum(w.numel() for w in weights if w.is_floating_point() and w.itemsize < 4)
    with suppress(torch.OutOfMemoryError):
        if sum(w.nbytes for w in weights) + 4 * half <= free_bytes(device):
            return model.to(device)
    log.warning("%s has no room for the whole model: it translates samples and probes on the CPU", device)
    return model.cpu()


@contextmanager
def whole_model(trainer: L.Trainer, module: Any) -> Iterator[Trained | None]:
    """The model with all its weights as they are now, `where_room_is`, for the first process to look at; None in
    others. All processes must ask for it, as some weights may have to be gathered.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, ShardedStrategy):
        yield module if trainer.is_global_zero else None
        return
    strategy.gather()
    if strategy.whole is None:
        yield None
        return
    try:
        model = where_room_is(strategy.whole, strategy.root_device)
        yield SimpleNamespace(model=model, tokens=module.tokens, rule=module.rule)
    finally:
        strategy.whole.cpu()
        if strategy.root_device.type == "cuda":
            torch.cuda.empty_cache()
