"""The layout of a batch without padding, worked by hand."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.grid.cells import Cells

SHAPES = [(2, 3), (3, 1)]  # cells 0…5 are pair 0 row by row, 6…8 pair 1


def test_cells_lie_pair_after_pair_and_row_after_row():
    cells = Cells.of(SHAPES)
    assert len(cells) == 9
    assert cells.source_token.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 4]
    assert cells.target_token.tolist() == [0, 1, 2, 0, 1, 2, 3, 3, 3]
    assert cells.x.tolist() == [0, 1, 0, 1, 2]
    assert cells.y.tolist() == [0, 1, 2, 0]
    assert (cells.source_pair.tolist(), cells.target_pair.tolist()) == ([0, 0, 1, 1, 1], [0, 0, 0, 1])
    assert cells.width == (3, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("rows", [[0, 1, 2], [3, 4, 5], [6], [7], [8]]), ("columns", [[0, 3], [1, 4], [2, 5], [6, 7, 8]])],
)
def test_lines_are_the_rows_and_the_columns(name, expected):
    lines = getattr(Cells.of(SHAPES), name)
    found = [
        [int(start + t * stride) for t in range(length)]
        for start, stride, length in zip(lines.start, lines.stride, lines.length, strict=True)
    ]
    assert found == expected
    # Step t holds the t-th cell of every line long enough, longest lines first.
    for t, step in enumerate(lines.by_step.split(lines.counts)):
        longest = [expected[line] for line in lines.order.tolist() if len(expected[line]) > t]
        assert step.tolist() == [line[t] for line in longest]
        assert lines.counts[t] == len(longest)
    assert lines.by_step[lines.to_flat].tolist() == list(range(9))


def test_values_go_to_a_padded_grid_and_back():
    cells = Cells.of(SHAPES)
    values = torch.arange(1.0, 10.0)
    grid = cells.padded(values)
    assert grid.tolist() == [[[1, 2, 3], [4, 5, 6], [0, 0, 0]], [[7, 0, 0], [8, 0, 0], [9, 0, 0]]]
    assert torch.equal(cells.flat(grid), values)


def test_tokens_spread_over_their_lines_and_are_found_again_at_its_first_cell():
    cells = Cells.of(SHAPES)
    source, target = torch.arange(5), torch.arange(10, 14)
    assert torch.equal(cells.column_0(cells.over_rows(source)), source)
    assert torch.equal(cells.row_0(cells.over_columns(target)), target)
    by_cell = cells.over_rows(source)
    assert cells.over_rows(by_cell) is by_cell
    assert cells.column_0(source) is source


class Sums(TorchDispatchMode):
    """Types that gradients are added up in."""

    def __init__(self):
        super().__init__()
        self.types = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "index_add" in func._schema.name:
            self.types.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_of_tokens_are_summed_in_no_less_than_float32(dtype):
    cells = Cells.of([(2, 300)])
    for spread_out, count in ((cells.over_rows, 2), (cells.over_columns, 300)):
        tokens = torch.ones(count, 3, dtype=dtype).requires_grad_()
        found = spread_out(tokens)
        assert found.dtype == dtype
        with Sums() as sums:
            found.backward(torch.ones_like(found))
        assert sums.types == [torch.promote_types(dtype, torch.float32)]
        assert torch.equal(tokens.grad, torch.full_like(tokens, len(cells) / count))
    assert cells.over_columns(torch.arange(300)).dtype == torch.int64
