"""The self-guided loop on a batch (Sections V-A to V-C): states, heatmap, best path, EMIT mask."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..decoder.heads import EMIT
from ..decoder.model import DecoderModel
from ..grid.model import GridModel
from ..kernels.products import at_least_float32
from .heatmap import losses_of_head
from .path import emit_mask, path_of
from .plan import Plan, RowCells, grid_plan, row_plan
from .regret import emit_advantages
from .rows import DrawnRows
from .visits import DRAWS, decoding_shares, drawn_cells
from .words import has_choice, within_words


@dataclass(frozen=True)
class Guided:
    """What a model makes of a batch: its heatmap, and the path it will train its EMIT head on."""

    cells: RowCells  # layout of the scored cells: all rows, or the drawn ones as if they were a grid
    rows: DrawnRows | None  # those drawn; None: all
    source_lengths: Tensor  # [B], scored rows of each pair, drawn or not
    target_lengths: Tensor  # [B], scored columns
    hidden: Tensor  # [N, D], final-normed target states
    heatmap: Tensor  # [N], nats
    y_at: Tensor  # [B, X], best path
    mask: Tensor  # [N], EMIT where true
    advantages: Tensor | None  # [N], of EMIT over WAIT, where they were asked for
    area: Tensor  # mean area fraction below the paths
    stand_for: Tensor | None  # [N], decisions of the full grid that each cell stands for; None: itself
    inner: Tensor | None  # [B, Y], tokens that go on with a word, where decisions are by words; None: by tokens


def guide(
    model: GridModel | DecoderModel,
    tokens: StreamTokens,
    batch: Batch,
    lam: float,
    regret: bool = False,
    taken_for: int | None = None,
    plan: Plan | None = None,
    drawn: bool = False,
    words: Tensor | None = None,
) -> Guided:
    """Heatmap, best path and EMIT mask of a batch (Sections V-A to V-C); states inside prefixes are not scored.

    Args:
        tokens: the stream tokens its data was made with.
        batch: on the model's device.
        regret: whether to work out what each decision is worth, too (`policy.regret`).
        taken_for: length that the anchor `source_length` takes every source to have; None for each one's own.
        plan: of the batch and on its device; None computes all rows.
        drawn: whether words are to be learnt in drawn cells alone (`cell_weights` with points).
        words: where decisions are by words, `EmitRule.words`.
    """
    if plan is None:
        of_rows = partial(row_plan, anchor=model.anchor, taken_for=taken_for)
        whole: Any = grid_plan if isinstance(model, GridModel) else of_rows
        plan = whole(batch, tokens.prefixes).to(batch.source.device)
    assert plan.cells is not None
    assert plan.lengths is not None
    labels, cells, rows, (source_lengths, target_lengths) = plan.labels, plan.cells, plan.rows, plan.lengths
    if isinstance(model, GridModel):
        lengths = batch.source_lengths if taken_for is None else torch.full_like(batch.source_lengths, taken_for)
        source, target = plan.tokens.tensor_split((len(plan.layout.x),))
        hidden = model.states(source, target, plan.layout, F.pad(lengths, (0, 1), value=1))
        hidden = hidden if plan.scored is None else hidden.index_select(0, plan.scored)
    else:
        hidden = model.states(plan.tokens, plan.layout)

    learnt = None if plan.real is None else len(hidden)  # at most, which spares asking the device
    if drawn:
        learnt = min(len(hidden), DRAWS * sum(Y for _, Y in batch.shapes))
    heatmap = losses_of_head(hidden, model.text_head, labels, model.logit_cap, learnt)
    some, inner = cells.padded(heatmap.detach()), within_words(words, batch, tokens)
    longest = 1 if inner is None else inner.shape[1]  # tokens of a word, at most
    losses = some if rows is None else rows.spread(some, longest * unreachable(some, source_lengths, lam))
    grids = losses, source_lengths, target_lengths
    worth = emit_advantages(*grids, lam, inner)
    y_at = path_of(worth, source_lengths, target_lengths)
    area = (y_at.sum(1) / (source_lengths * target_lengths)).mean()
    every = emit_mask(y_at, cells.width[1]), worth
    mask, of_cells = (cells.flat(one if rows is None else rows.of_all(one)) for one in every)
    stand_for = plan.stand_for
    if inner is not None:
        own = cells.flat(has_choice(inner, None if rows is None else rows.ends).expand(some.shape)).to(heatmap.dtype)
        of_cells, stand_for = of_cells * own, own if stand_for is None else stand_for * own
    found = heatmap, y_at, mask, of_cells if regret else None, area, stand_for, inner
    return Guided(cells, rows, source_lengths, target_lengths, hidden, *found)


def unreachable(losses: Tensor, source_lengths: Tensor, lam: float) -> Tensor:
    """Nats of a cell that was not computed `[B, 1, 1]`: so many that no path writes there.

    They are more than the largest loss that was computed and what λ pays for a token of the first row, together: a path
    that writes there gains by waiting until it comes to a cell that was computed.
    """
    return losses.amax((1, 2), keepdim=True) + 1 + lam * source_lengths[:, None, None]


def cell_weights(guided: Guided, emit_logits: Tensor, visits: bool, points: Tensor | None = None) -> Tensor | None:
    """Weights of the language model's loss `[N]`; None for the mask's own, of all rows.

    Args:
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
        p_emit = emit_logits.to(at_least_float32(emit_logits.dtype)).softmax(-1)[:, EMIT]
        some = guided.cells.padded(p_emit)
        every = some if rows is None else rows.spread(some, 0.0)
        if guided.inner is not None and rows is not None:  # a word that a row cannot finish is not begun in it
            every = every.where(has_choice(guided.inner, rows.ends.gather(1, rows.stretch)), 0.0)
        weights = decoding_shares(every, guided.source_lengths, guided.target_lengths, guided.inner)
    weights = weights if rows is None else rows.summed(weights)
    return guided.cells.flat(weights if points is None else drawn_cells(weights, points))
