"""What a policy costs, without sampling noise of translations: the reference's loss along the path each setting takes.

Given the reference, a setting decides when each of its tokens is written: θ by the EMIT head, k by the schedule. The
mean loss of the tokens at those states, beside the AL of the path, compares policies and models with a fraction of the
scatter of BLEU. What the model would have written itself plays no part.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch.nn import functional as F

from duplexmt.baselines.mask import DELAYS, MULTI_PATH
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.grid.model import EMIT, GridModel
from duplexmt.metrics.latency import average_lagging
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.policy.guide import guide

BATCH = 25
WHOLE = "whole source"


def threshold_rows(p_emit: Sequence[Sequence[float]], theta: float) -> list[int]:
    """Row in which each target token is written when EMIT follows from `p(EMIT) > θ`.

    Args:
        p_emit: `[X, Y]`; the last column is the end token's.
        theta: EMIT threshold.

    Returns:
        `[Y]`; the end token is written in the last row, as in decoding.
    """
    X, Y = len(p_emit), len(p_emit[0])
    rows, x = [], 0
    for y in range(Y - 1):
        while x < X - 1 and not p_emit[x][y] > theta:
            x += 1
        rows.append(x)
    return [*rows, X - 1]


def schedule_rows(k: int, X: int, Y: int) -> list[int]:
    """The same under wait-k."""
    return [*(min(y + k, X) - 1 for y in range(Y - 1)), X - 1]


def lagging(rows: Sequence[int], X: int) -> float:
    """AL in source tokens of a path; neither end token counts, and having read the source's counts as all text."""
    return average_lagging([min(row + 1, X - 1) for row in rows[:-1]], X - 1, len(rows) - 1)


@torch.no_grad()
def path_losses(loaded: ModelFolder, examples: Sequence[Example], thetas: Sequence[float]) -> list[dict[str, Any]]:
    """Loss and AL of each setting of a model.

    Args:
        loaded: a model folder.
        examples: at least one, with text on both sides, made by its tokenizer.
        thetas: of a grid, which is also asked about fixed schedules (wait-k for k in `DELAYS`, and the whole source).

    Returns:
        For each setting `setting`, `AL` (mean over sentences) and `loss` (nats a target token, end tokens included).

    Raises:
        ValueError: for a model with prefixes, whose states are not scored.
    """
    tokens = loaded.tokens
    if tokens.source_prefix or tokens.target_prefix:
        raise ValueError("path losses of a model with prefixes or context: not supported, train it without")
    ordered = sorted(examples, key=lambda example: example.cells)
    device = next(loaded.model.parameters()).device
    lags: dict[str, list[float]] = {}
    losses: dict[str, float] = {}
    for begin in range(0, len(ordered), BATCH):
        batch = collate(ordered[begin : begin + BATCH]).to(device)
        paths = _grid_paths(loaded, batch, thetas) if isinstance(loaded.model, GridModel) else _own_paths(loaded, batch)
        for setting, lag, loss in paths:
            lags.setdefault(setting, []).append(lag)
            losses[setting] = losses.get(setting, 0.0) + loss
    written = sum(len(example.target) - 1 for example in ordered)
    return [
        {"setting": setting, "AL": fmean(lags[setting]), "loss": loss / written} for setting, loss in losses.items()
    ]


def _grid_paths(loaded: ModelFolder, batch: Batch, thetas: Sequence[float]) -> Iterator[tuple[str, float, float]]:
    """Setting, AL and summed loss of every path through each pair's grid."""
    model: Any = loaded.model
    guided = guide(model, loaded.tokens, batch, lam=0.0)
    probabilities = model.emit_logits(guided.hidden).double().softmax(-1)[:, EMIT]
    heatmaps, p_emit = guided.cells.padded(guided.heatmap), guided.cells.padded(probabilities)
    for heatmap, p, (X, Y) in zip(heatmaps, p_emit.tolist(), batch.shapes, strict=True):
        paths = {f"θ={theta:g}": threshold_rows([row[:Y] for row in p[:X]], theta) for theta in thetas}
        paths |= {f"k={k}": schedule_rows(k, X, Y) for k in DELAYS} | {WHOLE: [X - 1] * Y}
        for setting, rows in paths.items():
            yield setting, lagging(rows, X), float(heatmap[rows, range(Y)].sum())


def _own_paths(loaded: ModelFolder, batch: Batch) -> Iterator[tuple[str, float, float]]:
    """The same of the schedule a prefix model was trained for, or of the fixed ones if it was trained for all."""
    model: Any = loaded.model
    for k in (*DELAYS, None) if model.k == MULTI_PATH else (model.k,):
        rows = [schedule_rows(k or X, X, Y) for X, Y in batch.shapes]
        visible = torch.ones_like(batch.target)
        for seen, path in zip(visible, rows, strict=True):
            seen[: len(path)] = torch.tensor(path) + 1
        hidden = model(batch.source, batch.target, batch.source_lengths, visible)
        for states, labels, path, (X, Y) in zip(hidden, batch.labels, rows, batch.shapes, strict=True):
            loss = F.cross_entropy(model.text_logits(states[:Y]), labels[:Y], reduction="sum")
            yield WHOLE if k is None else f"k={k}", lagging(path, X), float(loss)
