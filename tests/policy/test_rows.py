"""Which rows are drawn, and that path, worth and weights over them are those of the full grid they stand for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duplexmt.policy.knobs import check_rows
from duplexmt.policy.path import best_path
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.rows import DrawnRows, drawn_rows, stretches
from duplexmt.policy.visits import decoding_shares

from .brute_force import best_row_exits
from .test_path import heatmaps


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
    assert rows.stretch.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 2, 2, 2, 3]]


def drawn(X, R, choice=0):
    parts = stretches(X, R)
    return DrawnRows.of([[part[choice % len(part)] for part in parts]], [parts], "cpu")


@pytest.mark.parametrize(("X", "R", "choice"), [(1, 2, 0), (2, 2, 0), (9, 4, 0), (9, 4, 1), (9, 4, 5), (33, 6, 4)])
def test_between_drawn_rows_values_change_evenly_and_before_the_first_they_are_its_own(X, R, choice):
    rows, values = drawn(X, R, choice), torch.randn(1, min(X, R), 3)
    expected = np.stack([np.interp(range(X), rows.at[0], values[0, :, y]) for y in range(3)], 1)
    torch.testing.assert_close(rows.spread(values)[0], torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(rows.of_all(rows.spread(values)), values)


def test_pairs_of_several_sizes_do_not_see_each_others_rows():
    both = drawn_rows(torch.ones(2, 9), torch.ones(2, 3), [(5, 3), (9, 3)], 4, epoch=3)
    values = torch.randn(2, 4, 3)
    for b, X in enumerate((5, 9)):
        alone = DrawnRows.of([both.at[b]], [stretches(X, 4)], "cpu")
        assert torch.equal(both.spread(values)[b, :X], alone.spread(values[b : b + 1])[0])


@given(heatmaps(), st.sampled_from([0.0, 0.125, 0.5]), st.integers(2, 4), st.integers(0, 9))
def test_path_and_worth_are_the_best_of_all_paths_through_the_grid_the_rows_stand_for(heatmap, lam, R, choice):
    """Losses of dyadic numbers, whose means between rows are dyadic too where rows are 1, 2 or 4 apart."""
    rows = drawn(len(heatmap), R, choice)
    whole = rows.spread(rows.of_all(torch.tensor([heatmap], dtype=torch.float64)))
    lengths = torch.tensor([len(heatmap)]), torch.tensor([len(heatmap[0])])
    found = best_path(whole, *lengths, lam)[0].tolist()
    best, _ = best_row_exits(whole[0].tolist(), lam)
    exits = zip([0, *found], found, strict=False)
    emitted = [(x, y) for x, (low, high) in enumerate(exits) for y in range(low, high)]
    assert lam * sum(found) - sum(whole[0, x, y].item() for x, y in emitted) == pytest.approx(best)


def test_a_decision_learnt_from_some_rows_is_that_of_one_row_against_the_next():
    """Where losses change evenly, the worth of each decision is the full grid's, whatever rows were drawn."""
    full = torch.linspace(4, 0, 9, dtype=torch.float64)[None, :, None] * torch.tensor([1.0, 0.7, 0.2])
    lengths = torch.tensor([9]), torch.tensor([3])
    expected = emit_advantages(full, *lengths, 0.2)
    for choice in range(3):
        parts = [range(1), range(1, 5), range(5, 8), range(8, 9)]  # the first row, too, as nothing is above it
        rows = DrawnRows.of([[part[choice % len(part)] for part in parts]], [parts], "cpu")
        found = emit_advantages(rows.spread(rows.of_all(full)), *lengths, 0.2)
        torch.testing.assert_close(found, expected)


def test_each_token_weighs_the_same_whichever_rows_were_drawn():
    lengths = torch.tensor([9, 4]), torch.tensor([5, 3])
    rows = drawn_rows(torch.ones(2, 9), torch.ones(2, 5), [(9, 5), (4, 3)], 3, epoch=1)
    shares = decoding_shares(rows.spread(torch.rand(2, 3, 5)), *lengths)
    sums = rows.summed(shares)
    torch.testing.assert_close(sums.sum(1), shares.sum(1))
    for b, X in enumerate((9, 4)):
        for i, part in enumerate(stretches(X, 3)):
            torch.testing.assert_close(sums[b, i], shares[b, list(part)].sum(0))


def test_where_all_rows_are_drawn_values_sums_and_weights_are_those_of_the_full_grid():
    lengths = torch.tensor([5, 3]), torch.tensor([4, 6])
    rows = drawn_rows(torch.ones(2, 5), torch.ones(2, 6), [(5, 4), (3, 6)], 5, epoch=0)
    p_emit = torch.rand(2, 5, 6)
    there = (torch.arange(5) < lengths[0][:, None])[:, :, None]
    assert torch.equal(rows.spread(p_emit) * there, p_emit * there)
    full = decoding_shares(p_emit, *lengths)
    assert torch.equal(rows.summed(full) * there, full)


@pytest.mark.parametrize("rows", [1, 0, -3, 2.5, True, "4"])
def test_numbers_of_rows_that_leave_no_choice_are_refused(rows):
    with pytest.raises(ValueError, match=r"training.rows=.*: must be a whole number of at least 2"):
        check_rows(rows)
