"""What is held out, prepared without the training pairs: the same pairs, and the same refusals; what is announced."""

import logging

import pytest

from duplexmt.corpus import prepared as corpora
from duplexmt.corpus.prepared import UNMADE, prepare_corpus
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.training.data import GridDataModule
from tests.helpers import CORPUS, tiny_tokenizer, tsv

PAIRS = [(f"我有{n}本书。", f"I have {n} books.") for n in range(60, 140)]
SETTINGS = CORPUS | {"validation_size": 12, "test_size": 12, "max_tokens": 16, "train_on_relatives": True}


@pytest.mark.parametrize("kind", ["builtin", "one file", "a file each"])
@pytest.mark.parametrize("segmentation", ["tokens", "characters"])
def test_held_out_pairs_are_those_of_the_whole_corpus(tmp_path, monkeypatch, kind, segmentation):
    settings = SETTINGS | {
        "segmentation": segmentation,
        "tokenizer": tiny_tokenizer(),
        "train_size": 20,
        "copies": 0.5,
        "joined_tokens": 30,
    }
    if kind == "builtin":
        settings |= {"corpus": "builtin", "max_tokens": 50}
    elif kind == "one file":
        settings |= {"path": tsv(tmp_path / "all.tsv", PAIRS)}
    else:
        settings |= {"train_path": tsv(tmp_path / "train.tsv", PAIRS)}
        settings |= {"validation_path": tsv(tmp_path / "held-out.tsv", PAIRS[35:47])}
    whole = prepare_corpus(**settings)
    monkeypatch.setattr("duplexmt.corpus.pairs_file.to_train_on", lambda *_: pytest.fail("looked for training pairs"))
    alone = prepare_corpus(train=False, **settings)
    assert alone.splits == {name: whole.splits[name] for name in ("validation", "test")}
    assert 0 < len(alone.splits["validation"]) < 12, "they are filtered by their length"
    for key in ("validation.length", "test.length"):
        assert alone.report.counts.get(key) == whole.report.counts.get(key)


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"test_size": 99}, "cannot hold out test_size=99"),
        ({"validation_size": -1}, "validation_size must not be negative"),
        ({"source_language": "en", "target_language": "zh"}, "columns are swapped"),
    ],
)
def test_held_out_pairs_that_cannot_be_had_are_refused_without_the_others_too(tmp_path, odd, told):
    settings = SETTINGS | {"path": tsv(tmp_path / "all.tsv", PAIRS), "tokenizer": tiny_tokenizer()} | odd
    for train in (True, False):
        with pytest.raises(ValueError, match=told):
            prepare_corpus(train=train, **settings)


def test_validation_pairs_that_are_all_too_long_are_refused_without_the_others_too(tmp_path):
    settings = SETTINGS | {"path": tsv(tmp_path / "all.tsv", PAIRS), "tokenizer": tiny_tokenizer(), "max_tokens": 1}
    with pytest.raises(ValueError, match="no validation pair is left"):
        prepare_corpus(train=False, **settings)


def test_what_takes_a_while_with_many_pairs_is_announced(tmp_path, monkeypatch, caplog):
    settings = SETTINGS | {"path": tsv(tmp_path / "all.tsv", PAIRS), "copies": 0.5, "joined_tokens": 40}
    with caplog.at_level(logging.INFO, corpora.__name__):
        prepare_corpus(**settings)
        assert not caplog.messages, "they are few"
        monkeypatch.setattr(corpora, "_BATCH", 20)
        prepared = prepare_corpus(**settings)
        prepare_corpus(**settings | UNMADE | {"max_tokens": None, "tokenizer": prepared.tokenizer})
        GridDataModule(prepared, stream_tokens(prepared.tokenizer), batch_size=4, seed=1).examples("train")
    assert caplog.messages == [
        "training a vocabulary of 400 on 56 pairs",
        "counting tokens of 56 pairs",
        "making copies of 56 pairs",
        f"joining {56 + prepared.report.counts['train']['copies']} pairs",
        f"tokenising {len(prepared.splits['train'])} pairs",
    ]
