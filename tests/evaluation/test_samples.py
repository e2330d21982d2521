"""Sentences to show a model with."""

import json
from types import SimpleNamespace

import pytest

from duplexmt.evaluation import samples
from duplexmt.model_folder.manifest import MANIFEST, read_manifest, write_manifest


def record(number, text, reference):
    return {"id": number, "source": f"{number}。", "text": text, "references": ["no", reference]}


def evaluated(monkeypatch, *settings):
    points = {str(theta): SimpleNamespace(setting=theta) for theta in (0.3, 0.9)}
    records = {
        key: [record(i, *one) for i, one in enumerate(texts)] for key, texts in zip(points, settings, strict=True)
    }
    test = {"name": "talks, test split", "sentences": 4000}
    decoding = SimpleNamespace(points=points, test=test, sorted=records.__getitem__)
    monkeypatch.setattr(samples, "of_one_test_set", lambda folders: [decoding])


def test_samples_are_right_at_each_setting_the_longest_first_and_not_alike(monkeypatch, tmp_path):
    write_manifest(tmp_path, {"format": 1, "files": {}, "data": {}})
    right = ["My dog is here.", "You saw my new dog.", "My cat ate all of it now.", "I saw a new house there.", "Good."]
    same = [(text, text) for text in right]
    evaluated(monkeypatch, [*same, ("He left it here.", "He left it here.")], [*same, ("He left.", "He left it here.")])
    samples.record_samples(tmp_path, tmp_path)
    recorded = read_manifest(tmp_path)["samples"]
    assert recorded["sentences"] == ["2。", "3。", "4。"], "1 shares two words with 3, 0 begins as 2, 5 is wrong once"
    assert "of 4,000 sentences that the model had not seen, 5 come out" in recorded["chosen"]


def test_a_model_that_is_never_right_has_none(monkeypatch, tmp_path):
    write_manifest(tmp_path, {"format": 1, "files": {}})
    before = (tmp_path / MANIFEST).read_bytes()
    evaluated(monkeypatch, [("He left.", "She left.")], [("He left.", "She left.")])
    with pytest.raises(ValueError, match="no sentence is translated as its reference"):
        samples.record_samples(tmp_path, tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == before


def test_the_model_in_the_box_has_samples():
    root = samples.Path(samples.__file__).parents[2]
    found = json.loads((root / "models" / "zh-en" / MANIFEST).read_text(encoding="utf-8"))["samples"]
    assert len(found["sentences"]) == samples.COUNT
