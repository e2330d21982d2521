"""Where does waiting pay, and does a policy find it? Evaluations of one test set, by kinds of sentences.

    python benchmarks/where_waiting_pays.py runs/grid-tatoeba runs/multi-tatoeba --learn train.tsv.gz

Sentences are parted into thirds by the length of the source, and by how much the word order differs: the share of pairs
of aligned words of the reference whose source words stand the other way round (Kendall's distance), as the aligner of
the metrics environment has it (`make metrics`), which learns from the pairs of `--learn`. Without it they are parted by
length alone. For each part the quality and latency of each system at each setting, and systems against each other at
equal AL, as `evaluate.py` compares them: those whose sources are the same tokens. With `--over-seeds` models that only
their seeds tell apart are one system, as with `evaluate.py over_seeds=true`. The last line is one JSON object.
"""

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import count, rounded
from duplexmt.common.command import command_parser
from duplexmt.drawing.table import summary
from duplexmt.evaluation.aligned import learnt_pairs, words_of
from duplexmt.evaluation.comparing import comparisons
from duplexmt.evaluation.decoding import data_of_models
from duplexmt.evaluation.results import by_tokenisation, give_names, of_one_test_set, score
from duplexmt.evaluation.seeds import mean_over_seeds
from duplexmt.metrics.alignment import word_alignments


def crossing(partners: Sequence[int]) -> float:
    """Share of the pairs of aligned target words whose source words stand the other way round; 0 without a pair.
    `partners` are the source words of the target words, counted from 1, or 0 for none."""
    pairs = [one > other for one, other in combinations([partner for partner in partners if partner], 2)]
    return sum(pairs) / len(pairs) if pairs else 0.0


def thirds(values: Sequence[float]) -> dict[str, list[int]]:
    """Indices of the lowest, middle and highest values, as many of each as can be; equal ones in their order."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    bounds = [round(len(order) * part / 3) for part in range(4)]
    return {name: sorted(order[a:b]) for name, a, b in zip(("low", "middle", "high"), bounds, bounds[1:], strict=False)}


def main() -> None:
    """Part, score and print."""
    parser = command_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="of evaluations of one test set")
    parser.add_argument("--learn", help="pairs that the aligner learns from, laid out as those of training")
    parser.add_argument("--over-seeds", action="store_true", help="trainings that differ by their seeds are one system")
    parser.add_argument("--resamples", type=count, default=1000, help="of the bootstrap (default 1000)")
    asked = parser.parse_args()
    try:
        found = parted(asked.folders, asked.learn, asked.over_seeds, asked.resamples)
    except (ValueError, OSError) as error:  # one is a setting that not all trainings have, or a model there twice
        parser.error(str(error).replace("over_seeds=true", "--over-seeds"))
    print(json.dumps({"benchmark": "where_waiting_pays", **rounded(found)}))


def parted(folders: list[Path], learn: str | None, over_seeds: bool, resamples: int) -> dict[str, list[dict[str, Any]]]:
    """Scores and comparisons of each part, which are also printed."""
    evaluations = of_one_test_set(folders)
    languages = evaluations[0].test["source_language"], evaluations[0].test["target_language"]
    points = {point.digest: point for evaluation in evaluations for point in evaluation.points.values()}
    records = {key: evaluation.sorted(key) for evaluation in evaluations for key in evaluation.points}
    first = next(iter(records.values()))
    values: dict[str, Sequence[float]] = {"length": [len(record["source_tokens"]) for record in first]}
    if learn is not None:
        pairs = [words_of(record["source"], record["references"][0], languages) for record in first]
        further = learnt_pairs(learn, languages, data_of_models(points.values()))
        learnt = (words_of(pair.source, pair.target, languages) for pair in further)
        alignments, aligner = word_alignments([*pairs, *learnt], pairs, ".venv-metrics")
        values["crossing"] = [crossing(partners) for partners in alignments]
        print(f"words are aligned by {aligner}")
    found: dict[str, list[dict[str, Any]]] = {"rows": [], "comparisons": []}
    for kind, name, indices in ((kind, *third) for kind, of in values.items() for third in thirds(of).items()):
        if not indices:
            continue
        own = [values[kind][i] for i in indices]
        where = {"by": kind, "third": name, "range": f"{min(own):.3g} … {max(own):.3g}"}
        scores = [
            score([records[key][i] for i in indices], *languages, source_rate=4.0, resamples=resamples, point=point)
            for key, point in points.items()
        ]
        scores = mean_over_seeds(scores) if over_seeds else scores
        give_names(scores)
        shown = [
            {"system": each.system, "setting": each.setting} | {name: each.row[name] for name in ("BLEU", "chrF", "AL")}
            for each in scores
        ]
        every = [row for alike in by_tokenisation(scores) for row in comparisons(alike)]
        against = [row for row in every if row["metric"] == "BLEU"]
        print(f"\n{kind}, {name}: {where['range']}, {len(indices)} sentences")
        print("\n\n".join(summary(rows) for rows in (shown, against) if rows), flush=True)
        found["rows"] += [where | row for row in shown]
        found["comparisons"] += [where | row for row in against]
    return found


if __name__ == "__main__":
    main()
