"""What each target token sees under a schedule, in loops over a live stream; delays drawn for multi-path training."""

import pytest
import torch

from duplexmt.data.batch import Example, collate
from duplexmt.decoder.schedules import drawn_delays, visible_source

LENGTHS = torch.tensor([6, 3, 1])  # end token included


@pytest.mark.parametrize("prefixes", [(0, 0), (2, 0), (0, 1), (2, 2)])
@pytest.mark.parametrize("k", [1, 2, 3, 9, None])
def test_what_is_seen_equals_wait_k_written_in_loops(k, prefixes):
    source_prefix, target_prefix = prefixes
    lengths, Y = [8, 5, 3], 7
    visible = visible_source(k, torch.tensor(lengths), Y, source_prefix, target_prefix)
    for b, length in enumerate(lengths):
        read, writes = source_prefix, 0  # a live stream: read k, then write and read in turn
        for y in range(Y):
            writes += y > target_prefix
            while read < length and (k is None or read - source_prefix < k + writes):
                read += 1
            assert visible[b, y] == read


def test_each_pair_may_have_a_schedule_of_its_own():
    delays = torch.tensor([3, 1, 2])
    together = visible_source(delays, LENGTHS + 2, 5, source_prefix=2, target_prefix=1)
    for b, k in enumerate(delays.tolist()):
        assert torch.equal(together[b], visible_source(k, LENGTHS[b : b + 1] + 2, 5, 2, 1)[0])


def test_delays_of_multi_path_training_are_drawn_by_pair_and_epoch_evenly_over_the_source():
    keys, shapes = range(3000), [(7, 4)] * 3000
    drawn = drawn_delays(keys, shapes, epoch=0, source_prefix=2)
    counts = drawn.bincount(minlength=6)
    assert counts[0] == 0
    assert counts.numel() == 6
    assert counts[1:].min() > 500, "five delays, 600 each expected, with a standard deviation of 22"
    assert torch.equal(drawn, drawn_delays(keys, shapes, epoch=0, source_prefix=2))
    again = drawn_delays(keys, shapes, epoch=1, source_prefix=2)
    assert 0.7 < (again != drawn).float().mean() < 0.9, "another epoch, other delays: equal by chance in a fifth"
    one, other = Example((5,) * 9, (1,) * 7), Example((6,) * 40, (2,) * 3)
    padded = collate([other, one])
    assert drawn_delays(padded.keys, padded.shapes, 0)[1] == drawn_delays([one.key], [one.shape], 0)[0]
