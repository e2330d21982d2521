"""Where decoding writes, against one path at a time."""

import torch

from benchmarks.path_loss import threshold_rows
from duplexmt.policy.visits import THETAS, delay_shares, drawn_cells, visit_shares


def test_shares_are_those_of_the_paths_of_all_thresholds():
    draw = torch.Generator().manual_seed(5)
    source_lengths, target_lengths = torch.tensor([5, 1, 3, 7]), torch.tensor([4, 6, 1, 5])
    p_emit = torch.rand(4, 7, 6, generator=draw)
    p_emit[0, 0, 0], p_emit[0, 0, 1] = 1.0, 0.0  # a first token that needs no more, a second one that waits to the end
    p_emit[0, :, 1] = 0.0
    shares = visit_shares(p_emit, source_lengths, target_lengths)
    expected = torch.zeros_like(shares)
    for b, (X, Y) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        for theta in THETAS:
            rows = threshold_rows(p_emit[b, :X, :Y].tolist(), theta)
            expected[b, rows, range(Y)] += 1 / len(THETAS)
    torch.testing.assert_close(shares, expected)
    assert shares[0, 4, 1:].tolist() == [1, 1, 1, 0, 0], "nothing is written before what precedes it"


def test_the_highest_threshold_reads_the_whole_source_and_a_sure_head_none_ahead():
    lengths = torch.tensor([3]), torch.tensor([4])
    last = visit_shares(torch.rand(1, 3, 4), *lengths, thetas=[1.0])
    assert last[0].tolist() == [[0] * 4, [0] * 4, [1] * 4]
    first = visit_shares(torch.ones(1, 3, 4), *lengths, thetas=[0.5])
    assert first[0].tolist() == [[1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]], "the end token is written at the source's end"


def test_padding_is_not_read_and_has_no_share():
    p_emit = torch.rand(2, 4, 5)
    lengths = torch.tensor([2, 4]), torch.tensor([3, 5])
    shares = visit_shares(p_emit, *lengths)
    spoiled = p_emit.clone()
    spoiled[0, 2:], spoiled[0, :, 3:] = float("nan"), float("nan")
    torch.testing.assert_close(visit_shares(spoiled, *lengths), shares, rtol=0, atol=0)
    assert (shares[0, 2:] == 0).all()
    assert (shares[0, :, 3:] == 0).all()
    torch.testing.assert_close(shares.sum(1), torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))


def test_shares_of_fixed_delays_are_those_of_all_wait_k_paths():
    source_lengths, target_lengths = torch.tensor([5, 1, 3, 7]), torch.tensor([4, 6, 1, 5])
    shares = delay_shares(source_lengths, target_lengths, 7, 6)
    expected = torch.zeros(4, 7, 6)
    for b, (X, Y) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        for k in range(1, X + 1):
            for y in range(Y):
                expected[b, X - 1 if y == Y - 1 else min(k - 1 + y, X - 1), y] += 1 / X
    torch.testing.assert_close(shares, expected)


def test_a_token_is_drawn_once_or_twice_and_on_average_by_its_shares():
    shares = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(3))
    shares /= shares.sum(1, keepdim=True)
    shares[1, :, 5:] = 0  # padding
    points = torch.arange(0.5, 2000) / 2000
    drawn = torch.stack([drawn_cells(shares, torch.stack((point, 1 - point))) for point in points])
    assert set(drawn.unique().tolist()) == {0, 0.5, 1}
    assert torch.equal(drawn.sum(2), (shares.sum(1) > 0).float().expand(2000, 2, 7))
    torch.testing.assert_close(drawn.mean(0), shares, rtol=0, atol=2e-3)
    torch.testing.assert_close((drawn > 0).float().mean(0), (2 * shares).clamp(max=1), rtol=0, atol=2e-3)


def test_the_tokens_of_a_pair_are_spread_over_its_rows():
    """One point a pair: drawn each by itself, 64 tokens would seldom fall into four rows so evenly."""
    for point in (0.1, 0.5, 0.93):
        drawn = drawn_cells(torch.full((1, 4, 64), 0.25), torch.tensor([point]))
        assert (drawn.sum(2) - 16).abs().max() <= 1
