"""Models of the Hugging Face hub: fetched by name, found again without network, given to others."""

import json
import os
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

import duplexmt
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder import push
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.default_model import chosen_model
from duplexmt.model_folder.hugging_face import base_at, model_at, writable
from duplexmt.model_folder.manifest import MANIFEST, read_manifest, write_manifest
from duplexmt.model_folder.pack import pack
from duplexmt.report.__main__ import arguments
from duplexmt.report.__main__ import write as report

from ..commands import run, succeeded
from ..helpers import spoken_grid, tiny_tokenizer
from . import stand_in_hub
from .test_artifact import assert_same_outputs, save, trained_with_lora

ROOT = Path(__file__).parents[2]
TEXT = "他没有看见那个人。"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokens = stream_tokens(tiny_tokenizer())
    return save(tmp_path_factory.mktemp("ours") / "model", spoken_grid(seed=2, anchor=0), tokens=tokens)


def by_way_of(address, cache):
    """What Hugging Face's library reads from the environment when it is loaded."""
    return {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": cache,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,  # its protocol is another, to other servers
    }


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that has nothing yet, a cache that has nothing of it, and another folder to be in."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with stand_in_hub.serving() as hub:
        for name, value in by_way_of(hub.address, str(tmp_path / "cache")).items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
        yield hub


@pytest.fixture
def offline(monkeypatch):
    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- fetched ------------------------------------------------------------------------------------------------------


def test_a_name_is_a_model_of_the_hub_wherever_a_folder_is_taken(hub, folder, tmp_path, capsys):
    hub.commit(
        "alice/zh-en", contents(folder) | {"evil.py": b"1/0", "pytorch_model.bin": b"pickle", "training.pt": b""}
    )
    fetched = model_at("alice/zh-en")
    assert contents(fetched) == contents(folder)
    assert not [path for _, path in hub.asked if path.endswith((".py", ".bin", ".pt"))]
    assert chosen_model("alice/zh-en") == evaluate_folders("alice/zh-en")[0] == fetched
    assert base_at("alice/zh-en") == str(fetched)
    assert capsys.readouterr() == ("", "")
    translations = [duplexmt.load(one, device="cpu").translate([TEXT]) for one in ("alice/zh-en", folder)]
    assert translations[0] == translations[1] != [""]
    assert_same_outputs(load_model_folder("alice/zh-en").model, load_model_folder(folder).model)
    assert contents(pack("alice/zh-en", tmp_path / "packed")) == contents(pack(folder, tmp_path / "own"))
    written = report(
        arguments(["alice/zh-en", "--sentence", TEXT, "He did not see him.", "--out", str(tmp_path / "out")])
    )
    assert TEXT in written.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["alice/zh-en", "alice/zh-en@main"])
def test_nothing_is_noted_in_the_copy_of_what_the_hub_has(hub, folder, tmp_path, name):
    hub.commit("alice/zh-en", contents(folder))
    with pytest.raises(ValueError, match=f"{name.replace('@', '.*')}: what is found is noted in the model folder"):
        writable(name)
    with pytest.raises(ValueError, match=r"the hub's copy.*pack .*alice.*zh-en"):
        writable(model_at(name))
    assert writable(pack(name, tmp_path / "own")) == tmp_path / "own"


def evaluate_folders(*names):
    from duplexmt.evaluation.points import matching_folders

    return matching_folders(names)


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, folder):
    first = hub.commit("alice/zh-en", contents(folder) | {"README.md": b"first"})
    hub.tags["alice/zh-en", "v1"] = first
    hub.commit("alice/zh-en", {"README.md": b"second"})
    read = {at: (model_at(f"alice/zh-en{at}") / "README.md").read_bytes() for at in ("", "@main", "@v1", f"@{first}")}
    assert read == {"": b"second", "@main": b"second", "@v1": b"first", f"@{first}": b"first"}
    with pytest.raises(
        ValueError, match=r"model_folder=alice/zh-en@v9: the hub has alice/zh-en, but no revision v9: give"
    ):
        model_at("alice/zh-en@v9")


def test_what_was_fetched_is_found_without_network_and_what_was_not_is_told(hub, folder, offline):
    hub.commit("alice/zh-en", contents(folder))
    fetched = model_at("alice/zh-en")
    offline()
    before = len(hub.asked)
    assert model_at("alice/zh-en") == fetched
    assert base_at("alice/zh-en") == str(fetched)
    assert base_at("Qwen/Qwen2.5-0.5B") == "Qwen/Qwen2.5-0.5B", "left to Hugging Face's own loader"
    for name in ("alice/other", "alice/zh-en@v2"):
        with pytest.raises(
            ValueError, match=f"{name} is no folder here, was not fetched .* HF_HUB_OFFLINE is set: go on"
        ):
            model_at(name)
    assert len(hub.asked) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alice/other", "alice/other is no folder here, and http.* has no model of that name, or not for you"),
        ("alice/bert", r"alice/bert is on the hub, but no model of duplexmt's \(no duplexmt.json\)"),
        ("alice/pickled", r"alice/pickled: holds weights\.bin, and only \.safetensors, .* are fetched"),
        ("alice/damaged", "alice/damaged: what the hub has could not"),
        ("alice/empty", "alice/empty: what the hub has could not"),
    ],
)
def test_what_is_no_model_is_refused_before_its_weights_are_fetched(hub, name, message):
    hub.commit("alice/bert", {"model.safetensors": b"x" * 99})
    hub.commit("alice/pickled", {MANIFEST: json.dumps({"files": {"weights.bin": 3}}).encode(), "weights.bin": b"abc"})
    hub.commit("alice/damaged", {MANIFEST: b"[1, 2]", "model.safetensors": b"x"})
    hub.commit("alice/empty", {MANIFEST: b"", "model.safetensors": b"x"})
    with pytest.raises(ValueError, match=message):
        duplexmt.load(name)
    assert not [path for command, path in hub.asked if path.endswith(("weights.bin", ".safetensors"))]


def test_a_hub_that_is_not_there_or_does_not_answer_is_told(hub, folder, monkeypatch):
    # It does not wait before it asks again.
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda _: None))
    hub.refuses_all = True
    with pytest.raises(ValueError, match="alice/zh-en"):
        model_at("alice/zh-en")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    with pytest.raises(
        ValueError, match=r"was not fetched .* http://127.0.0.1:9 cannot be reached: go online, or give"
    ):
        model_at("alice/zh-en")


def test_a_folder_comes_first_and_what_is_both_is_refused(hub, folder):
    hub.commit("alice/zh-en", contents(folder))
    shutil.copytree(folder, "bob/zh-en")
    assert model_at("bob/zh-en") == Path("bob/zh-en")
    assert model_at("bob/gone") == Path("bob/gone"), "a folder that is missing beside others"
    assert model_at(Path("alice/zh-en")) == Path("alice/zh-en"), "a path is a folder"
    for path in ("runs/a/model", "./alice/zh-en", "../alice", "/alice/zh-en", "alice", "alice/zh-en@", "@v1", "a b/c"):
        assert model_at(path) == Path(path), path
    assert not hub.asked
    with pytest.raises(ValueError, match=r"model_folder='bob/gone' does not exist: give the folder"):
        duplexmt.load("bob/gone")
    model_at("alice/zh-en")
    shutil.copytree(folder, "alice/zh-en")
    with pytest.raises(
        ValueError, match=r"alice/zh-en is both: a folder here, and a model of the hub .* \./alice/zh-en"
    ):
        model_at("alice/zh-en")
    assert model_at("./alice/zh-en") == Path("alice/zh-en")
    assert model_at("alice/zh-en@main").name == hub.repositories["alice/zh-en"][0][0]


def test_code_of_a_repository_is_never_run(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass")
    from duplexmt.decoder.backbone import pretrained_backbone

    with pytest.raises(ValueError, match="no causal language model with safetensors weights could be loaded"):
        pretrained_backbone(str(tmp_path))
    assert not (tmp_path / "ran").exists()


# --- given --------------------------------------------------------------------------------------------------------


def test_what_is_pushed_comes_back_as_it_was(hub, folder):
    address = push.push(folder, "alice/zh-en")
    ((sha, files),) = hub.repositories["alice/zh-en"]
    assert address == f"{hub.address}/alice/zh-en/commit/{sha}"
    ours = contents(folder)
    assert {**files, MANIFEST: None} == {**ours, MANIFEST: None}
    assert hub.large, "weights go as large files"
    assert contents(model_at("alice/zh-en")) == files
    assert_same_outputs(load_model_folder("alice/zh-en").model, load_model_folder(folder).model)


def test_another_push_takes_what_the_earlier_model_left_and_nothing_else(hub, folder):
    hub.commit("alice/zh-en", {"model-00001-of-00002.safetensors": b"old", "notes.pdf": b"hers", "vocab.txt": b"old"})
    push.push(folder, "alice/zh-en")
    files = hub.at("alice/zh-en", "main")[1]
    assert {*files} == {*contents(folder), "notes.pdf"}
    duplexmt.load("alice/zh-en", device="cpu")


def test_a_hub_that_cannot_be_reached_is_told(hub, folder, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9 was not reached \(.*\): look at .* HF_ENDPOINT"):
        push.push(folder, "alice/zh-en")


def test_paths_of_this_machine_stay_here(hub, folder, tmp_path):
    own = shutil.copytree(folder, tmp_path / "own")
    info = read_manifest(own)
    paths = {"path": str(tmp_path / "secret" / "pairs.tsv"), "tokenizer": str(tmp_path / "secret")}
    write_manifest(own, info | {"data": info["data"] | paths, "trained_before": [info["data"] | paths]})
    push.push(own, "alice/zh-en")
    assert not [name for name, content in hub.at("alice/zh-en", "main")[1].items() if b"secret" in content]
    assert read_manifest(model_at("alice/zh-en"))["data"]["path"] == "pairs.tsv"
    assert "secret" in (own / MANIFEST).read_text(encoding="utf-8"), "the folder itself is as it was"


@pytest.mark.parametrize(
    ("licence", "may"),
    [
        ("CC BY 2.0 FR (Tatoeba and its contributors)", True), ("CC0", True), ("Apache-2.0", True),
        ("of each file in data/README.md (CC0, CC BY, CC BY-SA, MIT, Apache-2.0, BSD-3-Clause)", True),
        ("MIT (3AM, Copyright (c) 2024 Maxy)", True), ("public domain", True),
        ("unknown", False), ("", False), (None, False), ("CC BY-NC 4.0", False), ("cc-by-nc-sa-4.0", False),
        ("CC-BY-ND", False), ("as its sources say (research use)", False), ("MIT, some for research only", False),
        ("GPL-3.0", False), ("CC BY and LGPL-2.1", False), ("my own", False),
        ("non-commercial use, CC BY", False), ("permitted", False), ("Apache-2.0, evaluation only", False),
        ("CC BY 4.0, non commercial use only", False), ("CC BY, no commercial use", False),
        ("CC BY-SA, not for commercial use", False), ("CC BY, no derivatives", False), ("BSD, academics only", False),
        ("MIT for non profit use", False), ("CC BY 4.0, for commercial use, too", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["data", "base", "base of the same name", "card", "odd card", "open card"])
def test_data_that_not_everybody_may_use_is_refused_unless_told(folder, tmp_path, licence, may, where):
    info, card = read_manifest(folder), (folder / "README.md").read_text(encoding="utf-8")
    if where == "data":
        info = info | {"data": info["data"] | {"licence": licence}}
    elif where.startswith("base"):
        path = "base.tsv" if where == "base" else info["data"]["path"]
        info = info | {"trained_before": [info["data"] | {"licence": licence, "path": path}]}
    else:
        card = f"---\nlicense: {json.dumps(licence)}\n---" + "\n# Mine\n" * (where != "open card")
        card = card if where == "card" else f"\ufeff\n{card}"
    if may:
        push.check_licences(folder, info, card)
    else:
        with pytest.raises(ValueError, match=r"has the licence .* not say that everybody may use it; .* --any-licence"):
            push.check_licences(folder, info, card)


@pytest.mark.parametrize("front", ["license: other\nlicense_name: CC0: all of it", "- a", "", "[" * 9])
def test_a_card_whose_head_is_no_yaml_is_refused(folder, front):
    with pytest.raises(ValueError, match=r"README\.md: between its first lines --- must be YAML"):
        push.check_licences(folder, read_manifest(folder), f"---\n{front}\n---\n# Mine\n")


def test_nothing_is_uploaded_of_what_is_refused(hub, folder, tmp_path):
    own = shutil.copytree(folder, tmp_path / "own")
    info = read_manifest(own)
    write_manifest(own, info | {"data": info["data"] | {"licence": "unknown"}})
    with pytest.raises(ValueError, match=r"pairs\.tsv has the licence 'unknown'"):
        push.push(own, "alice/zh-en")
    for name in ("zh-en", "alice/zh-en/x", "alice/zh-en@v1", "../zh-en", ""):
        with pytest.raises(ValueError, match="must be owner/name"):
            push.push(folder, name, any_licence=True)
    assert not hub.asked
    assert push.push(own, "alice/zh-en", any_licence=True)
    (own / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"incomplete: model\.safetensors has 7 bytes"):
        push.push(own, "alice/other", any_licence=True)
    assert "alice/other" not in hub.repositories


def test_lora_over_a_base_that_nobody_else_has_is_refused(hub, tmp_path):
    from ..helpers import tiny_backbone

    model = trained_with_lora(tiny_backbone(vocab_size=len(tiny_tokenizer())))
    own = save(tmp_path / "own", model, backbone=str(tmp_path / "base"))
    with pytest.raises(ValueError, match=r"LoRA is over .*base, which others do not have; merge it first: python -m"):
        push.push(own, "alice/lora")
    whole = save(tmp_path / "whole", model)  # with the base along
    push.push(whole, "alice/lora")
    assert_same_outputs(load_model_folder("alice/lora").model, load_model_folder(whole).model)


# --- the commands -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_by_the_commands_pushed_translated_and_translated_again_without_network(folder, tmp_path):
    with stand_in_hub.serving() as hub:
        given = [hub.address, str(tmp_path / "cache"), str(folder)]
        done = succeeded(run("tests.model_folder.test_hugging_face", *given, stdin=TEXT.encode(), cwd=tmp_path))
    address, *translations = done.stdout.splitlines()
    assert address.startswith(f"{hub.address}/alice/zh-en/commit/")
    expected = duplexmt.load(folder, device="cpu", max_target_tokens=8).translate([TEXT])
    assert translations == expected * 2
    assert done.stderr == "line 1: cut off at 8 tokens\n" * 2


def commands(address, cache, folder):
    """The commands, one after the other, where the environment names the stand-in."""
    for name, value in by_way_of(address, cache).items():
        setattr(constants, name, value)
    os.environ["HF_TOKEN"] = "hf_of_nobody"
    translate = ["translate.py", "max_target_tokens=8", "model_folder=alice/zh-en"]
    for command in (["push", folder, "alice/zh-en"], translate, [*translate, f"text={TEXT}"]):
        sys.argv = command
        if command[0] == "push":
            push.main()
        else:
            runpy.run_path(str(ROOT / command[0]), run_name="__main__")
        constants.HF_HUB_OFFLINE = command == translate


if __name__ == "__main__":
    commands(*sys.argv[1:])
