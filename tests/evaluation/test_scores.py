"""Scores of records, worked by hand; names, order and comparisons of several systems."""

import numpy as np
import pytest

from duplexmt.evaluation.results import latency_rows, result_rows, score
from duplexmt.evaluation.scores import Scores, in_order, name_points
from duplexmt.evaluation.translation import translate_pairs

from ..helpers import as_pairs, tiny_tokenizer
from ..scripted import PAIRS, Scripted, point, records


def scored(found, source="zh", target="en", **options):
    return score(found, source, target, **{"source_rate": 4.0} | options)


def test_resamples_of_yaal_and_swf_are_those_of_the_sentences_they_hold():
    found = [scored(records(), resamples=200).samples, scored(records()[:1] * 3, resamples=200).samples]
    for unit in ("", " c/w"):
        for name in ("AL", "YAAL", "SWF"):
            row = scored(records()[:1] * 3).row
            assert found[1][name + unit] == pytest.approx(np.full(200, row[name + unit])), "all sentences are alike"
        known = found[0][f"SWF{unit}"]
        # The second sentence is empty: a resample has the share of the first, or nothing.
        assert set(known[~np.isnan(known)].round(6)) == {50.0 if unit else 40.0}
        assert np.isnan(known).any()


# --- one system --------------------------------------------------------------------------------------------------


def test_scores_of_two_records_worked_by_hand():
    found = scored(records(), source_rate=0.5)
    row, notes = found.row, found.notes
    # Latency is that of the first sentence: the empty one has none. S = 4 tokens, R = n = 5.
    # AL: cut off at the third token, the first with delay 4: (1 - 0 + 1 - 0.8 + 4 - 1.6) / 3
    assert row["AL"] == row["LAAL"] == pytest.approx(3.6 / 3)
    # AL_all: (1 + 1 + 4 + 4 + 4 - 0.8 · (0 + 1 + 2 + 3 + 4)) / 5
    assert row["AL_all"] == pytest.approx(6 / 5)
    assert row["AP"] == pytest.approx(14 / 20)
    assert row["FRL"] == 1
    # Two of five tokens before the fourth of four was read: lags 1 and 1 - 0.8. The empty sentence has neither.
    assert row["YAAL"] == pytest.approx((1 + 1 - 0.8) / 2)
    assert (row["YAAL %"], row["SWF"]) == (50, pytest.approx(40))
    # Half a character a second is one token a second: 1 + 0.5, 1 + 1, 4 + 1.5 less 0, 0.8, 1.6.
    assert row["AL_CA"] == pytest.approx((1.5 + 1.2 + 3.9) / 3)
    # 2 characters in, 2 words out: "a" is written after 人, "cat" after 人好. Delays 1, 2; S = R = 2.
    assert row["AL c/w"] == pytest.approx((1 + 2 - 1) / 2)
    assert row["AP c/w"] == pytest.approx(3 / 4)
    assert row["FRL c/w"] == row["YAAL c/w"] == 1
    assert (row["YAAL % c/w"], row["SWF c/w"]) == (50, 50)
    # With the computing time of their last tokens, 0.5 s and 2.5 s: 1.25 and 3.25, less 0 and 1.
    assert row["AL_CA c/w"] == pytest.approx((1.25 + 2.25) / 2)
    assert (row["tokens"], row["source"], row["seconds"]) == (2.5, 4.0, 1.25)  # means over both
    assert row["RTF"] == 2.5 / (6 / 0.5), "six characters of source at half a character a second"
    assert row["reference"] == (5 + 7) / 2
    assert (row["empty"], row["cut off"], row["sentences"]) == (1, 1, 2)
    assert row["calls"] == 2 * 10 / 5, "calls of the model for a token written"
    assert 0 < row["chrF"] < 100
    assert notes[0].startswith("BLEU nrefs:1|")
    assert "tok:13a" in notes[0]
    assert "source characters and target words" in notes[1]
    assert "0.5 characters a second" in notes[3]


def test_a_source_shorter_than_k_is_read_to_its_end_as_by_an_offline_system():
    system = Scripted(tiny_tokenizer(), [("a cat", [4] * 5, "end_token")])  # wait-5 on four tokens
    row = scored(translate_pairs(system, as_pairs(PAIRS[:1]), tiny_tokenizer())).row
    assert row["AL"] == row["LAAL"] == row["FRL"] == row["source"] == 4
    assert row["AP"] == 1


def test_units_follow_the_languages():
    system = Scripted(tiny_tokenizer(), [("人好", [1, 1, 1, 5], "end_token")])
    found = scored(translate_pairs(system, as_pairs([("a cat", "人好")]), tiny_tokenizer()), "en", "zh")
    # 2 words in, 2 characters out: 人 after the word "a", 好 complete after all 5 tokens.
    assert found.row["FRL c/w"] == 1
    assert found.row["AP c/w"] == pytest.approx((1 + 2) / 4)
    assert "tok:zh" in found.notes[0]
    assert "source words and target characters" in found.notes[1]


def test_where_every_hypothesis_is_empty_there_is_no_latency():
    system = Scripted(tiny_tokenizer(), [("", [], "end_token")] * 2)
    found = scored(translate_pairs(system, as_pairs(PAIRS), tiny_tokenizer()), resamples=100)
    assert found.row["BLEU"] == 0
    names = ("AL", "AL_all", "LAAL", "YAAL", "AP", "DAL", "ATD", "FRL", "AL_CA", "LAAL_CA", "YAAL_CA", "SWF")
    assert [found.row[name] for name in (*names, *(f"{name} c/w" for name in names))] == [None] * 24
    assert found.row["YAAL %"] == 0
    assert (found.row["empty"], found.row["cut off"]) == (2, 0)
    assert np.isnan(found.samples["AL"]).all()


def test_any_of_several_references_counts_for_quality_and_the_first_for_latency():
    found = records()
    for record in found:
        record["references"] = ["a dog", *record["references"]]
        record["reference_lengths"] = [4, *record["reference_lengths"]]
    row = scored(found).row
    assert row["chrF"] >= scored(records()).row["chrF"]
    assert row["AP"] == pytest.approx(14 / 16)


def test_scores_from_another_environment_become_columns_with_intervals():
    found = scored(records(), neural={"COMET": [80.0, 40.0]}, resamples=200)
    assert found.row["COMET"] == 60
    assert list(found.row)[:3] == ["COMET", "BLEU", "chrF"]
    assert {40.0, 60.0, 80.0} == set(found.samples["COMET"])


def test_resampled_scores_are_those_of_the_resampled_corpus():
    found = scored(records() * 3, resamples=100)
    assert found.samples["BLEU"].mean() == pytest.approx(found.row["BLEU"], abs=5)
    assert len(found.samples["AL"]) == 100
    again = scored(records() * 3, resamples=100)
    for name in found.samples:
        np.testing.assert_array_equal(found.samples[name], again.samples[name], "seeded")


def test_one_sentence_has_no_interval():
    found = scored(records()[:1], resamples=100)
    assert found.samples == {}
    (row,) = result_rows([found])
    assert row["BLEU"] == found.row["BLEU"]
    assert "BLEU ±" not in row


# --- names and order ---------------------------------------------------------------------------------------------


def test_points_are_named_by_system_and_knob():
    points = [
        point("grid", 0.5), point("grid", 0.75), point("waitk", 3), point("local_agreement", 2), point("offline", None)
    ]  # fmt: skip
    assert name_points(points) == [
        ("grid", "θ=0.5"), ("grid", "θ=0.75"), ("wait-k", "k=3"), ("local agreement", "n=2"), ("offline", "—")
    ]  # fmt: skip


def test_models_of_one_system_are_told_apart_by_how_they_are_run():
    points = [point(**{"certainty": 0.5, "k_min": 3}), point(folder="b", **{"k_min": 3})]
    assert name_points(points) == [("grid certainty 0.5", "θ=0.5"), ("grid", "θ=0.5")]
    cut_off = [point(max_target_tokens=3), point()]
    assert name_points(cut_off) == [("grid max_target_tokens 3", "θ=0.5"), ("grid", "θ=0.5")]


def test_models_are_told_apart_by_their_names_and_those_of_one_name_by_their_folders():
    points = [point(folder="/r/1/model", name="paper"), point(folder="/r/2/model", name="ours"), point("offline", None)]
    assert [name for name, _ in name_points(points)] == ["grid (paper)", "grid (ours)", "offline"]
    points.append(point(folder="/r/3/model", name="ours"))
    assert [name for name, _ in name_points(points)] == ["grid (paper)", "grid (2)", "offline", "grid (3)"]


def test_a_grid_that_decides_by_words_says_so_beside_one_that_does_not():
    assert [name for name, _ in name_points([point(), point(words=True)])] == ["grid", "grid by words"]
    assert [name for name, _ in name_points([point(words=True)])] == ["grid"]


def test_models_without_names_are_told_apart_by_their_runs():
    points = [point(folder="/runs/first/model"), point(folder="/runs/second/model"), point(folder="/runs/b", setting=1)]
    assert name_points(points) == [("grid (first)", "θ=0.5"), ("grid (second)", "θ=0.5"), ("grid (b)", "θ=1")]
    # At other settings, too: a curve is one model's. Of wait-k each k is a model.
    assert name_points(points[1:]) == [("grid (second)", "θ=0.5"), ("grid (b)", "θ=1")]
    waits = [point("waitk", k, folder=f"/runs/{name}/model") for k, name in ((1, "a"), (3, "b"), (3, "c"))]
    assert name_points(waits) == [("wait-k", "k=1"), ("wait-k (b)", "k=3"), ("wait-k (c)", "k=3")]
    every = {"trained k": "multi"}
    multi = [point("waitk", k, folder=f"/runs/{name}/model", **every) for k, name in ((1, "d"), (3, "d"), (3, "e"))]
    assert name_points([waits[0], *multi[:2]]) == [
        ("wait-k", "k=1"), ("multi-path wait-k", "k=1"), ("multi-path wait-k", "k=3")
    ]  # fmt: skip
    assert name_points([multi[0], multi[2]]) == [("multi-path wait-k (d)", "k=1"), ("multi-path wait-k (e)", "k=3")]
    alike = [point(folder=f"/{name}/grid/model") for name in ("x/first", "x/second", "y/first")]
    names = ["grid (x/first/grid)", "grid (second/grid)", "grid (y/first/grid)"]
    assert [name for name, _ in name_points(alike)] == names


def entry(system, setting, bleu, al, scatter=0.5, **columns):
    """Scores of a made-up point."""
    draw = np.random.default_rng(int(10 * al)).normal(size=(2, 1000))
    row = {"BLEU": bleu, "chrF": bleu + 10, "AL": al, "AL_all": al - 1, "AP": 0.5, "FRL": al} | columns
    counts = dict.fromkeys(("tokens", "reference", "source", "empty", "cut off", "calls", "sentences"), 5)
    samples = {"BLEU": bleu + scatter * draw[0], "AL": al + 0.1 * draw[1]}
    (name, shown), *_ = name_points([point(system, setting)])
    return Scores(name, shown, row | counts, samples, [], point(system, setting))


SYSTEMS = [
    entry("grid", 0.9, 24, 4), entry("grid", 0.5, 20, 2), entry("offline", None, 26, 10), entry("waitk", 3, 18, 3)
]  # fmt: skip


def test_rows_stand_in_the_order_of_the_papers_table():
    assert [(e.system, e.setting) for e in in_order(SYSTEMS)] == [
        ("offline", "—"), ("wait-k", "k=3"), ("grid", "θ=0.5"), ("grid", "θ=0.9")
    ]  # fmt: skip


def test_the_main_table_gives_half_the_interval_beside_each_quality():
    row = result_rows(SYSTEMS)[0]
    assert list(row)[:7] == ["system", "setting", "BLEU", "BLEU ±", "chrF", "AL", "AL_all"]
    assert "AR" not in row, "no aligner was asked"
    assert row["BLEU ±"] == pytest.approx(1.96 * 0.5, rel=0.1)


def test_a_metric_that_only_some_systems_have_is_a_dash_for_the_others():
    rows = result_rows([entry("grid", 0.5, 20, 2), entry("offline", None, 26, 10, COMET=70.0)])
    assert [row["COMET"] for row in rows] == [None, 70.0]
    assert list(rows[0]) == list(rows[1])


def test_the_latency_table_has_every_metric_in_both_units():
    found = scored(records())
    (row,) = latency_rows([found])
    assert len(row) == 2 + 2 * 13 + 2
