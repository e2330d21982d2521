"""Block-masked attention of chosen rows: spans and blocks against the padded product, and its trial at first use."""

import logging

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from duplexmt import grid
from duplexmt.grid import rows as rows_module
from duplexmt.grid import rows_flex
from duplexmt.grid.rows import KERNEL, Rows, blocked_target_context, naive_target_context
from duplexmt.kernels import triton_use as kernels
from tests.accelerator import accelerator, moved
from tests.helpers import tiny_grid
from tests.kernels.test_wrong_kernels import FAULTS, Scaled

from .test_rows import LENGTHS, SHAPES, SOME, tokens

LAYOUTS = {
    "small": (SHAPES, SOME, None),
    "cut": ([(5, 4), (6, 7)], [(1, 4), (0, 3, 5)], [(2, 4), (1, 5, 7)]),
    "several blocks": ([(150, 3), (40, 200), (2, 2)], [(3, 149), (20, 30, 39), (1,)], [(1, 3), (90, 200, 200), (2,)]),
}


@pytest.fixture(params=LAYOUTS)
def rows(request):
    shapes, chosen, columns = LAYOUTS[request.param]
    return Rows.of(shapes, chosen, "cpu", columns)


def given_to(rows, by_token=False):
    S, n = len(rows.x), len(rows.y) if by_token else len(rows)
    draw = torch.Generator().manual_seed(0)
    sizes = [(S, 2), (S, 2), (n, 4), (n, 2), (n, 2)]
    return [torch.randn(m, heads, 16, generator=draw, dtype=torch.float64) for m, heads in sizes]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("by_token", [True, False])
def test_contexts_by_blocks_are_those_of_the_padded_product(rows, by_token, monkeypatch):
    monkeypatch.setattr(rows_flex, "kernel", flex_attention)  # not compiled, as PyTorch computes it on a CPU
    given = given_to(rows, by_token)
    found = blocked_target_context(rows, *given, scale=0.25)
    torch.testing.assert_close(found, naive_target_context(rows, *given, scale=0.25), rtol=0, atol=1e-12)


def test_a_block_is_read_if_and_only_if_one_of_its_queries_sees_one_of_its_keys(rows):
    S, N, size = len(rows.x), len(rows), rows_flex.BLOCK
    seen = torch.zeros(-(-N // size) * size, -(-(S + N) // size) * size, dtype=torch.bool)
    seen[:N, : S + N] = visible(rows.spans, S)
    by_blocks = seen.unflatten(0, (-1, size)).unflatten(2, (-1, size)).any(1).any(-1)
    assert torch.equal(rows.blocks.to_dense()[0, 0].bool(), by_blocks)


def visible(spans, S):
    """Whether each cell sees each source token and cell, `[N, S + N]`."""
    (first, last, own), N = spans, spans.shape[1]
    keys, itself = torch.arange(S + N, device=spans.device), S + torch.arange(N, device=spans.device)
    of_source = (keys >= first[:, None]) & (keys <= last[:, None])
    return of_source | ((keys >= own[:, None]) & (keys <= itself[:, None]))


class Stand:
    """In place of the module of the kernel: one dense product over all source tokens and cells, with a fault."""

    def __init__(self, fault):
        self.fault, self.calls, self.block_mask = fault, 0, visible

    def target_context(self, q, k, v, seen, scale):
        self.calls += 1
        if self.fault == "exception":
            raise RuntimeError("No valid triton configs")
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=True)[0].transpose(0, 1)
        out = out * {"values": 1.05, "nan": float("nan")}.get(self.fault, 1)
        return Scaled.apply(out, 1.05) if self.fault == "gradients" else out


@pytest.fixture
def on_gpu(monkeypatch, caplog):
    """A step of a small model on a stand-in for a GPU, its attention by `Stand`."""
    monkeypatch.delenv("DUPLEXMT_TRITON", raising=False)
    monkeypatch.setattr(kernels, "triton_runs", lambda: True)
    caplog.set_level(logging.WARNING, logger="duplexmt")
    kernels.proven.clear()
    kernels.refused.clear()

    def step(fault, longest=2, device="cuda"):
        monkeypatch.setattr(rows_module, "LONG", longest)
        stand = Stand(fault)
        monkeypatch.setattr(grid, "rows_flex", stand)
        with accelerator():
            model = tiny_grid(attention="exact", input_attends_output=False)
            model = moved(model) if device == "cuda" else model
            given = (part.to(device) for part in (*tokens(), LENGTHS))
            source, target, lengths = given
            states = model.states(source, target, Rows.of(SHAPES, SOME, device), lengths)
            states.square().sum().backward()
            gradients = [weight.grad.tolist() for weight in model.parameters() if weight.grad is not None]
            return [states.tolist(), *gradients], stand

    yield step
    kernels.proven.clear()
    kernels.refused.clear()


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        other = torch.tensor(other)
        torch.testing.assert_close(torch.tensor(one), other, rtol=0, atol=1e-5 * other.abs().max().item())


def test_a_right_kernel_is_used_where_rows_are_long_and_nothing_is_said(on_gpu, caplog):
    expected, unused = on_gpu(None, device="cpu")
    short, unasked = on_gpu(None, longest=14)
    found, used = on_gpu(None)
    assert_close(short, expected)
    assert_close(found, expected)
    assert unused.calls == unasked.calls == 0
    assert used.calls > 2
    assert caplog.messages == []
    assert [name for name, *_ in kernels.proven] == [KERNEL]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_found_at_once_said_once_and_left_out(on_gpu, caplog, fault):
    expected, _ = on_gpu(None, device="cpu")
    for calls in (1, 0):
        found, stand = on_gpu(fault)
        assert_close(found, expected)
        assert stand.calls == calls
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{KERNEL}: {'RuntimeError: No' if fault == 'exception' else 'result '}")
    assert kernels.refused == {KERNEL}
