"""The reference's loss along the path each θ and each k takes, against AL: policies compared without BLEU's scatter.

    python benchmarks/path_loss.py MODEL_FOLDER … --pairs FILE [--limit 1000] [--theta 0.5 0.7 0.9]

Given the reference, a setting decides when each of its tokens is written: θ by p(EMIT) as decoding has it, k by the
schedule. The mean loss of the tokens at those states, beside the AL of the path, compares policies and models with a
fraction of the scatter of BLEU. What the model would have written itself plays no part, but in a recorded certainty.

A second table has each model's loss at the latency of each k (of a grid interpolated between its two nearest θ) and
with the whole source read.

Pairs: a source and a target a line, such as validation pairs, or an evaluation's folder; by default those of the
built-in corpus. All model folders must share a tokenizer for their losses to compare. The last line is one JSON object.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import repeat
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import count
from duplexmt.common.command import command_parser
from duplexmt.common.pair import Pair
from duplexmt.data.batch import Batch, Example, collate
from duplexmt.data.builtin import builtin_corpus
from duplexmt.data.copying import target_ids
from duplexmt.decoder.decoder_options import MULTI_PATH
from duplexmt.decoder.heads import bound_lag
from duplexmt.decoder.schedules import DELAYS
from duplexmt.drawing.table import to_markdown
from duplexmt.evaluation.decoding import DECODING, Decoding
from duplexmt.evaluation.pairs import pairs_for
from duplexmt.metrics.latency import average_lagging
from duplexmt.model_folder.artifact import ModelFolder, choose_device, load_model_folder
from duplexmt.policy.decoding_options import check_theta
from duplexmt.policy.guide import guide
from duplexmt.policy.heatmap import losses_of_head

THETAS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
WHOLE = "whole source"
BATCH = 25  # pairs


def main(arguments: list[str] | None = None) -> None:
    """A table of all models and settings."""
    parser = command_parser(__doc__)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL_FOLDER")
    parser.add_argument("--pairs", help="file of pairs, or folder of an evaluation")
    parser.add_argument("--limit", type=count, help="pairs; default: all")
    parser.add_argument("--theta", type=float, nargs="+", default=THETAS)
    asked = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    failed = None
    try:
        for theta in asked.theta:
            check_theta(theta, "--theta")
        for folder in asked.models:
            loaded = load_model_folder(folder, choose_device("auto"))
            found = examples(loaded, held_out_pairs(loaded, asked.limit, asked.pairs))
            rows += [{"model": str(folder), **row} for row in path_losses(loaded, found, asked.theta)]
            print(f"{folder}: {len(found)} pairs", file=sys.stderr, flush=True)  # progress
    except (ValueError, OSError) as error:
        failed = error  # what was measured of the models before is shown all the same
    if rows:
        print(to_markdown([row | shown_losses(row) for row in rows], "Loss along the path, nats a token"))
        own = [row | shown_losses(row) for row in at_latency_of_k(rows)]
        print(to_markdown(own, "Loss of each model's own policy, nats a token, at the latency of k"))
        print(json.dumps({"benchmark": "path_loss", "pairs": len(found), "rows": rows}))
    if failed is not None:
        parser.error(str(failed))


def held_out_pairs(loaded: ModelFolder, limit: int | None, file: str | None = None) -> list[Pair]:
    """The first `limit` (None: all) test pairs of a file, with a source and a target a line; or of an evaluation's
    folder, its sentences and first references; or of the built-in corpus the model was trained on.

    Raises:
        ValueError: for a model of another corpus without a file, a bad file, or an unfinished evaluation.
    """
    data = loaded.info["data"]
    if file is not None and (Path(file) / DECODING).is_file():
        evaluation = Decoding.read(Path(file))
        evaluation.check_complete()
        records = evaluation.sorted(next(iter(evaluation.points)))
        pairs = [Pair(record["source"], record["references"][0]) for record in records]
    elif file is not None:
        pairs = pairs_for(loaded, file)
    elif data.get("corpus") == "builtin":
        test = builtin_corpus(data["train_size"], data["validation_size"], data["test_size"], data["seed"])["test"]
        pairs = [Pair(pair.source, pair.target) for pair in test]
    else:
        raise ValueError(
            f"the model was trained on corpus {data.get('corpus')!r}, which is not kept with it: give test pairs, one "
            "source and target a line, or the folder of an evaluation, with --pairs"
        )
    return pairs[:limit]


def examples(loaded: ModelFolder, pairs: Sequence[Pair]) -> list[Example]:
    """Both streams of each pair.

    Raises:
        ValueError: for no pairs, or one without tokens on either side.
    """
    if not pairs:
        raise ValueError("no sentence pairs: give some with --pairs FILE")
    sources = [pair.source for pair in pairs]
    contexts = loaded.sources.ids([pair.before for pair in pairs])
    targets = target_ids(loaded.tokenizer, [pair.target for pair in pairs], sources, loaded.tokens.copy_tokens)
    found = list(zip(loaded.sources.ids(sources), targets, contexts, strict=True))
    for number, (source, target, _) in enumerate(found, 1):
        if not source or not target:
            side = "target" if source else "source"
            raise ValueError(f"pair {number} has a {side} without tokens: {pairs[number - 1]}; take it out")
    return [loaded.tokens.example(*ids) for ids in found]


def threshold_rows(p_emit: Sequence[Sequence[float]], theta: float) -> list[int]:
    """Row in which each target token is written, `[Y]`, where EMIT is p(EMIT) > θ, of `[X, Y]`; the end token, the last
    column's, in the last row, as in decoding."""
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


def shown_losses(row: dict[str, Any]) -> dict[str, str]:
    """The row's losses as shown: with three decimals, where trainings of one kind differ by 0.006."""
    return {name: f"{loss:.3f}" for name, loss in row.items() if name != "AL" and isinstance(loss, float)}


def at_latency_of_k(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each model its own policy's loss at the latency of each k, and with the whole source read.

    Args:
        rows: of one model after another, as `path_losses` gives them, with `model`.

    Returns:
        For each model `model`, `k=…` for each k found (of a grid by θ, linear in AL between the two settings around
        that of the fixed schedule; of a prefix model on its own schedule) and `whole source`; None where it has none.
    """
    fixed = {row["setting"] for row in rows if not row["setting"].startswith("θ=")}
    columns = [*sorted(fixed - {WHOLE}, key=lambda setting: int(setting.removeprefix("k="))), WHOLE]
    table = []
    for model in dict.fromkeys(row["model"] for row in rows):
        found = {row["setting"]: row for row in rows if row["model"] == model}
        curve = sorted((row["AL"], row["loss"]) for setting, row in found.items() if setting.startswith("θ="))
        at: dict[str, float | None] = {name: found[name]["loss"] if name in found else None for name in columns}
        if curve:
            lags, losses = zip(*curve, strict=True)
            for setting in found.keys() & {*columns} - {WHOLE}:
                loss = float(np.interp(found[setting]["AL"], lags, losses, left=nan, right=nan))
                at[setting] = None if isnan(loss) else loss
        table.append({"model": model, **at})
    return table


def lagging(rows: Sequence[int], X: int) -> float:
    """AL in source tokens of a path; neither end token counts, and having read the source's counts as all text."""
    return average_lagging([min(row + 1, X - 1) for row in rows[:-1]], X - 1, len(rows) - 1)


@torch.no_grad()
def path_losses(loaded: ModelFolder, examples: Sequence[Example], thetas: Sequence[float]) -> list[dict[str, Any]]:
    """Loss and AL of each setting of a model.

    Args:
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
        paths = _grid_paths(loaded, batch, thetas) if loaded.model.system == "grid" else _own_paths(loaded, batch)
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
    rule = loaded.rule
    found = guide(model, loaded.tokens, batch, 0.0, words=rule.words)
    decided = torch.cat([model.decide(states, rule.certainty)[0] for states in found.hidden.split(256)])
    each = zip(found.cells.padded(found.heatmap), found.cells.padded(decided), batch.shapes, strict=True)
    for (heatmap, p_emit, (X, Y)), inner in zip(each, found.inner or repeat(None), strict=False):
        p = bound_lag(p_emit[:X, :Y], rule.k_min, rule.k_max, inner and inner[:Y])
        paths = {f"θ={theta:g}": threshold_rows(p.tolist(), theta) for theta in thetas}
        paths |= {f"k={k}": schedule_rows(k, X, Y) for k in DELAYS} | {WHOLE: [X - 1] * Y}
        for setting, rows in paths.items():
            yield setting, lagging(rows, X), float(heatmap[rows, range(Y)].sum())


def _own_paths(loaded: ModelFolder, batch: Batch) -> Iterator[tuple[str, float, float]]:
    """The same of the schedule a prefix model was trained for, or of the fixed ones if it was trained for all."""
    model: Any = loaded.model
    for k in (*DELAYS, None) if model.k == MULTI_PATH else (model.k,):
        rows = [schedule_rows(k or X, X, Y) for X, Y in batch.shapes]
        layout = model.layout(batch.shapes, [[torch.tensor(path) + 1] for path in rows])
        source, target, labels = batch.packed()
        states = model.states(torch.cat((source, target)), layout)
        losses = losses_of_head(states, model.text_head, labels, model.logit_cap)
        of_pairs = losses.split([Y for _, Y in batch.shapes])
        for own, path, (X, _) in zip(of_pairs, rows, batch.shapes, strict=True):
            yield WHOLE if k is None else f"k={k}", lagging(path, X), float(own.sum())


if __name__ == "__main__":
    main()
