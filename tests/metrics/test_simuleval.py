"""Latency metrics against SimulEval's and OmniSTEval's own scorers, in the metrics environment (`make metrics`)."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from duplexmt.metrics.latency import COMPUTATION_AWARE_METRICS, SENTENCE_METRICS, mean_of_known, words_before_end

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
        lengths = {"source_length": source_length, "reference_length": reference_length}
        found.append({"delays": delays.tolist(), "elapsed": elapsed.tolist(), **lengths})
    return found


def scored_by(script: str, sentences: list[dict]) -> list[dict]:
    """What a script of the metrics environment says of each sentence."""
    lines = "".join(json.dumps(sentence) + "\n" for sentence in sentences)
    command = [METRICS_PYTHON, Path(__file__).parent / script]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@needs_metrics_environment
def test_every_metric_equals_simulevals_scorer_on_2500_random_sentences() -> None:
    sentences = cases()
    theirs = scored_by("simuleval_scorers.py", sentences)
    assert len(theirs) == len(sentences) == CASES
    for sentence, expected in zip(sentences, theirs, strict=True):
        lengths = sentence["source_length"], sentence["reference_length"]
        ours = {name: SENTENCE_METRICS[name](sentence["delays"], *lengths) for name in SENTENCE_METRICS}
        ours |= {name: metric(sentence["elapsed"], *lengths) for name, metric in COMPUTATION_AWARE_METRICS.items()}
        for name in ("AL_all", "YAAL", "YAAL_CA"):  # the paper's and OmniSTEval's: SimulEval does not have them
            del ours[name]
        assert ours == pytest.approx(expected, rel=0, abs=1e-6), sentence


@needs_metrics_environment
def test_yaal_and_the_share_before_the_end_equal_omnistevals_on_2500_random_sentences() -> None:
    sentences = cases()
    *theirs, corpus = scored_by("omnisteval_scorers.py", sentences)
    assert len(theirs) == CASES
    found = []
    for sentence, expected in zip(sentences, theirs, strict=True):
        lengths = sentence["source_length"], sentence["reference_length"]
        ours = {"YAAL": SENTENCE_METRICS["YAAL"](sentence["delays"], *lengths)}
        ours["YAAL_CA"] = COMPUTATION_AWARE_METRICS["YAAL_CA"](sentence["elapsed"], *lengths)
        for name, value in ours.items():
            assert (value is None) == (expected[name] is None), sentence
            assert value is None or value == pytest.approx(expected[name], rel=0, abs=1e-9), sentence
        found.append(ours["YAAL"])
    assert 0 < sum(value is None for value in found) < CASES
    swf = words_before_end([s["delays"] for s in sentences], [s["source_length"] for s in sentences])
    assert {"SWF": swf, "YAAL": mean_of_known(found)} == pytest.approx(corpus, rel=1e-12)
