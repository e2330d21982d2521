"""Where does waiting pay, and does a policy find it? Evaluations of one test set, by kinds of sentences.

    python benchmarks/where_waiting_pays.py runs/grid-tatoeba runs/multi-tatoeba --learn train.tsv.gz

Sentences are parted into thirds by the length of the source, and by how much the word order differs: the share of pairs
of aligned words of the reference whose source words stand the other way round (Kendall's distance), as the aligner of
the metrics environment has it (`make metrics`), which learns from the pairs of `--learn`. Without it they are parted by
length alone. For each part the quality and latency of each system at each setting, and systems against each other at
equal AL, as `evaluate.py` compares them: those whose sources are the same tokens. With `--over-seeds` models that only
their seeds tell apart are one system, as with `evaluate.py over_seeds=true`. The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import check_counts, rounded
from duplexmt.evaluation.aligned import learnt_pairs, words_of
from duplexmt.evaluation.comparing import comparisons
from duplexmt.evaluation.decoding import data_of_models
from duplexmt.evaluation.results import by_tokenisation, give_names, of_one_test_set
from duplexmt.evaluation.scoring import Scores, score
from duplexmt.evaluation.seeds import mean_over_seeds
from duplexmt.metrics.alignment import word_alignments

NAMES = ("low", "middle", "high")


def crossing(partners: Sequence[int]) -> float:
    """Share of the pairs of aligned target words whose source words stand the other way round; 0 without a pair.

    Args:
        partners: of each target word the source word it is aligned to, counted from 1, or 0 for none.
    """
    pairs = [one > other for one, other in combinations([partner for partner in partners if partner], 2)]
    return sum(pairs) / len(pairs) if pairs else 0.0


def thirds(values: Sequence[float]) -> dict[str, list[int]]:
    """Indices of the lowest, middle and highest values, as many of each as can be; equal ones in their order."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    bounds = [round(len(order) * part / 3) for part in range(4)]
    return {name: sorted(order[a:b]) for name, a, b in zip(NAMES, bounds, bounds[1:], strict=False)}


def parts_of(values: dict[str, Sequence[float]]) -> Iterable[tuple[str, str, list[int], str]]:
    """Kind, third, its sentences, and the range of their values; a third without sentences is left out."""
    for kind, found in values.items():
        for name, indices in thirds(found).items():
            if own := [found[i] for i in indices]:
                yield kind, name, indices, f"{min(own):.3g} … {max(own):.3g}"


def figure(value: float | None) -> str:
    """A number as shown; where all hypotheses are empty there is no AL."""
    return "—" if value is None else f"{value:.2f}"


def main() -> None:
    """Part, score and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="of evaluations of one test set")
    parser.add_argument("--learn", help="pairs that the aligner learns from, laid out as those of training")
    parser.add_argument("--environment", default=".venv-metrics", help="that has the aligner")
    parser.add_argument("--over-seeds", action="store_true", help="trainings that differ by their seeds are one system")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap (default 1000)")
    asked = parser.parse_args()
    check_counts(parser, asked, "resamples")
    try:
        evaluations = of_one_test_set(asked.folders)
        languages = evaluations[0].test["source_language"], evaluations[0].test["target_language"]
        points = {point.digest: point for evaluation in evaluations for point in evaluation.points.values()}
        records = {key: evaluation.sorted(key) for evaluation in evaluations for key in evaluation.points}
        first = next(iter(records.values()))
        values: dict[str, Sequence[float]] = {"length": [len(record["source_tokens"]) for record in first]}
        if asked.learn is not None:
            pairs = [words_of(record["source"], record["references"][0], languages) for record in first]
            further = learnt_pairs(asked.learn, languages, data_of_models(points.values()))
            learnt = (words_of(pair.source, pair.target, languages) for pair in further)
            alignments, aligner = word_alignments([*pairs, *learnt], pairs, asked.environment)
            values["crossing"] = [crossing(partners) for partners in alignments]
            print(f"words are aligned by {aligner}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    rows: list[dict[str, Any]] = []
    against: list[dict[str, Any]] = []
    for kind, name, indices, span in parts_of(values):
        where = {"by": kind, "third": name, "range": span}
        scores: list[Scores] = [
            score([records[key][i] for i in indices], *languages, source_rate=4.0, resamples=asked.resamples, point=p)
            for key, p in points.items()
        ]
        if asked.over_seeds:
            try:
                scores = mean_over_seeds(scores)
            except ValueError as error:  # a setting that not all trainings have, or a model that is there twice
                parser.error(str(error).replace("over_seeds=true", "--over-seeds"))
        give_names(scores)
        print(f"\n{kind}, {name}: {span}, {len(indices)} sentences")
        for entry in scores:
            shown = {column: entry.row[column] for column in ("BLEU", "chrF", "AL")}
            rows.append(where | {"system": entry.system, "setting": entry.setting} | shown)
            print(f"  {entry.system} {entry.setting}: " + ", ".join(f"{c} {figure(v)}" for c, v in shown.items()))
        for row in (row for alike in by_tokenisation(scores) for row in comparisons(alike)):
            if row["metric"] == "BLEU":
                against.append(where | row)
                print(
                    f"  {row['system']} over {row['against']} at AL {row['AL']:.2f}: {row['difference']:+.2f} "
                    f"({row['low']:.2f} … {row['high']:.2f})"
                )
    found = {"rows": [rounded(row) for row in rows], "comparisons": [rounded(row) for row in against]}
    print(json.dumps({"benchmark": "where_waiting_pays", **found}))


if __name__ == "__main__":
    main()
