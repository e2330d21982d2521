"""One HTML file about a run, a model or an evaluation: curves, tables, figures, examples, and a viewer of its grids.

    python -m duplexmt.report runs/latest --results runs/evaluate-20261121-080000
    python -m duplexmt.report runs/latest/model --sentence 他在看书。 "He is reading."

What is not there is left out, and the report says so. The file asks nothing of any network.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..common.command import command_parser, one_line_errors
from ..common.files import check_writable, write_whole
from ..policy.decoding_options import TARGET_TOKENS


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Of the command."""
    parser = command_parser(__doc__, "python -m duplexmt.report")
    parser.add_argument(
        "folder",
        nargs="?",
        help="a run, a model (or its name on the hub), an evaluation; else the latest run, or our model",
    )
    parser.add_argument("--results", type=Path, nargs="+", default=[], help="folders of evaluations or of their sweeps")
    parser.add_argument("--out", type=Path, help="file to write; report.html in the run's or evaluation's folder")
    parser.add_argument(
        "--sentence", nargs=2, action="append", default=[], metavar=("SOURCE", "REFERENCE"), help="for the viewer"
    )
    parser.add_argument("--pairs", type=Path, help="file of pairs for the examples, where there is no evaluation")
    parser.add_argument("--examples", type=int, default=3, help="best, worst and random ones (default 3 each)")
    parser.add_argument("--max-target-tokens", type=int, help=f"default: the evaluation's, else {TARGET_TOKENS}")
    parser.add_argument("--device", default="auto", help="cpu, cuda, …; auto (default): a GPU where there is one")
    return parser.parse_args(given)


def main() -> None:
    """Gather, draw, write."""
    with one_line_errors():
        path = write(arguments())
    print(path)


def write(asked: argparse.Namespace) -> Path:
    """Write the file, all or nothing: a report that is already there stays until the new one is complete."""
    from ..model_folder.artifact import choose_device
    from ..model_folder.default_model import chosen_model
    from ..model_folder.hugging_face import model_at
    from .overview import gather, report_folder
    from .page import render

    folder = model_at(asked.folder) if asked.folder else chosen_model(None)
    found = report_folder(folder)
    own = Path()  # nothing is written into the model in the box, nor into the hub's copy of one
    if asked.folder and folder == Path(asked.folder):
        own = found.folder
    out = asked.out or (found.run or own) / "report.html"
    if out.is_dir():
        raise ValueError(f"--out {out}: is a folder; give the name of a file")
    check_writable("--out", out.parent)
    report = gather(
        folder,
        asked.results,
        sentences=[tuple(pair) for pair in asked.sentence],
        pairs=asked.pairs,
        each=asked.examples,
        max_target_tokens=asked.max_target_tokens,
        device=choose_device(asked.device),
    )
    for note in [*report.notes, *([f"There is no viewer: {report.no_viewer}"] if report.viewer is None else [])]:
        print(f"note: {note}", file=sys.stderr)
    text = render(report)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    return out


if __name__ == "__main__":
    main()
