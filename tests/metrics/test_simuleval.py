"""Latency metrics against SimulEval's own scorers, in the metrics environment (`make metrics`)."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from duplexmt.metrics.latency import COMPUTATION_AWARE_METRICS, SENTENCE_METRICS

from ..helpers import METRICS_PYTHON, needs_metrics_environment

CASES = 2500


def cases() -> list[dict]:
    """Random sentences, and the edges: one token, all tokens after the source's end, a stop before it."""
    generator = np.random.default_rng(0)
    found = []
    for kind in range(CASES):
        source_length, reference_length, length = (int(n) for n in generator.integers(1, 40, size=3))
        delays = np.sort(generator.integers(0, source_length + 1, size=length))
        if kind % 10 == 0:
            delays = delays[:1]
        elif kind % 10 == 1:
            delays[:] = source_length
        elif kind % 10 == 2:
            delays = delays[: max(1, length // 2)]
        elif kind % 10 == 3:  # wait-k
            delays = np.minimum(np.arange(length) + int(generator.integers(1, 9)), source_length)
        elapsed = delays + np.cumsum(generator.exponential(generator.choice([0.0, 0.3, 5.0]), size=len(delays)))
        found.append(
            {
                "delays": delays.tolist(),
                "elapsed": elapsed.tolist(),
                "source_length": source_length,
                "reference_length": reference_length,
            }
        )
    return found


@needs_metrics_environment
def test_every_metric_equals_simulevals_scorer_on_2500_random_sentences() -> None:
    sentences = cases()
    lines = "".join(json.dumps(sentence) + "\n" for sentence in sentences)
    script = Path(__file__).parent / "simuleval_scorers.py"
    done = subprocess.run([METRICS_PYTHON, script], input=lines, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(theirs) == len(sentences) == CASES
    for sentence, expected in zip(sentences, theirs, strict=True):
        lengths = sentence["source_length"], sentence["reference_length"]
        ours = {name: SENTENCE_METRICS[name](sentence["delays"], *lengths) for name in SENTENCE_METRICS}
        del ours["AL_all"]  # the paper's, which SimulEval does not have
        ours |= {name: metric(sentence["elapsed"], *lengths) for name, metric in COMPUTATION_AWARE_METRICS.items()}
        assert ours == pytest.approx(expected, rel=0, abs=1e-6), sentence
