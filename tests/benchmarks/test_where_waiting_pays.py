"""How benchmarks/where_waiting_pays.py parts sentences, and that each part is scored as an evaluation of its own."""

import json
import sys

import numpy as np
import pytest

from benchmarks import where_waiting_pays
from benchmarks.where_waiting_pays import crossing, main, thirds
from duplexmt.evaluation.scores import Scores

from ..scripted import evaluated, point


def test_thirds_have_as_many_sentences_as_can_be_and_lose_none():
    assert thirds([5, 1, 3, 3, 9, 2, 4]) == {"low": [1, 5], "middle": [2, 3, 6], "high": [0, 4]}
    assert sorted(i for part in thirds([1.0] * 8).values() for i in part) == list(range(8))


@pytest.mark.parametrize(
    ("partners", "share"), [([1, 2, 3], 0), ([3, 2, 1], 1), ([2, 0, 1, 3], 1 / 3), ([0, 4], 0), ([], 0), ([2, 2], 0)]
)
def test_word_order_differs_by_the_pairs_that_stand_the_other_way_round(partners, share):
    assert crossing(partners) == pytest.approx(share)


def test_each_part_is_scored_for_each_system_and_setting(tmp_path, monkeypatch, capsys):
    evaluated(tmp_path, [point("grid", 0.5), point("grid", 0.9), point("offline", None, folder="none/offline/model")])
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("cat\t猫\n", encoding="utf-8")
    asked = []
    monkeypatch.setattr(where_waiting_pays, "data_of_models", lambda points: [{"source_field": 1, "target_field": 0}])

    def aligned(learnt, pairs, environment):
        learnt = list(learnt)
        asked.append((len(learnt), len(pairs)))
        assert learnt[-1] == (["猫"], ["cat"]), "columns are those of training"
        return [[number, 1] for number in range(1, len(pairs) + 1)], "a stand-in"

    monkeypatch.setattr(where_waiting_pays, "word_alignments", aligned)
    monkeypatch.setattr(sys, "argv", ["it", str(tmp_path), "--learn", str(pairs), "--resamples", "50"])
    main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert asked == [(7, 6)], "it learns from the references, too"
    assert {(row["by"], row["third"]) for row in found["rows"]} == {
        (by, third) for by in ("length", "crossing") for third in ("low", "middle", "high")
    }
    assert len(found["rows"]) == 6 * 3
    assert {row["system"] for row in found["rows"]} == {"grid", "offline"}


def test_systems_of_other_tokens_are_not_compared_and_a_third_of_empty_hypotheses_has_no_al(
    tmp_path, monkeypatch, capsys
):
    def scored(records, *languages, point, **how):
        al = 3.0 if point.system == "offline" else None if point.setting == 0.5 else 2.0
        samples = {name: np.full(50, value) for name, value in {"BLEU": 20.0, "AL": al}.items() if value is not None}
        source = 8.0 if point.system == "offline" else 4.0
        row = {"BLEU": 20.0, "chrF": 30.0, "AL": al, "source": source}
        return Scores("", "", row, samples, point=point)

    evaluated(tmp_path, [point("grid", 0.5), point("grid", 0.9), point("offline", None, folder="none/offline/model")])
    monkeypatch.setattr(where_waiting_pays, "score", scored)
    monkeypatch.setattr(sys, "argv", ["it", str(tmp_path)])
    main()
    shown = capsys.readouterr().out.splitlines()
    assert ["grid", "θ=0.5", "20.00", "30.00", "—"] in map(str.split, shown)
    assert json.loads(shown[-1])["comparisons"] == [], "4 tokens of the one are 8 of the other"


def test_what_is_no_evaluation_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["it", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert str(tmp_path) in capsys.readouterr().err
