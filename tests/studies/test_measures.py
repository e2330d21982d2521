"""The error study's measurements on tiny models."""

import math

import numpy as np
import pytest
import torch

from benchmarks.studies.attention_error import with_attention
from benchmarks.studies.decay import fit_decay
from benchmarks.studies.measures import (
    decay_curves,
    differences_over,
    errors_by_layer,
    layer_errors,
    output_differences,
    over_sentences,
)
from benchmarks.studies.pairs import documents
from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.policy.path import best_path, emit_mask
from tests.helpers import SENTENCES, spoken_grid, tiny_backbone, tiny_grid, tiny_tokenizer

TOKENS = stream_tokens(tiny_tokenizer())


def found(count=3, most=9):
    ids = [token_ids(tiny_tokenizer(), [text[:most] for text in pair]) for pair in SENTENCES[:count]]
    return [TOKENS.example(*pair) for pair in ids]


def root(sums, name):
    over, under = sums[name]
    return math.sqrt(over / under)


def test_the_first_layer_is_exact_and_the_others_are_not():
    rows = {(row["layer"], row["stream"]): row for row in errors_by_layer(spoken_grid(seed=4).double(), found())}
    assert set(rows) == {(0, "source"), (0, "target"), (1, "source"), (1, "target"), (2, "target"), (3, "target")}
    for stream in ("source", "target"):
        for name in ("self_context", "cross_context", "context", "accumulated_context", "cross_scores", "states"):
            assert rows[0, stream][name] < 1e-12
        assert rows[1, stream]["states"] < 1e-12
        for name in ("self_context", "cross_context", "context"):
            low, high = rows[1, stream][f"{name}_interval"]
            assert 0.001 < low <= rows[1, stream][name] <= high
    assert rows[2, "target"]["states"] > 0.001
    assert rows[3, "target"]["states"] > 0.001


def test_alone_and_accumulated_errors_are_the_same_where_the_states_still_are():
    sums = layer_errors(spoken_grid(seed=4).double(), found(1)[0])
    assert root(sums[1, "target"], "context") == pytest.approx(root(sums[1, "target"], "accumulated_context"))
    assert root(sums[2, "target"], "context") != pytest.approx(root(sums[2, "target"], "accumulated_context"), rel=1e-3)


def test_errors_alone_are_those_on_the_states_a_model_was_trained_to_have():
    example = found(1)[0]
    by_kind = {
        kind: layer_errors(spoken_grid(seed=4, attention=kind).double(), example) for kind in ("exact", "approximate")
    }
    exact, approximate = (root(by_kind[kind][2, "target"], "context") for kind in ("exact", "approximate"))
    assert exact != pytest.approx(approximate, rel=1e-3)
    same = [by_kind[kind][2, "target"]["accumulated_context"] for kind in ("exact", "approximate")]
    assert same[0] == pytest.approx(same[1])


def test_no_bound_is_violated_and_none_is_asked_for_on_request():
    model = spoken_grid(seed=4).double()
    for row in errors_by_layer(model, found()):
        if "violations" in row:
            assert row["violations"] == 0
            assert row["largest_use"] <= 1 + 1e-9
    assert not any("violations" in row for row in errors_by_layer(model, found(2), bound=False))


def test_without_input_attention_the_source_stream_has_no_error():
    model = spoken_grid(seed=4, input_attends_output=False).double()
    for row in errors_by_layer(model, found()):
        if row["stream"] == "source":
            assert row["context"] < 1e-12
            assert "cross_context" not in row


def test_output_differences_are_those_of_the_two_runs():
    model, example = spoken_grid(seed=4).double(), found(1)[0]
    sums = output_differences(model, TOKENS, example, lam=0.05)
    source, target = torch.tensor([example.source]), torch.tensor([example.target[:-1]])
    labels = torch.tensor(example.target[1:])
    logits, masks = {}, {}
    for kind in ("exact", "approximate"):
        with torch.no_grad():
            hidden = with_attention(model, kind)(source, target)
            logits[kind] = model.text_logits(hidden)
        losses = -logits[kind].log_softmax(-1).gather(-1, labels.expand(*hidden.shape[:3])[..., None]).squeeze(-1)
        lengths = torch.tensor([source.shape[1]]), torch.tensor([target.shape[1]])
        masks[kind] = emit_mask(best_path(losses, *lengths, 0.05), target.shape[1])
    e, a = (logits[kind].log_softmax(-1) for kind in ("exact", "approximate"))
    cells = e[..., 0].numel()
    assert sums["kl"] == (pytest.approx((e.exp() * (e - a)).sum().item()), cells)
    assert sums["same_top"] == ((e.argmax(-1) == a.argmax(-1)).sum().item(), cells)
    assert sums["same_mask"] == ((masks["exact"] == masks["approximate"]).sum().item(), cells)
    assert sums["largest_logit_difference"][0] == pytest.approx(
        (logits["exact"] - logits["approximate"]).abs().max().item()
    )
    assert sums["area_exact"][0] == pytest.approx(masks["exact"].double().mean().item())


def test_a_model_against_itself_differs_in_nothing_where_one_layer_is_all_there_is():
    model = tiny_grid(tiny_backbone(vocab_size=len(tiny_tokenizer()), layers=1)).double()
    differences = differences_over(model, TOKENS, found(), lam=0.05)
    assert differences["kl"] < 1e-12
    assert differences["same_top"] == differences["same_mask"] == differences["same_path"] == 1
    assert differences["largest_logit_difference"] < 1e-9


def test_ratios_are_of_sums_and_a_bound_of_zero_has_none():
    result = over_sentences([{"kl": (1.0, 2.0), "states": (1.0, 4.0), "bound_used": (0.0, 0.0)},
                             {"kl": (2.0, 2.0), "states": (3.0, 12.0), "bound_used": (0.0, 0.0)}])  # fmt: skip
    assert result["kl"] == 0.75
    assert result["states"] == 0.5
    assert result["bound_used"] is None
    assert result["kl_interval"][0] == 0.5


def test_curves_are_the_errors_of_every_number_of_keys_and_their_control_falls_as_one_over_root_n():
    long = documents(found(8, most=40), 4, 64)
    curves = decay_curves(spoken_grid(seed=4).double(), long, every=16)
    assert set(curves) == {(0, "source"), (0, "target"), (1, "source"), (1, "target"), (2, "target")}
    for (layer, _), values in curves.items():
        assert values["cross"].shape == (4, 64)
        assert values["cross"][:, 0].max() < 1e-20  # one key: exact
        if layer == 0:
            assert values["cross"].max() < 1e-20
    control = fit_decay(curves[1, "target"]["premises"], first=8)
    assert control.exponent == pytest.approx(0.5, abs=0.15)


def test_curves_over_all_own_tokens_add_up_to_the_error_of_the_layer():
    model, example = spoken_grid(seed=4).double(), found(1)[0]
    curves = decay_curves(model, [example], every=1, streams=["target"])
    assert {stream for _, stream in curves} == {"target"}
    values = curves[1, "target"]
    error = math.sqrt(np.mean(values["cross"]) / np.mean(values["cross_norm"]))
    assert error == pytest.approx(root(layer_errors(model, example)[1, "target"], "cross_context"))
