"""The mean of models that go on from one another."""

import sys

import pytest
import torch

from duplexmt.grid.model import GridModel
from duplexmt.model_folder import average
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.manifest import trained_on
from tests.helpers import CORPUS, model_folder, tiny_backbone


def saved(path, seed=0, anchor=12, emit_hidden=8, tied=True, **recorded):
    backbone = tiny_backbone(vocab_size=320, layers=2, seed=seed, tie_word_embeddings=tied)
    return model_folder(path, GridModel(backbone, anchor=anchor, emit_hidden=emit_hidden), **recorded)


def averaged(monkeypatch, *models):
    monkeypatch.setattr(sys, "argv", ["average.py", *map(str, models)])
    average.main()
    return load_model_folder(models[-1])


@pytest.mark.parametrize("tied", [True, False])
def test_each_weight_of_the_decoder_is_the_mean_and_the_rest_is_the_last_models(tmp_path, monkeypatch, capsys, tied):
    parts = [saved(tmp_path / str(n), seed=n, tied=tied, policy={"lam": n, "theta": 0.5}) for n in range(3)]
    mean = averaged(monkeypatch, *parts, tmp_path / "mean")
    assert "the mean of 3 models" in capsys.readouterr().out
    weights = [load_model_folder(part).model.state_dict() for part in parts]
    for name, values in mean.model.state_dict().items():
        expected = sum(of[name].double() for of in weights) / 3
        if name.startswith("emit_head."):
            assert name.endswith("bias") or not torch.equal(weights[0][name], weights[2][name])
            expected = weights[2][name].double()
        torch.testing.assert_close(values.double(), expected, atol=1e-6, rtol=0)
    assert "| validation |" not in (tmp_path / "mean" / "README.md").read_text(encoding="utf-8"), "no table of nothing"
    assert (mean.info["name"], mean.info["policy"]["lam"], mean.model.anchor) == ("mean", 2, 12)


def test_it_says_what_data_any_of_them_has_seen_each_once(tmp_path, monkeypatch):
    old, first, second = (CORPUS | {"path": f"{name}.tsv", "licence": "CC0"} for name in ("old", "first", "second"))
    one = saved(tmp_path / "one", data=first, trained_before=[old])
    other = saved(tmp_path / "other", data=second, trained_before=[old, first])
    averaged(monkeypatch, one, other, tmp_path / "mean")
    assert trained_on(str(tmp_path / "mean")) == [old, first, second]


@pytest.mark.parametrize(("unlike", "what"), [({"emit_hidden": 4}, "shape"), ({"anchor": 16}, "system")])
def test_models_that_differ_in_more_than_weights_are_refused(tmp_path, monkeypatch, capsys, unlike, what):
    saved(tmp_path / "one", **unlike)
    saved(tmp_path / "other")
    with pytest.raises(SystemExit):
        averaged(monkeypatch, tmp_path / "one", tmp_path / "other", tmp_path / "mean")
    assert f"model 1 of 2 has another {what} than the last one" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()


def test_one_model_has_no_mean(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        averaged(monkeypatch, saved(tmp_path / "one"), tmp_path / "mean")
    assert "one model has no mean" in capsys.readouterr().err
