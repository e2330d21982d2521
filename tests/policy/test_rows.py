"""Which rows are drawn, and that path, worth and weights over them are those of the full grid they stand for."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duplexmt.policy.knobs import check_rows
from duplexmt.policy.path import best_path
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.rows import DrawnRows, drawn_rows, stretches
from duplexmt.policy.visits import decoding_shares, delay_shares, visit_shares

from .brute_force import best_row_exits, best_score_from
from .test_path import heatmaps

NEVER = 2.0**20  # nats of a row that was not drawn: no path emits there, and sums stay exact


@pytest.mark.parametrize(("X", "R"), [(1, 2), (2, 2), (5, 5), (5, 9), (6, 2), (9, 4), (33, 6)])
def test_stretches_cover_all_rows_once_and_the_last_row_is_one_of_its_own(X, R):
    parts = stretches(X, R)
    assert [x for part in parts for x in part] == list(range(X))
    assert len(parts) == min(X, R)
    assert list(parts[-1]) == [X - 1]
    assert max(map(len, parts[:-1]), default=1) - min(map(len, parts[:-1]), default=1) <= 1


def test_a_pair_has_the_same_rows_in_any_batch_and_others_in_the_next_epoch():
    source, target = torch.arange(1, 41).view(2, 20), torch.arange(1, 17).view(2, 8)
    alone = drawn_rows(source[:1], target[:1, :6], [(20, 6)], 4, epoch=0)
    wider = drawn_rows(source.flip(0), target.flip(0), [(17, 8), (20, 6)], 4, epoch=0)
    assert wider.at[1] == alone.at[0]
    assert len({drawn_rows(source[:1], target[:1], [(20, 6)], 4, epoch).at for epoch in range(8)}) > 4
    assert alone.at[0][-1] == 19
    assert drawn_rows(source[:1], target[:1], [(20, 6)], 4, 0, source_prefix=15).at[0][-1] == 4


def test_all_rows_of_a_short_pair_are_there_and_padding_counts_once():
    rows = drawn_rows(torch.ones(2, 9), torch.ones(2, 3), [(2, 3), (9, 3)], 4, epoch=0)
    assert rows.at[0] == (0, 1)
    assert rows.counts.tolist() == [2, 4]
    assert rows.stand_for.tolist() == [[1, 1, 1, 1], [2, 3, 3, 1]]
    assert rows.gaps[0].tolist() == [1, 1, 1, 1]
    assert rows.gaps[1].tolist() == [b - a for a, b in itertools.pairwise(rows.at[1])] + [1]


def drawn_of(heatmap, data):
    """Some rows of a heatmap, the last among them, and the heatmap on which no path emits in the others."""
    X = len(heatmap)
    at = sorted({*data.draw(st.sets(st.integers(0, X - 1))), X - 1})
    never = [row if x in at else [NEVER] * len(row) for x, row in enumerate(heatmap)]
    return DrawnRows.of([at], [[1] * len(at)], "cpu"), never


@given(heatmaps(), st.sampled_from([0.0, 0.125, 0.25, 1.0]), st.data())
def test_the_path_is_the_best_of_all_that_emit_in_drawn_rows_alone(heatmap, lam, data):
    rows, never = drawn_of(heatmap, data)
    some, lengths = torch.tensor([[heatmap[x] for x in rows.at[0]]]), (rows.counts, torch.tensor([len(heatmap[0])]))
    found = best_path(some, *lengths, lam, rows.gaps)[0].tolist()
    _, winners = best_row_exits(never, lam)
    full, height = [], 0
    for x in range(len(heatmap)):  # the heights at which rows are left that only wait
        height = found[rows.at[0].index(x)] if x in rows.at[0] else height
        full.append(height)
    assert full in winners


@given(heatmaps(), st.sampled_from([0.0, 0.125, 1.0]), st.data())
def test_worth_is_that_of_the_best_paths_that_emit_in_drawn_rows_alone(heatmap, lam, data):
    rows, never = drawn_of(heatmap, data)
    some = torch.tensor([[heatmap[x] for x in rows.at[0]]], dtype=torch.float64)
    found = emit_advantages(some, rows.counts, torch.tensor([len(heatmap[0])]), lam, rows.gaps)[0].tolist()
    expected = [
        [
            best_score_from(never, lam, x, y + 1) - never[x][y] - best_score_from(never, lam, x + 1, y) - lam * y
            for y in range(len(heatmap[0]))
        ]
        for x in rows.at[0][:-1]
    ]
    assert found == [*expected, [0.0] * len(heatmap[0])]


def test_fixed_delays_count_without_bias_over_all_draws():
    X, Y, R = 8, 5, 4
    lengths = torch.tensor([X]), torch.tensor([Y])
    parts = stretches(X, R)
    draws = list(itertools.product(*parts))
    mean, p_emit = torch.zeros(X, Y), torch.rand(1, R, Y)
    for draw in draws:
        rows = DrawnRows.of([draw], [[len(part) for part in parts]], "cpu")
        weights = decoding_shares(p_emit, *lengths, rows)[0] * 2 - visit_shares(p_emit, rows.counts, lengths[1])[0]
        mean[list(draw)] += weights / len(draws)
    torch.testing.assert_close(mean, delay_shares(*lengths, X, Y)[0])


def test_where_all_rows_are_drawn_weights_are_those_of_the_full_grid():
    lengths = torch.tensor([5, 3]), torch.tensor([4, 6])
    p_emit = torch.rand(2, 5, 6)
    rows = DrawnRows.of([range(5), range(3)], [[1] * 5, [1] * 3], "cpu")
    found, full = decoding_shares(p_emit, *lengths, rows), decoding_shares(p_emit, *lengths)
    torch.testing.assert_close(found, full, rtol=0, atol=0)


@pytest.mark.parametrize("rows", [1, 0, -3, 2.5, True, "4"])
def test_numbers_of_rows_that_leave_no_choice_are_refused(rows):
    with pytest.raises(ValueError, match=r"training.rows=.*: must be a whole number of at least 2"):
        check_rows(rows)
