"""Does the policy found by training agree with the gold alignments of the built-in corpus?

    python benchmarks/gold_alignment.py [MODEL_FOLDER] [--theta 0.5] [--limit N]

On the test pairs of the model's built-in corpus: quality and latency at θ beside the policy that writes each token as
soon as the gold alignment determines it; how often the EMIT head agrees with the model's own DP mask; and how often the
DP path writes a token of a content word no earlier than the row of the last source word it is aligned with
(`content_not_early`; `…_in_order` asks the same of all tokens before it too). The last line is one JSON object.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from duplexmt.artifact import ModelFolder, load_model_folder
from duplexmt.data.batch import collate
from duplexmt.data.grammar import AlignedPair, alignment_rows, builtin_corpus, determination_rows
from duplexmt.data.tokenizer import source_spans, token_ids, token_spans
from duplexmt.evaluation import translate_pairs
from duplexmt.grid.model import EMIT
from duplexmt.metrics.latency import average_lagging_all
from duplexmt.policy.path import path_rows
from duplexmt.scoring import score
from duplexmt.streaming.grid import GridSystem
from duplexmt.training.module import guide


def spans(loaded: ModelFolder, pair: AlignedPair) -> tuple[AlignedPair, list, list]:
    """Arguments of `alignment_rows` and `determination_rows`."""
    source = source_spans(loaded.tokenizer, pair.source, loaded.sources.segmentation)
    return pair, source, token_spans(loaded.tokenizer, pair.target)


def content_tokens(loaded: ModelFolder, pair: AlignedPair) -> list[bool]:
    """Whether each target token is part of a content word."""
    words = [span for span, content in zip(pair.target_spans, pair.content, strict=True) if content]
    tokens = token_spans(loaded.tokenizer, pair.target)
    return [any(start < end_ and start_ < end for start_, end_ in words) for start, end in tokens]


@torch.no_grad()
def policy_agreement(loaded: ModelFolder, pairs: list[AlignedPair], lam: float) -> dict[str, float]:
    """Agreement of the EMIT head with its DP mask, and of the DP path with the gold alignments."""
    agreeing = cells = content = not_early = not_before_order = 0
    for begin in range(0, len(pairs), 25):
        part = pairs[begin : begin + 25]
        sources = loaded.sources.ids([pair.source for pair in part])
        targets = token_ids(loaded.tokenizer, [pair.target for pair in part])
        batch = collate([loaded.tokens.example(*ids) for ids in zip(sources, targets, strict=True)])
        guided = guide(loaded.model, loaded.tokens, batch, lam)
        decided = loaded.model.emit_logits(guided.hidden).argmax(-1) == EMIT
        agreeing += (decided == guided.mask).sum().item()
        cells += len(guided.cells)
        y_at, Y = guided.y_at, guided.cells.width[1]
        for pair, rows in zip(part, path_rows(y_at, Y).tolist(), strict=True):
            is_content = content_tokens(loaded, pair)
            aligned, ordered = alignment_rows(*spans(loaded, pair)), determination_rows(*spans(loaded, pair))
            content += sum(is_content)
            not_early += sum(c and r >= g for c, r, g in zip(is_content, rows, aligned, strict=False))
            not_before_order += sum(c and r >= g for c, r, g in zip(is_content, rows, ordered, strict=False))
    return {
        "emit_agreement": agreeing / cells,
        "content_not_early": not_early / content,
        "content_not_early_in_order": not_before_order / content,
    }


def gold_lagging(loaded: ModelFolder, pairs: list[AlignedPair]) -> float:
    """Mean AL_all, in model tokens, of writing each reference token as soon as it is determined."""
    lags = []
    for pair in pairs:
        source_length = len(spans(loaded, pair)[1])
        delays = [min(row + 1, source_length) for row in determination_rows(*spans(loaded, pair))]
        lags.append(average_lagging_all(delays, source_length, len(delays)))
    return fmean(lags)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    loaded = load_model_folder(arguments.model_folder)
    data = loaded.info["data"]
    if data["corpus"] != "builtin":
        raise SystemExit(f"{arguments.model_folder} was trained on {data['corpus']}: only the built-in corpus has gold")
    corpus = builtin_corpus(data["train_size"], data["validation_size"], data["test_size"], data["seed"])
    pairs = corpus["test"][: arguments.limit]
    system = GridSystem(loaded.model, loaded.tokens, arguments.theta, max_target_tokens=64)
    texts = [(pair.source, pair.target) for pair in pairs]
    records = translate_pairs(system, texts, loaded.tokenizer, loaded.sources)
    row = score(records, "zh", "en", source_rate=4.0).row
    result = {
        "theta": arguments.theta,
        "sentences": len(pairs),
        **{name: row[name] for name in ("BLEU", "chrF", "AL", "AL_all", "AP", "FRL")},
        "gold_AL_all": gold_lagging(loaded, pairs),
        **policy_agreement(loaded, pairs, loaded.info["training"]["lam"]),
    }
    result["AL_all_above_gold"] = result["AL_all"] - result["gold_AL_all"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
