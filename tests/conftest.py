"""One thread a test process: the suite runs four of them, which fill two cores, as many tests wait."""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What tests start, some 200 processes, reads what one of them has compiled, also where the image says to write nothing.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.disable()  # while all is loaded
# A slow machine is no fault of an example; the next run draws others.
hypothesis.settings.register_profile("any machine", deadline=None, max_examples=40)
hypothesis.settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests, then with the most tests, come first: no process is left with one at the end.

    Those of the live server wait for browsers and clocks, so they are spread among the others, which keep a core busy.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    tests = Counter(item.path for item in items)
    files, place = sorted(tests, key=lambda path: (-slow[path], -tests[path])), {}
    for waits in (False, True):
        group = [path for path in files if (path.parent.name == "serving") == waits]
        place |= {path: number / len(group) for number, path in enumerate(group)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish() -> None:
    """What is loaded by now stays, and is not looked through again and again for what may go."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def ctrl_c_taken() -> Iterator[None]:
    """As in a terminal: pytest started with & ignores it, and with it all that a test starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_verdicts() -> Iterator[None]:
    """No kernel has been proven or refused yet, nor is one afterwards."""
    from duplexmt.kernels import triton_use

    verdicts = (triton_use.proven, triton_use.refused)
    for found in verdicts:
        found.clear()
    yield
    for found in verdicts:
        found.clear()
