"""The recurrence behind path, worth and visits: one launch on a GPU, few operators elsewhere, and none that waits."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.policy.path import best_path
from duplexmt.policy.recurrence import running_best
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import decoding_shares, drawn_cells
from tests.accelerator import accelerator


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


class Operators(TorchDispatchMode):
    """Names of all that is dispatched, views left out."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def operators(X, Y):
    """What path, worth, visits and drawn words of a batch dispatch."""
    draw = torch.Generator().manual_seed(X)
    lengths = torch.tensor([X, max(1, X - 3)]), torch.tensor([max(1, Y - 2), Y])
    losses, p_emit = torch.rand(2, X, Y, generator=draw), torch.rand(2, X, Y, generator=draw)
    with Operators() as seen:
        best_path(losses, *lengths, 0.1)
        emit_advantages(losses, *lengths, 0.1)
        drawn_cells(decoding_shares(p_emit, *lengths), torch.tensor([0.2, 0.7]))
    return seen.names


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


# Under Triton's interpreter; the whole of path, worth and visits, too, asked for where there is no GPU.
