"""Word alignments by Thot, run by the metrics environment's Python for `duplexmt/metrics/alignment.py`.

Standard input: a JSON object with `source` and `target`, lists of words, a line; those with `learn` are what the model,
IBM Model 1, learns from, the others are aligned. Standard output: first what does it, `{"version": …}`, then a list for
each pair to align, in order: of each target word the source word it belongs to, counted from 1, or 0 for none. What
cannot be done is told as `{"error": …}`.
"""

import json
import os
import sys
from importlib.metadata import version

os.environ["OMP_NUM_THREADS"] = "1"  # sums in the order of threads would make two runs differ

ITERATIONS = 5  # of EM, as is common


def main() -> int:
    """Align what standard input holds."""
    items = [json.loads(line) for line in sys.stdin.buffer]
    try:
        from thot.alignment import Ibm1AlignmentModel

        model = Ibm1AlignmentModel()
        for item in items:
            if item.get("learn"):
                model.add_sentence_pair(item["source"], item["target"], 1)
        model.start_training()
        for _ in range(ITERATIONS):
            model.train()
        model.end_training()
    except Exception as error:  # whatever it is, the caller tells the user in one line
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps({"version": f"sil-thot {version('sil-thot')}"}))
    pairs = [item for item in items if not item.get("learn")]
    sides = [pair["source"] for pair in pairs], [pair["target"] for pair in pairs]
    for _, matrix in model.get_best_alignments(*sides):
        print(json.dumps(matrix.to_list()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
