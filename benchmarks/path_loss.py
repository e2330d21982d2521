"""The reference's loss along the path each θ and each k takes, against AL: policies compared without BLEU's scatter.

    python benchmarks/path_loss.py MODEL_FOLDER … --pairs FILE [--limit 1000] [--theta 0.5 0.7 0.9]

Pairs: a source and a target a line, such as validation pairs; by default those of the built-in corpus. All model
folders must share a tokenizer for their losses to compare. The last line is one JSON object.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.studies.pairs import examples, held_out_pairs
from benchmarks.studies.path_loss import path_losses
from duplexmt.drawing.table import to_markdown
from duplexmt.model_folder.artifact import load_model_folder

THETAS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def main(arguments: list[str] | None = None) -> None:
    """A table of all models and settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL_FOLDER")
    parser.add_argument("--pairs", help="file of pairs")
    parser.add_argument("--limit", type=int, help="pairs; default: all")
    parser.add_argument("--theta", type=float, nargs="+", default=THETAS)
    asked = parser.parse_args(arguments)
    if strange := [theta for theta in asked.theta if not 0 <= theta <= 1]:
        parser.error(f"--theta {strange[0]:g}: a threshold is between 0 and 1")
    rows: list[dict[str, Any]] = []
    failed = False
    try:
        for folder in asked.models:
            loaded = load_model_folder(folder)
            found = examples(loaded, held_out_pairs(loaded, asked.limit, asked.pairs))
            rows += [{"model": str(folder), **row} for row in path_losses(loaded, found, asked.theta)]
            print(f"{folder}: {len(found)} pairs", file=sys.stderr, flush=True)  # progress
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        failed = True  # what was measured of the models before is shown all the same
    if rows:
        print(to_markdown(rows, "Loss along the path"))
        print(json.dumps({"benchmark": "path_loss", "pairs": len(found), "rows": rows}))
    if failed:
        sys.exit(2)


if __name__ == "__main__":
    main()
