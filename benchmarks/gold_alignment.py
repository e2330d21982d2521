"""Does the policy found by training agree with the gold alignments of the built-in corpus?

    python benchmarks/gold_alignment.py [MODEL_FOLDER] [--theta 0.5] [--limit N]

On the test pairs of the model's built-in corpus: quality and latency at θ beside the policy that writes each token as
soon as the gold alignment determines it; how often p(EMIT), as decoding has it with the recorded certainty and k_min,
is on the side of 0.5 that the model's own DP mask is on; and how often the DP path writes a token of a content word no
earlier than the row of the last source word it is aligned with (`content_not_early`; `…_in_order` asks the same of all
tokens before it too). The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.held_out import examples, held_out_pairs, load_grid, texts
from duplexmt.data.batch import collate
from duplexmt.data.builtin import AlignedPair, alignment_rows, determination_rows
from duplexmt.data.tokenizer import source_spans, token_spans
from duplexmt.decoder.heads import read_ahead
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs
from duplexmt.metrics.latency import average_lagging_all
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.policy.decoding_options import TARGET_TOKENS
from duplexmt.policy.guide import guide
from duplexmt.policy.path import path_rows
from duplexmt.streaming.systems import build_system

Spans = list[tuple[int, int]]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    try:
        result = measured(load_grid(arguments.model_folder), arguments.theta, arguments.limit)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(result))


def measured(loaded: ModelFolder, theta: float, limit: int | None) -> dict[str, Any]:
    """All numbers of one grid model.

    Raises:
        ValueError: for a model of another corpus, and for a limit below 1.
    """
    if (corpus := loaded.info["data"]["corpus"]) != "builtin":
        raise ValueError(
            f"the model was trained on {corpus}, and only the built-in corpus has gold alignments: give the folder of "
            "a model trained with data=builtin"
        )
    pairs: list[Any] = held_out_pairs(loaded, limit)
    system = build_system(loaded, "grid", theta, max_target_tokens=TARGET_TOKENS, tokenizer=loaded.tokenizer)
    records = translate_pairs(system, list(map(texts, pairs)), loaded.tokenizer, loaded.sources)
    row = score(records, "zh", "en", source_rate=4.0).row
    result: dict[str, Any] = {
        "theta": theta,
        "sentences": len(pairs),
        **{name: row[name] for name in ("BLEU", "chrF", "AL", "AL_all", "AP", "FRL")},
        "gold_AL_all": gold_lagging(loaded, pairs),
        **policy_measures(loaded, pairs, loaded.info["policy"]["lam"]),
    }
    lag = result["AL_all"]  # None where nothing was written
    result["AL_all_above_gold"] = None if lag is None else lag - result["gold_AL_all"]
    return result


def spans(loaded: ModelFolder, pair: AlignedPair) -> tuple[AlignedPair, Spans, Spans]:
    """Arguments of `alignment_rows` and `determination_rows`."""
    source = source_spans(loaded.tokenizer, pair.source, loaded.sources.segmentation)
    return pair, source, token_spans(loaded.tokenizer, pair.target)


@torch.no_grad()
def policy_measures(loaded: ModelFolder, pairs: Sequence[AlignedPair], lam: float) -> dict[str, float]:
    """EMIT decisions against path, and path against gold alignments.

    Args:
        loaded: a model folder that holds a grid.
        pairs: at least one.

    Returns:
        `emit_agreement` (share of cells whose EMIT decision is that of the mask), `content_not_early` (share of tokens
        of content words that the path writes no earlier than the row of the last source word they are aligned with)
        and `content_not_early_in_order` (the same, asked of all tokens before too).
    """
    model: Any = loaded.model
    rule = loaded.rule
    agreeing = cells = content = not_early = not_before_order = 0
    for begin in range(0, len(pairs), 25):
        part = pairs[begin : begin + 25]
        batch = collate(examples(loaded, part)).to(model.device)
        guided = guide(model, loaded.tokens, batch, lam, words=rule.words)
        decided = torch.cat([model.decide(states, rule.certainty)[0] for states in guided.hidden.split(256)])
        p_emit = guided.cells.padded(decided)
        for p, (X, Y) in zip(p_emit, guided.cells.shapes, strict=True):
            p[:X, :Y] = read_ahead(p[:X, :Y], rule.k_min)
        emits = guided.cells.flat(p_emit) > 0.5
        agreeing += int((emits == guided.mask).sum())
        cells += len(guided.cells)
        for pair, rows in zip(part, path_rows(guided.y_at, guided.cells.width[1]).tolist(), strict=True):
            _, _, tokens = given = spans(loaded, pair)
            words = [span for span, counts in zip(pair.target_spans, pair.content, strict=True) if counts]
            is_content = [any(start < end_ and start_ < end for start_, end_ in words) for start, end in tokens]
            aligned, ordered = alignment_rows(*given), determination_rows(*given)
            content += sum(is_content)
            not_early += sum(c and r >= g for c, r, g in zip(is_content, rows, aligned, strict=False))
            not_before_order += sum(c and r >= g for c, r, g in zip(is_content, rows, ordered, strict=False))
    return {
        "emit_agreement": agreeing / cells,
        "content_not_early": not_early / content,
        "content_not_early_in_order": not_before_order / content,
    }


def gold_lagging(loaded: ModelFolder, pairs: Sequence[AlignedPair]) -> float:
    """Mean AL_all, in model tokens, of writing each reference token as soon as it is determined."""
    lags = []
    for pair in pairs:
        _, source, _ = given = spans(loaded, pair)
        source_length = len(source)
        delays = [min(row + 1, source_length) for row in determination_rows(*given)]
        lags.append(average_lagging_all(delays, source_length, len(delays)))
    return fmean(lags)


if __name__ == "__main__":
    main()
