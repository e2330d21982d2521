"""Freed memory that stays with the process: the next block of its size needs no new pages."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")

PAGES_OF_BLOCKS = """
import resource, sys
import torch
from duplexmt.allocator import keep_freed_memory

def work():
    first, second = torch.ones(40 * 2**18), torch.ones(4 * 2**18)  # 40 and 4 MiB
    return float(first[-1] + second[-1])

if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(6):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(how):
    """Pages the system hands out in ten rounds of the same work, in a process of its own."""
    command = [sys.executable, "-c", PAGES_OF_BLOCKS, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_blocks_are_used_again():
    """All but one or two: what is small may be put into the hole of what was large."""
    assert 2 * new_pages("keep") < new_pages("as it is")
