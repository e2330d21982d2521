"""What a decision is worth, of long pairs and padded ones. Against enumeration: `test_words.py`."""

import pytest
import torch

from duplexmt.policy.path import path_of
from duplexmt.policy.regret import emit_advantages
from tests.helpers import best_path

from .brute_force import cell_by_cell


def advantages(heatmap, lam):
    rows, columns = len(heatmap), len(heatmap[0])
    found = emit_advantages(
        torch.tensor([heatmap], dtype=torch.float64), torch.tensor([rows]), torch.tensor([columns]), lam
    )
    return found[0].tolist()


@pytest.mark.parametrize(("X", "Y", "lam"), [(33, 33, 1 / 32), (50, 9, 0.0), (2, 61, 0.5), (40, 70, 1 / 32)])
def test_worth_and_path_of_long_pairs_are_those_of_one_state_at_a_time(X, Y, lam):
    heatmap = 9 * torch.rand(X, Y, dtype=torch.float64, generator=torch.Generator().manual_seed(X))
    heatmap[X // 2 :, Y // 2] = 1e4  # as unlikely as a token can be
    lengths = torch.tensor([X]), torch.tensor([Y])
    worth, y_at = cell_by_cell(heatmap.tolist(), lam)
    found = emit_advantages(heatmap[None], *lengths, lam)
    torch.testing.assert_close(found[0], torch.tensor(worth, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert best_path(heatmap[None], *lengths, lam)[0].tolist() == y_at
    assert path_of(found.float(), *lengths)[0].tolist() == y_at


def test_pairs_of_a_padded_batch_are_worth_what_they_are_alone():
    draw = torch.Generator().manual_seed(3)
    shapes = [(1, 1), (5, 2), (2, 6), (4, 4)]
    batch = torch.full((4, 5, 6), 1e9, dtype=torch.float64)  # what padding holds must not matter
    alone = [torch.rand(X, Y, generator=draw, dtype=torch.float64) for X, Y in shapes]
    for grid, (X, Y), one in zip(batch, shapes, alone, strict=True):
        grid[:X, :Y] = one
    rows, columns = torch.tensor(shapes).unbind(1)
    together = emit_advantages(batch, rows, columns, 0.1)
    for found, (X, Y), one in zip(together, shapes, alone, strict=True):
        torch.testing.assert_close(found[:X, :Y], torch.tensor(advantages(one.tolist(), 0.1), dtype=torch.float64))
        assert (found[X:] == 0).all()
        assert (found[:, Y:] == 0).all()
