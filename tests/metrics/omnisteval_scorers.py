"""Run in the metrics environment: OmniSTEval's own scorers on cases from standard input, one JSON object a line."""

import json
import sys

from omnisteval.data import Instance
from omnisteval.scoring import ShortformDegeneracyScorer, YAALScorer

cases = [
    Instance(
        reference=" ".join(["r"] * case["reference_length"]),
        source_length=case["source_length"],
        emission_cu=case["delays"],
        emission_ca=case["elapsed"],
    )
    for case in map(json.loads, sys.stdin)
]
for case in cases:
    print(json.dumps({"YAAL": YAALScorer().compute(case), "YAAL_CA": YAALScorer(computation_aware=True).compute(case)}))
print(json.dumps({"SWF": ShortformDegeneracyScorer()(cases)["swf"], "YAAL": YAALScorer()(cases)}))
