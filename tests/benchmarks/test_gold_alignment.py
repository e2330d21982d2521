"""The policy found against gold alignments."""

import pytest
import torch

from benchmarks import gold_alignment
from benchmarks.gold_alignment import gold_lagging, measured, policy_measures
from benchmarks.held_out import examples
from duplexmt.data.batch import collate
from duplexmt.data.builtin import CASE_STUDY, builtin_corpus
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.grid.cells import Cells
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.policy.guide import guide
from tests.helpers import spoken_grid, tiny_tokenizer
from tests.model_folder.test_artifact import save
from tests.scripted import Scripted


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    tokens = stream_tokens(tiny_tokenizer())
    return load_model_folder(save(tmp_path_factory.mktemp("run") / "model", spoken_grid(seed=3), tokens=tokens))


def test_all_numbers_of_a_model_of_the_built_in_corpus(loaded, monkeypatch):
    data = {"corpus": "builtin", "train_size": 5, "validation_size": 2, "test_size": 4, "seed": 1}
    monkeypatch.setitem(loaded.info, "data", loaded.info["data"] | data)
    found = measured(loaded, 0.5, 3)
    assert found["sentences"] == 3
    assert found["AL_all_above_gold"] == found["AL_all"] - found["gold_AL_all"]
    monkeypatch.setitem(loaded.info, "data", data | {"corpus": "pairs"})
    with pytest.raises(ValueError, match="a grid model trained on pairs: only the built-in corpus has gold alignments"):
        measured(loaded, 0.5, 3)


def test_a_model_that_writes_nothing_has_no_lag(loaded, monkeypatch):
    data = {"corpus": "builtin", "train_size": 5, "validation_size": 2, "test_size": 4, "seed": 1}
    monkeypatch.setitem(loaded.info, "data", loaded.info["data"] | data)
    nothing = Scripted(loaded.tokenizer, [("", [], "end_token")] * 2)
    monkeypatch.setattr(gold_alignment, "build_system", lambda *_, **__: nothing)
    found = measured(loaded, 0.5, 2)
    assert found["AL_all"] is found["AL_all_above_gold"] is None
    assert found["emit_agreement"] >= 0


def test_measures_over_batches_are_those_of_all_cells(loaded):
    pairs = builtin_corpus(27, 1, 1, 1)["train"]
    found = policy_measures(loaded, pairs, lam=0.05)
    with torch.no_grad():
        guided = guide(loaded.model, loaded.tokens, collate(examples(loaded, pairs)), 0.05)
        decided = loaded.model.emit_logits(guided.hidden).argmax(-1) == 1
    assert found["emit_agreement"] == pytest.approx((decided == guided.mask).double().mean().item())


def test_decisions_are_those_of_decoding_where_a_certainty_is_recorded(loaded):
    pairs = builtin_corpus(27, 1, 1, 1)["train"]
    with torch.no_grad():
        guided = guide(loaded.model, loaded.tokens, collate(examples(loaded, pairs)), 0.05)
        decided = loaded.model.decide(guided.hidden, 3.0)[0] > 0.5
    assert bool((decided != (loaded.model.emit_logits(guided.hidden).argmax(-1) == 1)).any()), "or it shows nothing"
    found = policy_measures(loaded.deciding(certainty=3.0), pairs, lam=0.05)["emit_agreement"]
    assert found == pytest.approx((decided == guided.mask).double().mean().item())


def test_decisions_are_those_of_decoding_where_a_k_min_is_recorded(loaded):
    pairs = builtin_corpus(27, 1, 1, 1)["train"]
    with torch.no_grad():
        guided = guide(loaded.model, loaded.tokens, collate(examples(loaded, pairs)), 0.05)
        p_emit = loaded.model.decide(guided.hidden)[0]
    cells = Cells.of(guided.cells.shapes)
    last = guided.source_lengths[cells.source_pair][cells.source_token] - 1
    x, y = cells.x[cells.source_token], cells.y[cells.target_token]
    decided = (p_emit > 0.5) & ((x + 1 - y >= 3) | (x == last))
    assert bool((decided != (p_emit > 0.5)).any()), "or it shows nothing"
    found = policy_measures(loaded.deciding(k_min=3), pairs, lam=0.05)["emit_agreement"]
    assert found == pytest.approx((decided == guided.mask).double().mean().item())


def test_a_path_that_reads_everything_is_never_early_and_one_that_reads_little_is(loaded):
    late = policy_measures(loaded, [CASE_STUDY], lam=0.0)
    early = policy_measures(loaded, [CASE_STUDY], lam=1e6)  # all is written in row 0
    assert early["content_not_early"] < late["content_not_early"]
    assert early["content_not_early_in_order"] <= early["content_not_early"]


def test_gold_lagging_lies_between_writing_at_once_and_reading_everything(loaded):
    length = len(examples(loaded, [CASE_STUDY])[0].source) - 1
    assert 0 < gold_lagging(loaded, [CASE_STUDY]) < length
