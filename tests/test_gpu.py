"""On a real GPU, where there is one: kernels and graphs prove themselves, training and decoding are those of a CPU.

Where there is none, `test_accelerator` and Triton's interpreter stand in for most of it.
"""

import pytest
import torch

from duplexmt.grid import rows as rows_module
from duplexmt.grid import scan
from duplexmt.grid.rows import Rows, blocked_target_context, naive_target_context
from duplexmt.kernels import triton_use
from duplexmt.kernels.triton_use import TOLERANCES, difference, with_gradients
from duplexmt.policy import heatmap

from .helpers import tiny_backbone, tiny_grid
from .test_accelerator import DECODINGS, TRAININGS, decoded, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def proven():
    """Names of the kernels that proved themselves in a test; none may have been refused."""
    triton_use.refused.clear()
    triton_use.proven.clear()
    yield lambda: {name for name, *_ in triton_use.proven}
    assert not triton_use.refused


@TRAININGS
def test_a_training_step_is_that_of_the_cpu(options, training, proven):
    # Muon makes the smallest directions of a gradient as large as the others, and with them their rounding.
    rtol = 1e-4 if training["optimizer"] == "muon" else 2e-5
    expected = train(tiny_grid(**options), "cpu", **training)
    losses = train(tiny_grid(**options).cuda(), "cuda", **training)
    torch.testing.assert_close([one.item() for one in losses], [one.item() for one in expected], rtol=rtol, atol=0)
    if "attention" not in options and "softmax" not in options:
        assert proven() >= {scan.KERNEL, heatmap.KERNELS}


@pytest.mark.parametrize("lm_cells", ["visits", "drawn_visits"])
def test_a_step_on_long_rows_is_that_of_the_cpu(lm_cells, proven):
    """By the block-masked kernel, whose heads must have 16 numbers or more."""
    past_paper = {"attention": "exact", "input_attends_output": False, "emit_hidden": 8}
    training = {"optimizer": "adam", "rows": 3, "lm_cells": lm_cells, "emit_loss": "regret"}
    draw = torch.Generator().manual_seed(0)
    sources = [torch.randint(2, 97, (size,), generator=draw).tolist() for size in (150, 30, 200)]

    def grid():
        return tiny_grid(tiny_backbone(hidden_size=64, head_dim=16, max_position_embeddings=1024), **past_paper)

    expected = train(grid(), "cpu", sources=sources, **training)
    losses = train(grid().cuda(), "cuda", sources=sources, **training)
    torch.testing.assert_close([one.item() for one in losses], [one.item() for one in expected], rtol=1e-4, atol=0)
    assert rows_module.KERNEL in proven()


@pytest.mark.parametrize(
    ("H", "K", "E", "dtype"),
    [(14, 2, 64, torch.float32), (14, 2, 64, torch.bfloat16), (4, 4, 32, torch.float16)],
)
@pytest.mark.parametrize("by_token", [True, False])
def test_attention_of_long_rows_is_that_of_padded_rows(H, K, E, dtype, by_token):
    draw = torch.Generator().manual_seed(1)
    shapes, chosen, columns = [], [], []
    for _ in range(9):  # new sizes: what was compiled for others must do for them
        X, Y, R = (int(torch.randint(1, most, (), generator=draw)) for most in (300, 300, 6))
        own = sorted(torch.randperm(X, generator=draw)[:R].tolist())
        cut = torch.randint(1, Y + 1, (len(own) - 1,), generator=draw).sort().values.tolist()
        shapes.append((X, Y)), chosen.append(own), columns.append([*cut, Y])
    rows = Rows.of(shapes, chosen, "cuda", columns)
    S, N = len(rows.x), len(rows)
    n = len(rows.y) if by_token else N
    sizes = [(S, K), (S, K), (n, H), (n, K), (n, K), (N, H)]
    given = [torch.randn(m, heads, E, generator=draw).to("cuda", dtype) for m, heads in sizes]

    def results(context, given):
        return with_gradients(lambda *parts: context(rows, *parts, scale=E**-0.5), given[:-1], given[-1])

    expected = results(naive_target_context, [part.double() for part in given])
    assert difference(results(blocked_target_context, given), expected, TOLERANCES[dtype]) is None


@DECODINGS
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("static", [False, True], ids=["as they come", "fixed shapes"])
def test_decoding_is_that_of_the_cpu(build, options, system, setting, streams, static):
    expected = decoded(build, options, system, setting, streams)
    assert decoded(build, options, system, setting, streams, static, move=lambda model: model.cuda()) == expected
