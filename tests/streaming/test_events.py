"""Events gathered into hypotheses."""

from duplexmt.streaming.events import End, Hypothesis, Read, Write, collect


def test_events_of_streams_that_alternate_become_one_hypothesis_each():
    events = [
        Read(0, 10), Read(1, 20), Write(0, 11, 1, 0.75), Read(1, 21, 0.25), Write(1, 22, 2, 0.5),
        End(1, "end_token"), Write(0, 12, 1, 0.875), End(0, "max_target_tokens"),
    ]  # fmt: skip
    assert collect(iter(events), 3) == [
        Hypothesis([11, 12], [1, 1], [0.75, 0.875], "max_target_tokens"),
        Hypothesis([22], [2], [0.5], "end_token"),
        Hypothesis([], [], [], ""),
    ]
