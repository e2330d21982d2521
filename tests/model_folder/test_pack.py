"""The model in the box: what is packed translates as what was trained, and its card says what it is."""

import json
import re
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

from duplexmt.corpus.repository import ROOT
from duplexmt.model_folder import default_model, pack
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.manifest import read_manifest, write_manifest

from ..helpers import spoken_grid, tiny_backbone, tiny_prefix, tiny_tokenizer
from .test_artifact import DATA, assert_same_outputs, outputs, save, trained_with_lora

OF_THE_BOX = DATA | {"corpus": "pairs_folder", "path": "repository:data", "sources": ["tatoeba", "xquad"]}
TABLE = {
    "caption": "data (tatoeba), test split, 3 sentences",
    "rows": [{"system": "grid", "setting": 0.5, "BLEU": 20.25, "BLEU ±": 1.5, "AL": 3.0, "tokens": 7}],
    "footnotes": ["±: half the 95 % interval"],
}


@pytest.fixture
def trained(tmp_path):
    """A model folder with LoRA over a backbone saved along."""
    model = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15), emit_hidden=8)
    return save(tmp_path / "trained", model)


def test_a_folder_of_other_things_is_not_replaced(trained, tmp_path):
    (tmp_path / "precious" / "sub").mkdir(parents=True)
    (tmp_path / "precious" / "sub" / "thesis.txt").write_text("years", encoding="utf-8")
    with pytest.raises(ValueError, match=r"precious' is there and is no model folder: remove it, or give another name"):
        pack.pack(trained, tmp_path / "precious")
    assert (tmp_path / "precious" / "sub" / "thesis.txt").read_text(encoding="utf-8") == "years"
    (tmp_path / "empty").mkdir()
    for _ in range(2):  # into an empty folder, and over the model written there
        load_model_folder(pack.pack(trained, tmp_path / "empty"))
    assert not list(tmp_path.glob("*.replaced"))


def test_a_packed_model_is_the_trained_one_up_to_the_rounding_of_its_weights(trained, tmp_path):
    packed = pack.pack(trained, tmp_path / "packed")
    before, after = load_model_folder(trained), load_model_folder(packed)
    assert {weight.dtype for weight in after.model.parameters()} == {torch.float32}
    weights = [load_file(file) for file in packed.glob("*.safetensors")]
    assert {weight.dtype for file in weights for weight in file.values()} == {torch.float16}
    rounded = load_model_folder(trained).model
    with torch.no_grad():
        for weight in rounded.parameters():
            weight.copy_(weight.half())
    assert_same_outputs(rounded, after.model)  # to the bit
    assert_same_outputs(before.model, after.model, rtol=0.02, atol=0.02)
    assert not torch.equal(outputs(before.model)[0], outputs(after.model)[0])  # the comparison can fail
    assert after.tokens == before.tokens
    assert not list(packed.glob("adapter*"))


def test_a_packed_model_keeps_its_theta(trained, tmp_path):
    point = {"theta": 0.625, "AL": 3.0312, "validation": "pairs, validation split", "sentences": 500, "beam": 4}
    write_manifest(trained, read_manifest(trained) | {"operating_point": point})
    packed = pack.pack(trained, tmp_path / "packed")
    assert read_manifest(packed)["operating_point"] == point
    told = "Where no θ is given it takes 0.62, which has AL 3.03 on 500 sentences (pairs, validation split). "
    told += "At any θ it decodes with `policy.beam=4`."
    assert told in (packed / "README.md").read_text(encoding="utf-8")


def test_a_packed_model_keeps_its_alignment_heads(tmp_path):
    trained = save(tmp_path / "trained", tiny_prefix(None, vocab_size=len(tiny_tokenizer())))
    write_manifest(trained, read_manifest(trained) | {"alignment_heads": [[0, 1]]})
    packed = pack.pack(trained, tmp_path / "packed")
    assert load_model_folder(packed).model.alignment_heads == [[0, 1]]


def test_the_card_has_scores_with_intervals_and_whom_the_data_is_owed_to(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("duplexmt.model_folder.artifact.load_model_folder", with_data(OF_THE_BOX))
    (tmp_path / "results.json").write_text(json.dumps(TABLE), encoding="utf-8")
    apart = {"sentences": 3000, "sentences < 0.3": 1200, "BLEU < 0.3": 14.25, "sentences ≥ 0.5": 0}
    rows = {"rows": [apart, apart | {"BLEU < 0.3": 15.0}]}
    (tmp_path / "relatives.json").write_text(json.dumps(rows), encoding="utf-8")
    card = (pack.pack(trained, tmp_path / "packed", [tmp_path]) / "README.md").read_text(encoding="utf-8")
    assert "| grid | 0.5 | 20.25 | 1.5 | 3 |" in card
    assert "±: half the 95 % interval." in card
    assert "Of 3,000 sentences 0 have a relative in its training" in card
    assert "The 1,200 least alike any pair (below 0.3) have 14.25, 15 BLEU" in card
    for name, owed in (("tatoeba", "CC BY 2.0 FR"), ("xquad", "Artetxe")):
        assert owed in card.split(f"### {name}\n")[1]
    assert "### angular-cn" not in card  # it was not trained on
    assert "make model" in card
    assert "allow commercial use" in card
    assert re.search(r"It has \d\.\d million parameters, \d MB in float16", card)
    lines = re.findall(r"^- \*\*Its base's data.*$", card, flags=re.MULTILINE)
    assert len(lines) == len({*lines})
    assert "What it cannot do" in card


@pytest.mark.parametrize(
    ("complete", "of", "told"),
    [
        (True, "other", r"is no evaluation of .*trained, but of .*other"),
        (False, "trained", "is not finished: go on with"),
    ],
)
def test_scores_of_another_model_or_of_an_unfinished_evaluation_are_refused(trained, tmp_path, complete, of, told):
    other = save(tmp_path / "other", spoken_grid())
    write_manifest(other, read_manifest(other) | {"scores": {"validation/BLEU": 1.0}})
    folder = {"trained": trained, "other": other}[of]
    (tmp_path / "results.json").write_text(json.dumps(TABLE), encoding="utf-8")
    decoding = {"complete": complete, "points": {"a": {"model_folder": str(folder)}}}
    (tmp_path / "decoding.json").write_text(json.dumps(decoding), encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        pack.pack(trained, tmp_path / "packed", [tmp_path])
    assert not (tmp_path / "packed").exists()


def with_data(data):
    def load(folder):
        loaded = load_model_folder(folder)
        loaded.info["data"] = data
        return loaded

    return load


def test_no_path_of_this_machine_is_given_away(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (ROOT / "data").glob("*.tsv.gz"):
        (copy / file.name).symlink_to(file)
    data = {"path": str(copy), "prepared": "/somewhere", "tokenizer": "/base/model", "licence": "mixed", "seed": 3}
    found = pack.for_others(data)
    assert (found["path"], found["prepared"], found["tokenizer"], found["seed"]) == (
        "repository:data", "runs/box", None, 3
    )  # fmt: skip
    assert found["licence"].startswith("of each file in data/README.md")
    (copy / "tatoeba.zh-en.tsv.gz").unlink()
    other = pack.for_others(data)
    assert (other["path"], other["prepared"], other["licence"]) == ("copy", None, "mixed")
    ours = pack.for_others({"path": "repository:data", "prepared": "/somewhere", "licence": "CC BY 2.0 FR"})
    assert ours == {"path": "repository:data", "prepared": "runs/box", "licence": "CC BY 2.0 FR"}


@pytest.mark.parametrize("clone", [False, True])
def test_without_the_pairs_of_the_box_no_model_is_of_them(tmp_path, monkeypatch, clone):
    """As of an installed package, and of a clone whose pairs were removed."""
    if clone:
        (tmp_path / "pyproject.toml").touch()
        shutil.copytree(ROOT / "conf" / "data", tmp_path / "conf" / "data")
        (tmp_path / "data").mkdir()
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    own = {"path": "mine.tsv", "licence": "proprietary"}
    assert pack.for_others(own) == own


@pytest.mark.parametrize("content", ["{", "{}", '{"complete": true}', "[]"])
def test_a_damaged_evaluation_is_named(trained, tmp_path, content):
    (tmp_path / "decoding.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"decoding\.json is damaged .*: evaluate into a new folder"):
        pack.check_evaluated(tmp_path, trained, read_manifest(trained))


def test_the_card_says_of_likeness_what_is_known():
    row = {"sentences": 3, "sentences ≥ 0.5": 1, "sentences < 0.3": 2, "BLEU < 0.3": 20.5}
    assert "The 2 least alike any pair (below 0.3) have 20.5 BLEU" in pack.told_apart([row])[0]
    assert "least alike" not in pack.told_apart([row | {"sentences < 0.3": 0, "BLEU < 0.3": None}])[0]
    unknown = {name: None for name in row} | {"sentences": 3}
    assert pack.told_apart([unknown]) == pack.told_apart([]) == []


def test_what_cannot_be_packed_is_refused(trained, tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match=r"no results\.json"):
        pack.pack(trained, tmp_path / "packed", [tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="would take the place of the model itself"):
        pack.pack(trained, trained)
    monkeypatch.setattr(sys, "argv", ["pack", str(trained), str(tmp_path / "packed"), "--largest", "0.01"])
    with pytest.raises(SystemExit, match="2"):
        pack.main()
    assert "MB in float16, and 0.01 MB are the most (--largest MB)" in capsys.readouterr().err
    model = spoken_grid()
    with torch.no_grad():
        model.causal_lm.model.layers[0].mlp.up_proj.weight[0, 0] = 7e4
    with pytest.raises(ValueError, match=r"up_proj.weight is not finite in float16"):
        pack.pack(save(tmp_path / "wide", model), tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


# --- where no run is at hand -------------------------------------------------------------------------------------


def test_the_latest_run_comes_before_the_model_in_the_box_and_a_line_says_which(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert default_model.chosen_model(None, box=trained) == trained
    assert capsys.readouterr().err == "model: trained (the model in the box, as there is no run here)\n"
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    save(tmp_path / "runs" / "latest" / "model", spoken_grid())
    assert default_model.chosen_model(None, box=trained) == default_model.LATEST
    assert capsys.readouterr().err == "model: runs/latest/model (the latest run)\n"
    assert default_model.chosen_model("other", box=trained).name == "other"
    assert capsys.readouterr().err == ""


def test_a_server_without_a_run_has_all_models_of_the_box(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = save(trained.parent / "another", spoken_grid())
    assert default_model.chosen_models([None], box=trained) == [trained, other]
    assert default_model.chosen_models([other], box=trained) == [other]
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    save(tmp_path / "runs" / "latest" / "model", spoken_grid())
    assert default_model.chosen_models([None], box=trained) == [default_model.LATEST]


def test_without_either_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no model in runs/latest/model and none in empty: train one"):
        default_model.chosen_model(None, box=tmp_path / "empty")
