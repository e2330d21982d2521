"""Systems against each other: at equal latency, and as curves."""

from dataclasses import replace

import numpy as np
import pytest

from duplexmt.evaluation.comparing import by_latencies, comparisons, curve_means, curves, verdicts

from .test_scores import SYSTEMS, entry

# --- at equal latency --------------------------------------------------------------------------------------------


def test_systems_are_compared_where_their_latency_is_equal():
    rows = {row["against"]: row for row in comparisons(SYSTEMS) if row["system"] == "grid"}
    wait = rows["wait-k k=3"]
    # At AL 3 the grid is half way between 20 and 24.
    assert (wait["AL"], wait["metric"], wait["score"], wait["other"]) == (3, "BLEU", pytest.approx(22), 18)
    assert wait["difference"] == pytest.approx(4)
    assert wait["low"] < 4 < wait["high"]
    assert wait["p"] == "0.002", "no difference of the other sign in 1,000 resamples"
    # Offline is slower than the grid at its slowest: the grid's last point stands for it.
    assert rows["offline"]["difference"] == pytest.approx(-2)
    assert (wait["beyond"], rows["offline"]["beyond"]) == ("", "yes")


def test_a_setting_whose_sentences_with_a_latency_are_none_or_few_is_left_out_of_a_comparison():
    silent, nearly = entry("grid", 0.99, 0, 1, AL=None), entry("grid", 0.98, 0, 1)
    silent.samples["AL"], nearly.samples["AL"][0] = np.full(1000, np.nan), np.nan
    assert comparisons([*SYSTEMS, silent, nearly]) == comparisons(SYSTEMS) != []
    late, wait = three("grid", 0.99, 25, 6, 8, 1), three("waitk", 3, 20, 3, 4, 60)
    late.samples["YAAL"][0] = np.nan
    assert [row["latency"] for row in by_latencies([*GRID, late, wait])] == ["AL", "YAAL", "SWF"]


def test_a_system_faster_than_the_other_at_its_fastest_is_not_compared():
    slow = [entry("grid", 0.5, 20, 5), entry("grid", 0.9, 24, 6), entry("waitk", 3, 18, 3)]
    assert comparisons(slow) == []
    near = entry("waitk", 3, 18, 5.25)
    assert (near.samples["AL"] < slow[0].samples["AL"]).any(), "in some resamples only"
    (row,) = comparisons([*slow[:2], near])
    assert row["low"] < row["difference"] == 3 < row["high"]


def test_curves_hold_values_and_intervals_and_leave_out_what_has_no_latency():
    found = curves([*SYSTEMS, entry("grid", 0.1, 0, 1, AL=None)])
    assert list(found) == ["grid", "offline", "wait-k"]
    assert [p["setting"] for p in found["grid"]] == ["θ=0.9", "θ=0.5"]
    value, (low, high) = found["grid"][0]["BLEU"]
    assert low < value == 24 < high
    assert found["grid"][0]["chrF"] == (34, None)


# --- by three latencies ------------------------------------------------------------------------------------------


def three(system, setting, bleu, al, yaal, swf):
    """A made-up point with all three latencies, in tokens and in words."""
    made = entry(system, setting, bleu, al, scatter=0.01)
    for name, value in {"YAAL": yaal, "SWF": swf}.items():
        made.row[name] = value
        made.samples[name] = (
            np.full(1000, np.nan) if value is None else value + 0.01 * made.samples["BLEU"] - 0.01 * bleu
        )
    made.row["YAAL %"] = 75
    for name in ("AL", "YAAL", "SWF"):
        made.row[f"{name} c/w"], made.samples[f"{name} c/w"] = made.row[name], made.samples[name]
    return made


GRID = [three("grid", 0.3, 20, 2, 3, 80), three("grid", 0.5, 22, 3, 4, 60), three("grid", 0.9, 24, 4, 6, 40)]


@pytest.mark.parametrize(
    ("other", "which"),
    [
        # The grid has 22 at AL 3, at YAAL 4, at SWF 60.
        (three("waitk", 3, 20, 3, 4, 60), ["ahead"] * 3),
        (three("waitk", 3, 23.5, 3, 4, 60), ["behind"] * 3),
        (three("waitk", 3, 21.5, 3, 3.5, 60), ["ahead", "behind", "ahead"]),
        # More words written before the source ends: of the grid the earlier, worse part is its equal.
        (three("waitk", 3, 21.5, 3, 4, 70), ["ahead", "ahead", "behind"]),
        (three("waitk", 3, 21, 3, None, 0), ["ahead", "ahead"]),  # as good as all read first: of no YAAL
        (three("waitk", 3, 21, 3, 4, 90), ["ahead", "ahead"]),  # which the grid never reaches
        (three("waitk", 9, 25, 5, 7, 30), ["open"] * 3),  # slower than the grid was measured
        (three("waitk", 9, 23, 5, 7, 30), ["ahead"] * 3),  # and not even better
    ],
)
def test_a_system_is_compared_at_equal_al_yaal_and_swf(other, which):
    for unit in ("", " c/w"):
        rows = [row for row in by_latencies([*GRID, other], unit) if row["metric"] == "BLEU"]
        names = [f"{name}{unit}" for name in ("AL", "YAAL", "SWF")]
        assert [row["latency"] for row in rows] == (names if len(which) == 3 else [names[0], rows[1]["latency"]])
        assert [row["which"] for row in rows] == which
        assert all(row["low"] <= row["difference"] <= row["high"] for row in rows)


def test_yaal_comes_with_its_coverage_and_swf_is_interpolated_from_the_later_to_the_earlier():
    rows = {row["latency"]: row for row in by_latencies([*GRID, three("waitk", 3, 20, 3.5, 5, 50)])}
    assert (rows["AL"]["% of sentences"], rows["YAAL"]["% of sentences"]) == (None, 75)
    assert [rows[name]["at"] for name in ("AL", "YAAL", "SWF")] == [3.5, 5, 50]
    assert [rows[name]["difference"] for name in ("AL", "YAAL", "SWF")] == pytest.approx([3, 3, 3])


def test_ahead_is_who_is_so_by_all_three_in_one_sentence():
    waits = [three("waitk", 1, 16, 2, 3, 80), three("waitk", 3, 21.5, 3, 3.5, 60), three("waitk", 9, 25, 4, 6, 40)]
    scores = [*GRID, *waits[:2]]
    (sentence,) = verdicts(scores, by_latencies(scores))
    assert sentence == (
        "grid against wait-k, BLEU at equal AL, YAAL, SWF: ahead by all three at k=1; neither ahead nor behind by all "
        "three at k=3"
    )
    (in_words,) = verdicts(scores, by_latencies(scores, " c/w"))
    assert in_words == sentence.replace("SWF:", "SWF c/w:")
    more = [*GRID[1:], *waits]  # now wait-k has the longer curve, and is asked at the grid's points
    (sentence,) = verdicts(more, by_latencies(more))
    assert sentence.startswith("grid against wait-k, BLEU at equal AL, YAAL, SWF: ")
    assert "behind by all three at θ=0.9" in sentence
    scores = [*GRID, three("waitk", 9, 25, 3.9, 7, 45)]  # better, but by YAAL slower than the grid was
    (sentence,) = verdicts(scores, by_latencies(scores))
    assert sentence == "grid against wait-k, BLEU at equal AL, YAAL, SWF: not to be compared by all three at k=9"
    scores = [*GRID, three("offline", None, 26, 10, None, 0)]
    (sentence,) = verdicts(scores, by_latencies(scores))
    assert sentence == "grid against offline, BLEU at equal AL, YAAL, SWF: not to be compared by all three"


def test_points_of_the_figure_have_the_latencies_there_are():
    (points,) = curves([three("waitk", 3, 21, 3, None, 0)]).values()
    assert {"AL", "SWF", "AL c/w", "SWF c/w", "BLEU", "chrF", "setting"} == points[0].keys()


# --- a number for a curve ----------------------------------------------------------------------------------------


def test_a_curve_s_number_is_its_mean_quality_over_the_latencies_that_all_curves_share():
    waits = [entry("waitk", 1, 16, 1), entry("waitk", 3, 18, 3), entry("waitk", 5, 21, 5)]
    grid, wait = (row for row in curve_means([*SYSTEMS[:3], *waits]) if row["metric"] == "BLEU")
    # The grid has 2..4, wait-k 1..5: over 2..4 the grid rises from 20 to 24, wait-k from 17 by 18 to 19.5.
    assert (grid["system"], grid["AL from"], grid["AL to"], grid["mean"]) == ("grid", 2, 4, pytest.approx(22))
    assert wait["mean"] == pytest.approx((17 + 18) / 2 * 0.5 + (18 + 19.5) / 2 * 0.5)
    assert (grid["against"], wait["against"]) == ("wait-k", "grid")
    assert grid["difference"] == -wait["difference"] == pytest.approx(22 - 18.125)
    assert grid["low"] < grid["difference"] < grid["high"]
    assert grid["p"] == "0.002"
    assert 0 < grid["±"] < 1


def test_a_curve_alone_or_without_a_latency_in_common_has_no_number():
    assert curve_means(SYSTEMS) == [], "wait-k and offline are a point each"
    assert curve_means([*SYSTEMS[:2], entry("waitk", 5, 20, 5), entry("waitk", 7, 21, 6)]) == []
    of_one_sentence = [replace(one, samples={}) for one in (*SYSTEMS[:2], entry("waitk", 1, 16, 1), SYSTEMS[3])]
    assert curve_means(of_one_sentence) == []
