"""How like test sentences are to what a model was trained on, and the warning about those it was trained on."""

import copy
import logging
from pathlib import Path

import pytest

from duplexmt.common.pair import Pair
from duplexmt.corpus import overlap
from duplexmt.corpus.overlap import LEAST, likeness_to_training, read_at_once
from duplexmt.corpus.prepared import UNMADE, prepare_corpus
from tests.data_prep.brute_force import likeness
from tests.helpers import CORPUS, byte_level_tokenizer, tiny_tokenizer, tsv

PAIRS = [(f"我有{n}本书。", f"I have {n} books.") for n in range(10)]


@pytest.fixture
def corpus(tmp_path):
    """Settings of a file of ten pairs, two of them held out."""
    path, sizes = tsv(tmp_path / "pairs.tsv", PAIRS), {"vocab_size": 300, "validation_size": 1, "test_size": 1}
    return CORPUS | sizes | {"path": path, "max_tokens": None}


def said_here(caplog):
    """Without what is said while the corpus is read again."""
    return [record for record in caplog.records if record.name == overlap.__name__]


def test_training_sentences_in_a_test_set_are_counted_and_one_is_shown(corpus, caplog):
    prepared = prepare_corpus(**corpus)
    (held_out,) = prepared.splits["test"]
    known = prepared.splits["train"][0]
    pairs = [held_out, known, Pair("别的。", "Else."), known]
    with caplog.at_level(logging.INFO):
        found = likeness_to_training("a/model", corpus, prepared.tokenizer, pairs)
    said = said_here(caplog)
    announced, first, second = [record.getMessage() for record in said]
    where = corpus["path"]
    assert f"looking for test sentences in {where}, which a/model was trained on (" in announced
    assert said[1].levelname == "WARNING"
    assert f"a/model was trained on 2 of these 4 test sentences ({known.source!r}, for one) in {where}, which" in first
    assert f"of 4 test sentences 2 have a relative among its training pairs of {where} (likeness of 0.5" in second
    assert second.endswith(" or more), 1 one of 0.3 to 0.5")
    assert found.tolist() == [pytest.approx(3 / 7), 1, 0, 1]


def test_a_test_sentence_is_as_alike_as_its_likest_training_pair(corpus):
    trained, languages = prepare_corpus(**corpus).splits["train"], ("zh", "en")
    pairs = [
        Pair("我有一本书。", "Nothing of that"),  # the numeral alone differs
        Pair("没有", "I have three books, too."),
        Pair("没有", "I see some dogs here."),
        Pair("我有两本书了吧", "You said so"),
    ]
    found = likeness_to_training("a/model", corpus, None, pairs)
    expected = [max(likeness(pair, other, languages) for other in trained) for pair in pairs]
    assert found.tolist() == [value if value >= LEAST else 0 for value in expected]
    assert len({value >= LEAST for value in expected}) == 2


def test_nothing_is_warned_of_with_a_test_set_of_its_own(corpus, caplog):
    prepared = prepare_corpus(**corpus)
    with caplog.at_level(logging.WARNING):
        likeness_to_training("a/model", corpus, prepared.tokenizer, prepared.splits["test"])
    assert not caplog.records


def test_of_many_training_pairs_as_many_are_looked_at_as_time_allows_and_that_is_told(corpus, caplog, monkeypatch):
    prepared = prepare_corpus(**corpus)
    monkeypatch.setattr(overlap, "_MOST", 3)
    with caplog.at_level(logging.INFO):
        found = likeness_to_training("a/model", corpus, prepared.tokenizer, prepared.splits["train"])
    told = f"{corpus['path']}: the first 3 of 8 training pairs are looked at"
    assert said_here(caplog)[1].getMessage() == told
    assert (found == 1).tolist() == [True] * 3 + [False] * 5


def test_a_corpus_that_is_gone_is_told_and_stops_nothing(corpus, caplog):
    with caplog.at_level(logging.INFO):
        found = likeness_to_training("a/model", corpus | {"path": "no/such/pairs.tsv"}, None, [Pair("别的。", "Else.")])
    _, record = caplog.records
    assert found is None
    assert record.levelname == "INFO"
    assert "not checked whether it was trained on test sentences: no corpus at no/such/pairs.tsv" in record.getMessage()


def test_a_folder_of_which_several_trainings_took_files_is_read_once(tmp_path):
    """All of them together have the pairs that each has; what holds other pairs out, or draws some, is apart."""
    for name, word in (("one", "书"), ("two", "花"), ("three", "茶")):
        tsv(tmp_path / f"{name}.tsv", [(f"我有{n}{word}。", f"I have {n} {name}.") for n in range(10, 60)])
    folder = CORPUS | {"corpus": "pairs_folder", "path": str(tmp_path), "held_out": ["one"], "train_size": None}
    folder |= {"validation_size": 2, "test_size": 2, "max_tokens": None, "vocab_size": 300, "train_on_relatives": True}
    parts = [folder | {"sources": names} for names in (["one", "two"], ["one", "three"])]
    others = [folder | {"sources": ["one"]} | apart for apart in ({"seed": 7}, {"train_size": 9})]
    made = {"copies": 0.5, "joined_tokens": 20, "tokenizer": "some/folder"}
    whole, *apart = read_at_once([parts[0] | made, *others, parts[1], parts[0]])
    assert whole["sources"] == ["one", "two", "three"]
    assert apart == [other | UNMADE for other in others]
    every = [set(prepare_corpus(**settings).splits["train"]) for settings in (*parts, whole)]
    assert every[0] | every[1] == every[2]
    assert read_at_once([parts[0], folder])[0]["sources"] is None


def test_of_a_corpus_taken_whole_long_pairs_are_looked_through_too(corpus):
    long = Pair("我有很多很多很多书。", "I have lots and lots and lots of books.")
    tsv(Path(corpus["path"]), [*PAIRS, long[:2]])
    asked = corpus | {"max_tokens": 20, "tokenizer": tiny_tokenizer(), "train_on_relatives": True}
    (whole,) = read_at_once([asked, asked | {"max_tokens": 21}])
    assert set(prepare_corpus(**asked).splits["train"]) == set(prepare_corpus(**whole).splits["train"]) - {long}
    assert likeness_to_training("a/model", whole, tiny_tokenizer(), [long]) == [1]
    for apart in ({"train_size": 3}, {"corpus": "wmt21_zhen"}):
        assert read_at_once([asked | apart])[0]["max_tokens"] == 20, "it decides which pairs are drawn"


def test_a_corpus_is_searched_once_however_many_models_were_trained_on_it(corpus, caplog, monkeypatch):
    asked, counted = corpus | {"sources": ["one", "two"]}, corpus | {"max_tokens": 40, "train_size": 3}
    pairs, tokenizer = prepare_corpus(**corpus).splits["train"][:2], tiny_tokenizer()
    reads = []
    monkeypatch.setattr(overlap, "prepare_corpus", lambda **given: reads.append(given) or prepare_corpus(**given))

    def search(model, corpus, tokenizer, pairs):
        """What is found, what is said of it, and how often a corpus has been read."""
        caplog.clear()
        with caplog.at_level(logging.INFO):
            found = likeness_to_training(model, corpus, tokenizer, pairs).tolist()
        return found, [record.getMessage().replace(model, "MODEL") for record in said_here(caplog)], len(reads)

    found, said, _ = search("a/model", asked, tokenizer, pairs)
    assert search("b/model", dict(reversed(asked.items())), byte_level_tokenizer(), list(pairs)) == (found, said[1:], 1)
    assert all("(2 files)" in message for message in said)
    assert search("a/model", asked, tokenizer, pairs[:1])[2] == 2, "another test set"
    assert search("a/model", asked | {"seed": 2}, tokenizer, pairs)[2] == 3, "another corpus"
    first = search("a/model", counted, tokenizer, pairs)
    same = copy.deepcopy(tokenizer)
    assert search("b/model", counted, same, pairs) == (first[0], first[1][1:], 4)
    assert search("b/model", counted, byte_level_tokenizer(), pairs)[2] == 5, "other pairs may be short enough"
