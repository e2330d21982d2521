"""Memory over many sentences, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_memory_stays_flat_over_consecutive_sentences():
    # 10,000 of them are the benchmark's own default. By characters, so that no tokenizer's cache fills up first.
    done = subprocess.run(
        [sys.executable, "benchmarks/endless_text.py", "--sentences", "150", "--segmentation", "characters"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["sentences"] >= 150
    assert result["flat"], result["resident_mib"]
