"""Attention over packed streams: side by side, by blocks, and at first use, against one dense mask."""

import logging
from functools import partial

import pytest
import torch

from duplexmt import decoder
from duplexmt.decoder import attention as attention_module
from duplexmt.decoder.attention import KERNEL, PackedAttention, attend
from duplexmt.decoder.layout import Layout, naive_seen
from duplexmt.decoder.model import DecoderModel
from duplexmt.kernels import triton_use as kernels
from tests.accelerator import accelerator, moved
from tests.helpers import naive_attention, tiny_backbone
from tests.kernels.test_wrong_kernels import Scaled

from .oracle import drawn_layout, some_tokens

LIMITS = [(None, None), (4, 1.0)]  # window, soft cap
LONG_ROWS = [[torch.arange(1, 4), torch.full((3,), 150)], [torch.full((90,), 21), torch.full((200,), 40)]]
LAYOUTS = {"small": drawn_layout(5, anchor=12)[0], "several blocks": Layout.of([(150, 3), (40, 200)], LONG_ROWS, 128)}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


def given_to(layout, dtype=torch.float64):
    """Queries, keys and values of all tokens, and gradients of the contexts."""
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(len(layout), heads, 16, generator=draw).to(dtype) for heads in (4, 2, 2, 4)]


def results(context, q, k, v, gradient, targets=None):
    """Contexts and gradients; of the `targets` alone where they are given."""
    q, k, v = (part.clone().requires_grad_() for part in (q, k, v))
    found = context(q if targets is None else q[targets], k, v)
    found.backward(gradient if targets is None else gradient[targets])
    return found, q.grad, k.grad, v.grad


def assert_same(context, layout, some, atol=1e-10, **limits):
    given = given_to(layout)
    targets = layout.targets if some else None

    def naive(q, k, v):
        whole = q if targets is None else q.new_zeros(len(k), *q.shape[1:]).index_copy(0, targets, q)
        found = naive_attention(layout, whole, k, v, 0.25, **limits)
        return found if targets is None else found[targets]

    expected = results(naive, *given, targets)
    for found, own in zip(results(partial(context, scale=0.25, **limits), *given, targets), expected, strict=True):
        torch.testing.assert_close(found, own, rtol=0, atol=atol)


@pytest.mark.parametrize("some", [False, True], ids=["all", "targets"])
@pytest.mark.parametrize(("window", "softcap"), LIMITS)
@pytest.mark.parametrize("small", [1, 2**15], ids=["four products", "one product"])
def test_streams_side_by_side_attend_as_under_one_dense_mask(layout, small, window, softcap, some, monkeypatch):
    monkeypatch.setattr("duplexmt.decoder.layout.SMALL", small)
    for cached in ("groups", "slot", "target_slot"):  # made under another size
        layout.__dict__.pop(cached, None)
    assert_same(PackedAttention(layout).by_groups, layout, some, window=window, softcap=softcap)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("some", [False, True], ids=["all", "targets"])
@pytest.mark.parametrize(("window", "softcap"), LIMITS)
def test_contexts_by_blocks_are_those_under_one_dense_mask(layout, window, softcap, some, monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    from duplexmt.decoder import flex  # loads PyTorch's compiler, which no other test needs

    monkeypatch.setattr(flex, "kernel", flex_attention)  # not compiled, as PyTorch computes it on a CPU
    given = [part.detach() for part in given_to(layout)[:3]]
    targets = layout.targets
    q = given[0][targets] if some else given[0]
    found = PackedAttention(layout).by_blocks(q, *given[1:], 0.25, window, softcap)
    expected = naive_attention(layout, *given, 0.25, window, softcap)
    torch.testing.assert_close(found, expected[targets] if some else expected, rtol=0, atol=1e-12)


def test_a_block_is_read_if_and_only_if_one_of_its_queries_sees_one_of_its_keys(layout):
    from duplexmt.decoder import flex

    T, size = len(layout), flex.BLOCK
    seen = torch.zeros(-(-T // size) * size, -(-T // size) * size, dtype=torch.bool)
    seen[:T, :T] = naive_seen(layout)
    by_blocks = seen.unflatten(0, (-1, size)).unflatten(2, (-1, size)).any(1).any(-1)
    assert torch.equal(flex.block_mask(layout).to_dense()[0, 0].bool(), by_blocks)


@pytest.mark.parametrize("given", [{}, {"packed": object(), "s_aux": torch.zeros(2)}], ids=["no layout", "sinks"])
def test_a_layer_that_does_not_pass_on_the_layout_or_asks_for_more_is_refused(given):
    q, k = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8)
    with pytest.raises(TypeError, match="Linear does not attend by what it is given"):
        attend(torch.nn.Linear(1, 1), q, k, k, None, **given)


# --- the kernel's trial at its first use ---------------------------------------------------------------------------

SHAPES, ROWS = [(5, 4), (3, 7)], [[torch.full((4,), 2), torch.full((4,), 5)], [torch.full((7,), 3)]]


class Stand:
    """In place of the module of the kernel: one dense mask, with a fault."""

    def __init__(self, fault):
        self.fault, self.calls = fault, 0

    def block_mask(self, layout, window):
        return layout

    def contexts(self, q, k, v, layout, scale, softcap):
        self.calls += 1
        if self.fault == "exception":
            raise RuntimeError("No valid triton configs")
        out = naive_attention(layout, q, k, v, scale) * {"values": 1.05, "nan": float("nan")}.get(self.fault, 1)
        return Scaled.apply(out, 1.05) if self.fault == "gradients" else out


@pytest.fixture
def on_gpu(monkeypatch, caplog, no_verdicts):
    """A step of a small model on a stand-in for a GPU, its attention by `Stand`."""
    monkeypatch.delenv("DUPLEXMT_TRITON", raising=False)
    monkeypatch.setattr(kernels, "triton_runs", lambda: True)
    caplog.set_level(logging.WARNING, logger="duplexmt")

    def step(fault, longest=2, device="cuda"):
        monkeypatch.setattr(attention_module, "LONG", longest)
        stand = Stand(fault)
        monkeypatch.setattr(decoder, "flex", stand, raising=False)
        with accelerator():
            model = DecoderModel(tiny_backbone(), emit_hidden=0)
            model = moved(model) if device == "cuda" else model
            states = model.states(torch.cat(some_tokens(SHAPES)).to(device), model.layout(SHAPES, ROWS))
            states.square().sum().backward()
            gradients = [weight.grad.tolist() for weight in model.parameters() if weight.grad is not None]
            return [states.tolist(), *gradients], stand

    return step


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        other = torch.tensor(other)
        torch.testing.assert_close(torch.tensor(one), other, rtol=0, atol=1e-4 * other.abs().max().item())


def test_a_right_kernel_is_used_where_streams_are_long_and_nothing_is_said(on_gpu, caplog):
    expected, unused = on_gpu(None, device="cpu")
    short, unasked = on_gpu(None, longest=14)
    found, used = on_gpu(None)
    assert_close(short, expected)
    assert_close(found, expected)
    assert unused.calls == unasked.calls == 0
    assert used.calls > 2
    assert caplog.messages == []
    assert [name for name, *_ in kernels.proven] == [KERNEL]


@pytest.mark.parametrize("fault", ["gradients", "exception"])
def test_a_wrong_kernel_is_found_at_once_said_once_and_left_out(on_gpu, caplog, fault):
    expected, _ = on_gpu(None, device="cpu")
    for calls in (1, 0):
        found, stand = on_gpu(fault)
        assert_close(found, expected)
        assert stand.calls == calls
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{KERNEL}: {'RuntimeError: No' if fault == 'exception' else 'result '}")
    assert kernels.refused == {KERNEL}
