"""The loss heatmap (`eq:grid-loss`), without ever holding cells × vocabulary logits."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..kernels.products import at_least_float32, rounded, weight_gradient
from ..kernels.products import product as times
from ..kernels.triton_use import proves_itself, use_triton

IN_CACHE = 128  # cells whose rows of 3,000 logits stay in a processor's cache
# Logits of one tensor on a CPU: C libraries give memory of 32 MB and more back to the system each time (unless told not
# to, as by train.py), and touching it anew costs more than the product.
REUSED = 2**21
SUMMED = 2**22  # logits whose gradients are multiplied at a time, as each product is added to the head's whole gradient
# However large the vocabulary, cells of either: each product reads the whole head. With 151,936 entries a cell takes
# 16, 4.7, 2.1 and 1.7 ms where 13, 26, 104 and 208 are multiplied at a time.
FEWEST = 256


def cells_at_once(vocab_size: int, device: torch.device | None = None) -> int:
    """Cells whose logits may exist at a time: about 2²⁶ numbers, 256 MB in float32.

    On a GPU 2²⁸, 512 MB in half precision, or a thirty-second of its memory where that is more: each such piece costs a
    pass over the gradient of the head (of 136 million weights, in float32), and those of all cells are kept for the
    backward pass where they are one piece, which spares a quarter of the head's products.
    """
    most = 2**26 if device is None or device.type != "cuda" else max(2**28, memory_of(device) // 32 // 2)
    return max(1, most // vocab_size)


@cache
def memory_of(device: torch.device) -> int:
    """Bytes of a GPU, used or free."""
    return torch.cuda.mem_get_info(device)[1]


def cells_of_a_softmax(piece: int, device: torch.device) -> int:
    """Of a piece of cells, those whose softmax is taken at a time: what stays in a processor's cache, on a GPU all."""
    return min(piece, IN_CACHE) if device.type == "cpu" else piece


def evened(cells: int, most: int) -> int:
    """Cells of a piece of at most so many: where pieces are few they are about as large as each other."""
    return math.ceil(cells / max(1, math.ceil(cells / most))) or 1


def loss_heatmap(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    chunk: int,
    learnt: int | None = None,
) -> Tensor:
    """`L(x, y) = −log p[x, y](o_{y+1})` of a list of cells (`eq:grid-loss`).

    Logits exist for one chunk of cells at a time (or, on a CPU, a piece of it), and again in the backward pass, there
    only of cells whose loss has a gradient: those in which words are learnt. Where one chunk holds all cells, their
    logits are kept instead.

    Args:
        hidden: final-normed target states `[N, D]`.
        weight, bias: of the text head, `[vocabulary, D]` and `[vocabulary]`.
        labels: the token each cell is to predict, `o_{y+1}`, `[N]`.
        chunk: cells whose logits may exist at a time.
        learnt: at most how many of the losses will have a gradient other than 0, where that is known. A GPU is then not
            waited for; else once in the backward pass, for their number.

    Returns:
        `[N]` in nats, at least float32.
    """
    return _TokenLoss.apply(hidden, weight, bias, labels, chunk, learnt)


def losses_of_head(
    hidden: Tensor, head: Any, labels: Tensor, cap: float | None = None, learnt: int | None = None
) -> Tensor:
    """The same of the text head itself, a linear layer, with as many logits at a time as fit.

    Where these are squashed to lie within a `cap`, as Gemma 2's, it is by plain operations, which the backward pass
    takes again.
    """
    chunk = cells_at_once(head.out_features, hidden.device)
    if cap is None:
        return loss_heatmap(hidden, head.weight, head.bias, labels, chunk, learnt)

    def losses(states: Tensor, own: Tensor) -> Tensor:
        logits = torch.tanh(head(states) / cap) * cap
        precise = logits.to(at_least_float32(logits.dtype))
        return F.cross_entropy(precise, own, reduction="none")

    pieces = zip(hidden.split(evened(len(hidden), chunk)), labels.split(evened(len(hidden), chunk)), strict=True)
    return torch.cat([checkpoint(losses, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces])


def piecewise_losses(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, piece: int, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss `[N]` and log-sum-exp of the logits `[N, 1]` of each state, and, if `keep`, the logits, by pieces."""
    log_totals, losses, kept = [], [], []
    at_a_time = cells_of_a_softmax(piece, states.device)
    for rows, targets in zip(states.split(piece), labels.split(piece), strict=True):
        logits = times(rows, weight, bias)
        for part, label in zip(logits.split(at_a_time), targets.split(at_a_time), strict=True):
            loss, log_total = losses_of_logits(part, label)
            losses.append(loss)
            log_totals.append(log_total)
        if keep:
            kept.append(logits)
    return torch.cat(losses), torch.cat(log_totals), kept


def losses_of_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss `[n]` and log-sum-exp `[n, 1]` of logits `[n, vocabulary]`, in at least float32."""
    if use_triton(logits) and _kernels_prove_themselves(logits):
        from . import softmax_triton

        return softmax_triton.losses_of_logits(logits, labels)
    return naive_losses_of_logits(logits, labels)


def naive_losses_of_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same by PyTorch's own operations."""
    precise = logits.to(at_least_float32(logits.dtype))
    losses = F.cross_entropy(precise, labels, reduction="none")
    return losses, precise.gather(-1, labels[:, None]).add_(losses[:, None])


def gradients_of_logits_(logits: Tensor, log_totals: Tensor, labels: Tensor, d_losses: Tensor) -> Tensor:
    """`(softmax − one-hot) · ∂L`, `[n, vocabulary]`, in the place of the logits; `log_totals` and `d_losses` `[n, 1]`.

    Returns:
        The same before it was rounded to the logits' type, where that has been made.
    """
    if use_triton(logits) and _kernels_prove_themselves(logits):
        from . import softmax_triton

        return softmax_triton.gradients_of_logits_(logits, log_totals, labels, d_losses)
    return naive_gradients_of_logits_(logits, log_totals, labels, d_losses)


def naive_gradients_of_logits_(logits: Tensor, log_totals: Tensor, labels: Tensor, d_losses: Tensor) -> Tensor:
    """The same by PyTorch's own operations."""
    precise = logits.to(log_totals.dtype)
    # In place, as it goes row by row; on a CPU in half the time of `(logits − log_totals).exp_()`.
    torch.softmax(precise, -1, out=precise).scatter_(-1, labels[:, None], -1, reduce="add").mul_(d_losses)
    if precise.dtype != logits.dtype:
        logits.copy_(precise)
    return precise


KERNELS = "The Triton kernels of the softmax over the vocabulary"


def _kernels_prove_themselves(like: Tensor) -> bool:
    """Whether the Triton kernels take the softmax of such logits as their naive twins do."""
    V, dtype = like.shape[1], like.dtype

    def inputs(draw: torch.Generator) -> list[Tensor]:
        logits, labels = 5 * torch.randn(3, V, generator=draw), torch.tensor([0, V // 2, V - 1])
        d_losses = torch.randn(3, 1, generator=draw)
        return [logits.to(dtype), labels, d_losses.to(at_least_float32(dtype))]

    def results(losses: Callable[..., Any], gradients_: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
        logits, labels, d_losses = given
        found, log_totals = losses(logits, labels)
        return found, log_totals, gradients_(logits, log_totals, labels, d_losses)

    def kernels(*given: Tensor) -> tuple[Tensor, ...]:
        from . import softmax_triton

        return results(softmax_triton.losses_of_logits, softmax_triton.gradients_of_logits_, *given)

    naive = partial(results, naive_losses_of_logits, naive_gradients_of_logits_)
    return proves_itself(KERNELS, (V, dtype), like.device, inputs, kernels, naive)


def learnt_cells(gradients: Tensor, learnt: int | None) -> Tensor:
    """Cells whose loss has a gradient, ascending; where at most so many are known to have one, so many of all cells: on
    a GPU their own number would have to be waited for."""
    if learnt is None or gradients.device.type == "cpu":
        return gradients.nonzero().squeeze(-1)
    return (gradients == 0).argsort(stable=True)[:learnt]


class _TokenLoss(torch.autograd.Function):
    """Linear layer and cross-entropy in one; products in autocast's type, where it is on."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        chunk: int,
        learnt: int | None,
    ) -> Tensor:
        device = hidden.device.type
        product = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        w, b = weight.to(product), None if bias is None else bias.to(product)
        most = min(chunk, max(FEWEST, REUSED // len(weight))) if device == "cpu" else chunk
        ctx.piece = evened(len(hidden), most)
        ctx.summed = min(chunk, max(FEWEST, SUMMED // len(weight)))
        ctx.product, ctx.learnt = product, learnt
        keep = len(hidden) <= chunk and ctx.needs_input_grad[0]
        losses, log_totals, kept = piecewise_losses(hidden.to(product), w, b, labels, ctx.piece, keep)
        ctx.save_for_backward(hidden, weight, bias, labels, log_totals, *kept)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, log_totals, *kept = ctx.saved_tensors
        product = ctx.product
        w, b = weight.to(product), None if bias is None else bias.to(product)
        d_hidden = torch.zeros_like(hidden)
        d_weight = None
        d_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        at_a_time = cells_of_a_softmax(ctx.piece, hidden.device)
        # Pieces as they were kept, or as many cells with a gradient as make one.
        cells_with_gradient = learnt_cells(gradients[0], ctx.learnt)
        if len(kept) == 1:
            pieces: Sequence[Tensor] = (cells_with_gradient,)
        elif kept:
            ends = torch.tensor(range(ctx.piece, len(hidden), ctx.piece), dtype=torch.int64, device=hidden.device)
            pieces = cells_with_gradient.tensor_split(torch.searchsorted(cells_with_gradient, ends).cpu())
        else:
            pieces = cells_with_gradient.split(evened(len(cells_with_gradient), ctx.piece))
        for group in _grouped(pieces, ctx.summed):
            cells = torch.cat([own for _, own in group])
            states = rounded(hidden[cells].to(product))
            d_logits = states.new_empty(len(states), len(w)) if kept else times(states, w, b)
            of_cells = d_logits[: len(cells)]
            d_logits[len(cells) :] = 0
            parts = [(number, len(at)) for number, own in group for at in own.split(at_a_time)]
            given = cells % ctx.piece, log_totals[cells], labels[cells], gradients[0][cells, None].to(log_totals.dtype)
            split = (each.split([count for _, count in parts]) for each in (of_cells, *given))
            for (number, _), part, at, *of_part in zip(parts, *split, strict=True):
                if kept:
                    torch.index_select(kept[number], 0, at, out=part)
                d_part = gradients_of_logits_(part, *of_part)
                if d_bias is not None:
                    d_bias += d_part.sum(0, dtype=log_totals.dtype)
            d_hidden.index_copy_(0, cells, times(d_logits, w.T)[: len(cells)].to(hidden.dtype))
            if ctx.needs_input_grad[1]:
                d_group = weight_gradient(d_logits, states).to(weight.dtype)
                d_weight = d_group if d_weight is None else d_weight.add_(d_group)
        if ctx.needs_input_grad[1] and d_weight is None:
            d_weight = torch.zeros_like(weight)
        return d_hidden, d_weight, d_bias, None, None, None


def _grouped(pieces: Sequence[Tensor], most: int) -> Iterator[list[tuple[int, Tensor]]]:
    """Pieces with their numbers, as many in a row as have at most so many cells together, and at least one."""
    group: list[tuple[int, Tensor]] = []
    for number, cells in enumerate(pieces):
        if group and sum(len(own) for _, own in group) + len(cells) > most:
            yield group
            group = []
        group.append((number, cells))
    if group:
        yield group
