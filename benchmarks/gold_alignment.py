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
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.studies.pairs import held_out_pairs, load_grid
from benchmarks.studies.policy import gold_lagging, policy_measures
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs
from duplexmt.streaming.grid_system import GridSystem

AGREEMENT = ("emit_agreement", "content_not_early", "content_not_early_in_order")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    try:
        result = measured(arguments)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(result))


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """All numbers of one model.

    Raises:
        ValueError: for a model without a grid, or of another corpus, and for a limit below 1.
    """
    loaded = load_grid(arguments.model_folder)
    data = loaded.info["data"]
    if data["corpus"] != "builtin":
        raise ValueError(
            f"{arguments.model_folder} was trained on {data['corpus']}, and only the built-in corpus has gold "
            "alignments: give the folder of a model trained with data=builtin"
        )
    pairs: list[Any] = held_out_pairs(loaded, arguments.limit)
    system = GridSystem(loaded.model, loaded.tokens, arguments.theta, max_target_tokens=64)
    texts = [(pair.source, pair.target) for pair in pairs]
    records = translate_pairs(system, texts, loaded.tokenizer, loaded.sources)
    row = score(records, "zh", "en", source_rate=4.0).row
    measures = policy_measures(loaded, pairs, loaded.info["policy"]["lam"])
    result: dict[str, Any] = {
        "theta": arguments.theta,
        "sentences": len(pairs),
        **{name: row[name] for name in ("BLEU", "chrF", "AL", "AL_all", "AP", "FRL")},
        "gold_AL_all": gold_lagging(loaded, pairs),
        **{name: measures[name] for name in AGREEMENT},
    }
    result["AL_all_above_gold"] = result["AL_all"] - result["gold_AL_all"]
    return result


if __name__ == "__main__":
    main()
