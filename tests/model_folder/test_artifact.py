"""The model folder: what is saved is what comes back, and a damaged folder is refused in one sentence."""

import copy
import json
import shutil
import subprocess

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from duplexmt import __version__
from duplexmt.data.tokenizer import StreamTokens, stream_tokens, token_ids
from duplexmt.decoder.backbone import add_lora, pretrained_backbone
from duplexmt.grid.model import GridModel
from duplexmt.kernels.triton_use import tolerance_of
from duplexmt.model_folder import artifact
from duplexmt.model_folder.artifact import backbone_to_train, choose_device, load_model_folder, save_model_folder
from duplexmt.model_folder.live_model import live_engine, live_text
from duplexmt.model_folder.manifest import MANIFEST, read_manifest, trained_on, write_manifest
from duplexmt.streaming.live import longest_sentence

from ..helpers import SENTENCES, spoken_grid, tiny_backbone, tiny_grid, tiny_prefix, tiny_tokenizer

DATA = {
    "source_language": "zh", "target_language": "en", "path": "somewhere/pairs.tsv", "train_path": None,
    "licence": "CC-BY-4.0", "max_tokens": 24,
}  # fmt: skip
TOKENS = StreamTokens(end=0, seed=1, source_prefix=(5, 6), target_prefix=(7,))


def save(folder, model, tokens=TOKENS, **further):
    recorded = {"backbone": None, "data": DATA, "policy": {"lam": 0.1, "theta": 0.5}}
    recorded |= {"training": {"learning_rate": 1e-3}, "scores": {"validation/BLEU": 31.4159}}
    return save_model_folder(folder, model, tiny_tokenizer(), tokens, **recorded | further)


@torch.no_grad()
def outputs(model):
    """Text and EMIT logits of all cells of a sentence pair."""
    source, target = (torch.tensor([ids]) for ids in token_ids(tiny_tokenizer(), SENTENCES[1]))
    hidden = model(source, target)
    return model.text_logits(hidden), model.emit_logits(hidden)


def assert_same_outputs(model, other, **tolerance):
    for ours, theirs in zip(outputs(model), outputs(other), strict=True):
        torch.testing.assert_close(ours, theirs, **(tolerance or {"rtol": 0, "atol": 0}))


def trained_with_lora(base, seed=3, **options):
    """A grid model whose LoRA weights, text head and EMIT head are no longer what they were at the start."""
    adapted = add_lora(base, rank=2, alpha=4, dropout=0.0, target_modules=["q_proj", "v_proj", "down_proj"])
    model = tiny_grid(adapted, **options)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "emit_head" not in name:
                weight.add_(torch.randn(weight.shape, generator=draw) * 0.1)
    return model


# --- round trips -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"attention": "exact", "input_attends_output": False, "softmax": "separate", "anchor": 12, "emit_hidden": 8}],
    ids=["default", "every option changed"],
)
def test_a_model_trained_in_full_comes_back_with_identical_logits(tmp_path, options):
    model = spoken_grid(seed=4, **options)
    loaded = load_model_folder(save(tmp_path / "model", model))
    assert_same_outputs(model, loaded.model)
    assert loaded.model.options == model.options
    assert not loaded.model.training
    if options:
        plain = GridModel(model.backbone)
        plain.emit_head = model.emit_head
        with pytest.raises(AssertionError):
            assert_same_outputs(plain, loaded.model)  # options matter: the comparison can fail


def test_a_tied_text_head_stays_tied(tmp_path):
    model = tiny_grid(tiny_backbone(vocab_size=320, tie_word_embeddings=True))
    loaded = load_model_folder(save(tmp_path / "model", model))
    assert_same_outputs(model, loaded.model)
    causal_lm = loaded.model.causal_lm
    assert causal_lm.lm_head.weight is causal_lm.model.embed_tokens.weight


def test_tokenizer_and_stream_tokens_come_back_with_the_model(tmp_path):
    loaded = load_model_folder(save(tmp_path / "model", spoken_grid()))
    assert loaded.tokens == TOKENS
    texts = [text for pair in SENTENCES for text in pair]
    assert token_ids(loaded.tokenizer, texts) == token_ids(tiny_tokenizer(), texts)
    assert stream_tokens(loaded.tokenizer) == stream_tokens(tiny_tokenizer())
    assert loaded.info["data"] == DATA
    assert loaded.info["policy"] == {"lam": 0.1, "theta": 0.5}
    assert loaded.info["scores"] == {"validation/BLEU": 31.4159}


def test_a_lora_model_comes_back_with_the_backbone_saved_along(tmp_path):
    model = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15))
    folder = save(tmp_path / "model", model)
    loaded = load_model_folder(folder)
    assert (folder / "backbone" / "model.safetensors").is_file()
    assert not hasattr(loaded.model.backbone, "peft_config"), "LoRA is merged"
    assert_same_outputs(model, loaded.model, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_the_backbone_saved_along_has_the_text_head_it_came_with(tmp_path, tied):
    base = tiny_backbone(vocab_size=320, scale=0.15, tie_word_embeddings=tied)
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    folder = save(tmp_path / "model", trained_with_lora(base))
    saved = pretrained_backbone(str(folder / "backbone")).state_dict()
    assert saved.keys() == before.keys()
    for name, weight in before.items():
        torch.testing.assert_close(saved[name], weight, rtol=0, atol=0)
    assert (saved["lm_head.weight"].data_ptr() == saved["model.embed_tokens.weight"].data_ptr()) == tied


def test_saving_a_lora_model_leaves_it_as_it_was(tmp_path):
    model = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15))
    before = outputs(model)
    weights = copy.deepcopy(model.state_dict())
    save(tmp_path / "model", model)
    for one, other in zip(before, outputs(model), strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


def test_a_lora_model_comes_back_on_the_backbone_it_names(tmp_path):
    base = tiny_backbone(vocab_size=320, scale=0.15)
    base.save_pretrained(tmp_path / "base")
    model = trained_with_lora(pretrained_backbone(str(tmp_path / "base")))
    folder = save(tmp_path / "model", model, backbone=str(tmp_path / "base"))
    assert not (folder / "backbone").exists(), "frozen weights that can be loaded by name are not stored again"
    assert_same_outputs(model, load_model_folder(folder).model, rtol=1e-5, atol=1e-5)
    assert f'base_model: "{tmp_path}/base"' in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("named", [False, True], ids=["backbone saved along", "backbone by folder"])
def test_a_text_head_untied_from_the_embedding_by_lora_comes_back_as_trained(tmp_path, named):
    base = tiny_backbone(vocab_size=320, scale=0.15, tie_word_embeddings=True)
    base.save_pretrained(tmp_path / "base")
    embedding = base.model.embed_tokens.weight.detach().clone()
    model = trained_with_lora(pretrained_backbone(str(tmp_path / "base")))
    loaded = load_model_folder(
        save(tmp_path / "model", model, backbone=str(tmp_path / "base") if named else None)
    ).model.causal_lm
    assert torch.equal(loaded.model.embed_tokens.weight, embedding), "the embedding is frozen"
    head = model.causal_lm.lm_head.modules_to_save["default"].weight
    assert torch.equal(loaded.lm_head.weight, head)
    assert (head - embedding).abs().max() > 0.1, "the head was trained away from the embedding"
    assert_same_outputs(model, load_model_folder(tmp_path / "model").model, rtol=1e-5, atol=1e-5)


# --- what is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_a_training_starts_from_a_lora_model_and_lora_on_top_of_it_comes_back_too(tmp_path, tied):
    first = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15, tie_word_embeddings=tied))
    merged = backbone_to_train(str(save(tmp_path / "first", first)), 320)
    torch.testing.assert_close(outputs(tiny_grid(merged))[0], outputs(first)[0], rtol=1e-4, atol=1e-4)
    second = trained_with_lora(merged, seed=5)
    assert not torch.allclose(outputs(first)[0], outputs(second)[0], atol=1e-2)
    assert_same_outputs(second, load_model_folder(save(tmp_path / "second", second)).model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lora", [False, True])
def test_weights_are_written_as_safetensors_only(tmp_path, lora):
    model = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15)) if lora else spoken_grid()
    folder = save(tmp_path / "model", model)
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert {file.rpartition(".")[2] for file in files} <= {"safetensors", "json", "md", "jinja", "txt"}
    own = {"adapter_model.safetensors", "backbone/model.safetensors"} if lora else {"model.safetensors"}
    assert {file for file in files if file.endswith(".safetensors")} == own | {"emit_head.safetensors"}
    assert set(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]) == files - {MANIFEST, "README.md"}


def test_the_model_card_names_data_licence_languages_settings_and_scores(tmp_path):
    card = (save(tmp_path / "model", spoken_grid(anchor=12)) / "README.md").read_text(encoding="utf-8")
    front_matter = card.split("---")[1]
    assert yaml.safe_load(front_matter)["language"] == ["zh", "en"]
    assert 'pipeline_tag: "translation"' in front_matter
    assert "base_model" not in front_matter
    assert "- **Data:** pairs.tsv; licence: CC-BY-4.0." in card
    assert "anchor 12" in card
    assert "full, λ = 0.1, texts of at most 24 tokens" in card
    assert "| validation/BLEU | 31.42 |" in card


def test_a_model_folder_says_by_which_version_and_in_a_clone_by_which_commit_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact, "__file__", str(tmp_path / "duplexmt" / "model_folder" / "artifact.py"))
    assert artifact.version() == __version__  # installed
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert artifact.version() == __version__  # without a commit
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert artifact.version() == f"{__version__}+g{commit[:7]}"
    card = (save(tmp_path / "model", spoken_grid()) / "README.md").read_text(encoding="utf-8")
    assert f"Written by duplexmt {artifact.version()}." in card


@pytest.mark.parametrize("text", ["no", "1e3", "a: b #c"])
def test_what_yaml_may_take_for_another_value_is_quoted_in_the_model_card(tmp_path, text):
    save(tmp_path / "model", spoken_grid(), data=DATA | {"target_language": text, "licence": text})
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    front_matter = yaml.safe_load(card.split("\n---\n")[0])
    assert (front_matter["language"], front_matter["license_name"]) == (["zh", text], text)
    assert f'["zh", "{text}"]' in card, "YAML 1.1 and 1.2 differ in what y and 1e3 are, and agree on quotation marks"


def test_a_model_of_texts_of_any_length_translates_live_and_its_card_says_so(tmp_path):
    loaded = load_model_folder(save(tmp_path / "model", spoken_grid(anchor=12), data=DATA | {"max_tokens": None}))
    engine = live_engine(loaded, 12, None, max_streams=1)
    limits = [live_text(loaded, engine, most, cut=True).limit for most in (None, 20)]
    assert limits == [longest_sentence(engine), 20]
    assert "texts of any length." in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("k", "schedule"), [(3, "wait-k, k = 3"), ("multi", "trained at every k"), (None, "the whole source is read")]
)
def test_the_model_card_of_a_baseline_names_its_schedule(tmp_path, k, schedule):
    model = tiny_prefix(k, anchor=7, vocab_size=len(tiny_tokenizer()))
    card = (save(tmp_path / "model", model, policy={}) / "README.md").read_text(encoding="utf-8")
    assert schedule in card
    assert "anchor 7" in card
    assert "λ" not in card
    assert load_model_folder(tmp_path / "model").model.k == k


def test_what_bases_were_trained_on_goes_from_each_to_the_models_made_of_it(tmp_path):
    base, name = save(tmp_path / "base", spoken_grid()), str(tmp_path / "base")
    tuned = save(tmp_path / "tuned", spoken_grid(), backbone=name, trained_before=trained_on(name))
    assert [trained_on(None), trained_on("Qwen/Qwen2.5-0.5B"), trained_on(str(tmp_path))] == [[], [], []]
    assert (trained_on(str(base)), trained_on(str(tuned))) == ([DATA], [DATA, DATA])
    assert "- **Its base's data:** pairs.tsv; licence: CC-BY-4.0." in (tuned / "README.md").read_text(encoding="utf-8")
    assert "base's data" not in (base / "README.md").read_text(encoding="utf-8")


def test_a_gpu_decodes_in_tf32_and_its_kernels_are_judged_by_that(monkeypatch):
    assert choose_device("cpu") == "cpu"
    assert (torch.get_float32_matmul_precision(), tolerance_of(torch.float32)) == ("highest", 1e-4)
    with pytest.raises(ValueError, match="device='nowhere': not to be had on this machine"):
        choose_device("nowhere")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *_, **options: options)  # as if it could be made there
    try:
        assert choose_device("auto") == "cuda"
        assert (torch.get_float32_matmul_precision(), tolerance_of(torch.float32)) == ("high", 5e-3)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_model_folder_replaces_the_one_before_and_leaves_no_partial_one(tmp_path):
    save(tmp_path / "model", spoken_grid(seed=1))
    (tmp_path / "model" / "left over.bin").write_bytes(b"old")
    (tmp_path / "model.partial").mkdir()
    (tmp_path / "model.partial" / "half").write_bytes(b"of a run that was interrupted")
    model = spoken_grid(seed=2)
    save(tmp_path / "model", model)
    assert_same_outputs(model, load_model_folder(tmp_path / "model").model)
    assert not (tmp_path / "model" / "left over.bin").exists()
    assert not (tmp_path / "model" / "half").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_a_link_stays_one(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for seed in (1, 2):
        model = spoken_grid(seed=seed)
        save(tmp_path / "link", model)
        assert_same_outputs(model, load_model_folder(tmp_path / "real").model)
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"link", "real"}
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"model_folder='\.' has no duplexmt\.json: give"):
        read_manifest(".")


def test_a_model_that_is_saved_again_keeps_what_was_found_out_of_it_and_another_does_not(tmp_path):
    """As by `train.py resume=RUN` of a run that had ended."""
    found = {"operating_point": {"theta": 0.625}, "alignment_heads": [[0, 1]]}
    folder = save(tmp_path / "model", spoken_grid(seed=1))
    write_manifest(folder, read_manifest(folder) | found)
    again = read_manifest(save(folder, spoken_grid(seed=1)))
    assert {name: again.get(name) for name in found} == found
    other = read_manifest(save(folder, spoken_grid(seed=2)))
    assert not found.keys() & other.keys()


def test_an_interrupted_save_leaves_the_folder_before_untouched(tmp_path, monkeypatch):
    before = spoken_grid(seed=1)
    save(tmp_path / "model", before)
    monkeypatch.setattr(
        "duplexmt.model_folder.artifact.save_tokenizer", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "model", spoken_grid(seed=2))
    assert_same_outputs(before, load_model_folder(tmp_path / "model").model)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved") / "model", spoken_grid())


@pytest.fixture
def folder(saved, tmp_path):
    """A model folder to damage."""
    return shutil.copytree(saved, tmp_path / "model")


def refused(folder, message):
    """Loading must fail with a message of one line that names the folder."""
    with pytest.raises(ValueError, match=message) as error:
        load_model_folder(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_save_that_was_interrupted_is_named_as_the_reason(folder):
    folder.rename(folder.with_name("model.partial"))
    refused(folder, "does not exist .its training was interrupted while it was being written")


@pytest.mark.parametrize("name", ["emit_head.safetensors", "tokenizer.json"])
def test_a_truncated_file_is_named_with_both_sizes_and_a_missing_one_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    refused(folder, rf"incomplete: {name} has {len(content) - 1} bytes instead of {len(content)}")
    (folder / name).unlink()
    refused(folder, rf"incomplete: {name} is missing")


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "model.safetensors.index.json"])
def test_weights_that_were_not_saved_with_the_model_are_refused_and_not_loaded_in_their_place(folder, name):
    shutil.copy(folder / "model.safetensors", folder / name)
    refused(folder, f"{name} is not part of the model that was saved there; remove it")


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"{", b"[]", b'{"format": 1}', b'{"format": "one", "files": {}}', b'{"format": 1, "files": 3}', b"\xff",
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(folder, manifest):
    (folder / MANIFEST).write_bytes(manifest)
    refused(folder, "duplexmt.json is damaged")


@pytest.mark.parametrize("name", ["system", "adaptation", "tokens", "data", "policy", "digests", "grid"])
def test_a_manifest_that_lacks_something_is_refused_by_its_name(folder, name):
    write_manifest(folder, {one: value for one, value in read_manifest(folder).items() if one != name})
    refused(folder, f"duplexmt.json has no {name}")


@pytest.mark.parametrize("name", ["/etc/hostname", "../other/file", "unknown.txt"])
def test_a_manifest_that_names_files_of_others_is_refused(folder, name):
    info = read_manifest(folder)
    write_manifest(folder, info | {"files": info["files"] | {name: 3}})
    refused(folder, f"duplexmt.json names {name}, which is none of its files")


def test_an_edited_model_card_leaves_the_folder_whole(folder):
    (folder / "README.md").write_text("my own words", encoding="utf-8")
    load_model_folder(folder)


def test_a_folder_of_a_newer_format_asks_for_an_upgrade(folder):
    info = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps(info | {"format": 2}), encoding="utf-8")
    refused(folder, "has format 2, this version reads up to 1: upgrade")


def test_a_lora_model_whose_backbone_is_gone_is_refused_by_the_backbones_name(tmp_path):
    base = tiny_backbone(vocab_size=320, scale=0.15)
    base.save_pretrained(tmp_path / "base")
    save(tmp_path / "model", trained_with_lora(base), backbone=str(tmp_path / "base"))
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=rf"model\.backbone='{tmp_path / 'base'}': no causal language model"):
        load_model_folder(tmp_path / "model")


@pytest.mark.parametrize("change", ["missing", "another shape", "more layers"])
def test_weights_that_are_not_those_of_the_configuration_are_refused_not_made_up(tmp_path, change):
    tiny_backbone().save_pretrained(tmp_path)
    lost = "model.layers.1.mlp.up_proj.weight"
    if change == "more layers":
        other = tiny_backbone(layers=4)
        other.config.save_pretrained(tmp_path)
        lost = "model.layers.3."
    else:
        weights = load_file(tmp_path / "model.safetensors")
        weight = weights.pop(lost)
        weights |= {} if change == "missing" else {lost: weight[:-2].contiguous()}
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"'{tmp_path}': .* missing or of another shape, such as {lost}"):
        pretrained_backbone(str(tmp_path))


# --- segmentation ----------------------------------------------------------------------------------------------------


def test_segmentation_context_and_typical_length_come_back_with_the_model(tmp_path):
    tokens = StreamTokens(end=0, seed=1, source_prefix=(5, 0, 0), context=2)
    folder = save(tmp_path / "model", spoken_grid(), tokens=tokens)
    loaded = load_model_folder(folder)
    assert loaded.tokens == tokens
    assert (loaded.sources.segmentation, loaded.context_separator) == ("tokens", None)
    assert loaded.typical_source_length == 24 // 2 + 1, "half of data.max_tokens where training recorded none"
    loaded.info["data"] |= {"segmentation": "characters", "context_tokens": 2, "context_separator": "|"}
    loaded.info["training"]["typical_source_length"] = 9
    assert (loaded.sources.segmentation, loaded.context_separator) == ("characters", "|")
    assert loaded.typical_source_length == 9
