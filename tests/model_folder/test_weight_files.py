"""Model folders in files of a chosen size: the same model comes back, and a shard that is lost is named."""

import json

import pytest

from duplexmt.decoder.backbone import pretrained_backbone
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.manifest import MANIFEST

from ..helpers import spoken_grid, tiny_backbone
from .test_artifact import assert_same_outputs, save, trained_with_lora


def shards_of(folder, stem):
    return sorted(file.name for file in folder.glob(f"{stem}-*-of-*.safetensors"))


def biggest_tensor(model):
    return max(weight.nbytes for weight in model.parameters())


def test_a_sharded_model_comes_back_as_the_one_in_a_single_file(tmp_path):
    model = spoken_grid(seed=4)
    folder = save(tmp_path / "model", model, max_shard_size="20KB")
    names = shards_of(folder, "model")
    assert len(names) > 2
    assert not (folder / "model.safetensors").exists()
    limit = max(20_000, biggest_tensor(model))
    assert all((folder / name).stat().st_size <= limit + 4_000 for name in names)  # and its header
    assert set(names) <= set(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    assert_same_outputs(model, load_model_folder(folder).model)
    assert_same_outputs(load_model_folder(save(tmp_path / "one", model)).model, load_model_folder(folder).model)


def test_a_sharded_adapter_and_its_backbone_come_back(tmp_path):
    model = trained_with_lora(tiny_backbone(vocab_size=320, scale=0.15))
    folder = save(tmp_path / "model", model, max_shard_size="20KB")
    assert len(shards_of(folder, "adapter_model")) > 1
    assert len(shards_of(folder / "backbone", "model")) > 1
    assert not (folder / "adapter_model.safetensors").exists()
    assert_same_outputs(model, load_model_folder(folder).model, rtol=1e-5, atol=1e-5)
    whole = load_model_folder(save(tmp_path / "one", model)).model
    assert_same_outputs(whole, load_model_folder(folder).model)


@pytest.mark.parametrize(
    "part", ["adapter_model-00001-of-0", "backbone/model-00002-of-0", "adapter_model.safetensors.i"]
)
def test_a_missing_shard_or_index_is_refused_by_its_name(tmp_path, part):
    folder = save(tmp_path / "model", trained_with_lora(tiny_backbone(vocab_size=320)), max_shard_size="20KB")
    (lost,) = folder.glob(part + "*")
    lost.unlink()
    with pytest.raises(ValueError, match=rf"incomplete: {lost.relative_to(folder)} is missing"):
        load_model_folder(folder)


def test_a_base_that_lacks_a_shard_is_refused_as_a_backbone(tmp_path):
    folder = save(tmp_path / "base", spoken_grid(), max_shard_size="20KB")
    assert_same_outputs(spoken_grid(), load_model_folder(folder).model)
    assert pretrained_backbone(str(folder)).config.model_type == "qwen2"
    lost = shards_of(folder, "model")[1]
    (folder / lost).unlink()
    with pytest.raises(ValueError, match=rf"model\.backbone='{folder}': no causal language model[\s\S]*{lost}"):
        pretrained_backbone(str(folder))
