"""The largest output of a wide layer: what all outputs say, although few are computed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.decoder import likeliest
from duplexmt.decoder.likeliest import Likeliest
from duplexmt.decoder.model import DecoderModel
from duplexmt.kernels.int8 import exact_products
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.policies import Theta, WaitK

from ..helpers import tiny_backbone, tiny_grid

pytestmark = pytest.mark.skipif(not exact_products(), reason="this processor has no exact integer products")
TOKENS = StreamTokens(end=0, seed=1)


def layer(weight):
    linear = nn.Linear(*weight.T.shape, bias=False)
    linear.weight.data = weight
    return linear


def weights_of(kind, draw, outputs=3000, inputs=64):
    weight = torch.randn(outputs, inputs, generator=draw)
    if kind == "outliers":  # in some columns, and outputs of all lengths
        weight[:, ::16] *= 20
        weight *= torch.logspace(-2, 1, outputs)[torch.randperm(outputs, generator=draw), None]
    if kind == "alike":  # differ by less than a step of int8
        weight = weight[:1] + 0.01 * weight
    return weight


def counted(monkeypatch):
    """How many outputs each product in float32 has from now on."""
    counts, linear = [], F.linear
    monkeypatch.setattr(F, "linear", lambda rows, w, *bias: counts.append(len(w)) or linear(rows, w, *bias))
    return counts


@pytest.mark.parametrize("kind", ["random", "outliers", "alike"])
@pytest.mark.parametrize("n", [1, 40])
def test_it_is_the_largest_of_all_outputs(kind, n):
    draw = torch.Generator().manual_seed(n)
    for _ in range(3):
        linear = layer(weights_of(kind, draw))
        find, rows = Likeliest(linear), torch.randn(n, 64, generator=draw)
        rows[:, 5] *= 50  # as normed states have it
        rows[0] = linear.weight[7] + 0.1 * rows[0]
        exact = rows.double() @ linear.weight.double().T
        first, second = exact.topk(2, -1).values.unbind(-1)
        sure = first - second > 1e-4 * first.abs()
        assert sure.any()
        assert torch.equal(find(rows)[sure], exact.argmax(-1)[sure])


def test_of_several_as_large_it_is_the_first():
    draw = torch.Generator().manual_seed(1)
    linear = layer(torch.randint(-3, 4, (5000, 8), generator=draw).float())  # whole numbers, whose sums are exact
    rows = torch.randint(-3, 4, (60, 8), generator=draw).float()
    every = linear(rows)
    assert (every == every.amax(-1, keepdim=True)).sum(-1).max() > 1
    assert torch.equal(Likeliest(linear)(rows), every.argmax(-1))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_answered_as_by_all_outputs(value):
    linear, rows = layer(torch.randn(200, 16)), torch.randn(3, 16)
    rows[1, 4] = value
    assert torch.equal(Likeliest(linear)(rows), linear(rows).argmax(-1))
    zeros = torch.zeros(2, 16)
    assert Likeliest(linear)(zeros).tolist() == [0, 0]


def test_it_is_for_wide_plain_layers_in_float32_where_there_is_memory():
    with torch.device("meta"):
        wide = nn.Linear(1024, 2**15, bias=False)
    wide = wide.to_empty(device="cpu")
    assert Likeliest.pays(wide, 4 * wide.weight.nbytes)
    assert not Likeliest.pays(wide, 4 * wide.weight.nbytes - 1)
    assert not Likeliest.pays(nn.Linear(64, 100, bias=False), 2**40)
    assert not Likeliest.pays(wide.bfloat16(), 2**40)
    with torch.device("meta"):
        assert not Likeliest.pays(nn.Linear(1024, 2**15, bias=False), 2**40)
        assert not Likeliest.pays(nn.Linear(1024, 2**15), 2**40)


def events_of(model, policy, theta, streams):
    engine = Engine(model, TOKENS, policy=policy, theta=theta, max_target_tokens=12, max_streams=streams)
    draw = torch.Generator().manual_seed(4)
    sources = [torch.randint(2, 997, (size,), generator=draw).tolist() for size in (3, 7, 5, 9)]
    return engine, [(type(e), e.stream, getattr(e, "token", None)) for e in engine.translate(sources)]


@pytest.mark.parametrize(("streams", "theta"), [(1, 0.6), (3, 0.2), (3, None)])
def test_streams_write_what_they_write_by_the_whole_text_head(streams, theta, monkeypatch):
    backbone = tiny_backbone(vocab_size=997)
    if theta is None:
        model, policy = DecoderModel(backbone, k="multi", anchor=20).eval(), WaitK(2)
    else:
        model, policy = tiny_grid(backbone, attention="exact", input_attends_output=False, anchor=20), Theta()
    engine, expected = events_of(model, policy, theta, streams)
    assert engine.states.head is None
    monkeypatch.setattr(likeliest, "SMALLEST", 0)
    engine, found = events_of(model, policy, theta, streams)
    assert engine.states.head is not None
    counts = counted(monkeypatch)
    assert found == expected == events_of(model, policy, theta, streams)[1]
    assert any(count != 997 for count in counts)
    assert len({token for _, _, token in found}) > 10


def test_logits_that_are_squashed_are_all_computed(monkeypatch):
    monkeypatch.setattr(likeliest, "SMALLEST", 0)
    for kind, whole in (("gemma2", True), ("gemma3_text", False)):  # with a cap, without
        backbone = tiny_backbone(kind, vocab_size=97, query_pre_attn_scalar=8)
        model = DecoderModel(backbone, k="multi", anchor=20).eval()
        engine = Engine(model, TOKENS, policy=WaitK(2), max_target_tokens=4)
        assert (engine.states.head is None) == whole
