"""Where decoding writes: the share of ways to decode in which each token is written in each row.

The paper's language model loss is a mean over all cells of the EMIT mask (`eq:lm-loss`), whether a translation ever
comes to pass there or not: the row in which the whole source is read has one cell in X, though in most ways to decode a
large part of the words is written in it, and cells ahead of the best path have none. Weighted by these shares the loss
is that of the reference along the paths of decoding.

Half of these are the model's own, one for each threshold θ, and half those of fixed delays (wait-k for each k). The own
ones alone can become a trap: a model that writes everything at once, as one from random weights does while it has not
learnt what the source is good for, would learn in the first row only, and so never learn it.

A step may learn each token in one or two rows only, drawn by these shares: the same loss on average, with fewer cells
in the backward pass of the text head.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from .path import row_exits
from .words import ends_of_words

GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, lie evenly between 0 and 1 however many they are
DRAWS = 2  # of each token; both may fall into one row

# Thresholds as decoding uses them, evenly from early to late, and 1: the whole source is read first.
THETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@torch.no_grad()
def decoding_shares(
    p_emit: Tensor, source_lengths: Tensor, target_lengths: Tensor, inner: Tensor | None = None
) -> Tensor:
    """Half `visit_shares`, half `delay_shares`: weights of the language model's loss; `[B, X, Y]` as these."""
    _, X, Y = p_emit.shape
    own = visit_shares(p_emit, source_lengths, target_lengths, inner=inner)
    return (own + delay_shares(source_lengths, target_lengths, X, Y, inner)) / 2


@torch.no_grad()
def visit_shares(
    p_emit: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    thetas: Sequence[float] = THETAS,
    inner: Tensor | None = None,
) -> Tensor:
    """Share of the thresholds at which a cell's token is written in its row, when EMIT follows from `p(EMIT) > θ`.

    As in decoding: the last row emits whatever its p(EMIT) is, and the end token is written there.

    Args:
        p_emit: probability of EMIT `[B, X, Y]`; padding is not read.
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        thetas: at least one.
        inner: tokens that go on with a word `[B, Y]`, written in the row in which it begins; None: there are none.

    Returns:
        `[B, X, Y]` in float32: each valid column sums to 1; 0 in padding.
    """
    rows, columns = (torch.arange(size, device=p_emit.device) for size in p_emit.shape[1:])
    left = rows - source_lengths[:, None]  # −1 in a pair's last row
    ending = columns == target_lengths[:, None] - 1
    emits = p_emit > _levels(tuple(thetas), p_emit.dtype, p_emit.device)  # [thresholds, B, X, Y]
    if inner is not None:
        emits = emits | inner[:, None]
    emits = (emits & ~ending[:, None]) | (left == -1)[:, :, None]
    counts = (columns < row_exits(emits)[..., None]).sum(0)
    counts = counts.diff(dim=1, prepend=torch.zeros_like(counts[:, :1]))
    valid = (left < 0)[:, :, None] & (columns < target_lengths[:, None])[:, None]
    return counts * valid / len(thetas)


@cache
def _levels(thetas: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Thresholds on a device, `[N, 1, 1, 1]`: copied there once, as a copy of what was just made waits for it."""
    return torch.tensor(thetas, dtype=dtype).to(device, non_blocking=True)[:, None, None, None]


def delay_shares(source_lengths: Tensor, target_lengths: Tensor, X: int, Y: int, inner: Tensor | None = None) -> Tensor:
    """Share of the delays k = 1 … (source length) at which wait-k writes a cell's token in its row.

    As in decoding the end token is written when the whole source is read. Words are written whole, where wait-k would
    write their last token.

    Args:
        source_lengths, target_lengths: rows and columns of each pair `[B]`, each at least 1.
        inner: tokens that go on with a word `[B, Y]`; None: there are none.

    Returns:
        `[B, X, Y]` in float32: each valid column sums to 1; 0 in padding.
    """
    device = source_lengths.device
    x, y = torch.arange(X, device=device)[:, None], torch.arange(Y, device=device)
    rows, columns = source_lengths[:, None, None], target_lengths[:, None, None]
    last, turn = x == rows - 1, y if inner is None else ends_of_words(inner)[:, None] - 1
    # Token y waits for row min(k − 1 + turn, X − 1): a row before the last has it at one delay, the last at all others.
    delays = torch.where(last, torch.minimum(turn + 1, rows), (x >= turn) & (x < rows))
    delays = torch.where(y == columns - 1, rows * last, delays)
    return (delays * (y < columns)).float() / rows


@torch.no_grad()
def drawn_cells(shares: Tensor, points: Tensor) -> Tensor:
    """One or two cells of each column, drawn by their shares of it: each of `DRAWS` draws counts `1 / DRAWS`.

    A cell is drawn when the running sum of its column's shares, times `DRAWS`, passes a point. The first of these is
    `point + y · GOLDEN` modulo 1, the next one is 1 further (systematic sampling). This spreads a pair's tokens over
    early and late rows.

    Args:
        shares: `[B, X, Y]`; of each scored column they make 1 (all of it in rows that were computed), 0 in padding.
        points: of each pair `[B]`, drawn evenly from 0 to 1.

    Returns:
        `[B, X, Y]`: each scored column sums to 1; on average they are the shares.
    """
    columns = torch.arange(shares.shape[2], device=shares.device)
    at = ((points[:, None] + GOLDEN * columns)[:, None] % 1).clamp(max=1 - 1e-6)  # so that at + 1 stays below 2
    total = shares.cumsum(1)
    passed = torch.stack([(at + draw) * total[:, -1:] < DRAWS * total for draw in range(DRAWS)]).sum(0)
    return passed.diff(dim=1, prepend=torch.zeros_like(passed[:, :1])).to(shares.dtype) / DRAWS
