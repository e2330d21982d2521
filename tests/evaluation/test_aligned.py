"""Anticipation and hallucination of records, and in the results of an evaluation."""

import json

import pytest

import evaluate
from duplexmt.evaluation.aligned import aligned_rates, learnt_pairs, words_of
from duplexmt.evaluation.results import write_results

from ..helpers import needs_metrics_environment
from ..scripted import SENTENCES, evaluated, point, records
from ..test_config import checked
from .test_results import OPTIONS, POINTS, rows_of


def test_nothing_is_aligned_unless_asked_for():
    assert aligned_rates({"a": records()}, "zh", "en", None, "no/such") == ({"a": {}}, [], [])


def test_words_are_aligned_with_characters_and_their_delays_are_those_of_their_last_tokens(monkeypatch):
    asked = {}

    def aligner(learnt, pairs, environment):
        asked.update(learnt=list(learnt), pairs=list(pairs), environment=environment)
        return [[1, 2], [], [0, 2], [0, 0]], "stand-in"

    monkeypatch.setattr("duplexmt.evaluation.aligned.word_alignments", aligner)
    found, (note,), troubles = aligned_rates({"p": records()}, "zh", "en", "references", "environment")
    # "a" is written after 人, "cat" after 人好: neither is early. The second hypothesis is empty.
    assert found == {"p": {"AR": 0, "HR": 0}}
    assert asked["learnt"] == [(["人", "好"], ["a", "cat"]), (["我", "们", "是", "人"], ["the", "man"])]
    assert asked["pairs"] == [(["人", "好"], ["a", "cat"]), (["我", "们", "是", "人"], []), *asked["learnt"]]
    assert asked["environment"] == "environment"
    assert "stand-in, learnt from 2 pairs; of the references 75.0 % belong to none" in note
    assert troubles == []
    monkeypatch.setattr("duplexmt.evaluation.aligned.word_alignments", lambda *_: ([[2, 0], [], [0], [0]], "stand-in"))
    assert aligned_rates({"p": records()}, "zh", "en", "references", "")[0] == {"p": {"AR": 50, "HR": 50}}


def test_each_word_stays_one_in_lower_case_so_that_each_has_a_delay():
    pair = words_of("İ好", "İstanbul İs great", ("zh", "en"))
    assert list(map(len, pair)) == [2, 3], "as many as there are delays of the text as it is written"
    assert pair == (["i̇", "好"], ["i̇stanbul", "i̇s", "great"])


def test_a_word_with_vowel_signs_is_one_and_thai_is_aligned_by_characters():
    pair = words_of("वह किताब खरीदता है।", "ฉัน ซื้อ", ("hi", "th-TH"))
    assert pair == (["वह", "किताब", "खरीदता", "है", "।"], list("ฉันซื้อ"))


def test_the_aligner_reads_a_file_as_the_models_training_did(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("I am a man\t我 好|||我 們是人\nI am well\t我好\n", encoding="utf-8")
    data = {"corpus": "pairs_folder", "cleaning": "strict", "source_language": "zh", "target_language": "en"}
    trained_on = [data | {"source_field": 1, "target_field": 0}, {"context_tokens": 4, "context_separator": "|||"}]
    assert learnt_pairs(str(file), ("zh", "en"), trained_on) == [
        ("我们是人", "I am a man", "我好"), ("我好", "I am well", "")
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"2 of the first 2 source texts are not in the script of zh .* laid out so"):
        learnt_pairs(str(file), ("zh", "en"), [])


def test_the_layout_of_a_file_to_learn_from_is_that_which_model_folders_record(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("duplexmt.evaluation.results.check_models", lambda evaluation: None)
    monkeypatch.setattr("duplexmt.evaluation.decoding.read_manifest", lambda folder: {"data": {"source_field": 1}})
    monkeypatch.setattr(
        "duplexmt.evaluation.results.aligned_rates",
        lambda records, *how: asked.append(how[-1]) or ({key: {} for key in records}, [], []),
    )
    (tmp_path / "model").mkdir()
    evaluated(tmp_path / "run", [point("grid", 0.5, folder=str(tmp_path / "model")), point("offline", None)])
    write_results([tmp_path / "run"], tmp_path / "run", **OPTIONS, alignment="pairs.tsv")
    assert asked == [[{"source_field": 1}]], "the folder of the other is gone"


@needs_metrics_environment
def test_anticipation_and_hallucination_become_columns_of_the_results(tmp_path):
    learn = tmp_path / "pairs.tsv"
    learn.write_text("".join(f"{source}\t{target}\n" for source, target in SENTENCES * 3), encoding="utf-8")
    evaluated(tmp_path / "run", [*POINTS, point("waitk", 1.0, folder="none/wait/model")])
    _, shown, troubles = write_results(
        [tmp_path / "run"], tmp_path / "run", **OPTIONS | {"environment": ".venv-metrics"}, alignment=str(learn)
    )
    assert troubles == []
    rows = rows_of(tmp_path / "run")
    assert rows[0]["system"] == "offline"
    assert rows[0]["AR"] == 0, "it reads all before it writes"
    assert all(0 <= row["AR"] <= 100 and 0 <= row["HR"] <= 100 for row in rows)
    assert "learnt from 24 pairs" in shown
    assert {"AR", "HR"} <= set(shown.splitlines()[1].split())


def test_without_an_aligner_all_else_is_written_and_the_trouble_is_told(tmp_path):
    evaluated(tmp_path, POINTS)
    _, _, (trouble,) = write_results([tmp_path], tmp_path, **OPTIONS, alignment="references")
    assert trouble.startswith("quality.alignment=references: the aligner needs the metrics environment")
    assert "AR" not in rows_of(tmp_path)[0]
    assert "AR, HR: not aligned" in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["footnotes"]


def test_pairs_that_are_not_there_are_refused_before_anything_is_decoded(tmp_path):
    cfg = checked("evaluate", "quality.alignment=no/such.tsv", "model_folder=no/such/model")
    with pytest.raises(ValueError, match=r"quality\.alignment=no/such\.tsv: there is no such file; give pairs"):
        evaluate.decoded(cfg, [], tmp_path)
    assert not list(tmp_path.iterdir())
