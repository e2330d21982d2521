"""What an evaluation costs beside its decoding.

    python benchmarks/evaluation_overhead.py [MODEL_FOLDER] [--test FILE] [--sentences 1000]

Runs `python evaluate.py` on a test set at five θ (start of Python, model, corpus, scores, bootstrap, tables and figure
included), then decodes the same sentences with nothing around it (events are counted and thrown away).
Without a file the sentences are built-in ones of another seed than the model's. The last line is one JSON object;
`ratio` is the whole command's wall clock over that of decoding alone, `ratio_without_start` leaves out what starting
costs (imports, model); `cpu_ratio` compares processor time, for a machine that is busy otherwise.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time

from duplexmt.artifact import load_model_folder
from duplexmt.data.grammar import builtin_corpus
from duplexmt.data.tokenizer import token_ids
from duplexmt.streaming.systems import build_system

THETAS = (0.5, 0.6, 0.7, 0.8, 0.9)
ROOT = Path(__file__).parents[1]


def main() -> None:
    """Time both, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        test = arguments.test or Path(temporary) / "test.tsv"
        if arguments.test is None:
            pairs = builtin_corpus(1, 1, arguments.sentences, seed=2)["test"]
            test.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
        command = [
            sys.executable, str(ROOT / "evaluate.py"), f"model_folder={arguments.model_folder}", "device=cpu",
            f"data.test_path='{test}'", f"limit={arguments.sentences}", f"policy.theta={list(THETAS)}".replace(" ", ""),
            f"hydra.run.dir='{Path(temporary) / 'evaluation'}'",
        ]  # fmt: skip
        begun = perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        whole = perf_counter() - begun
        used = getrusage(RUSAGE_CHILDREN)
        whole_cpu = used.ru_utime + used.ru_stime
        with open(Path(temporary) / "evaluation" / "hypotheses.jsonl", encoding="utf-8") as file:
            sources = list(dict.fromkeys((line["id"], line["source"]) for line in map(json.loads, file)))

    begun = perf_counter()
    loaded = load_model_folder(arguments.model_folder)
    ids = token_ids(loaded.tokenizer, [source for _, source in sources])
    starting = perf_counter() - begun
    decoding, decoding_cpu = 0.0, 0.0
    for theta in THETAS:
        system = build_system(loaded, "grid", theta, max_target_tokens=64, batch_size=64)
        begun, begun_cpu = perf_counter(), process_time()
        events = sum(1 for _ in system.translate(ids))
        decoding, decoding_cpu = decoding + perf_counter() - begun, decoding_cpu + process_time() - begun_cpu
        print(f"θ = {theta}: {events} events, {decoding:.1f} s so far", file=sys.stderr)
    begun = perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import lightning, transformers, duplexmt.training.data"], cwd=ROOT, check=True
    )
    starting += perf_counter() - begun
    result = {
        "sentences": len(ids),
        "decoding_s": decoding,
        "evaluate_s": whole,
        "starting_s": starting,
        "ratio": whole / decoding,
        "ratio_without_start": (whole - starting) / decoding,
        "decoding_cpu_s": decoding_cpu,
        "evaluate_cpu_s": whole_cpu,
        "cpu_ratio": whole_cpu / decoding_cpu,
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    main()
