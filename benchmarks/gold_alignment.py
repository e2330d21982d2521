"""Does the policy found by training agree with the gold alignments of the built-in corpus?

    python benchmarks/gold_alignment.py [MODEL_FOLDER] [--theta 0.5] [--limit N]

On the test pairs of the model's built-in corpus: quality and latency at θ beside the policy that writes each token as
soon as the gold alignment determines it; how often p(EMIT), as decoding has it with the recorded certainty and k_min,
is on the side of 0.5 that the model's own DP mask is on; and how often the DP path writes a token of a content word no
earlier than the row of the last source word it is aligned with (`content_not_early`; `…_in_order` asks the same of all
tokens before it too). The last line is one JSON object.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.held_out import BATCH, examples, guided, held_out_pairs, texts
from benchmarks.measuring import command, count
from duplexmt.data.batch import collate
from duplexmt.data.builtin import AlignedPair, alignment_rows, determination_rows
from duplexmt.data.tokenizer import source_spans, token_spans
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs
from duplexmt.metrics.latency import average_lagging_all
from duplexmt.model_folder.artifact import ModelFolder, load_model_folder
from duplexmt.policy.decoding_options import TARGET_TOKENS
from duplexmt.policy.path import path_rows
from duplexmt.streaming.systems import build_system

Spans = list[tuple[int, int]]


def main() -> None:
    """The command line."""
    parser = command(__doc__)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--limit", type=count)
    asked = parser.parse_args()
    try:
        print(json.dumps(measured(load_model_folder(asked.model_folder), asked.theta, asked.limit)))
    except (ValueError, OSError) as error:
        parser.error(str(error))


def measured(loaded: ModelFolder, theta: float, limit: int | None) -> dict[str, Any]:
    """All numbers of one grid model.

    Raises:
        ValueError: for a model of another corpus or system.
    """
    corpus, kind = loaded.info["data"]["corpus"], loaded.model.system
    if (corpus, kind) != ("builtin", "grid"):
        raise ValueError(
            f"a {kind} model trained on {corpus}: only the built-in corpus has gold alignments, only a grid a path; "
            "give the folder of a model trained with data=builtin system=grid"
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
    counts: Counter[str] = Counter()
    for begin in range(0, len(pairs), BATCH):
        part = pairs[begin : begin + BATCH]
        batch = collate(examples(loaded, part)).to(loaded.model.device)
        found, p_emit = guided(loaded, batch, lam)
        for p, mask in zip(p_emit, found.cells.padded(found.mask), strict=True):
            X, Y = p.shape
            counts.update(cells=X * Y, agreeing=int(((p > 0.5) == mask[:X, :Y]).sum()))
        for pair, rows in zip(part, path_rows(found.y_at, found.cells.width[1]).tolist(), strict=True):
            _, _, tokens = given = spans(loaded, pair)
            words = [span for span, has_content in zip(pair.target_spans, pair.content, strict=True) if has_content]
            is_content = [any(start < end_ and start_ < end for start_, end_ in words) for start, end in tokens]
            rules = {"not_early": alignment_rows(*given), "in_order": determination_rows(*given)}
            counts["content"] += sum(is_content)
            for name, gold in rules.items():
                counts[name] += sum(c and r >= g for c, r, g in zip(is_content, rows, gold, strict=False))
    return {
        "emit_agreement": counts["agreeing"] / counts["cells"],
        "content_not_early": counts["not_early"] / counts["content"],
        "content_not_early_in_order": counts["in_order"] / counts["content"],
    }


def gold_lagging(loaded: ModelFolder, pairs: Sequence[AlignedPair]) -> float:
    """Mean AL_all, in model tokens, of writing each reference token as soon as it is determined."""
    lags = []
    for given in (spans(loaded, pair) for pair in pairs):
        X = len(given[1])
        delays = [min(row + 1, X) for row in determination_rows(*given)]
        lags.append(average_lagging_all(delays, X, len(delays)))
    return fmean(lags)


if __name__ == "__main__":
    main()
