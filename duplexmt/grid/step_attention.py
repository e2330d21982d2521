"""Attention of one layer in a decoding step: what changes on a line of cells when a stream gains a token (see `cache`).

Shapes: n streams, m cells on their lines, T tokens of the longest new stream; H heads as K key/value heads with G
queries each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .step_cells import Steps

# One operation in place of nine, and the only one of PyTorch's on CPU that returns the log-sum-exp too.
FLASH = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


class Heads(NamedTuple):
    """What a layer's attention needs of a step's cells; a single cell stands for `m` equal ones."""

    q_line: Tensor  # line cells' queries [m, K, G, E], which meet …
    k_new: Tensor  # … the new stream's keys at the same cells [m, K, E] …
    v_new: Tensor  # … and values
    q_new: Tensor  # the other way round: the new stream's queries …
    k_line: Tensor  # … and the line stream's keys …
    v_line: Tensor  # … and values
    first: Sequence[Tensor]  # query, key and value of the new stream at the first cell, [n, …]


class StepAttention:
    """Contexts of one layer's cells; each method brings the cache up to date with what it computes.

    Args:
        heads: see there.
    """

    def __init__(self, steps: Steps, cache: Any, heads: Heads, scale: float) -> None:
        self.steps, self.cache, self.heads, self.scale = steps, cache, heads, scale

    def append(self) -> None:
        """The new token's key and value."""
        _, k, v = self.heads.first
        self.steps.put_new(self.cache.k, k)
        self.steps.put_new(self.cache.v, v)

    def own(self) -> tuple[Tensor, Tensor]:
        """The new stream's self attention: its context `[n, K, G, E]` and log-sum-exp `[n, K, G]`, at every cell."""
        steps, cache, q = self.steps, self.cache, self.heads.first[0]
        self.append()
        keys, values = steps.new(cache.k), steps.new(cache.v)
        if steps.own_mask is None and q.device.type == "cpu" and FLASH is not None:
            context, lse = FLASH(q, keys.transpose(1, 2), values.transpose(1, 2), scale=self.scale)
        else:
            precise = cache.lse.dtype  # a product of half precision is rounded to it: see `causal_attention`
            found = (q.to(precise) @ keys.permute(0, 2, 3, 1).to(precise)).mul_(self.scale)  # [n, K, G, T]
            if steps.own_mask is not None:
                found = found + steps.own_mask
            context, lse = attend(found, values)
        if cache.own is not None:
            steps.put_new(cache.own, context)
        return context, lse

    def line(self) -> Tensor:
        """Contexts of the line stream `[m, K, G, E]`: one more key each, a step of the online softmax."""
        steps, cache = self.steps, self.cache
        score = scores(self.heads.q_line, self.heads.k_new, self.scale, cache.lse.dtype)
        context, lse = steps.line(cache.ctx), steps.line(cache.lse)
        share = (score - lse).sigmoid_().unsqueeze(-1).to(context.dtype)
        lse.copy_(torch.logaddexp(lse, score))
        context.lerp_(self.heads.v_new.unsqueeze(-2), share)
        steps.put_line(cache.lse, lse)
        steps.put_line(cache.ctx, context)
        return context if cache.own is None else context + steps.line(cache.own)

    def new(self, own: tuple[Tensor, Tensor]) -> Tensor:
        """Contexts of the new stream `[m, K, G, E]`: self attention, and a prefix softmax along the line."""
        steps, (own_context, own_lse) = self.steps, map(self.steps.at_cells, own)
        score = scores(self.heads.q_new, self.heads.k_line, self.scale, self.cache.lse.dtype)
        cross, lse = map(steps.unpad, prefix_softmax(steps.pad(score), steps.pad(self.heads.v_line)))
        context, total = join(own_context, own_lse, cross, lse, self.cache.own is not None)
        last = context if self.cache.own is None else cross
        self._keep(steps.last(last), steps.last(total))
        return context

    def new_present(self, own: tuple[Tensor, Tensor]) -> Tensor:
        """The last of `new`'s contexts, `[n, K, G, E]`, without the others."""
        steps = self.steps
        score = scores(self.heads.q_new, self.heads.k_line, self.scale, self.cache.lse.dtype)
        score = steps.pad(score).movedim(1, -1)
        if steps.line_mask is not None:
            score = score + steps.line_mask
        cross, lse = attend(score, steps.pad(self.heads.v_line))
        context, total = join(*own, cross, lse, self.cache.own is not None)
        self._keep(context if self.cache.own is None else cross, total)
        return context

    def _keep(self, context: Tensor, lse: Tensor) -> None:
        self.steps.put_new(self.cache.ctx, context)
        self.steps.put_new(self.cache.lse, lse)


def scores(q: Tensor, k: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """`s · (Q ⊙ K) · 1` at each cell (`eq:io-hadamard`): `[…, K, G, E]` and `[…, K, E]` → `[…, K, G]` in `dtype`."""
    return (q.to(dtype) * k.unsqueeze(-2)).sum(-1).mul_(scale)


def softmax(score: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the last dimension and its log-sum-exp, in three operations; the first key must not be masked."""
    logs = score.log_softmax(-1)
    return logs.exp(), score[..., 0] - logs[..., 0]


def attend(score: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax attention: scores `[n, K, G, T]` and values `[n, T, K, E]` → context `[n, K, G, E]`, log-sum-exp."""
    weights, lse = softmax(score)
    return weights.to(v.dtype) @ v.transpose(1, 2), lse


def prefix_softmax(score: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over a growing prefix in which each key brings one score (`eq:io-hadamard`), by a triangle of weights:
    `[n, W, K, G]` and `[n, W, K, E]` → `[n, W, K, G, E]`, and log-sum-exp."""
    W, G = score.shape[1], score.shape[-1]
    later = torch.full((W, W), float("-inf"), dtype=score.dtype, device=score.device).triu_(1)
    weights, lse = softmax(score.movedim(1, -1).unsqueeze(-2) + later)  # [n, K, G, W, W]
    context = weights.to(v.dtype).flatten(2, 3) @ v.transpose(1, 2)  # [n, K, G·W, E]
    return context.unflatten(2, (G, W)).permute(0, 3, 1, 2, 4), lse.movedim(-1, 1)


def join(own: Tensor, own_lse: Tensor, cross: Tensor, cross_lse: Tensor, separate: bool) -> tuple[Tensor, Tensor]:
    """Self and cross context under one softmax denominator (Section III-D), or with `separate` softmax the plain sum
    that the paper rejects; and the log-sum-exp to be kept, of all keys or of the cross keys."""
    if separate:
        return own + cross, cross_lse
    share = (own_lse - cross_lse).sigmoid_().unsqueeze(-1).to(own.dtype)
    return torch.lerp(cross, own, share), torch.logaddexp(own_lse, cross_lse)
