"""The best path: what the paper says about it, ties, padding, the mask. Against enumeration: `test_words.py`."""

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from duplexmt.policy.path import emit_mask
from tests.helpers import best_path


def path(heatmap, lam):
    rows, columns = len(heatmap), len(heatmap[0])
    return best_path(torch.tensor([heatmap]), torch.tensor([rows]), torch.tensor([columns]), lam)[0].tolist()


# Multiples of 1/8 and of 1/1024 add up without rounding, so that ties are ties.
eighths = st.integers(0, 16).map(lambda n: n / 8)
nats, lams = (st.integers(0, most * 1024).map(lambda n: n / 1024) for most in (12, 2))


@st.composite
def heatmaps(draw, values=eighths):
    X, Y = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return [[draw(values) for _ in range(Y)] for _ in range(X)]


@given(heatmaps(nats), lams, lams)
def test_larger_lambda_never_lowers_the_area(heatmap, one, other):
    low, high = sorted((one, other))
    assert sum(path(heatmap, low)) <= sum(path(heatmap, high))


def test_hand_worked_path():
    # Token 0 is known from row 1 on, token 1 from row 2 on; waiting a row at height 0 costs nothing but lost area.
    heatmap = [[3.0, 5.0], [0.0, 4.0], [0.0, 0.0]]
    assert path(heatmap, 0.1) == [0, 1, 2]
    assert path(heatmap, 5.0) == [2, 2, 2]  # 2·5 per row earned outweighs a loss of 8
    assert emit_mask(torch.tensor([[0, 1, 2]]), 2).tolist() == [[[False, False], [True, False], [True, True]]]


def test_last_row_is_always_left_at_the_top():
    assert path([[0.0, 9.0]], 0.1) == [2]
    assert path([[9.0]], 0.0) == [1]


def test_pairs_of_a_padded_batch_get_the_paths_they_get_alone():
    draw = random.Random(7)
    shapes = [(1, 1), (5, 2), (2, 6), (4, 4)]
    alone = [[[draw.randint(0, 16) / 8 for _ in range(Y)] for _ in range(X)] for X, Y in shapes]
    padded = torch.full((4, 5, 6), -77.0)  # padding would win every path, were it looked at
    for b, heatmap in enumerate(alone):
        padded[b, : len(heatmap), : len(heatmap[0])] = torch.tensor(heatmap)
    lengths = torch.tensor(shapes)
    together = best_path(padded, lengths[:, 0], lengths[:, 1], 0.25)
    for b, (X, Y) in enumerate(shapes):
        expected = path(alone[b], 0.25)
        assert together[b].tolist() == expected + [0] * (5 - X)
        assert together[b, X - 1] == Y


def test_mask_area_is_the_area_of_the_path():
    y_at = torch.tensor([[0, 2, 2, 4]])
    assert emit_mask(y_at, 4).sum() == y_at.sum()
