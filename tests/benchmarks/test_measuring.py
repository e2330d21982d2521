"""Seconds in turns."""

from benchmarks import measuring
from benchmarks.measuring import in_turns


def test_each_work_has_its_turns_after_one_to_warm_up_and_one_that_fails_is_left_out_and_told(capsys):
    taken = []

    def failing(turn):
        if turn == 1:
            raise RuntimeError("out of memory")

    def work(turn):
        taken.append(turn)

    clock = iter(range(100)).__next__
    assert in_turns({"failing": failing, "work": work}, 3, clock) == {"work": 1}
    assert taken == [0, 0, 1, 2]
    assert "failing: left out (RuntimeError: out of memory)" in capsys.readouterr().err
    assert in_turns({"work": work}, 3, ends=0.0) == {}, "its time was over"


def test_no_work_is_begun_once_the_time_is_over(monkeypatch):
    begun = []
    monkeypatch.setattr(measuring, "monotonic", lambda: len(begun))
    works = {name: begun.append for name in ("one", "two", "three")}
    measuring.in_turns(works, 3, ends=2)
    assert len(begun) == 2
