"""What the self-guided loop has come to: path, EMIT head, and both against gold alignments where a corpus has them."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch

from duplexmt.data.batch import collate
from duplexmt.data.grammar import AlignedPair, alignment_rows, determination_rows
from duplexmt.data.tokenizer import source_spans, token_spans
from duplexmt.grid.model import EMIT, GridModel
from duplexmt.metrics.latency import average_lagging_all
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.policy.calibration import BINS, calibration_error, calibration_sums
from duplexmt.policy.guide import guide
from duplexmt.policy.path import path_rows

from .pairs import Pair, examples

Spans = list[tuple[int, int]]


def spans(loaded: ModelFolder, pair: AlignedPair) -> tuple[AlignedPair, Spans, Spans]:
    """Arguments of `alignment_rows` and `determination_rows`."""
    source = source_spans(loaded.tokenizer, pair.source, loaded.sources.segmentation)
    return pair, source, token_spans(loaded.tokenizer, pair.target)


def content_tokens(loaded: ModelFolder, pair: AlignedPair) -> list[bool]:
    """Whether each target token is part of a content word."""
    words = [span for span, content in zip(pair.target_spans, pair.content, strict=True) if content]
    tokens = token_spans(loaded.tokenizer, pair.target)
    return [any(start < end_ and start_ < end for start_, end_ in words) for start, end in tokens]


@torch.no_grad()
def policy_measures(loaded: ModelFolder, pairs: Sequence[Pair], lam: float) -> dict[str, Any]:
    """Path and EMIT head of a grid model on test pairs, and the path against the gold alignments.

    Args:
        loaded: a model folder that holds a grid.
        pairs: at least one.
        lam: λ of the path.

    Returns:
        `area` (mean share of cells below the path), `lm_loss` (nats a cell to be written), `emit_agreement` (share of
        cells whose EMIT decision is that of the mask), `emit_rate` (share of cells with p(EMIT) > 0.5),
        `calibration_error` and `calibration` (`calibration_sums`); with gold alignments, else None: `content_not_early`
        (share of tokens of content words that the path writes no earlier than the row of the last source word they are
        aligned with) and `content_not_early_in_order` (the same, asked of all tokens before too).
    """
    model = loaded.model
    assert isinstance(model, GridModel)
    written = cells = content = not_early = not_before_order = 0
    loss = area = agreeing = emitted = 0.0
    calibration = torch.zeros(BINS, 3, dtype=torch.float64)
    for begin in range(0, len(pairs), 25):
        part = pairs[begin : begin + 25]
        batch = collate(examples(loaded, part)).to(model.device)
        guided = guide(model, loaded.tokens, batch, lam)
        probabilities = model.emit_logits(guided.hidden).double().softmax(-1)[:, EMIT]
        decided = probabilities > 0.5
        agreeing += (decided == guided.mask).sum().item()
        emitted += decided.sum().item()
        calibration += calibration_sums(probabilities, guided.mask).cpu()
        cells += len(guided.cells)
        written += int(guided.mask.sum())
        loss += guided.heatmap[guided.mask].sum().item()
        area += guided.area.item() * len(part)
        rows_of = path_rows(guided.y_at, guided.cells.width[1]).tolist()
        for pair, rows in zip(part, rows_of, strict=True):
            if not isinstance(pair, AlignedPair):
                continue
            is_content = content_tokens(loaded, pair)
            aligned, ordered = alignment_rows(*spans(loaded, pair)), determination_rows(*spans(loaded, pair))
            content += sum(is_content)
            not_early += sum(c and r >= g for c, r, g in zip(is_content, rows, aligned, strict=False))
            not_before_order += sum(c and r >= g for c, r, g in zip(is_content, rows, ordered, strict=False))
    return {
        "area": area / len(pairs),
        "lm_loss": loss / written,
        "emit_agreement": agreeing / cells,
        "emit_rate": emitted / cells,
        "calibration_error": calibration_error(calibration).item(),
        "calibration": calibration.tolist(),
        "content_not_early": not_early / content if content else None,
        "content_not_early_in_order": not_before_order / content if content else None,
    }


def gold_lagging(loaded: ModelFolder, pairs: Sequence[AlignedPair]) -> float:
    """Mean AL_all, in model tokens, of writing each reference token as soon as it is determined."""
    lags = []
    for pair in pairs:
        source_length = len(spans(loaded, pair)[1])
        delays = [min(row + 1, source_length) for row in determination_rows(*spans(loaded, pair))]
        lags.append(average_lagging_all(delays, source_length, len(delays)))
    return fmean(lags)
