"""What an evaluation costs beside its decoding.

    python benchmarks/evaluation_overhead.py [MODEL_FOLDER] [--test FILE] [--sentences 1000]

Runs `evaluate.py` at five θ, from the start of Python to the last figure, with a clock around its systems that runs
only while they decode. One run gives both times, so that a busy machine slows both. Without a file the sentences are
built-in ones of another seed than the model's. The last line is one JSON object: `ratio` is the whole over the decoding
alone by the wall clock, `cpu_ratio` by processor time; `…_without_start` leaves out imports and configuration.
"""

import argparse
import json
import runpy
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time

BEGUN = perf_counter()
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import duplexmt.streaming.systems as systems  # noqa: E402
from duplexmt.data.grammar import builtin_corpus  # noqa: E402
from duplexmt.streaming.events import Event, System  # noqa: E402

SPENT = {"wall": 0.0, "cpu": 0.0}


class Timed:
    """A system with a clock that runs while it decodes, and stands while its events are made use of."""

    def __init__(self, system: System) -> None:
        self.system = system

    def translate(self, sources: Sequence[Sequence[int]]) -> Iterator[Event]:
        """The system's own events."""
        events = self.system.translate(sources)
        while True:
            begun, begun_cpu = perf_counter(), process_time()
            event = next(events, None)
            SPENT["wall"] += perf_counter() - begun
            SPENT["cpu"] += process_time() - begun_cpu
            if event is None:
                return
            yield event


def main() -> None:
    """Time one evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?", default="runs/latest/model")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    import duplexmt.training.data
    import duplexmt.training.run  # noqa: F401  # what evaluate.py imports in any case

    start = {"wall": perf_counter() - BEGUN, "cpu": process_time()}
    original = systems.build_system
    systems.build_system = lambda *args, **options: Timed(original(*args, **options))
    with tempfile.TemporaryDirectory() as temporary:
        test = arguments.test or Path(temporary) / "test.tsv"
        if arguments.test is None:
            pairs = builtin_corpus(1, 1, arguments.sentences, seed=2)["test"]
            test.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
        sys.argv = [
            "evaluate.py", f"model_folder={arguments.model_folder}", "device=cpu", f"data.test_path='{test}'",
            f"limit={arguments.sentences}", f"hydra.run.dir='{Path(temporary) / 'evaluation'}'",
        ]  # fmt: skip
        runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")
    whole = {"wall": perf_counter() - BEGUN, "cpu": process_time()}
    result = {"sentences": arguments.sentences, "decoding_s": SPENT["wall"], "evaluate_s": whole["wall"]}
    for clock, prefix in (("wall", ""), ("cpu", "cpu_")):
        result[f"{prefix}ratio"] = whole[clock] / SPENT[clock]
        result[f"{prefix}ratio_without_start"] = (whole[clock] - start[clock]) / SPENT[clock]
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    main()
