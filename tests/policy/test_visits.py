"""Where decoding writes: limits, padding, drawn tokens. Against one path at a time: `test_words.py`."""

import torch

from duplexmt.policy.visits import drawn_cells, visit_shares


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
