"""The corpus that the cleaning benchmark makes goes through `python -m data_prep` to its end."""

import pytest

from benchmarks.cleaning_speed import end_to_end, grammar_pairs


@pytest.mark.slow
def test_a_corpus_is_made_cleaned_and_sampled(tmp_path):
    found = end_to_end(grammar_pairs(500), 4000, tmp_path, tokenizer=None)
    assert found["pairs"] >= 4000
    assert 0 < found["to_sample_from"] < found["pairs"]
    assert found["looked_at"] >= 200
    assert list(tmp_path.iterdir()) == [], "neither corpus nor output stays"
