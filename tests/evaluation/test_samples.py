"""Sentences to show a model with."""

import json
from types import SimpleNamespace

import pytest

from duplexmt.evaluation import samples
from duplexmt.evaluation.alike import LIKENESS, write_likeness
from duplexmt.evaluation.decoding import Point
from duplexmt.model_folder.manifest import MANIFEST, read_manifest, write_manifest

INFO = {"format": 1, "system": "grid", "adaptation": "full", "scores": {"validation/BLEU": 1.0}}
INFO |= {name: {} for name in ("files", "tokens", "data", "policy", "digests", "grid")}


def record(number, text, reference):
    return {"id": number, "source": f"{number}。", "text": text, "references": ["no", reference]}


def evaluated(monkeypatch, folder, *settings):
    points = {str(theta): Point("grid", theta, "a", "") for theta in (0.3, 0.9)}
    records = {
        key: [record(i, *one) for i, one in enumerate(texts)] for key, texts in zip(points, settings, strict=True)
    }
    test = {"sentences": len(settings[0]), "target_language": "en"}
    decoding = SimpleNamespace(points=points, test=test, sorted=records.__getitem__)
    monkeypatch.setattr("duplexmt.evaluation.results.of_one_test_set", lambda folders: [decoding])
    write_likeness(folder, "a", [0.4] * len(settings[0]), len(settings[0]))


def test_samples_are_right_at_each_setting_the_longest_first_and_not_alike(monkeypatch, tmp_path):
    write_manifest(tmp_path, INFO)
    right = ["My dog is here.", "You saw my new dog.", "My cat ate all of it now.", "I saw a new house there.", "Good."]
    same = [(text, text) for text in right]
    wrong_once = [*same, ("He left it here.", "He left it here.")], [*same, ("He left.", "He left it here.")]
    evaluated(monkeypatch, tmp_path, *wrong_once)
    samples.record_samples(tmp_path, tmp_path)
    recorded = read_manifest(tmp_path)["samples"]
    assert recorded["sentences"] == ["2。", "3。", "4。"], "1 shares two words with 3, 0 begins as 2, 5 is wrong once"
    assert "of 6 sentences that the model had not seen, 5 come out" in recorded["chosen"]
    assert "at each of θ=0.3, θ=0.9." in recorded["chosen"]
    write_likeness(tmp_path, "b", [0, 0, 0.5, 0, 1, 0], 6)  # another model of one training
    samples.record_samples(tmp_path, tmp_path)
    recorded = read_manifest(tmp_path)["samples"]
    assert recorded["sentences"] == ["3。", "0。"], "2 has a relative, and 4 was trained on"
    assert "of 4 sentences that the model had not seen, 3 come out" in recorded["chosen"]


def test_the_longest_of_texts_without_spaces_have_the_most_characters():
    texts = ["不行", "我昨天在图书馆借了一本书。", "我昨天在图书馆。", "他们很高兴"]
    found = samples.varied([{"id": i, "text": text} for i, text in enumerate(texts)], "character")
    assert [record["id"] for record in found] == [1, 3, 0]


def test_sentences_that_the_model_may_have_seen_and_those_of_another_model_are_no_samples(monkeypatch, tmp_path):
    write_manifest(tmp_path, INFO)
    evaluated(monkeypatch, tmp_path, [("He left.", "He left.")], [("He left.", "He left.")])
    for known in ("{}", '{"a": [0.1], "b": null}'):
        (tmp_path / LIKENESS).write_text(known)
        with pytest.raises(ValueError, match="does not know which sentences the model was trained on"):
            samples.record_samples(tmp_path, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    write_manifest(other, INFO | {"scores": {"validation/BLEU": 2.0}})
    decoding = {"complete": True, "points": {"a": {"model_folder": str(other)}}}
    (tmp_path / "decoding.json").write_text(json.dumps(decoding), encoding="utf-8")
    with pytest.raises(ValueError, match=r"is no evaluation of .*, but of .*other"):
        samples.record_samples(tmp_path, tmp_path)


def test_a_model_that_is_never_right_has_none(monkeypatch, tmp_path):
    write_manifest(tmp_path, INFO)
    before = (tmp_path / MANIFEST).read_bytes()
    evaluated(monkeypatch, tmp_path, [("He left.", "She left.")], [("He left.", "She left.")])
    with pytest.raises(ValueError, match="no sentence is translated as its reference"):
        samples.record_samples(tmp_path, tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == before
