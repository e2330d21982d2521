"""Losses along paths, against the plain definitions."""

import json

import pytest
import torch
from torch.nn import functional as F

from benchmarks import path_loss
from benchmarks.path_loss import (
    at_latency_of_k,
    examples,
    held_out_pairs,
    lagging,
    path_losses,
    schedule_rows,
    threshold_rows,
)
from duplexmt.data.tokenizer import StreamTokens, stream_tokens
from duplexmt.metrics.latency import average_lagging
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.manifest import write_manifest
from duplexmt.policy.decoding_options import EmitRule
from tests.decoder.oracle import hugging_face_logits
from tests.helpers import (
    SENTENCES,
    as_pairs,
    float64,
    spoken_grid,
    tiny_backbone,
    tiny_grid,
    tiny_prefix,
    tiny_tokenizer,
    trained,
)
from tests.model_folder.test_artifact import save
from tests.scripted import TEST, evaluated, point

TOKENS = StreamTokens(end=0, seed=1)
EXAMPLES = [TOKENS.example(source, target) for source, target in (((5, 6, 7), (8, 9)), ((4,), (3, 2, 9, 6)))]


def test_a_threshold_reads_until_it_is_passed_and_ends_with_the_source():
    p = [[0.4, 0.9, 0.9, 0.9], [0.6, 0.3, 0.9, 0.9], [0.9, 0.4, 0.2, 0.9], [0.0, 0.0, 0.0, 0.0]]
    assert threshold_rows(p, 0.5) == [1, 3, 3, 3]
    assert threshold_rows(p, 0.3) == [0, 0, 0, 3]
    assert threshold_rows(p, 1.0) == [3, 3, 3, 3]
    assert schedule_rows(2, 4, 5) == [1, 2, 3, 3, 3]


def test_the_lag_of_a_path_is_that_of_its_delays():
    assert lagging([0, 1, 1, 3], 4) == average_lagging([1, 2, 2], 3, 3)
    assert lagging([3, 3, 3], 4) == 3  # offline: the source's length


@torch.no_grad()
def test_a_grids_losses_are_those_of_its_full_logits():
    model = tiny_grid(tiny_backbone(layers=2), seed=1).double()
    loaded = trained(model, TOKENS)
    found = {row["setting"]: row for row in path_losses(loaded, EXAMPLES, [0.5])}
    sums, lags = dict.fromkeys(("θ=0.5", "k=1", "whole source"), 0.0), {name: [] for name in ("θ=0.5", "k=1")}
    for example in EXAMPLES:
        source, target = torch.tensor([example.source]), torch.tensor([example.target[:-1]])
        hidden = model(source, target)[0]
        X, Y = hidden.shape[:2]
        loss = F.cross_entropy(
            model.text_logits(hidden).mT, torch.tensor(example.target[1:]).expand(X, Y), reduction="none"
        )
        p_emit = model.emit_logits(hidden).softmax(-1)[..., 1].tolist()
        paths = {"θ=0.5": threshold_rows(p_emit, 0.5), "k=1": [*(min(y, X - 1) for y in range(Y - 1)), X - 1]}
        for name, rows in (paths | {"whole source": [X - 1] * Y}).items():
            sums[name] += loss[rows, range(Y)].sum().item()
            if name in lags:
                lags[name].append(lagging(rows, X))
    tokens = sum(len(example.target) - 1 for example in EXAMPLES)
    for name, total in sums.items():
        assert found[name]["loss"] == pytest.approx(total / tokens, abs=1e-9)
    for name, values in lags.items():
        assert found[name]["AL"] == pytest.approx(sum(values) / len(values))


@torch.no_grad()
def test_a_threshold_is_compared_with_what_decoding_compares_it_with():
    model = tiny_grid(tiny_backbone(layers=2), seed=1)
    lags = []
    for certainty in (0.0, 100.0):
        (example,) = EXAMPLES[:1]
        hidden = model(torch.tensor([example.source]), torch.tensor([example.target[:-1]]))[0]
        rows = threshold_rows([model.decide(row, certainty)[0].tolist() for row in hidden], 0.5)
        found = path_losses(trained(model, TOKENS, EmitRule(certainty)), [example], [0.5])
        lags.append(found[0]["AL"])
        assert lags[-1] == lagging(rows, len(example.source))
    assert lags[0] != lags[1], "a certainty that changes no path shows nothing"


@torch.no_grad()
def test_with_theta_0_a_recorded_least_lag_is_the_path_of_wait_k():
    model = tiny_grid(tiny_backbone(layers=2), seed=1)
    found = {row["setting"]: row for row in path_losses(trained(model, TOKENS, EmitRule(k_min=3)), EXAMPLES, [0.0])}
    assert found["θ=0"]["AL"] == found["k=3"]["AL"] != found["k=1"]["AL"]
    assert found["θ=0"]["loss"] == found["k=3"]["loss"]


@torch.no_grad()
def test_bounds_that_are_equal_leave_theta_nothing_to_decide():
    model = tiny_grid(tiny_backbone(layers=2), seed=1)
    found = path_losses(trained(model, TOKENS, EmitRule(k_min=3, k_max=3)), EXAMPLES, [0.0, 0.5, 0.99])
    assert len({(row["AL"], row["loss"]) for row in found if row["setting"] in ("θ=0", "θ=0.5", "θ=0.99", "k=3")}) == 1


@torch.no_grad()
@pytest.mark.filterwarnings("error")  # such as writing to a tensor whose entries share memory
@pytest.mark.parametrize("k", [2, None])
def test_a_baselines_loss_is_that_of_its_schedule(k):
    model, lm = tiny_prefix(k=k).double(), float64(tiny_backbone())
    lm.config._attn_implementation = "sdpa"
    (row,) = path_losses(trained(model, TOKENS), EXAMPLES, [])
    total = 0.0
    for example in EXAMPLES:
        source, target = torch.tensor(example.source), torch.tensor(example.target[:-1])
        X, Y = len(source), len(target)
        # The end token sees the whole source.
        sees = [*(min(y + (k or X), X) for y in range(Y - 1)), X]
        logits = hugging_face_logits(lm, source, target, sees, X)
        total += F.cross_entropy(logits, torch.tensor(example.target[1:]), reduction="sum").item()
    assert row["setting"] == ("k=2" if k else "whole source")
    assert row["loss"] == pytest.approx(total / sum(len(example.target) - 1 for example in EXAMPLES), abs=1e-9)


@torch.no_grad()
def test_a_model_of_all_delays_is_asked_about_each_as_one_of_that_delay_would_be():
    model = tiny_prefix(k="multi").double()
    found = {row["setting"]: row for row in path_losses(trained(model, TOKENS), EXAMPLES, [])}
    assert list(found) == ["k=1", "k=3", "k=5", "k=7", "whole source"]
    for k, setting in ((3, "k=3"), (None, "whole source")):
        model.k = k
        assert path_losses(trained(model, TOKENS), EXAMPLES, []) == [found[setting]]


def test_a_policys_loss_at_the_latency_of_k_lies_on_the_line_between_its_settings():
    grid = {"θ=0.3": (1, 2.0), "θ=0.9": (3, 1.0), "k=1": (1.5, 9), "k=3": (3, 9), "k=5": (4, 9), "k=7": (0.5, 9)}
    settings = {"grid": grid | {"whole source": (6, 0.7)}, "wait-4": {"k=4": (4.2, 1.5)}}
    rows = [
        {"model": model, "setting": setting, "AL": lag, "loss": loss}
        for model, found in settings.items()
        for setting, (lag, loss) in found.items()
    ]
    assert at_latency_of_k(rows) == [
        {"model": "grid", "k=1": 1.75, "k=3": 1.0, "k=4": None, "k=5": None, "k=7": None, "whole source": 0.7},
        {"model": "wait-4", "k=1": None, "k=3": None, "k=4": 1.5, "k=5": None, "k=7": None, "whole source": None},
    ]


def test_prefixes_are_refused():
    loaded = trained(None, StreamTokens(end=0, seed=1, source_prefix=(3,)))
    with pytest.raises(ValueError, match="path losses of a model with prefixes or context: not supported"):
        path_losses(loaded, EXAMPLES, [0.5])


def test_the_script_takes_model_folders_and_names_what_is_wrong(tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join("\t".join(pair) for pair in SENTENCES), encoding="utf-8")
    grid = tiny_grid(tiny_backbone(vocab_size=len(tiny_tokenizer()), layers=2), seed=1)
    folder = save(tmp_path / "model", grid, tokens=stream_tokens(tiny_tokenizer()))
    manifest = folder / "duplexmt.json"
    info = json.loads(manifest.read_text(encoding="utf-8"))
    info["data"] |= {"source_field": 0, "target_field": 1}
    write_manifest(folder, info)
    path_loss.main([str(folder), "--pairs", str(pairs), "--theta", "0.5", "--limit", "4"])
    text = capsys.readouterr().out
    out = json.loads(text.splitlines()[-1])
    assert out["pairs"] == 4
    assert [row["setting"] for row in out["rows"]] == ["θ=0.5", "k=1", "k=3", "k=5", "k=7", "whole source"]
    assert f"| {out['rows'][0]['loss']:.3f} |" in text, "a third decimal tells trainings apart"
    with pytest.raises(SystemExit):
        path_loss.main([str(tmp_path / "nothing"), "--pairs", str(pairs)])
    assert "nothing" in capsys.readouterr().err


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = save(tmp_path_factory.mktemp("run") / "model", spoken_grid(), tokens=stream_tokens(tiny_tokenizer()))
    return load_model_folder(folder)


def test_pairs_of_another_corpus_must_be_given(loaded, tmp_path):
    with pytest.raises(ValueError, match="with --pairs"):
        held_out_pairs(loaded, None)
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join("\t".join(pair) for pair in SENTENCES), encoding="utf-8")
    loaded.info["data"] |= {"source_field": 0, "target_field": 1}
    assert held_out_pairs(loaded, 3, str(file)) == as_pairs(SENTENCES[:3])


def test_pairs_of_an_evaluation_are_its_sentences_and_first_references(loaded, tmp_path):
    evaluated(tmp_path, [point("grid", 0.5), point("grid", 0.9)])
    found = held_out_pairs(loaded, 2, str(tmp_path))
    assert found == as_pairs(list(zip(TEST.sources, [first for first, *_ in TEST.references], strict=True))[:2])
    evaluated(tmp_path / "killed", [point("grid", 0.5)], stop_after=1)
    with pytest.raises(ValueError, match="killed"):
        held_out_pairs(loaded, 2, str(tmp_path / "killed"))


def test_a_side_without_tokens_is_named(loaded):
    with pytest.raises(ValueError, match="pair 2 has a target without tokens"):
        examples(loaded, as_pairs([SENTENCES[0], ("我好。", "")]))
    with pytest.raises(ValueError, match="pair 1 has a source without tokens"):
        examples(loaded, as_pairs([("", "Good.")]))
    with pytest.raises(ValueError, match="no sentence pairs"):
        examples(loaded, [])
