"""The recurrence behind path, worth and visits: each place against a loop, and that nothing waits for the device."""

import pytest
import torch

from duplexmt.policy.recurrence import running_best
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import decoding_shares, drawn_cells
from tests.accelerator import accelerator
from tests.helpers import best_path


@pytest.mark.parametrize(("S", "N", "W"), [(1, 1, 1), (4, 3, 7), (9, 2, 5)])
def test_each_place_has_the_best_of_all_before_it(S, N, W):
    gains = torch.randn(S, N, W, dtype=torch.float64, generator=torch.Generator().manual_seed(S))
    gains[0, :, W // 2 :] = float("-inf")
    found = running_best(gains)
    for n in range(N):
        before = [0.0] * W
        for s in range(S):
            one = [a + b for a, b in zip(gains[s, n].tolist(), before, strict=True)]
            before = [max(one[: w + 1]) for w in range(W)]
            assert found[s, n].tolist() == before


def test_nothing_waits_for_the_device(monkeypatch):
    monkeypatch.setenv("DUPLEXMT_TRITON", "0")
    draw = torch.Generator().manual_seed(0)
    losses, p_emit = torch.rand(2, 5, 6, generator=draw), torch.rand(2, 5, 6, generator=draw)
    lengths, points = (torch.tensor([5, 2]), torch.tensor([4, 6])), torch.tensor([0.3, 0.9])

    def results(losses, p_emit, points, *lengths):
        shares = decoding_shares(p_emit, *lengths)
        return (
            best_path(losses, *lengths, 0.1),
            emit_advantages(losses, *lengths, 0.1),
            shares,
            drawn_cells(shares, points),
        )

    given = losses, p_emit, points, *lengths
    expected = results(*given)
    with accelerator() as waits:
        there = [part.to("cuda", non_blocking=True) for part in given]
        found = results(*there)
        assert waits == {}
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(one.tolist()).to(other.dtype), other)
