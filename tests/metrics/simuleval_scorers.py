"""Run in the metrics environment: SimulEval's own scorers on cases from standard input, one JSON object a line each."""

import json
import sys
from argparse import Namespace

from simuleval.evaluator.instance import TextInputInstance, TextOutputInstance
from simuleval.evaluator.scorers.latency_scorer import LATENCY_SCORERS_DICT

NAMES = {"AL": "AL", "LAAL": "LAAL", "AP": "AP", "DAL": "DAL", "ATD": "ATD", "FRL": "StartOffset"}


class Case(TextInputInstance, TextOutputInstance):
    """A finished text-to-text sentence."""

    def __init__(self, delays, elapsed, source_length, reference_length):
        super().__init__(0, None, Namespace(eval_latency_unit="word"))
        self.delays, self.elapsed = delays, elapsed
        self.source = ["s"] * source_length
        self.reference = " ".join(["r"] * reference_length)


for line in sys.stdin:
    case = Case(**json.loads(line))
    scores = {ours: LATENCY_SCORERS_DICT[name]()({0: case}) for ours, name in NAMES.items()}
    for name in ("AL", "LAAL"):  # called on a corpus, the computation-aware scorers refuse text
        scores[f"{name}_CA"] = LATENCY_SCORERS_DICT[name](computation_aware=True).compute(case)
    print(json.dumps(scores))
