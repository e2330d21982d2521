"""Options of a decoder."""

import pytest

from duplexmt.decoder.decoder_options import check_anchor, check_k, check_trained_k


@pytest.mark.parametrize("k", [0, -3, 1.5, True, "three", None])
def test_k_must_be_a_whole_number_of_at_least_1(k):
    with pytest.raises(ValueError, match=r"^k=.*must be a whole number of at least 1$"):
        check_k(k, "k")
    with pytest.raises(ValueError, match=r"^system\.k=.*must be a whole number of at least 1 \(or 'multi': one model"):
        check_trained_k(k)
    check_trained_k("multi")


@pytest.mark.parametrize("anchor", [-1, "x_vis", True, 1.5, "visible_length"])
def test_an_anchor_is_the_sources_length_or_a_position(anchor):
    with pytest.raises(ValueError, match=rf"model\.anchor='?{anchor}'?: must be 'source_length' or a position"):
        check_anchor(anchor)
    assert [check_anchor(0), check_anchor("source_length")] == [0, "source_length"]
    assert check_anchor("visible_length", naive=True) == "visible_length"
