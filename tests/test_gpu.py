"""On a real GPU, where there is one: kernels prove themselves, training and decoding are those of a CPU.

Where there is none, `test_accelerator` and Triton's interpreter stand in for most of it.
"""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
import torch

from duplexmt.decoder.attention import KERNEL, PackedAttention
from duplexmt.decoder.graphs import record
from duplexmt.decoder.layout import Layout
from duplexmt.grid import scan
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
    assert KERNEL in proven()


@pytest.mark.parametrize(
    ("H", "K", "E", "dtype"), [(14, 2, 64, torch.float32), (14, 2, 64, torch.bfloat16), (4, 4, 32, torch.float16)]
)
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (100, None), (None, 5.0)])
def test_attention_of_long_streams_is_that_of_padded_ones(H, K, E, dtype, window, softcap):
    draw = torch.Generator().manual_seed(1)

    def number(most):
        return int(torch.randint(1, most, (), generator=draw))

    # New sizes: what was compiled for others must do for them.
    shapes = [(number(300), number(300)) for _ in range(9)]
    rows = [[torch.randint(1, X + 1, (number(Y + 1),), generator=draw) for _ in range(number(6))] for X, Y in shapes]
    packed = PackedAttention(Layout.of(shapes, rows, 128, device="cuda"))
    given = [torch.randn(len(packed.layout), n, E, generator=draw).to("cuda", dtype) for n in (H, K, K, H)]

    def results(context, given):
        limits = {"scale": E**-0.5, "window": window, "softcap": softcap}
        return with_gradients(lambda *parts: context(*parts, **limits), given[:-1], given[-1])

    expected = results(packed.by_groups, [part.double() for part in given])
    assert difference(results(packed.by_blocks, given), expected, TOLERANCES[dtype]) is None


def test_steps_are_recorded_while_another_thread_pins_memory():
    """As the loader's does for the batches to come."""

    def pin():
        for _ in range(300):  # each a new block: those before it are kept
            sleep(0.001)
            yield torch.empty(2**18).pin_memory()

    def step(given):
        sleep(0.01)
        return given + 1

    given, pools = torch.zeros(3, device="cuda"), []
    with ThreadPoolExecutor(1) as thread:
        pinned = thread.submit(lambda: list(pin()))
        recorded = [record(step, given, pools) for _ in range(20)]
        assert len(pinned.result()) == 300
    for _, replay, found in recorded:
        replay()
        assert found.tolist() == [1, 1, 1]


@DECODINGS
@pytest.mark.parametrize("streams", [1, 3])
def test_decoding_is_that_of_the_cpu(build, options, system, setting, streams):
    expected = decoded(build, options, system, setting, streams)
    assert decoded(build, options, system, setting, streams, move=lambda model: model.cuda()) == expected
