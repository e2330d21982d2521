"""Attention of training steps: PyTorch's fused one, on a CPU never in half precision, on a GPU never cuDNN's.

On a CPU its backward pass takes five times as long in bfloat16 as in float32: 40 and 8 ms for both passes over 64
sequences of 36 tokens and 4 heads of 64 on an Intel Xeon with AMX, where products in bfloat16 are five times as fast.

cuDNN makes a plan for each new shape, and batches of text always have new ones: on an H100 a step of 24 news pairs with
exact attention takes 1.6 s, and 0.2 s where its shapes were met before. So importing this turns cuDNN's attention off,
for the whole process, as Hugging Face's own layers would use it, too.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .products import at_least_float32

torch.backends.cuda.enable_cudnn_sdp(False)
# Devices whose fused kernels take a mask, or keys and values that heads share, but not both: given both, PyTorch falls
# back to scores in memory, `[B, H, L, S]` in float32.
MASK_OR_SHARED_HEADS = {"cuda"}


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **further: Any) -> Tensor:
    """`F.scaled_dot_product_attention` of `[B, H, L, E]`, keys and values of as many heads or a divisor of it."""
    dtype = torch.float32 if torch.is_autocast_enabled(q.device.type) else q.dtype
    with _precise(q):
        q, k, v = map(_widened, (q, k, v))
        if mask is not None and q.device.type in MASK_OR_SHARED_HEADS:
            k, v = (states.repeat_interleave(q.shape[1] // states.shape[1], dim=1) for states in (k, v))
        found = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=k.shape[1] != q.shape[1], **further)
    return found if found.dtype.itemsize <= dtype.itemsize else found.to(dtype)


def _precise(states: Tensor) -> Any:
    """Where autocast, on a CPU, takes no attention to half precision."""
    return torch.autocast("cpu", enabled=False) if states.device.type == "cpu" else nullcontext()


def _widened(states: Tensor) -> Tensor:
    """States on a CPU in at least float32."""
    if states.device.type != "cpu":
        return states
    return states.to(at_least_float32(states.dtype))
