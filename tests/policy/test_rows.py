"""Which rows are drawn, and that path, worth and weights over them are those of the full grid they stand for."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from duplexmt.data.batch import Example, collate
from duplexmt.policy.guide import unreachable
from duplexmt.policy.plan import row_plan
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.rows import WHOLE, DrawnRows, drawn_points, drawn_rows, mean_cells, reach, stretches
from duplexmt.policy.visits import delay_shares
from tests.helpers import best_path

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
    one, other = Example(tuple(range(20)), tuple(range(7))), Example(tuple(range(17)), tuple(range(9)))
    batch, key, shape = collate([other, one]), [one.key], [one.shape]
    alone = drawn_rows(key, shape, 4, epoch=0)
    assert drawn_rows(batch.keys, batch.shapes, 4, epoch=0).at[1] == alone.at[0]
    assert len({drawn_rows(key, shape, 4, epoch).at for epoch in range(8)}) > 4
    assert alone.at[0][-1] == 19
    assert drawn_rows(key, shape, 4, 0, source_prefix=15).at[0][-1] == 4
    assert drawn_points(batch.keys, epoch=0)[1] == drawn_points(key, epoch=0)
    assert len({drawn_points(key, epoch).item() for epoch in range(8)}) == 8


def test_all_rows_of_a_short_pair_are_there_and_padding_counts_once():
    rows = drawn_rows([1, 2], [(2, 3), (9, 3)], 4, epoch=0)
    assert rows.at[0] == (0, 1)
    assert [len(own) for own in rows.at] == [2, 4]
    assert rows.stand_for.tolist() == [[1, 1, 1, 1], [2, 3, 3, 1]]
    assert rows.stretch.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 2, 2, 2, 3]]


def drawn(X, R, choice=0, columns=None, Y=99):
    return of_parts(stretches(X, R), choice, columns or [Y] * min(X, R))


def of_parts(parts, choice, columns):
    at = [part[choice % len(part)] for part in parts]
    return DrawnRows.of([at], [parts], [columns], [columns])


@pytest.mark.parametrize(("X", "R", "choice"), [(1, 2, 0), (2, 2, 0), (9, 4, 0), (9, 4, 1), (9, 4, 5), (33, 6, 4)])
def test_between_drawn_rows_values_change_evenly_and_before_the_first_they_are_its_own(X, R, choice):
    rows, values = drawn(X, R, choice), torch.randn(1, min(X, R), 3)
    expected = np.stack([np.interp(range(X), rows.at[0], values[0, :, y]) for y in range(3)], 1)
    torch.testing.assert_close(rows.spread(values, 0.0)[0], torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(rows.of_all(rows.spread(values, 0.0)), values)


def test_pairs_of_several_sizes_do_not_see_each_others_rows():
    shapes = [(5, 3), (9, 12), (12, 12)]
    every = drawn_rows([1, 2, 3], shapes, 4, epoch=3)
    assert {min(own) < Y for own, (_, Y) in zip(every.columns, shapes, strict=True)} == {True, False}
    values = torch.randn(3, 4, 12)
    for b, (X, Y) in enumerate(shapes):
        own = DrawnRows.of([every.at[b]], [stretches(X, 4)], [every.columns[b]], [every.columns[b]])
        assert torch.equal(every.spread(values, 7.0)[b, :X, :Y], own.spread(values[b : b + 1, :, :Y], 7.0)[0])


@pytest.mark.parametrize(("X", "Y", "R"), [(33, 33, 4), (20, 30, 3), (30, 20, 4), (5, 5, 4), (4, 9, 4), (3, 9, 4)])
def test_a_row_reaches_all_cells_in_which_a_fixed_delay_writes_in_its_stretch_and_the_last_row_all(X, Y, R):
    parts = stretches(X, R)
    columns = reach(parts, X, Y)
    shares = delay_shares(torch.tensor([X]), torch.tensor([Y]), X, Y)[0]
    assert not any(shares[x, end:].any() for part, end in zip(parts, columns, strict=True) for x in part)
    assert columns[-1] == Y
    assert columns == sorted(columns)
    assert (min(columns) == Y) == (R >= X), "and fewer than all, where not all rows are drawn"


def test_an_eighth_of_the_pairs_is_computed_whole_and_its_cells_past_the_reach_of_others_weigh_eightfold():
    rows = drawn_rows(range(2000), [(9, 6)] * 2000, 3, epoch=0)
    common = reach(stretches(9, 3), 9, 6)
    assert set(rows.columns) == {(6, 6, 6), tuple(common)}
    assert rows.columns.count((6, 6, 6)) / 2000 == pytest.approx(WHOLE, abs=0.02)
    assert torch.equal(rows.common, torch.tensor([common] * 2000))
    assert sum(map(sum, rows.columns)) == pytest.approx(2000 * mean_cells(9, 6, 3), rel=0.02)
    first = drawn_rows(range(2000), [(9, 7)] * 2000, 3, 0, target_prefix=1)
    assert set(first.columns) == {(6, 6, 6), tuple(common)}


@given(heatmaps(), st.sampled_from([0.0, 0.125, 0.5, 512.0]), st.integers(2, 4), st.integers(0, 9), st.integers(1, 5))
@example([[0.0, 0.0]] * 5, 512.0, 2, 0, 1)  # λ pays for four rows more than 1,000 nats
def test_path_and_worth_are_the_best_of_all_paths_through_the_grid_the_rows_stand_for(heatmap, lam, R, choice, first):
    """Losses of dyadic numbers, whose means between rows are dyadic too where rows are 1, 2 or 4 apart."""
    X, Y = len(heatmap), len(heatmap[0])
    rows = drawn(X, R, choice, [*[min(first, Y)] * (min(X, R) - 1), Y])
    lengths = torch.tensor([X]), torch.tensor([Y])
    some = rows.of_all(torch.tensor([heatmap], dtype=torch.float64))
    whole = rows.spread(some, unreachable(some, lengths[0], lam))
    found = best_path(whole, *lengths, lam)[0].tolist()
    best, _ = best_row_exits(whole[0].tolist(), lam)
    exits = zip([0, *found], found, strict=False)
    emitted = [(x, y) for x, (low, high) in enumerate(exits) for y in range(low, high)]
    assert lam * sum(found) - sum(whole[0, x, y].item() for x, y in emitted) == pytest.approx(best)
    assert all(y < first or x == X - 1 for x, y in emitted)


def test_a_decision_learnt_from_some_rows_is_that_of_one_row_against_the_next():
    """Where losses change evenly, the worth of each decision is the full grid's, whatever rows were drawn."""
    full = torch.linspace(4, 0, 9, dtype=torch.float64)[None, :, None] * torch.tensor([1.0, 0.7, 0.2])
    lengths = torch.tensor([9]), torch.tensor([3])
    expected = emit_advantages(full, *lengths, 0.2)
    for choice in range(3):
        parts = [range(1), range(1, 5), range(5, 8), range(8, 9)]  # the first row, too, as nothing is above it
        rows = of_parts(parts, choice, [3] * 4)
        found = emit_advantages(rows.spread(rows.of_all(full), 1e3), *lengths, 0.2)
        torch.testing.assert_close(found, expected)


def all_draws(X, Y, R):
    """Every draw of one pair's rows with its probability."""
    parts = stretches(X, R)
    common = reach(parts, X, Y)
    for at in itertools.product(*parts):
        for columns, chance in (([Y] * len(parts), WHOLE), (common, 1 - WHOLE)):
            yield DrawnRows.of([at], [parts], [columns], [common]), chance / math.prod(map(len, parts))


def planned(rows, X, Y):
    """The plan of a pair on drawn rows, and the row and column of each cell in the full grid."""
    plan = row_plan(collate([Example((5,) * X, (6,) * (Y + 1))]), (0, 0), 0, rows)
    at = plan.layout.targets
    return plan, rows.x[0][plan.layout.stream[at] - 1], plan.layout.place[at]


@pytest.mark.parametrize(("X", "Y", "R"), [(6, 5, 3), (9, 7, 3), (7, 12, 4), (4, 3, 4)])
def test_over_all_draws_the_sum_over_decisions_is_that_of_the_full_grid(X, Y, R):
    losses, mean = torch.rand(X, Y, dtype=torch.float64), 0.0
    for rows, chance in all_draws(X, Y, R):
        plan, x, y = planned(rows, X, Y)
        mean += chance * (plan.stand_for * losses[x, y]).sum()
    torch.testing.assert_close(mean, losses.sum())


@pytest.mark.parametrize(("X", "Y", "R"), [(6, 5, 3), (9, 7, 3), (7, 12, 4), (4, 3, 4)])
def test_over_all_draws_words_at_fixed_delays_are_off_by_how_weights_and_losses_vary_together_in_a_stretch(X, Y, R):
    """Nothing where losses are alike in a stretch: a row is drawn evenly, and bears the weight of all rows of it."""
    losses, mean = torch.rand(X, Y, dtype=torch.float64), 0.0
    shares = delay_shares(torch.tensor([X]), torch.tensor([Y]), X, Y).double()
    for rows, chance in all_draws(X, Y, R):
        plan, x, y = planned(rows, X, Y)
        mean += chance * (plan.cells.flat(rows.summed(shares)) * losses[x, y]).sum()
    bias = torch.zeros((), dtype=torch.float64)
    for part in map(list, stretches(X, R)):
        w, loss = shares[0, part], losses[part]
        bias -= ((w - w.mean(0)) * (loss - loss.mean(0))).sum()
    torch.testing.assert_close(mean, (shares[0] * losses).sum() + bias)
