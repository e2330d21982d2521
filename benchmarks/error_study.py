"""What the approximations of Section IV cost, and whether their error decays as the paper says.

    python benchmarks/error_study.py [MODEL_FOLDER …] [--pairs FILE] [--snapshots RUN/snapshots] [--out DIR] [--quick]

For each model folder, and for random weights of the first one's shape: by layer and stream the errors of scores and
contexts, of one layer alone and accumulated; `eq:hadamard-error-bound`, corrected and as printed, against the errors
measured; what is different in the end (logits, EMIT decisions, path; with --decode also the translations); and the
exponent with which the error of a context falls (or grows) with the number of keys, on sentences and on long documents
made of them. A model runs under the attention it was trained with; the other one is what it is compared with.
--snapshots adds the errors over training. `error-study.json` and figures go to --out. The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.studies.attention_error import STREAMS, check_bounded, with_attention
from benchmarks.studies.decay import fit_decay
from benchmarks.studies.measures import EXACT, decay_curves, differences_over, errors_by_layer
from benchmarks.studies.pairs import documents, examples, held_out_pairs, load_grid, texts
from benchmarks.studies.study_figures import decay_figure, layer_figure, training_error_figure
from duplexmt.data.batch import Example
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.translation import translate_pairs
from duplexmt.grid.model import GridModel
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.streaming.grid_system import GridSystem

RANDOM = "random weights"
FITTED = ("cross", "cross_norm", "random_signs", "premises", "context", "context_norm", "self", "score")


def random_weights(model: GridModel, seed: int) -> GridModel:
    """A model of the same shape and options before any training."""
    torch.manual_seed(seed)
    backbone = type(model.causal_lm)(model.causal_lm.config)
    return GridModel(backbone, **model.options).to(model.device, model.dtype).eval()


def decays(
    model: GridModel, found: list[Example], first: int, every: int, streams: Sequence[str] = STREAMS
) -> list[dict[str, Any]]:
    """Fits of all curves of all layers and streams, with the curves themselves."""
    rows = []
    for (layer, stream), curves in decay_curves(model, found, every, streams).items():
        row: dict[str, Any] = {"layer": layer, "stream": stream, "exact": False}
        if curves["cross"].mean() <= EXACT**2 * curves["cross_norm"].mean():
            rows.append(row | {"exact": True})
            continue
        row["curves"] = {name: (values.mean(0) ** 0.5).tolist() for name, values in curves.items()}
        row["fits"] = {name: vars(fit_decay(curves[name], first)) for name in FITTED}
        rows.append(row)
    return rows


def long_sentences(found: list[Example], length: int) -> dict[str, list[Example]]:
    """Sentences with `length` target tokens at least, their targets cut there; and likewise by source.

    So every number of keys is seen on the same sentences.
    """
    by_target = [Example(e.source, e.target[: length + 1]) for e in found if len(e.target) > length]
    by_source = [Example(e.source[:length], e.target) for e in found if len(e.source) >= length]
    return {"source": by_target, "target": by_source}  # the source stream's cross keys are target tokens


def sentence_decays(model: GridModel, found: list[Example], length: int) -> list[dict[str, Any]]:
    """`decays` on sentences; of each stream on those that are long enough on the other side."""
    rows = []
    for stream, cut in long_sentences(found, length).items():
        if len(cut) < 2:
            raise ValueError(
                f"--sentence-length={length}: {len(cut)} of {len(found)} sentences are that long, too few for a fit; "
                "ask for a smaller length or give longer sentences"
            )
        rows += decays(model, cut, 2, 1, [stream])
    return rows


def translations(loaded: ModelFolder, pairs: list[Any], theta: float) -> dict[str, dict[str, float]]:
    """BLEU, AL and AL_all with either attention; exact attention with I←O on computes the grid again at each step."""
    rows = {}
    languages = [loaded.info["data"][f"{side}_language"] for side in ("source", "target")]
    for kind in ("approximate", "exact"):
        system = GridSystem(with_attention(loaded.model, kind), loaded.tokens, theta, max_target_tokens=64)
        records = translate_pairs(system, [texts(pair) for pair in pairs], loaded.tokenizer, loaded.sources)
        row = score(records, *languages, source_rate=4.0).row
        rows[kind] = {name: row[name] for name in ("BLEU", "AL", "AL_all")}
    return rows


def study(
    model: GridModel, loaded: ModelFolder, sentences: list[Example], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Everything about one set of weights."""
    lam = loaded.info["policy"]["lam"] if arguments.lam is None else arguments.lam
    long = documents(sentences, arguments.documents, arguments.length)
    return {
        "trained_with": model.attention,
        "layers": errors_by_layer(model, sentences[: arguments.limit], bound=arguments.bound),
        "differences": differences_over(model, loaded.tokens, sentences[: arguments.limit], lam),
        "decay_documents": decays(model, long, arguments.first, arguments.every),
        "decay_sentences": sentence_decays(model, sentences, arguments.sentence_length),
    }


def snapshots(folder: Path) -> list[Path]:
    """The models a run has kept on the way.

    Raises:
        ValueError: for a folder without any.
    """
    found = sorted(path for path in folder.glob("[0-9]*[0-9]") if path.is_dir())
    if not found:
        raise ValueError(
            f"--snapshots {folder}: holds none; train with training.snapshots=[0,100,400], and name RUN/snapshots"
        )
    return found


def over_training(folders: list[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Errors and differences of snapshots, on a quarter of the sentences."""
    rows = []
    for path in folders:
        loaded = load_grid(path)
        loaded.model.double()
        found = examples(loaded, held_out_pairs(loaded, max(2, arguments.limit // 4), arguments.pairs))
        lam = loaded.info["policy"]["lam"] if arguments.lam is None else arguments.lam
        rows.append(
            {
                "step": int(path.name),
                "layers": errors_by_layer(loaded.model, found, bound=arguments.bound),
                "differences": differences_over(loaded.model, loaded.tokens, found, lam),
            }
        )
    return rows


def label(folder: Path) -> str:
    """A short name of a model folder: that of its run."""
    folder = folder.absolute()
    return folder.parent.name if folder.name == "model" else f"{folder.parent.parent.name} {folder.name}"


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """What goes into the last line, of one set of weights."""
    layers = [row for row in result["layers"] if "context" in row]
    last = layers[-1]
    differences = result["differences"]
    found: dict[str, Any] = {
        "trained_with": result["trained_with"],
        "last_layer_context_error": {"alone": last["context"], "accumulated": last["accumulated_context"]},
        "output_state_error": result["layers"][-1]["states"],
        **{
            name: differences[name] for name in ("kl", "same_top", "largest_logit_difference", "same_emit", "same_mask")
        },
        "area": {"approximate": differences["area_approximate"], "exact": differences["area_exact"]},
        "same_path": differences["same_path"],
    }
    if "violations" in last:
        found["bound_violations"] = max(row["violations"] for row in layers if "violations" in row)
        found["largest_share_of_bound"] = max(row["largest_use"] for row in layers if "violations" in row)
        found["printed_bound_violations"] = max(row["printed_violations"] for row in layers if "violations" in row)
    for kind in ("sentences", "documents"):
        found[f"exponents_{kind}"] = {
            f"{row['stream']} {row['layer']}": [row["fits"]["cross"][name] for name in ("exponent", "low", "high")]
            for row in result[f"decay_{kind}"]
            if not row["exact"]
        }
    if "translations" in result:
        found["BLEU"] = {kind: row["BLEU"] for kind, row in result["translations"].items()}
    return found


def parse() -> argparse.Namespace:
    """The command line; --quick fills in what is not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folders", nargs="*", default=["runs/latest/model"])
    parser.add_argument("--pairs", help="test pairs; by default the built-in ones the model was not trained on")
    parser.add_argument("--limit", type=int, help="sentences for errors by layer and differences (200)")
    parser.add_argument("--documents", type=int, help="long documents (12)")
    parser.add_argument("--length", type=int, help="tokens of either side of a document (128)")
    parser.add_argument("--first", type=int, default=8, help="fewest keys of a fit on documents")
    parser.add_argument("--every", type=int, default=8, help="distance of the own tokens looked at in documents")
    parser.add_argument("--sentence-length", type=int, default=12, help="keys of a fit on sentences")
    parser.add_argument("--lam", type=float, help="λ of the path; as trained")
    parser.add_argument("--decode", type=int, help="sentences translated with either attention (100)")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--snapshots", type=Path, help="RUN/snapshots: errors over training")
    parser.add_argument("--no-bound", dest="bound", action="store_false")
    parser.add_argument("--seed", type=int, default=1, help="of random weights")
    parser.add_argument("--out", type=Path, default=Path("runs/error-study"))
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    arguments = parser.parse_args()
    usual = {"limit": (200, 20), "documents": (12, 2), "length": (128, 64), "decode": (100, 10)}
    for name, (full, quick) in usual.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else full)
    return arguments


def write(report: dict[str, Any], out: Path) -> None:
    """Everything measured so far."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "error-study.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All models, files, and the summary."""
    results: dict[str, Any] = {}
    settings = {name: value if not isinstance(value, Path) else str(value) for name, value in vars(arguments).items()}
    report: dict[str, Any] = {"settings": settings, "models": results}
    steps = snapshots(arguments.snapshots) if arguments.snapshots else []
    for number, folder in enumerate(arguments.model_folders):
        loaded = load_grid(folder)
        if arguments.bound:
            check_bounded(loaded.model)
        pairs = held_out_pairs(loaded, None, arguments.pairs)
        model = loaded.model
        if arguments.decode:
            decoded = translations(loaded, pairs[: arguments.decode], arguments.theta)
        model.double()  # after decoding, for which float32 will do
        sentences = examples(loaded, pairs)
        if number == 0:
            random = random_weights(model, arguments.seed)
            results[RANDOM] = study(random, loaded, sentences, arguments)
        name = label(Path(folder))
        results[name] = study(model, loaded, sentences, arguments)
        if arguments.decode:
            results[name]["translations"] = decoded
        write(report, arguments.out)  # what comes next may fail, or be interrupted
        print(f"{name}: done", file=sys.stderr)
    if steps:
        report["over_training"] = over_training(steps, arguments)
        write(report, arguments.out)
    layer_figure({name: result["layers"] for name, result in results.items()}, arguments.out)
    for kind in ("documents", "sentences"):
        decay_figure(
            {name: result[f"decay_{kind}"] for name, result in results.items()},
            arguments.out,
            f"study-error-decay-{kind}",
        )
    if steps:
        training_error_figure(report["over_training"], arguments.out)
    return {"sentences": arguments.limit, "models": {name: summary(result) for name, result in results.items()}}


def main() -> None:
    """Measure, write, print."""
    arguments = parse()
    try:
        found = run(arguments)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
