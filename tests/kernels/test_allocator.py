"""Freed memory that stays with the process: the next block of its size needs no new pages."""

import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from duplexmt.kernels import allocator
from tests.test_config import checked

ROOT = Path(__file__).parents[2]

PAGES_OF_BLOCKS = """
import resource
import torch
from duplexmt.kernels.allocator import keep_freed_memory

def work():
    first, second = torch.ones(40 * 2**18), torch.ones(4 * 2**18)  # 40 and 4 MiB
    return float(first[-1] + second[-1])

def new_pages():
    for _ in range(6):
        work()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = new_pages()
assert keep_freed_memory()
print(usual, new_pages())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_freed_blocks_are_used_again():
    """Pages the system hands out in ten rounds of the same work: none or few, as what is small may be put into the hole
    of what was large."""
    done = subprocess.run([sys.executable, "-c", PAGES_OF_BLOCKS], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert 2 * kept < usual


def test_training_on_a_cpu_asks_for_it_before_it_begins(tmp_path, monkeypatch):
    """The one call in `train.py`; without it a step is a tenth slower and nothing else would tell."""
    spec = importlib.util.spec_from_file_location("train_script", ROOT / "train.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    done = []
    monkeypatch.setattr(allocator, "keep_freed_memory", lambda: done.append("memory"))
    monkeypatch.setattr(script, "run", lambda *_: done.append("run"))
    script.train(checked("train", "trainer.accelerator=cpu"), tmp_path, "name", None)
    assert done == ["memory", "run"]
