"""One HTML file about a run, a model or an evaluation: curves, tables, figures, examples, and a viewer of its grids.

    python -m duplexmt.report runs/latest --results runs/evaluate-20261121-080000
    python -m duplexmt.report runs/latest/model --sentence 他在看书。 "He is reading."

What is not there is left out, and the report says so. The file asks nothing of any network.
"""

import argparse
import sys
from pathlib import Path

from data_prep.files import write_whole


def main() -> None:
    """Gather, draw, write."""
    parser = argparse.ArgumentParser(
        prog="python -m duplexmt.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="of a run, a model or an evaluation; else the latest run, or our model"
    )
    parser.add_argument("--results", type=Path, nargs="+", default=[], help="folders of evaluations or of their sweeps")
    parser.add_argument("--out", type=Path, help="file to write; report.html in the run's or evaluation's folder")
    parser.add_argument(
        "--sentence", nargs=2, action="append", default=[], metavar=("SOURCE", "REFERENCE"), help="for the viewer"
    )
    parser.add_argument("--pairs", type=Path, help="file of pairs for the examples, where there is no evaluation")
    parser.add_argument("--examples", type=int, default=3, help="best, worst and random ones (default 3 each)")
    parser.add_argument("--max-target-tokens", type=int, help="default: the evaluation's, else 64")
    parser.add_argument("--device", default="auto", help="cpu, cuda, …; auto (default): a GPU where there is one")
    arguments = parser.parse_args()
    try:
        path = write(arguments)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(path)


def write(arguments: argparse.Namespace) -> Path:
    """Write the file, all or nothing: a report that is already there stays until the new one is complete."""
    from ..model_folder.artifact import choose_device
    from ..model_folder.box import chosen_model
    from .overview import gather, look
    from .page import render

    folder = arguments.folder or chosen_model(None)
    found = look(folder)
    own = found.folder if arguments.folder else Path()  # nothing is written into the model in the box
    out = arguments.out or (found.run or own) / "report.html"
    if out.is_dir():
        raise ValueError(f"--out {out}: is a folder; give the name of a file")
    report = gather(
        folder,
        arguments.results,
        sentences=[tuple(pair) for pair in arguments.sentence],
        pairs=arguments.pairs,
        each=arguments.examples,
        max_target_tokens=arguments.max_target_tokens,
        device=choose_device(arguments.device),
    )
    for note in [*report.notes, *([f"There is no viewer: {report.no_viewer}"] if report.viewer is None else [])]:
        print(f"note: {note}", file=sys.stderr)
    text = render(report, tell=lambda doing: print(doing, file=sys.stderr))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    return out


if __name__ == "__main__":
    main()
