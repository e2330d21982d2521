"""The folder of an evaluation: killed anywhere, it goes on; what does not belong there is refused."""

import gzip
import json
import lzma
from dataclasses import replace
from types import SimpleNamespace

import pytest

from duplexmt.evaluation.decoding import SCORED, Decoding, TestSet, check_models, model_digest
from duplexmt.evaluation.pairs import further_references
from duplexmt.evaluation.points import point_of
from duplexmt.evaluation.translation import tokenise, translate
from duplexmt.policy.decoding_options import TARGET_TOKENS, EmitRule

from ..helpers import tiny_tokenizer
from ..scripted import SENTENCES, TEST, Scripted, evaluated, point, system_like, unlike

# --- further references ------------------------------------------------------------------------------------------


def test_files_of_references_join_line_by_line_and_an_empty_line_gives_none(tmp_path):
    (tmp_path / "b.txt").write_text("one cat\n\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text("the cat\nthat man", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("b.txt", "c.txt")]
    assert further_references(["a cat", "the man"], files) == [["a cat", "one cat", "the cat"], ["the man", "that man"]]


def test_a_mark_at_the_beginning_and_other_line_ends_are_no_part_of_a_reference(tmp_path):
    (tmp_path / "b.txt").write_bytes("\ufeffone cat\r\nthe\rman\r\n".encode())
    found = further_references(["a cat", "the man"], [str(tmp_path / "b.txt")])
    assert found == [["a cat", "one cat"], ["the man", "the man"]]


@pytest.mark.parametrize(
    ("text", "suffix", "pack"),
    [
        ("one cat\rthe man\r", "", bytes), ("one cat\rthe man\n", ".gz", gzip.compress),
        ("\ufeffone cat\r\nthe man", ".xz", lzma.compress),
    ],
)  # fmt: skip
def test_lines_of_references_end_in_any_way_and_may_be_compressed(text, suffix, pack, tmp_path):
    path = tmp_path / f"b.txt{suffix}"
    path.write_bytes(pack(text.encode()))
    assert further_references(["a", "b"], [str(path)]) == [["a", "one cat"], ["b", "the man"]]


def test_references_in_another_encoding_are_refused_by_its_name(tmp_path):
    codec, name = "gb18030", "GB18030"
    (tmp_path / "b.txt").write_bytes("今天天气很好。\n我们去公园吧。\n他没有来。\n".encode(codec))
    with pytest.raises(
        ValueError, match=rf"b\.txt is not UTF-8 but seems to be {name}: convert it by `iconv -f {name} "
    ):
        further_references(["a", "b", "c"], [str(tmp_path / "b.txt")])


def test_references_and_pairs_of_different_number_are_refused_with_both(tmp_path):
    (tmp_path / "b.txt").write_text("one cat\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has 1 lines for 2 test pairs"):
        further_references(["a cat", "the man"], [str(tmp_path / "b.txt")])
    with pytest.raises(ValueError, match="no such file"):
        further_references(["a cat"], [str(tmp_path / "none.txt")])
    (tmp_path / "b.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"references=.*b\.txt is not UTF-8"):
        further_references(["a cat"], [str(tmp_path / "b.txt")])
    (tmp_path / "b.txt").write_bytes(b"caf\xe9\na\nb\nc\n")
    with pytest.raises(ValueError, match=r"references=.*b\.txt: not UTF-8 \("):
        further_references(["a cat"], [str(tmp_path / "b.txt")])


def test_a_test_set_with_the_sentence_before_is_complete_once_it_is_decoded(tmp_path):
    befores, sources = [source for source, _ in SENTENCES[1:]], [source for source, _ in SENTENCES[:-1]]
    references = [[target] for _, target in SENTENCES[:-1]]
    test = TestSet("with context", sources, references, "zh", "en", befores)
    assert test.digest != replace(test, befores=[]).digest
    decoding, entry = Decoding.start(tmp_path, test), point(test=test)
    decoding.add(entry)
    sentences = tokenise(sources, references, tiny_tokenizer(), befores=befores)
    system = system_like("grid", 0.5)
    system.translate = lambda sources, contexts: Scripted.translate(system, sources)
    system.script.pop()
    assert [line["source"] for line in decoding.decode(entry, translate(system, sentences, tiny_tokenizer()))] == [
        source for source, _ in reversed(SENTENCES[:-1])
    ]  # fmt: skip
    decoding.finish()
    again = Decoding.read(tmp_path)
    again.check_complete()
    again.records[entry.digest][0]["before"] = "another"
    with pytest.raises(ValueError, match="are not those of the test set it was decoded from"):
        again.check_complete()


# --- killed, and going on ----------------------------------------------------------------------------------------

POINTS = [point(setting=0.5), point(setting=0.9)]


def hypotheses(folder):
    return (folder / "hypotheses.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(("stop_after", "torn"), [(1, 1), (3, 0), (4, 40), (6, 0), (6, 1)])
def test_an_evaluation_killed_anywhere_goes_on_and_ends_the_same(tmp_path, stop_after, torn):
    evaluated(tmp_path / "whole", POINTS)
    folder = tmp_path / "killed"
    evaluated(folder, POINTS, stop_after=stop_after)
    if torn:  # in the middle of a line
        content = (folder / "hypotheses.jsonl").read_bytes()
        (folder / "hypotheses.jsonl").write_bytes(content[:-torn])
    left = (folder / "hypotheses.jsonl").read_bytes()
    Decoding.read(folder)  # by one who scores
    assert (folder / "hypotheses.jsonl").read_bytes() == left, "it may still be written"
    begun = Decoding.start(folder, TEST)
    assert hypotheses(folder)[-1:] in ("", "\n"), "others are written after it"
    assert len(begun.records[POINTS[0].digest]) == stop_after - bool(torn), "what was written is not decoded again"
    evaluated(folder, POINTS)
    assert hypotheses(folder) == hypotheses(tmp_path / "whole")
    assert (folder / "decoding.json").read_text() == (tmp_path / "whole" / "decoding.json").read_text()


def test_a_finished_evaluation_has_a_line_for_each_point_and_sentence_in_order(tmp_path):
    evaluated(tmp_path, POINTS)
    lines = [json.loads(line) for line in hypotheses(tmp_path).splitlines()]
    assert [(line["setting"], line["id"]) for line in lines] == [(s, i) for s in (0.5, 0.9) for i in range(6)]
    again = Decoding.read(tmp_path)
    again.check_complete()
    assert all(again.missing(entry) == [] for entry in POINTS)


def test_a_line_separator_inside_a_text_does_not_end_its_line(tmp_path):
    decoding = evaluated(tmp_path, POINTS[:1])
    decoding.records[POINTS[0].digest][0]["text"] = "a\u2028cat"
    decoding.finish()
    assert Decoding.read(tmp_path).records[POINTS[0].digest][0]["text"] == "a\u2028cat"


def test_further_points_join_an_evaluation(tmp_path):
    evaluated(tmp_path, POINTS)
    more = evaluated(tmp_path, [point(setting=0.7)])
    assert [entry.setting for entry in more.points.values()] == [0.5, 0.9, 0.7]
    more.check_complete()


def test_an_evaluation_is_complete_only_once_nothing_is_missing(tmp_path):
    evaluated(tmp_path, POINTS, stop_after=2)
    (tmp_path / "decoding.json").write_text(
        (tmp_path / "decoding.json").read_text().replace('"complete": false', '"complete": true'), encoding="utf-8"
    )
    more = evaluated(tmp_path, [point(setting=0.7)])
    assert (more.complete, Decoding.read(tmp_path).complete) == (False, False)
    with pytest.raises(ValueError, match=r"holds 8 hypotheses and is not finished: .*resume="):
        more.check_complete()
    evaluated(tmp_path, POINTS)
    assert Decoding.read(tmp_path).complete


def test_scores_are_no_longer_those_of_the_evaluation_once_something_is_decoded_anew(tmp_path):
    evaluated(tmp_path, POINTS)
    (tmp_path / SCORED).touch()
    evaluated(tmp_path, POINTS)
    assert (tmp_path / SCORED).exists(), "nothing was missing"
    evaluated(tmp_path, [point(setting=0.7)], stop_after=1)
    assert not (tmp_path / SCORED).exists()


def test_the_model_folders_asked_for_are_remembered_from_the_first_point_on(tmp_path):
    Decoding.start(tmp_path, TEST, [tmp_path / "a", tmp_path / "b"]).add(POINTS[0])
    folders = [str(tmp_path / name) for name in "ab"]
    assert Decoding.read(tmp_path).model_folders == Decoding.start(tmp_path, TEST).model_folders == folders
    assert Decoding.start(tmp_path, TEST, [tmp_path / "c"]).model_folders == [str(tmp_path / "c")]


# --- what does not belong together -------------------------------------------------------------------------------


def test_hypotheses_of_another_model_or_test_set_are_stale(tmp_path):
    evaluated(tmp_path, POINTS)
    with pytest.raises(ValueError, match=r"grid 0\.5 .* are stale: the model has changed"):
        Decoding.read(tmp_path).add(unlike(POINTS[0], model="m2", digest="other"))
    with pytest.raises(ValueError, match=r"are stale: the settings have changed"):
        Decoding.read(tmp_path).add(unlike(POINTS[0], digest="other"))
    other = TestSet("one sentence", TEST.sources[:1], TEST.references[:1], "zh", "en")
    with pytest.raises(ValueError, match=r"another test set \(six sentences, 6 .* than one sentence \(1 "):
        Decoding.start(tmp_path, other)


def test_a_line_of_another_point_is_stale(tmp_path):
    evaluated(tmp_path, POINTS)
    lines = hypotheses(tmp_path).splitlines(keepends=True)
    stray = json.dumps(json.loads(lines[0]) | {"point": "of another model"}) + "\n"
    (tmp_path / "hypotheses.jsonl").write_text("".join([stray, *lines[1:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"hypotheses\.jsonl:1 is stale"):
        Decoding.read(tmp_path)


def test_duplicate_and_unknown_ids_and_damaged_lines_are_named_by_their_place(tmp_path):
    evaluated(tmp_path, POINTS)
    whole = hypotheses(tmp_path)
    lines = whole.splitlines(keepends=True)
    for bad, message in (
        (lines[0], r":13: id 0 is there twice for grid 0\.5"),
        (json.dumps(json.loads(lines[0]) | {"id": 6}) + "\n", ":13: id 6 is none of the 6 sentences"),
        ("{}\n", ":13 is damaged"),
        ("not json\n", ":13 is damaged"),
        ("\0" * 9 + "\n", ":13 is damaged"),
        ('"\udcff"\n', ":13 is damaged"),
    ):
        (tmp_path / "hypotheses.jsonl").write_bytes((whole + bad).encode("utf-8", "surrogateescape"))
        with pytest.raises(ValueError, match=message):
            Decoding.read(tmp_path)


def test_an_edited_reference_is_noticed(tmp_path):
    evaluated(tmp_path, POINTS)
    (tmp_path / "hypotheses.jsonl").write_text(hypotheses(tmp_path).replace("a cat", "a dog"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"not those of the test set it was decoded from \(six sentences\)"):
        Decoding.read(tmp_path).check_complete()


def test_a_folder_without_evaluation_or_with_a_damaged_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no evaluation: it has no decoding\.json"):
        Decoding.read(tmp_path)
    (tmp_path / "decoding.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        Decoding.read(tmp_path)


def manifest_of(system, **further):
    part = {"grid": {"softmax": "joint"}} if system == "grid" else {"prefix": {"k": further.pop("k"), "anchor": 0}}
    return {"system": system, "files": {}, "digests": {}, "backbone": None, "training": {"seed": 3}, **part, **further}


@pytest.mark.parametrize(
    ("system", "info", "name", "options"),
    [
        ("grid", manifest_of("grid", name="paper"), "paper", {"trained as": "grid"}),
        ("grid", manifest_of("grid", quantize="int8"), "run", {"trained as": "grid", "quantize": "int8"}),
        ("waitk", manifest_of("waitk", k=3), "run", {"trained as": "waitk", "trained k": 3}),
        ("waitk", manifest_of("waitk", k="multi"), "run", {"trained as": "waitk", "trained k": "multi"}),
        ("waitk", manifest_of("offline", k=None, name="all"), "all", {"trained as": "offline"}),
    ],
)
def test_a_point_has_the_name_of_its_model_or_of_an_older_one_that_of_its_run(tmp_path, system, info, name, options):
    model = SimpleNamespace(system=info["system"], anchor=0, k=info.get("prefix", {}).get("k"))
    loaded = SimpleNamespace(info=info, model=model, rule=EmitRule())
    for folder in (tmp_path / "run" / "model", tmp_path / "run"):
        found = point_of(TEST, loaded, folder, system, 1, max_target_tokens=TARGET_TOKENS, adaptive=None)
        assert (found.name, found.seed, found.options) == (name, 3, options)


def test_a_base_outside_of_the_model_folder_is_known_by_its_weights_not_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "base").mkdir()
    weights = tmp_path / "base" / "model.safetensors"
    local = {"system": "grid", "grid": {}, "files": {}, "backbone": str(tmp_path / "base")}
    found = []
    for content in (b"first", b"again", b"first"):
        weights.write_bytes(content)
        found.append(model_digest(tmp_path, local))
    assert found[0] == found[2] != found[1]
    hub = local | {"backbone": "Qwen/Qwen2.5-0.5B"}
    for commit in ("abc", "def", None):
        cached = None if commit is None else f"cache/snapshots/{commit}/config.json"
        monkeypatch.setattr(
            "duplexmt.evaluation.decoding.try_to_load_from_cache", lambda name, file, cached=cached: cached
        )
        found.append(model_digest(tmp_path, hub))
    assert len(set(found)) == 5


def test_a_model_folder_trained_again_makes_its_hypotheses_stale(tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"first")
    info = {"system": "grid", "grid": {}, "files": {"weights": 5}}
    monkeypatch.setattr("duplexmt.evaluation.decoding.read_manifest", lambda folder: info)
    trained = model_digest(model, info)
    decoding = evaluated(tmp_path / "run", [point(folder=str(model), model=trained)])
    check_models(decoding)
    assert model_digest(model, info | {"operating_point": {"theta": 0.7}}) == trained, "a record changes no model"
    (model / "weights").write_bytes(b"again")
    with pytest.raises(ValueError, match="holds another model by now; decode again"):
        check_models(decoding)
    (model / "weights").unlink()
    model.rmdir()
    check_models(decoding)  # gone: nothing to compare with
