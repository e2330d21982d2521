"""A source that changes its mind: what follows is what a stream would write that had stood there from the beginning."""

from collections import Counter

import pytest

from .revisions import POLICIES, Script

SCRIPTS = 4, 30  # of each policy at least, and until all is shown; for more: python -m tests.streaming.revisions 1000


@pytest.mark.parametrize("name", POLICIES)
def test_what_follows_is_what_a_stream_writes_that_stood_there_with_the_corrected_source(name):
    done, wanted = Counter(), ("replaced", "tokens", "moves")
    for seed in range(SCRIPTS[1]):
        if seed >= SCRIPTS[0] and all(done[kind] for kind in wanted):
            break
        script = Script(name, seed).run()
        script.check()
        done.update(script.done)
    for kind in wanted:
        assert done[kind], f"no {kind}, so nothing was shown of that"
