"""The self-guided loop on a batch (Sections V-A and V-B): states, heatmap, best path, EMIT mask."""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..decoder.heads import EMIT
from ..decoder.layout import Layout
from ..decoder.model import DecoderModel
from ..grid.cells import Cells
from ..grid.model import GridModel
from .heatmap import losses_of_head
from .path import emit_mask, path_of
from .regret import emit_advantages
from .rows import WHOLE, DrawnRows
from .visits import DRAWS, decoding_shares, drawn_cells


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
    model: GridModel | DecoderModel,
    tokens: StreamTokens,
    batch: Batch,
    lam: float,
    regret: bool = False,
    rows: DrawnRows | None = None,
    taken_for: int | None = None,
    drawn: bool = False,
) -> Guided:
    """Heatmap, best path and EMIT mask of a batch (Section V-A and V-B); states inside prefixes are not scored.

    Args:
        model: of a grid.
        tokens: the stream tokens its data was made with.
        batch: on the model's device.
        lam: λ of the path score.
        regret: whether to work out what each decision is worth, too (`policy.regret`).
        rows: those to compute of each pair, counted after the source prefix, where no row reads another; None for all.
        taken_for: length that the anchor `source_length` takes every source to have; None for each one's own.
        drawn: whether words are to be learnt in drawn cells alone (`cell_weights` with points).
    """
    before, first = len(tokens.source_prefix), len(tokens.target_prefix)
    source, target, labels = batch.packed()
    if isinstance(model, DecoderModel):
        layout, cells = row_layout(model, batch, before, first, rows, taken_for)
        hidden, above = model.states(source, target, layout), 0
    else:
        assert rows is None, "rows of the grid of the paper are computed together"
        cells = Cells.of(batch.shapes, source.device)
        lengths = batch.source_lengths if taken_for is None else torch.full_like(batch.source_lengths, taken_for)
        hidden, above = model.states(source, target, cells, lengths), before
    labels = cells.over_columns(labels)
    if above or first:  # what was computed and is not scored
        cells, scored = cells.without(above, first)
        hidden, labels = hidden[scored], labels[scored]

    learnt = DRAWS * sum(Y for _, Y in batch.shapes) if drawn else None
    heatmap = losses_of_head(hidden, model.text_head, labels, model.logit_cap, learnt)
    source_lengths, target_lengths = batch.source_lengths - before, batch.target_lengths - first
    some = cells.padded(heatmap.detach())
    losses = some if rows is None else rows.spread(some, unreachable(some, source_lengths, lam))
    grids = losses, source_lengths, target_lengths
    worth = emit_advantages(*grids, lam)
    y_at = path_of(worth, source_lengths, target_lengths)
    area = (y_at.sum(1) / (source_lengths * target_lengths)).mean()
    every = emit_mask(y_at, cells.width[1]), worth
    mask, advantages = (cells.flat(one if rows is None else rows.of_all(one)) for one in every)
    advantages = advantages if regret else None
    return Guided(cells, rows, source_lengths, target_lengths, hidden, heatmap, y_at, mask, advantages, area)


def row_layout(
    model: DecoderModel, batch: Batch, before: int, first: int, rows: DrawnRows | None, taken_for: int | None
) -> tuple[Layout, Cells]:
    """Rows of a batch as streams, and as grids of their own: row x sees x + 1 source tokens.

    Args:
        model: of rows.
        batch: at hand.
        before: source tokens before the text, whose rows are left out.
        first: target tokens before the text.
        rows: those to compute; None for all behind these.
        taken_for: see `guide`.
    """
    at: list[Any]
    if rows is None:
        at = [list(range(X - before)) for X, _ in batch.shapes]
        lengths = torch.tensor([Y for X, Y in batch.shapes for _ in range(X - before)])
    else:
        at = [list(own) for own in rows.at]
        lengths = first + torch.tensor(list(itertools.chain(*rows.columns)))
    counts = torch.tensor([len(own) for own in at])
    sees = (before + 1 + torch.tensor(list(itertools.chain(*at)))).repeat_interleave(lengths)
    taken = None if taken_for is None else [taken_for] * len(batch.shapes)
    layout = Layout.packed(batch.shapes, counts, lengths, sees, model.anchor, taken, batch.source.device)
    cells = Cells.of([(len(own), Y) for own, (_, Y) in zip(at, batch.shapes, strict=True)])
    return layout, (cells if rows is None else cells.cut(lengths)).to(batch.source.device)


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
