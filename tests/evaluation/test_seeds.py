"""Several trainings as one system: means, spread, and intervals that know that trainings differ."""

import json
from dataclasses import replace

import numpy as np
import pytest

from duplexmt.evaluation.comparing import comparisons
from duplexmt.evaluation.results import write_results
from duplexmt.evaluation.scores import Scores
from duplexmt.evaluation.seeds import mean_over_seeds
from duplexmt.metrics.bootstrap import interval, resample_weights

from ..scripted import evaluated, point
from .test_results import OPTIONS, rows_of

B, N = 2000, 400


def scores(system, setting, seed, quality, latency=3.0, noise=1.0, name=None, **options):
    """An entry whose corpus score is the mean of sentences around `quality`."""
    folder = f"runs/{system}{setting}-{seed}/model" if system == "waitk" else f"runs/{system}-{seed}/model"
    sentences = np.random.default_rng(seed).normal(quality, noise, N)
    sentences += quality - sentences.mean()
    weights = resample_weights(N, B)
    row = {"BLEU": quality, "AL": latency, "FRL": None, "cut off": 2 * seed, "sentences": N}
    samples = {"BLEU": weights @ sentences / N, "AL": np.full(B, latency)}
    entry = point(system, setting, folder, folder, name=name or system, **options)
    return Scores(system, "", row, samples, point=entry)


def test_one_entry_for_models_of_one_name():
    found = mean_over_seeds([
        scores("grid", 0.5, 1, 10.0, 1.0), scores("grid", 0.9, 1, 20.0, 3.0),
        scores("grid", 0.5, 2, 13.0, 2.0), scores("grid", 0.9, 2, 21.0, 4.0),
        scores("grid", 0.5, 1, 50.0, name="mine"), scores("waitk", 3, 1, 12.0), scores("waitk", 3, 2, 12.0),
    ])  # fmt: skip
    assert [(entry.point.system, entry.point.setting, len(entry.models)) for entry in found] == [
        ("grid", 0.5, 2), ("grid", 0.9, 2), ("grid", 0.5, 1), ("waitk", 3, 2)
    ]  # fmt: skip
    assert [entry.row["BLEU"] for entry in found] == [11.5, 20.5, 50.0, 12.0]
    assert found[0].spread == pytest.approx({"BLEU": 3 / 2**0.5, "AL": 0.5**0.5})
    assert (found[2].spread, found[3].spread) == ({}, {"BLEU": 0.0, "AL": 0.0})
    assert found[0].row == {"BLEU": 11.5, "AL": 1.5, "FRL": None, "cut off": 3.0, "sentences": N}
    assert found[0].models == ["runs/grid-1/model", "runs/grid-2/model"]


def test_the_interval_is_that_of_sentences_and_trainings():
    """Against drawing both by hand: the variances add up."""
    values = [10.0, 11.0, 14.0]
    (mean,) = mean_over_seeds([scores("offline", None, seed, value) for seed, value in enumerate(values)])
    low, high = interval(mean.samples["BLEU"])
    of_trainings = np.std(values) / len(values) ** 0.5  # of the mean of three drawn with replacement
    of_sentences = 1.0 / N**0.5
    assert mean.samples["BLEU"].std() == pytest.approx((of_trainings**2 + of_sentences**2) ** 0.5, rel=0.05)
    assert low < 10.7 < 35 / 3 < 12.9 < high
    # Trainings that agree leave the sentences' interval.
    (same,) = mean_over_seeds([scores("offline", None, 1, 10.0), _again(scores("offline", None, 1, 10.0))])
    assert np.array_equal(same.samples["BLEU"], scores("offline", None, 1, 10.0).samples["BLEU"])


def _again(entry):
    return replace(entry, point=replace(entry.point, model="another", model_folder="runs/another/model"))


def test_a_system_draws_the_same_trainings_at_all_its_settings_and_others_their_own():
    found = mean_over_seeds([
        scores(system, setting, seed, value, noise=1e-9)
        for system, setting in (("grid", 0.5), ("grid", 0.9), ("waitk", 3))
        for seed, value in (((1, 0.0), (2, 1.0), (3, 5.0)) if setting != 0.9 else ((3, 5.0), (1, 0.0), (2, 1.0)))
    ])  # fmt: skip
    fast, slow, wait = (entry.samples["BLEU"].round(3) for entry in found)
    assert np.array_equal(fast, slow)
    assert np.corrcoef(fast, wait)[0, 1] < 0.1
    assert {round(float(value), 3) for value in fast} == {
        round((a + b + c) / 3, 3) for a in (0, 1, 5) for b in (0, 1, 5) for c in (0, 1, 5)
    }  # fmt: skip


def test_a_difference_no_larger_than_trainings_differ_is_not_beyond_the_interval():
    def compared(grids, waits):
        entries = [scores("grid", theta, 10 + s, q + theta, theta * 10) for theta in (0.2, 0.4) for s, q in grids]
        entries += [scores("waitk", 3, 20 + s, q) for s, q in waits]
        found = mean_over_seeds(entries)
        for entry in found:
            entry.system, entry.setting = entry.point.system, str(entry.point.setting)
        (row,) = comparisons(found)
        return row

    apart = compared([(1, 11.0), (2, 11.1), (3, 11.2)], [(1, 10.0), (2, 10.1), (3, 10.2)])
    assert apart["difference"] == pytest.approx(1.3)
    assert apart["low"] > 0.9
    mixed = compared([(1, 10.0), (2, 13.2), (3, 10.1)], [(1, 10.0), (2, 10.1), (3, 10.2)])
    assert mixed["difference"] == pytest.approx(1.3)
    assert mixed["low"] < 0.4


def test_a_training_without_a_latency_counts_where_it_is_drawn_with_another_only_by_that_one():
    silent = scores("grid", 0.5, 2, 14.0, np.nan)
    silent.row["AL"] = None
    (mean,) = mean_over_seeds([scores("grid", 0.5, 1, 10.0), silent])
    assert mean.row["AL"] == 3.0
    alone = np.isnan(mean.samples["AL"])
    assert alone.mean() == pytest.approx(1 / 4, abs=0.03)
    assert (mean.samples["AL"][~alone] == 3.0).all()
    assert not np.isnan(mean.samples["BLEU"]).any()
    assert mean.samples["BLEU"][alone].mean() == pytest.approx(14, abs=0.1)


def test_wait_k_models_trained_with_different_k_are_not_trainings_of_one_system():
    crossed = [scores("waitk", k, k + trained, 10.0, **{"trained k": trained}) for k in (1, 3) for trained in (1, 3)]
    assert [len(entry.models) for entry in mean_over_seeds(crossed)] == [1, 1, 1, 1]


def test_a_setting_written_as_a_fraction_is_that_whole_number():
    entries = [
        scores("lsg", delta, seed, 10.0) for seed, deltas in ((1, (0.5, 1)), (2, (0.5, 1.0))) for delta in deltas
    ]
    assert [(entry.point.setting, len(entry.models)) for entry in mean_over_seeds(entries)] == [(0.5, 2), (1, 2)]


def test_models_of_other_names_are_not_trainings_of_one_system():
    """Three seeds of two sizes of the training set: two systems, not one."""
    entries = [scores("grid", 0.5, seed, 10.0 + seed) for seed in range(6)]
    for number, entry in enumerate(entries):
        entry.point = replace(entry.point, name="few" if number < 3 else "many", seed=number % 3)
    found = mean_over_seeds(entries)
    assert [(entry.row["BLEU"], len(entry.models)) for entry in found] == [(11.0, 3), (14.0, 3)]


def test_models_there_twice_or_at_some_settings_only_are_refused():
    with pytest.raises(ValueError, match=r"one model is there twice \(runs/grid-1/model, runs/grid-1/model\)"):
        mean_over_seeds([scores("grid", 0.5, 1, 10.0), scores("grid", 0.5, 1, 10.0)])
    some = [scores("grid", 0.5, 1, 10.0), scores("grid", 0.5, 2, 10.0), scores("grid", 0.9, 1, 10.0)]
    with pytest.raises(ValueError, match=r"grid at 0.5 and grid at 0.9 .*different models \(2 and 1 of them\)"):
        mean_over_seeds(some)
    waits = [scores("waitk", 1, 1, 10.0), scores("waitk", 3, 2, 10.0)]
    assert len(mean_over_seeds(waits)) == 2, "each k has models of its own"
    every = {"trained k": "multi"}
    multi = [scores("waitk", 1, 1, 10.0, **every), scores("waitk", 3, 2, 10.0, **every)]
    with pytest.raises(ValueError, match=r"waitk at 1 and waitk at 3 .*different models \(1 and 1 of them\)"):
        mean_over_seeds(multi)


def test_an_evaluation_shows_trainings_as_one_system(tmp_path):
    """Two grids of one kind, one offline system; the second training was evaluated apart."""
    first = [point("grid", theta, "runs/grid-1/model", "m1", name="paper") for theta in (0.5, 0.9)]
    evaluated(tmp_path / "a", [*first, point("offline", None, "runs/offline/model", "m3")])
    evaluated(tmp_path / "b", [point("grid", theta, "runs/grid-2/model", "m2", name="paper") for theta in (0.5, 0.9)])
    folders = [tmp_path / "a", tmp_path / "b"]
    apart, _, _ = write_results(folders, tmp_path / "apart", **OPTIONS)
    assert [entry.system for entry in apart] == ["offline", *["grid (grid-1)"] * 2, *["grid (grid-2)"] * 2]
    _, shown, troubles = write_results(folders, tmp_path / "mean", **OPTIONS, claims=True, over_seeds=True)
    assert troubles == []
    rows = rows_of(tmp_path / "mean")
    assert [(row["system"], row["setting"], row["trainings"]) for row in rows] == [
        ("offline", "—", 1), ("grid", "θ=0.5", 2), ("grid", "θ=0.9", 2)
    ]  # fmt: skip
    assert (rows[0]["BLEU sd"], rows[1]["BLEU sd"]) == (None, 0.0)  # scripted systems translate alike
    assert rows[1]["BLEU"] == apart[1].row["BLEU"]
    text = (tmp_path / "mean" / "results.md").read_text(encoding="utf-8")
    assert "grid: runs/grid-1/model, runs/grid-2/model" in text
    assert "resamples of the sentences and of the trainings" in text
    found = json.loads((tmp_path / "mean" / "comparisons.json").read_text(encoding="utf-8"))["rows"]
    assert {row["system"] for row in found} == {"grid"}
    assert "Claims of Section VI-B" in shown


def test_what_has_a_training_of_nothing_but_empty_hypotheses_is_shown_and_not_compared(tmp_path):
    holds = [point("hold", 0.9, f"runs/offline-{model}/model", model, name="offline") for model in ("m1", "m2")]
    evaluated(tmp_path, [*holds, point("grid", 0.1, "runs/grid/model", "m3")])  # faster
    nothing = {"text": "", "tokens": [], "token_ends": [], "delays": [], "emit_probabilities": [], "elapsed": []}
    lines = []
    for line in map(json.loads, (tmp_path / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()):
        lines.append(json.dumps(line | (nothing if line["point"] == holds[1].digest else {})) + "\n")
    (tmp_path / "hypotheses.jsonl").write_text("".join(lines), encoding="utf-8")
    write_results([tmp_path], tmp_path, **OPTIONS, over_seeds=True)
    assert [(row["system"], row["trainings"]) for row in rows_of(tmp_path)] == [("hold-n", 2), ("grid", 1)]
    assert not (tmp_path / "comparisons.json").exists()


def test_a_table_over_seeds_shows_the_names_of_systems(tmp_path):
    entries = [
        point("grid", theta, f"runs/{size}-{seed}/model", f"m{size}{seed}", name=f"on {size}", seed=seed)
        for theta in (0.5, 0.9)
        for size in (25000, 100000)
        for seed in (1, 2)
    ]
    evaluated(tmp_path, entries)
    write_results([tmp_path], tmp_path, **OPTIONS, over_seeds=True)
    assert [(row["system"], row["setting"], row["trainings"]) for row in rows_of(tmp_path)] == [
        (f"grid (on {size})", f"θ={theta}", 2) for size in (100000, 25000) for theta in (0.5, 0.9)
    ]  # fmt: skip


@pytest.mark.parametrize(("seeds", "told"), [((1, 1), True), ((1, 2, 1), True), ((1, 2), False), ((None, None), False)])
def test_two_models_of_one_name_and_seed_differ_in_more_and_are_refused(seeds, told):
    entries = [scores("grid", 0.5, number, 10.0) for number in range(len(seeds))]
    for entry, seed in zip(entries, seeds, strict=True):
        entry.point = replace(entry.point, seed=seed)
    if told:
        with pytest.raises(ValueError, match=r"both named grid and have training\.seed=1, .* train\.py name=…"):
            mean_over_seeds(entries)
    else:
        assert [len(entry.models) for entry in mean_over_seeds(entries)] == [len(seeds)]
