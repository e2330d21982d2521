"""Options of a decoder."""

import pytest

from duplexmt.decoder.knobs import check_k


@pytest.mark.parametrize("k", [0, -3, 1.5, True, "three", None])
def test_k_must_be_a_whole_number_of_at_least_1(k):
    with pytest.raises(ValueError, match=r"system\.k=.*must be a whole number ≥ 1"):
        check_k(k)
