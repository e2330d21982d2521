"""Exact against approximate attention: where they must agree, how far they may differ."""

from itertools import pairwise

import pytest
import torch

from duplexmt.decoder.blocks import finish_block
from tests.grid.attention_error import (
    both_streams,
    corrected_bound,
    layer_inputs,
    printed_bound,
    score_errors,
    with_attention,
)
from tests.helpers import tiny_backbone, tiny_grid

X, Y = 5, 7


def inputs(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(1, 97, (n,), generator=draw) for n in (X, Y))


def layers(model, kind):
    return list(layer_inputs(with_attention(model, kind), *inputs()))


@pytest.mark.parametrize(("attention", "options"), [("approximate", {}), ("exact", {"softmax": "separate"})])
def test_the_run_layer_by_layer_is_the_models_own(attention, options):
    model = tiny_grid(seed=3, **options).double()
    source, target = inputs()
    with torch.no_grad():
        output = with_attention(model, attention)(source[None], target[None])[0]
    *_, (layer, _, O) = layers(model, attention)
    assert layer is None
    torch.testing.assert_close(O.normed.transpose(0, 1) if O.normed.shape[0] == Y else O.normed, output)


@pytest.mark.parametrize("softmax", ["joint", "separate"])
def test_contexts_in_the_papers_terms_are_those_of_the_grids_attention(softmax):
    model = tiny_grid(seed=1, softmax=softmax).double()
    for kind in ("approximate", "exact"):
        run = layers(model, kind)
        for (layer, I, O), (_, next_I, next_O) in pairwise(run[:3]):
            for found, states, following in zip(
                both_streams(model, layer, I, O, approximate=kind == "approximate"),
                (I, O),
                (next_I, next_O),
                strict=True,
            ):
                after = finish_block(layer, states.states, found.context)
                torch.testing.assert_close(after, following.states)


@pytest.mark.parametrize(("model_type", "seed"), [("qwen2", 0), ("llama", 1), ("mistral", 2)])
def test_the_corrected_bound_is_never_violated_and_not_by_a_wide_margin_kept(model_type, seed):
    model = tiny_grid(tiny_backbone(model_type, seed=seed), seed=seed).double()
    largest = 0.0
    for kind in ("approximate", "exact"):
        for layer, I, O in layers(model, kind)[1:3]:
            for exact, approximate, own, other in zip(
                *(both_streams(model, layer, I, O, approximate=kind) for kind in (False, True)),
                (I, O),
                (O, I),
                strict=True,
            ):
                measured = score_errors(exact.cross_scores, approximate.cross_scores).abs()
                bound = corrected_bound(layer, own, other)
                assert (measured <= bound * (1 + 1e-9) + 1e-12).all()
                largest = max(largest, (measured / bound.clamp(min=1e-9)).max().item())
    assert 0.2 < largest <= 1  # an upper bound that any error comes near to, not any large number


def test_the_bound_as_printed_is_violated():
    # Small states are made large by the norm: the printed bound, of states that are not normed, does not see it.
    model = tiny_grid(tiny_backbone(seed=1, scale=0.1), seed=1).double()
    layer, I, O = layers(model, "exact")[1]
    exact, approximate = (both_streams(model, layer, I, O, approximate=kind)[0] for kind in (False, True))
    measured = score_errors(exact.cross_scores, approximate.cross_scores).abs()
    assert (measured > printed_bound(layer, I, O) + 1e-9).any()
    assert (measured <= corrected_bound(layer, I, O) + 1e-12).all()
