"""The engine by itself, without a server around it."""

from dataclasses import fields

import pytest

from duplexmt.model_folder.live_model import load_live_model
from duplexmt.model_folder.manifest import file_digest, read_manifest, write_manifest
from duplexmt.serving import engine_process
from duplexmt.serving.engine_process import Worker
from duplexmt.serving.settings import EngineSettings

from ..helpers import unknown_kind
from .live_server import ENGINE, tiny_folder


@pytest.mark.parametrize(("segmentation", "told"), [("tokens", 1), ("characters", 0)])
def test_a_tokenizer_that_holds_live_text_back_is_told_of_once_when_the_engine_starts(
    tmp_path, caplog, monkeypatch, segmentation, told
):
    monkeypatch.setattr(engine_process, "load_live_model", load_live_model)  # whatever a server of other tests loads
    folder = tiny_folder(tmp_path / "model", segmentation)
    info = read_manifest(folder)
    unknown_kind(folder)
    for name in info["files"]:
        info["files"][name], info["digests"][name] = (folder / name).stat().st_size, file_digest(folder / name)
    write_manifest(folder, info)
    known = {field.name for field in fields(EngineSettings)}
    engine = Worker(
        EngineSettings(**{name: ENGINE[name] for name in known & ENGINE.keys()} | {"model_folders": [str(folder)]})
    )
    for name in "ab":
        engine.do("join", name, model="zh-en", theta=0.5, source_length=None, restore=None)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.name for record in warnings] == ["duplexmt.serving.engine_process"] * told
    assert caplog.text.count("settled at sentence ends and pauses only, as its normalizer Lowercase") == told
