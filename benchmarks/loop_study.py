"""How heatmap, path and EMIT head come about together while a model is trained, and what λ does.

    python benchmarks/loop_study.py [RUN_FOLDER …] [--train] [--pairs FILE] [--out FOLDER] [--quick]

RUN_FOLDERs are runs of train.py; by default those of `experiment=loop_lambda`, one for each λ, in --runs. With --train
what is missing of them is trained first, one λ after the other; a run that was stopped goes on. For each run: BLEU and
latency at θ and with the whole source read, path area, agreement and calibration of the EMIT head, the path against
the gold alignments (built-in corpus); for each model kept on the way (`training.snapshots`) the same of path and EMIT
head; and the grids of a few sentences. --step 200 compares runs, finished or not, as they were after 200 steps. What
has been measured of a run is kept in `RUN/loop-study.json` and not measured again (--again does). `loop-study.json`, a
table and figures go to --out. The last line is one JSON object.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.studies.pairs import Pair, held_out_pairs, load_grid, texts
from benchmarks.studies.policy import gold_lagging, policy_measures
from benchmarks.studies.study_figures import calibration_figure, evolution_figure, lambda_figure, loop_figure
from data_prep.files import write_whole
from duplexmt.analysis.sentence_grid import sentence_grid
from duplexmt.data.grammar import CASE_STUDY, AlignedPair
from duplexmt.data.tokenizer import token_ids
from duplexmt.drawing.grid_figures import SentenceGrid
from duplexmt.drawing.table import to_markdown
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs
from duplexmt.model_folder.artifact import MANIFEST, ModelFolder, read_manifest
from duplexmt.streaming.grid_system import GridSystem

ROOT = Path(__file__).parents[1]
LAMS = (0, 0.01, 0.03, 0.1, 0.3, 1)


def folder_of(runs: Path, lam: float) -> Path:
    """The run of one λ, named as `python train.py -m experiment=loop_lambda` names it."""
    return runs / f"lam-{float(lam)}"


def train_missing(runs: Path, arguments: argparse.Namespace) -> list[Path]:
    """Train the run of each λ that has no model yet; go on with one that was stopped.

    Raises:
        ValueError: if a training fails.
    """
    folders = []
    for lam in arguments.lam:
        folder = folder_of(runs, lam)
        folders.append(folder)
        if (folder / "model" / MANIFEST).is_file():
            continue
        if (folder / "checkpoints" / "last.ckpt").is_file():
            command = [f"resume={folder.absolute()}"]
        else:
            command = ["experiment=loop_lambda", f"policy.lam={lam:g}", f"hydra.run.dir={folder.absolute()}"]
            command += ["data.train_size=400", "training.snapshots=[0,10]"] if arguments.quick else []
            command += arguments.setting
        print("python train.py", *command, file=sys.stderr, flush=True)
        with subprocess.Popen([sys.executable, str(ROOT / "train.py"), *command], stdout=sys.stderr) as process:
            try:
                status = process.wait()
            except KeyboardInterrupt:  # Ctrl-C has reached the training, too: it saves a checkpoint
                process.wait()
                raise
        if status:
            raise ValueError(
                f"the training of λ = {lam:g} ended with status {status}, what it said is above; "
                "put that right, and the same command goes on from there"
            )
    return folders


def decoded(loaded: ModelFolder, pairs: list[Pair], theta: float) -> dict[str, float]:
    """Quality and latency of the translations at θ."""
    languages = [loaded.info["data"][f"{side}_language"] for side in ("source", "target")]
    system = GridSystem(loaded.model, loaded.tokens, theta, max_target_tokens=64)
    records = translate_pairs(system, [texts(pair) for pair in pairs], loaded.tokenizer, loaded.sources)
    row = score(records, *languages, source_rate=4.0).row
    return {name: row[name] for name in ("BLEU", "AL", "AL_all", "AP")}


def grids(loaded: ModelFolder, pairs: list[Pair], lam: float) -> list[dict[str, Any]]:
    """The probe sentences' heatmaps, EMIT maps and paths."""
    found = []
    for source, target, _ in map(texts, pairs):
        ids = loaded.sources.ids([source])[0], token_ids(loaded.tokenizer, [target])[0]
        found.append(asdict(sentence_grid(loaded.model, loaded.tokens, loaded.tokenizer, *ids, lam)))
    return found


def model_of(run: Path, step: int | None) -> Path:
    """The model a run is judged by: its last, or the one kept after `step`, which an unfinished run has, too."""
    return run / "model" if step is None else run / "snapshots" / f"{step:06d}"


def check_alike(folders: list[Path], step: int | None) -> None:
    """Refuse runs that have no model, or that differ in their attention.

    Raises:
        ValueError: naming the folder, or both kinds of attention.
    """
    for folder in folders:
        if not model_of(folder, step).is_dir():
            raise ValueError(
                f"{str(folder)!r} holds no model{'' if step is None else f' of step {step}'}: give folders of finished "
                "runs, or --train to train those of --runs"
            )
    held = [read_manifest(model_of(folder, step)) for folder in folders]
    kinds = {info["grid"]["attention"] for info in held if info["system"] == "grid"}  # others are refused when loaded
    if len(kinds) > 1:
        raise ValueError(f"runs trained with {' and '.join(sorted(kinds))} attention: a sweep over λ changes λ alone")


def measure(run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything about one run, from its file where that was measured alike."""
    chosen = model_of(run, arguments.step)
    loaded = load_grid(chosen)
    wanted = {
        "pairs": arguments.pairs,
        "limit": arguments.limit,
        "on_the_way": arguments.on_the_way,
        "theta": arguments.theta,
        "probes": arguments.probes,
        "model": blake2b((chosen / MANIFEST).read_bytes(), digest_size=8).hexdigest(),
    }
    kept = run / ("loop-study.json" if arguments.step is None else f"loop-study-{arguments.step}.json")
    if kept.is_file() and not arguments.again:
        result = json.loads(kept.read_text(encoding="utf-8"))
        if result["measured"] == wanted:
            return result
    lam = loaded.info["policy"]["lam"]
    pairs = held_out_pairs(loaded, arguments.limit, arguments.pairs)
    probes = ([CASE_STUDY] if isinstance(pairs[0], AlignedPair) else []) + pairs
    probes = probes[: arguments.probes]
    aligned = [pair for pair in pairs if isinstance(pair, AlignedPair)]
    result = {
        "measured": wanted,
        "lam": lam,
        "attention": loaded.model.attention,
        "train_size": loaded.info["data"].get("train_size"),
        "sentences": len(pairs),
        **decoded(loaded, pairs, arguments.theta),
        "BLEU_whole": decoded(loaded, pairs, 1.0)["BLEU"],
        "gold_AL_all": gold_lagging(loaded, aligned) if aligned else None,
        **policy_measures(loaded, pairs, lam),
    }
    steps = []
    ways = [path for path in sorted((run / "snapshots").glob("[0-9]*[0-9]")) if path.is_dir()]
    for folder in [*ways, chosen] if arguments.step is None else [path for path in ways if path.name <= chosen.name]:
        at = load_grid(folder)
        step = int(folder.name) if folder.name != "model" else last_step(run, steps)
        measures = policy_measures(at, pairs[: arguments.on_the_way], lam)
        steps.append({"step": step, **measures, "grids": grids(at, probes, lam)})
    result["steps"] = steps
    write_whole(kept, json.dumps(result, ensure_ascii=False))
    return result


def last_step(run: Path, steps: list[dict[str, Any]]) -> int:
    """Optimiser steps a run has taken, from its metrics; one more than its last snapshot where it has none."""
    from duplexmt.drawing.training_figure import read_curves

    logged = [
        step
        for path in run.glob("metrics/*/metrics.csv")
        for points in read_curves(path).values()
        for step, _ in points
    ]
    return max(logged) + 1 if logged else steps[-1]["step"] + 1 if steps else 0


COLUMNS = {
    "lam": "λ", "BLEU": "BLEU", "BLEU_whole": "BLEU, whole source", "AL": "AL", "AL_all": "AL_all",
    "above_gold": "above gold",
}  # fmt: skip
SHARES = {
    "area": "area %", "emit_agreement": "EMIT agreement %", "calibration_error": "calibration error %",
    "content_not_early": "content not early %", "content_not_early_in_order": "… in order %",
}  # fmt: skip


def table_row(row: dict[str, Any]) -> dict[str, Any]:
    """A run's line of the table."""
    shares = {title: None if row[key] is None else 100 * row[key] for key, title in SHARES.items()}
    return {title: row[key] for key, title in COLUMNS.items()} | {"λ": f"{row['lam']:g}"} | shares


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run without curves and grids."""
    gold = result["gold_AL_all"]
    row = {name: value for name, value in result.items() if name not in ("steps", "calibration", "measured")}
    return row | {"above_gold": None if gold is None else result["AL_all"] - gold}


def draw(results: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    """All figures."""
    loop_figure({name: result["steps"] for name, result in results.items()}, arguments.out)
    rows = sorted((summary(result) for result in results.values()), key=lambda row: row["lam"])
    if len(rows) > 1:
        lambda_figure(rows, arguments.out)
    middle = min(results, key=lambda name: abs(results[name]["lam"] - arguments.show))
    steps = results[middle]["steps"]
    calibration_figure([(step["step"], step["calibration"]) for step in steps if step["step"]], arguments.out)
    for number in range(len(steps[0]["grids"])):
        shown = [(step["step"], SentenceGrid(**step["grids"][number])) for step in steps]
        evolution_figure(shown, arguments.out, f"study-loop-evolution-{number + 1}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_folders", nargs="*", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/loop_lambda"), help="where the runs of each λ lie")
    parser.add_argument("--lam", type=float, nargs="+", default=LAMS, help="those of --runs")
    parser.add_argument("--train", action="store_true", help="train what is missing")
    parser.add_argument("--setting", nargs="*", default=[], help="of train.py, for --train: data.train_size=6000 …")
    parser.add_argument("--pairs", help="test pairs; by default the built-in ones the models were not trained on")
    parser.add_argument("--limit", type=int, help="test pairs (500)")
    parser.add_argument("--on-the-way", type=int, default=100, help="of them, for models kept on the way")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--probes", type=int, default=2, help="sentences whose grids are drawn")
    parser.add_argument("--show", type=float, default=0.01, help="λ of the run whose grids and calibration are drawn")
    parser.add_argument("--step", type=int, help="compare the runs as they were after this step (a snapshot)")
    parser.add_argument("--again", action="store_true", help="measure what has been measured already")
    parser.add_argument("--out", type=Path, default=Path("runs/loop-study"))
    parser.add_argument("--quick", action="store_true", help="two λ, tiny runs in RUNS-quick, 30 sentences")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.runs, arguments.lam = arguments.runs.with_name(arguments.runs.name + "-quick"), (0.01, 0.3)
    if arguments.limit is None:
        arguments.limit = 30 if arguments.quick else 500
    return arguments


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, measure, write; returns the summary."""
    folders = arguments.run_folders
    if not folders:
        folders = [folder_of(arguments.runs, lam) for lam in arguments.lam]
        if arguments.train:
            folders = train_missing(arguments.runs, arguments)
    check_alike(folders, arguments.step)
    results = {}
    for folder in folders:
        result = measure(folder, arguments)
        results[f"λ = {result['lam']:g}" if not arguments.run_folders else folder.name] = result
        print(f"{folder}: done", file=sys.stderr)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = [summary(result) for result in results.values()]
    table = to_markdown([table_row(row) for row in rows])
    (arguments.out / "loop-study.md").write_text(table, encoding="utf-8")
    print(table, file=sys.stderr)
    (arguments.out / "loop-study.json").write_text(json.dumps(results, ensure_ascii=False), encoding="utf-8")
    draw(results, arguments)
    return {"theta": arguments.theta, "runs": rows}


def main() -> None:
    """Measure, write, print."""
    try:
        found = run(parse())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; what was measured of whole runs is kept, and the same command goes on", file=sys.stderr)
        sys.exit(130)
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
