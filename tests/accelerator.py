"""A stand-in for a GPU: tensors that say they are on CUDA, compute on the CPU, and refuse to meet tensors of the CPU.

PyTorch takes them for `meta` tensors, as no other device is to be had; so what it makes beside them (a number as a
tensor, say) comes as `meta`, too, and is taken in here. Autocast does not know them.
"""

from collections import Counter
from contextlib import contextmanager, nullcontext

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from duplexmt.policy.visits import _levels

CUDA = torch.device("cuda:0")
# On CUDA, too, tensors of the CPU are copied to others, and may be indices.
MAY_MEET = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")
READ_BACK = ("_local_scalar_dense", "nonzero", "equal", "masked_select")
waits = Counter()  # how often the device was waited for, by operation


class OnDevice(torch.Tensor):
    """A tensor "on CUDA"; `value` is its twin on the CPU, of which views share the memory as its own views would."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, value):
        shape = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        own = torch.Tensor._make_subclass(cls, shape)
        own.value = value
        return own

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    def tolist(self):
        waits["tolist"] += 1
        return self.value.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func, args, kwargs):
    """An operation on the twins; its result is on the device if an argument is, or where it was asked for."""
    name, device = func._schema.name.split("::")[1], kwargs.get("device")
    twins, host = {}, []

    def twin(value):
        if isinstance(value, OnDevice):
            twins[id(value.value)] = value
            return value.value
        if isinstance(value, torch.Tensor):
            assert not value.is_meta, f"{name}: the stand-in has lost a value"
            if value.dim():
                host.append(value)
        return value

    args, kwargs = tree_map(twin, (args, kwargs))
    if twins and host and name not in MAY_MEET:
        raise RuntimeError(f"{name}: {list(host[0].shape)} on the CPU meets a tensor on CUDA")
    there = bool(twins) if device is None else torch.device(device).type != "cpu"
    masked = name in ("index", "index_put_") and any(i is not None and i.dtype == torch.bool for i in args[1])
    comes = name == "_to_copy" and there and not twins and not kwargs.get("non_blocking")
    if comes or (twins and (name in READ_BACK or masked or host or not there)):
        waits[name] += 1
    found = func(*args, **(kwargs if device is None else kwargs | {"device": "cpu"}))
    if not there or (name == "copy_" and id(args[0]) not in twins):
        return found
    return tree_map(lambda one: twins.get(id(one), OnDevice(one)) if isinstance(one, torch.Tensor) else one, found)


class Computing(TorchDispatchMode):
    """Sees what is made without any tensor, too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Naming(TorchFunctionMode):
    """Calls the device `meta` in what goes to PyTorch, and makes tensors of numbers on the CPU first."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def named(value):
            there = isinstance(value, torch.device | str) and str(value).startswith("cuda")
            return "meta" if there else value

        name, kwargs = getattr(func, "__name__", ""), tree_map(named, kwargs or {})
        if name == "backward":  # which runs code of ours
            with self:
                run = torch.autograd.Variable._execution_engine.run_backward
                return run((args[0],), (torch.ones_like(args[0]),), False, False, (), True, accumulate_grad=True)
        if func is torch.autograd.grad:
            upstream = kwargs["grad_outputs"]
            with self:
                run = torch.autograd.Variable._execution_engine.run_backward
                upstream = (upstream,) if isinstance(upstream, torch.Tensor) else tuple(upstream)
                return run(tuple(args[0]), upstream, False, False, tuple(args[1]), False, accumulate_grad=False)
        if name in ("__getitem__", "__setitem__") and isinstance(args[1], tuple) and isinstance(args[0], OnDevice):
            at = tuple(torch.tensor(i).to("meta") if isinstance(i, list | range) else i for i in args[1])
            args = args[0], at, *args[2:]
        if name == "tensor" and kwargs.get("device") == "meta":
            return func(*args, **kwargs | {"device": "cpu"}).to("meta")
        return func(*tree_map(named, args), **kwargs)


@contextmanager
def accelerator():
    """Within it `device="cuda"` works. Yields what was waited for."""
    inference = torch._C._InferenceMode
    torch._C._InferenceMode = lambda on: torch.no_grad() if on else nullcontext()  # which knows no such tensors
    waits.clear()
    try:
        with Naming(), Computing():
            yield waits
    finally:
        torch._C._InferenceMode = inference
        _levels.cache_clear()  # which holds what it has on this device


def moved(module):
    """A module on the device."""
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None and not isinstance(weight, OnDevice):
                part._parameters[name] = torch.nn.Parameter(OnDevice(weight.detach().clone()), weight.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, OnDevice):
                part._buffers[name] = OnDevice(buffer.clone())
    return module
