"""The self-guided loop on a batch (Sections V-A and V-B): states, heatmap, best path, EMIT mask."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..decoder.heads import EMIT
from ..grid.cells import Cells
from ..grid.model import GridModel
from ..grid.rows import Rows
from .heatmap import losses_of_head
from .path import best_path, emit_mask
from .regret import emit_advantages
from .rows import WHOLE, DrawnRows
from .visits import decoding_shares, drawn_cells


@dataclass(frozen=True)
class Guided:
    """What a model makes of a batch: its heatmap, and the path it will train its EMIT head on."""

    cells: Cells  # layout of the scored cells: all rows, or the drawn ones as if they were a grid
    rows: DrawnRows | None  # those drawn; None: all
    source_lengths: Tensor  # [B], scored rows of each pair, drawn or not
    target_lengths: Tensor  # [B], scored columns
    hidden: Tensor  # [N, D], final-normed target states
    heatmap: Tensor  # [N], nats
    y_at: Tensor  # [B, X], best path
    mask: Tensor  # [N], EMIT where true
    advantages: Tensor | None  # [N], of EMIT over WAIT, where they were asked for
    area: Tensor  # mean area fraction below the paths


def guide(
    model: GridModel,
    tokens: StreamTokens,
    batch: Batch,
    lam: float,
    regret: bool = False,
    rows: DrawnRows | None = None,
) -> Guided:
    """Heatmap, best path and EMIT mask of a batch (Section V-A and V-B); states inside prefixes are not scored.

    Args:
        model: the grid model.
        tokens: the stream tokens its data was made with.
        batch: on the model's device.
        lam: λ of the path score.
        regret: whether to work out what each decision is worth, too (`policy.regret`).
        rows: those to compute of each pair, counted after the source prefix; None for all.

    Raises:
        ValueError: for some rows of a model whose rows read each other.
    """
    before, first = len(tokens.source_prefix), len(tokens.target_prefix)
    device = batch.source.device
    layout: Cells | Rows
    if rows is not None:
        lengths = [[first + columns for columns in own] for own in rows.columns]
        layout = Rows.of(batch.shapes, [[before + x for x in own] for own in rows.at], device, lengths)
    elif model.row_cacheable:
        layout = Rows.of(batch.shapes, [range(before, X) for X, _ in batch.shapes], device)
    else:
        layout = Cells.of(batch.shapes, device)
    source, target = batch.source.flatten()[layout.source_slot], batch.target.flatten()[layout.target_slot]
    hidden = model.states(source, target, layout, batch.source_lengths)
    labels = layout.over_columns(batch.labels.flatten()[layout.target_slot])
    cells, above = (layout, before) if isinstance(layout, Cells) else (layout.grid, 0)
    if above or first:  # what was computed and is not scored
        cells, scored = cells.without(above, first)
        hidden, labels = hidden[scored], labels[scored]

    heatmap = losses_of_head(hidden, model.text_head, labels)
    source_lengths, target_lengths = batch.source_lengths - before, batch.target_lengths - first
    some = cells.padded(heatmap.detach())
    losses = some if rows is None else rows.spread(some, unreachable(some, source_lengths, lam))
    grids = losses, source_lengths, target_lengths
    y_at = best_path(*grids, lam)
    whole_mask = emit_mask(y_at, cells.width[1])
    worth = emit_advantages(*grids, lam) if regret else None
    area = (y_at.sum(1) / (source_lengths * target_lengths)).mean()
    if rows is not None:
        worth = None if worth is None else rows.of_all(worth)
    mask = cells.flat(whole_mask if rows is None else rows.of_all(whole_mask))
    advantages = None if worth is None else cells.flat(worth)
    return Guided(cells, rows, source_lengths, target_lengths, hidden, heatmap, y_at, mask, advantages, area)


def unreachable(losses: Tensor, source_lengths: Tensor, lam: float) -> Tensor:
    """Nats of a cell that was not computed `[B, 1, 1]`: so many that no path writes there.

    They are more than the largest loss that was computed and what λ pays for a token of the first row, together: a path
    that writes there gains by waiting until it comes to a cell that was computed.
    """
    return losses.amax((1, 2), keepdim=True) + 1 + lam * source_lengths[:, None, None]


def cell_weights(guided: Guided, emit_logits: Tensor, visits: bool, points: Tensor | None = None) -> Tensor | None:
    """Weights of the language model's loss `[N]`; None for the mask's own, of all rows.

    Args:
        guided: of a batch.
        emit_logits: WAIT and EMIT of each cell `[N, 2]`.
        visits: by how often decoding writes in a cell (`policy.visits`), else by the EMIT mask.
        points: of each pair `[B]`, to draw a row or two of each token by these visits (`drawn_cells`); None: all.
    """
    rows = guided.rows
    assert visits or points is None, "of the mask no row is drawn: its columns have several cells of weight 1"
    if not visits:
        if rows is None:
            return None
        weights = emit_mask(guided.y_at, guided.cells.width[1]).to(guided.heatmap.dtype)
    else:
        p_emit = emit_logits.to(torch.promote_types(emit_logits.dtype, torch.float32)).softmax(-1)[:, EMIT]
        some = guided.cells.padded(p_emit)
        grids = some if rows is None else rows.spread(some, 0.0), guided.source_lengths, guided.target_lengths
        weights = decoding_shares(*grids)
    weights = weights if rows is None else rows.summed(weights)
    return guided.cells.flat(weights if points is None else drawn_cells(weights, points))


def stand_for(guided: Guided) -> Tensor | None:
    """Decisions of the full grid that each scored cell stands for `[N]`; None where all were computed."""
    if guided.rows is None:
        return None
    rows, at = guided.rows, guided.cells
    counts, common = (own[at.source_pair, at.x][at.source_token] for own in (rows.stand_for, rows.common))
    counts = counts.to(guided.heatmap.dtype)
    return torch.where(at.y[at.target_token] < common, counts, counts / WHOLE)
