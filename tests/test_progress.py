"""Progress bars, where there is no terminal."""

import io
import sys
import time

from duplexmt.progress import progress_bar


def test_a_bar_in_a_log_shows_its_begin_and_end_and_little_between(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    for _ in progress_bar(range(50), desc="grid 0.5"):
        time.sleep(0.01)
    states = [state for state in log.getvalue().split("\r") if state]
    assert "0/50" in states[0]
    assert "50/50" in states[-1]
    assert len(states) <= 3
