"""The layout of a batch without padding, worked by hand."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.grid.cells import Cells
from duplexmt.grid.dual_attention import approximate_attention

SHAPES = [(2, 3), (3, 1)]  # cells 0…5 are pair 0 row by row, 6…8 pair 1


@pytest.mark.parametrize("count", [9, 10, 12, 40])
def test_what_is_filled_in_is_a_pair_apart_whose_lines_have_each_of_its_cells_once(count):
    cells, filled = Cells.of(SHAPES), Cells.of(SHAPES).filled(8, count)
    assert (len(filled), len(filled.x), len(filled.y), filled.pairs) == (count, 8, 8, 3)
    for name in ("source_token", "target_token", "x", "y", "source_pair", "target_pair"):
        before = getattr(cells, name)
        assert torch.equal(getattr(filled, name)[: len(before)], before)
    assert (filled.source_token[9:] >= 5).all()
    assert (filled.source_pair[5:] == 2).all()
    assert (filled.target_pair[4:] == 2).all()
    for lines, token in ((filled.rows, filled.source_token), (filled.columns, filled.target_token)):
        assert sorted(lines.by_step.tolist()) == list(range(count))
        for line, (start, stride, length) in enumerate(zip(lines.start, lines.stride, lines.length, strict=True)):
            assert (token[start + stride * torch.arange(length)] == line).all()
            assert start < count


@pytest.mark.parametrize("softmax", ["joint", "separate"])
@pytest.mark.parametrize("more", [0, 1, 3, 50])
def test_attention_of_filled_lists_is_that_of_the_cells_alone_and_finite(more, softmax):
    cells = Cells.of(SHAPES)
    filled, H, K, E = cells.filled(8, len(cells) + more), 4, 2, 6
    draw = torch.Generator().manual_seed(more)
    N = len(filled)
    given = [torch.randn(N, heads, E, dtype=torch.float64, generator=draw) for heads in (H, K, K, H, K, K)]
    found = []
    for own in (cells, filled):
        parts = [part[: len(own)].clone().requires_grad_() for part in given]
        contexts = approximate_attention(own, *parts, scale=0.4, softmax=softmax)
        total = sum((context[: len(cells)] ** 2).sum() for context in contexts)
        found.append([*contexts, *torch.autograd.grad(total, parts)])
    for alone, beside in zip(*found, strict=True):
        torch.testing.assert_close(beside[: len(cells)], alone, rtol=1e-12, atol=1e-12)
        assert torch.isfinite(beside).all()
    assert all((gradient[len(cells) :] == 0).all() for gradient in found[1][2:])


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
