"""The warning about test sentences that a model was trained on."""

import logging

import pytest

from duplexmt.corpus.overlap import warn_of_overlap
from duplexmt.corpus.prepared import prepare_corpus

PAIRS = [(f"我有{n}本书。", f"I have {n} books.") for n in range(10)]


@pytest.fixture
def corpus(tmp_path):
    """Settings of a file of ten pairs, two of them held out."""
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return {
        "corpus": "pairs", "path": str(file), "train_path": None, "validation_path": None, "test_path": None,
        "source_field": 0, "target_field": 1, "source_language": "zh", "target_language": "en", "tokenizer": None,
        "vocab_size": 300, "max_tokens": None, "train_size": None, "validation_size": 1, "test_size": 1, "seed": 1,
    }  # fmt: skip


def test_training_sentences_in_a_test_set_are_counted_and_one_is_shown(corpus, caplog):
    prepared = prepare_corpus(**corpus)
    (held_out,) = [pair.source for pair in prepared.splits["test"]]
    known = prepared.splits["train"][0][0]
    with caplog.at_level(logging.INFO):
        warn_of_overlap("a/model", corpus, prepared.tokenizer, [held_out, known, "别的。", known])
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"a/model was trained on 2 of these 4 test sentences ('{known}', for one)" in record.getMessage()


def test_nothing_is_said_of_a_test_set_of_its_own(corpus, caplog):
    prepared = prepare_corpus(**corpus)
    with caplog.at_level(logging.INFO):
        warn_of_overlap("a/model", corpus, prepared.tokenizer, [pair.source for pair in prepared.splits["test"]])
    assert not caplog.records


def test_a_corpus_that_is_gone_is_told_and_stops_nothing(corpus, caplog):
    with caplog.at_level(logging.INFO):
        warn_of_overlap("a/model", corpus | {"path": "no/such/pairs.tsv"}, None, ["别的。"])
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "not checked whether it was trained on test sentences: no corpus at no/such/pairs.tsv" in record.getMessage()
