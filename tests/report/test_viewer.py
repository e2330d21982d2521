"""The viewer's data: texts are harmless inside a script, grids and sizes are kept."""

import json
from dataclasses import replace

from duplexmt.report.viewer import script_json, viewer_data

from .scripted_viewer import grid, sentence, viewer


def test_data_survive_the_script_they_stand_in():
    text = script_json(viewer_data(viewer()))
    assert not any(character in text for character in "<>&\u2028\u2029\u202e")
    data = json.loads(text)
    assert data["sentences"][0]["reference"].startswith("The man<script>alert(1)</script><img src=")
    assert data["sentences"][0]["reference"].endswith("⟨2028⟩⟨202E⟩") or "⟨202E⟩" in data["sentences"][0]["reference"]
    assert json.loads(script_json("</script><!--\u2028&")) == "</script><!--\u2028&"


def test_grids_name_their_tokens_and_ways_their_heights():
    found = viewer_data(viewer())["sentences"][0]
    first = found["grids"][0]
    assert [found["names"][i] for i in first["target"]][:2] == ["The", "man"]
    assert found["names"][first["target"][-1]] == "■"
    assert first["size"] == [4, 4]
    assert [way["heights"] for way in found["ways"]] == [[1, 1, 1, 2], [1, 2, 3, 4], [0, 0, 0, 3]]
    assert found["highest"] == max(value for entry in found["grids"] for row in entry["loss"] for value in row)


def test_long_sentences_are_cut_and_keep_their_size():
    long = replace(sentence(), grids=[grid(["x"] * 90, ["y"] * 70)] * 3)
    found = viewer_data(viewer(long))["sentences"][0]["grids"][0]
    assert found["size"] == [90, 70]
    assert (len(found["emit"]), len(found["emit"][0]), len(found["best"])) == (40, 40, 40)
