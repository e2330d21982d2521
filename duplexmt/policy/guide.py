"""The self-guided loop on a batch (Sections V-A and V-B): states, heatmap, best path, EMIT mask."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from ..grid.cells import Cells
from ..grid.model import EMIT, GridModel
from .heatmap import cells_at_once, loss_heatmap
from .path import best_path, emit_mask
from .regret import emit_advantages
from .visits import decoding_shares


@dataclass(frozen=True)
class Guided:
    """What a model makes of a batch: its heatmap, and the path it will train its EMIT head on."""

    cells: Cells  # layout of the scored cells
    source_lengths: Tensor  # [B], scored rows of each pair
    target_lengths: Tensor  # [B], scored columns
    hidden: Tensor  # [N, D], final-normed target states
    heatmap: Tensor  # [N], nats
    y_at: Tensor  # [B, X], best path
    mask: Tensor  # [N], EMIT where true
    advantages: Tensor | None  # [N], of EMIT over WAIT, where they were asked for
    area: Tensor  # mean area fraction below the paths


def guide(model: GridModel, tokens: StreamTokens, batch: Batch, lam: float, regret: bool = False) -> Guided:
    """Heatmap, best path and EMIT mask of a batch (Section V-A and V-B); states inside prefixes are not scored.

    Args:
        model: the grid model.
        tokens: the stream tokens its data was made with.
        batch: on the model's device.
        lam: λ of the path score.
        regret: whether to work out what each decision is worth, too (`policy.regret`).
    """
    cells = Cells.of(batch.shapes, batch.source.device)
    source, target = batch.source.flatten()[cells.source_slot], batch.target.flatten()[cells.target_slot]
    hidden = model.states(source, target, cells, batch.source_lengths)
    labels = cells.over_columns(batch.labels.flatten()[cells.target_slot])
    rows, columns = len(tokens.source_prefix), len(tokens.target_prefix)
    if rows or columns:
        cells, scored = cells.without(rows, columns)
        hidden, labels = hidden[scored], labels[scored]

    head = model.text_head
    chunk = cells_at_once(head.out_features, hidden.is_cuda)
    heatmap = loss_heatmap(hidden, head.weight, head.bias, labels, chunk)
    source_lengths, target_lengths = batch.source_lengths - rows, batch.target_lengths - columns
    grids = cells.padded(heatmap.detach()), source_lengths, target_lengths
    y_at = best_path(*grids, lam)
    mask = cells.flat(emit_mask(y_at, cells.width[1]))
    advantages = cells.flat(emit_advantages(*grids, lam)) if regret else None
    area = (y_at.sum(1) / (source_lengths * target_lengths)).mean()
    return Guided(cells, source_lengths, target_lengths, hidden, heatmap, y_at, mask, advantages, area)


def cell_weights(guided: Guided, emit_logits: Tensor) -> Tensor:
    """Weights of the language model's loss `[N]`, by how often decoding writes in a cell (`policy.visits`)."""
    p_emit = emit_logits.to(torch.promote_types(emit_logits.dtype, torch.float32)).softmax(-1)[:, EMIT]
    shares = decoding_shares(guided.cells.padded(p_emit), guided.source_lengths, guided.target_lengths)
    return guided.cells.flat(shares)
