"""Figures of a trained model, as SVG and PNG files.

    python -m duplexmt.analysis.figures sentence MODEL_FOLDER --source TEXT --target TEXT --out FOLDER
    python -m duplexmt.analysis.figures training RUN_FOLDER --out FOLDER   # path area, EMIT head, losses
    python -m duplexmt.analysis.figures schematics --out FOLDER            # the paper's drawings of the method

`sentence` writes the loss heatmap with its best path (fig:dp-path), what each cell would write (fig:grid-output), what
is written at which source token at each θ (tab:infer-process; also as Markdown), and the read/write staircases of that
model and of those given by --beside.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..corpus.evaluation_files import clean_source
from ..data.tokenizer import token_ids
from ..decoder.schedules import own_delays
from ..drawing.grid_figures import heatmap_figure, output_figure
from ..drawing.schematics import schematics
from ..drawing.staircase import read_write_steps
from ..drawing.step_figures import emission_figure, emission_markdown, staircase_figure
from ..drawing.training_figure import read_run_curves, training_figure
from ..evaluation.scoring import run_of
from ..model_folder.artifact import ModelFolder, choose_device, load_model_folder
from ..model_folder.hub import model_at
from ..policy.knobs import check_lam
from ..streaming.events import Event, Write
from ..streaming.systems import build_system
from .sentence_grid import sentence_grid, token_text

THETAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def sentence(
    model_folder: str | Path,
    source: str,
    target: str,
    out: Path,
    *,
    thetas: Sequence[float] = THETAS,
    lam: float | None = None,
    beside: Sequence[str | Path] = (),
    max_target_tokens: int = 64,
) -> list[Path]:
    """Write the figures of one sentence pair into `out`.

    Args:
        model_folder: of a grid model, or a name on the hub.
        source: a text, which is cleaned as the model's training cleaned its sources.
        target: a text, whose tokens are the grid's columns.
        out: folder of the figures.
        thetas: EMIT thresholds to decode at.
        lam: λ of the path, by default the one the model was trained with.
        beside: further model folders, of any system, for the staircase.
        max_target_tokens: length at which a translation is stopped.

    Raises:
        ValueError: for a model without grid, an empty text, no θ, a λ that is none, or models that split the
            source differently.
    """
    device = choose_device("auto")
    loaded = load_model_folder(model_folder, device)
    if loaded.model.system != "grid":
        raise ValueError(
            f"{str(model_folder)!r} holds a {loaded.info['system']} model, which has no grid to show: "
            "give a grid model, and this one with --beside"
        )
    if not thetas:
        raise ValueError("--theta: give at least one EMIT threshold")
    source = clean_source(source, loaded.info["data"])
    source_ids, target_ids = loaded.sources.ids([source])[0], token_ids(loaded.tokenizer, [target])[0]
    for name, ids in (("source", source_ids), ("target", target_ids)):
        if not ids:
            raise ValueError(f"--{name}: has no text")
    lam = loaded.info["policy"]["lam"] if lam is None else check_lam(lam)
    length = loaded.typical_source_length
    grid = sentence_grid(loaded.model, loaded.tokens, loaded.tokenizer, source_ids, target_ids, lam, taken_for=length)
    paths = [*heatmap_figure(grid, out), *output_figure(grid, out)]

    runs = {f"{theta:g}": decode(loaded, "grid", theta, source_ids, max_target_tokens) for theta in thetas}
    steps = {name: list(read_write_steps(events, loaded.tokenizer, loaded.tokens.end)) for name, events in runs.items()}
    paths += emission_figure(steps, out)
    paths.append(out / "emission.md")
    paths[-1].write_text(emission_markdown(steps), encoding="utf-8", newline="\n")

    delays = {f"grid, θ = {name}": delays_of(events) for name, events in runs.items()}
    homes = [model_at(folder).resolve() for folder in (model_folder, *beside)]
    folders = {str(home) for home in homes}
    for folder, home in zip(beside, homes[1:], strict=True):
        other = load_model_folder(folder, device)
        if other.sources.ids([source])[0] != source_ids or other.tokenizer.get_vocab() != loaded.tokenizer.get_vocab():
            raise ValueError(f"--beside {folder}: splits the source into other tokens; compare models of one tokenizer")
        system = other.info["system"]
        settings = thetas if system == "grid" else own_delays(other.info["prefix"]["k"])
        for setting in settings:
            name = "" if setting is None else f"{setting:g}"
            label = {"waitk": f"wait-{name}", "grid": f"grid, θ = {name}"}.get(system, system)
            if label in delays:
                label = f"{label} ({run_of(str(home), folders)})"
            delays[label] = delays_of(decode(other, system, setting, source_ids, max_target_tokens))
    names = [token_text(loaded.tokenizer, token, loaded.tokens.end) for token in source_ids]
    return [*paths, *staircase_figure(names, delays, out)]


def decode(
    loaded: ModelFolder, system: str, setting: float | None, source: Sequence[int], max_target_tokens: int
) -> list[Event]:
    """Of one sentence."""
    running = build_system(loaded, system, setting, max_target_tokens=max_target_tokens, batch_size=1)
    return list(running.translate([source]))


def delays_of(events: Sequence[Event]) -> list[int]:
    """Source tokens read before each token written."""
    return [event.delay for event in events if isinstance(event, Write)]


def training(run_folder: Path, out: Path) -> list[Path]:
    """Write the curves of a run that logged to CSV.

    Raises:
        ValueError: for a folder without metrics, or with none that can be shown.
    """
    curves = read_run_curves(run_folder)
    if not curves:
        raise ValueError(f"{str(run_folder)!r} has no metrics/*/metrics.csv: give the folder of a run with logger=csv")
    return training_figure(curves, out)


def main() -> None:
    """The three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("sentence")
    one.add_argument("model_folder")
    one.add_argument("--source", required=True)
    one.add_argument("--target", required=True)
    one.add_argument("--theta", dest="thetas", type=float, nargs="+", default=THETAS)
    one.add_argument("--lam", type=float)
    one.add_argument("--beside", nargs="+", default=[])
    one.add_argument("--max-target-tokens", type=int, default=64)
    commands.add_parser("training").add_argument("run_folder", type=Path)
    commands.add_parser("schematics")
    for command in commands.choices.values():
        command.add_argument("--out", type=Path, required=True)
    arguments = vars(parser.parse_args())
    draw: Any = {"sentence": sentence, "training": training, "schematics": schematics}[arguments.pop("command")]
    try:
        paths = draw(**arguments)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
