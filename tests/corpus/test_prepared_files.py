"""`data=wmt21_zhen`: from raw files of six formats to the splits a run trains on, prepared once for all processes."""

import multiprocessing
import shutil
import time

import pytest

from data_prep.prepare import read_manifest
from duplexmt.corpus import prepared_files as corpora
from duplexmt.corpus.prepared import prepare_corpus
from tests.commands import run, succeeded
from tests.data_prep.formats import write_wmt21
from tests.helpers import CORPUS, tiny_tokenizer

WMT21 = CORPUS | {
    "corpus": "wmt21_zhen", "max_tokens": 60, "train_size": 200, "validation_size": 20, "test_size": 10
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(corpora, "usable_cores", lambda: 1)


@pytest.fixture
def settings(tmp_path):
    write_wmt21(tmp_path / "raw")
    tiny_tokenizer().save_pretrained(str(tmp_path / "tokenizer"))
    return WMT21 | {"root": str(tmp_path / "raw"), "tokenizer": str(tmp_path / "tokenizer")}


def test_raw_files_come_to_splits_and_their_account(settings):
    prepared = prepare_corpus(**settings)
    assert {name: len(pairs) for name, pairs in prepared.splits.items()} == {"train": 200, "validation": 20, "test": 10}
    assert prepared.report.counts["news_commentary"] == {"empty_line": 100, "kept": 100}
    assert prepared.tokenizer.get_vocab() == tiny_tokenizer().get_vocab()
    assert "200 train, 20 validation, 10 test pairs" in prepared.summary()


def test_missing_files_are_named_before_a_tokenizer_is_looked_for(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "token_counter", lambda name: pytest.fail(f"{name} was looked for"))
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere"):
        prepare_corpus(**settings | {"root": str(tmp_path / "nowhere")})


def test_characters_and_contexts_are_those_asked_for_and_characters_count_for_the_limit(settings):
    tokens = prepare_corpus(**settings)
    prepared = prepare_corpus(**settings, segmentation="characters", context_tokens=4, context_separator="|||")
    assert prepared.sources.segmentation == "characters"
    for name, pairs in tokens.splits.items():
        ids = prepared.sources.ids([pair.source for pair in pairs])
        fitting = [pair for pair, own in zip(pairs, ids, strict=True) if len(own) <= settings["max_tokens"]]
        assert prepared.splits[name] == fitting
        assert prepared.report.counts[f"{name}.length"][f"over_{settings['max_tokens']}_tokens"] == len(pairs) - len(
            fitting
        )


def test_a_prepared_corpus_needs_its_raw_files_no_more_and_an_evaluation_no_name_of_the_tokenizer(settings, tmp_path):
    prepared = prepare_corpus(**settings | {"prepared": str(tmp_path / "made")})
    shutil.rmtree(tmp_path / "raw")
    again = prepare_corpus(**settings | {"prepared": str(tmp_path / "made")})
    assert again.splits == prepared.splits
    loaded = prepare_corpus(**settings | {"prepared": str(tmp_path / "made"), "tokenizer": prepared.tokenizer})
    assert loaded.splits == prepared.splits
    with pytest.raises(ValueError, match="holds no prepared corpus"):
        prepare_corpus(**settings | {"prepared": str(tmp_path / "elsewhere"), "tokenizer": prepared.tokenizer})


@pytest.mark.parametrize("segmentation", ["tokens", "characters"])
def test_held_out_pairs_are_the_same_where_the_others_are_not_read(settings, segmentation):
    whole = prepare_corpus(**settings, segmentation=segmentation)
    alone = prepare_corpus(train=False, **settings, segmentation=segmentation)
    assert alone.splits == {name: whole.splits[name] for name in ("validation", "test")}
    with pytest.raises(ValueError, match="made with other sample"):
        prepare_corpus(train=False, **settings | {"test_size": 9})


def test_what_the_command_prepared_beforehand_is_taken(settings, monkeypatch):
    root = settings["root"]
    done = run(
        "data_prep", f"root={root}", f"tokenizer={settings['tokenizer']}", "processes=1",
        "sample.max_tokens=60", "sample.train_size=200", "sample.validation_size=20", "sample.test_size=10",
    )  # fmt: skip
    succeeded(done)
    monkeypatch.setattr(corpora, "prepare", lambda *_, **__: pytest.fail("prepared again"))
    prepared = prepare_corpus(**settings | {"prepared": f"{root}/prepared-paper"})
    assert len(prepared.splits["train"]) == 200


def test_other_settings_are_refused_rather_than_another_corpus_taken(settings):
    prepare_corpus(**settings)
    with pytest.raises(ValueError, match="made with other sample: give another output"):
        prepare_corpus(**settings | {"train_size": 100})
    with pytest.raises(ValueError, match="made with other cleaning"):
        prepare_corpus(**settings | {"cleaning": "strict"})


def rank(number, settings, results):
    """What each process of a distributed run does."""
    import os

    os.environ["LOCAL_RANK"] = str(number)
    corpora.usable_cores = lambda: 1
    if number == 0:
        time.sleep(0.3)  # the others are there first
    prepared = prepare_corpus(**settings)
    results.put((number, prepared.splits, prepared.report.counts))


@pytest.mark.parametrize("numbers", [(1, 2, 0), (0, 0)], ids=["ranks", "machines that share a disk"])
def test_processes_that_start_at_once_read_what_one_of_them_prepares(settings, numbers):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=rank, args=(number, settings, results)) for number in numbers]
    for process in ranks:
        process.start()
    found = sorted((results.get(timeout=60) for _ in ranks), key=lambda result: result[0])
    for process in ranks:
        process.join()
    assert [number for number, *_ in found] == sorted(numbers)
    assert all(result[1:] == found[0][1:] for result in found)


@pytest.mark.slow
def test_one_command_goes_from_raw_files_of_six_formats_to_a_trained_model(settings, tmp_path):
    done = run(
        "train.py", "data=wmt21_zhen", f"data.root='{tmp_path / 'raw'}'", f"data.tokenizer='{tmp_path / 'tokenizer'}'",
        "data.max_tokens=60", "data.train_size=200", "data.validation_size=8", "data.test_size=8", "data.batch_size=8",
        "model.architecture.hidden_size=32", "model.architecture.intermediate_size=48",
        "model.architecture.num_hidden_layers=1", "model.architecture.num_attention_heads=2",
        "model.architecture.num_key_value_heads=1", "trainer.max_steps=3", "training.sample_size=2",
        "trainer.enable_progress_bar=false", "demonstrate=1", "probes.count=0",
        f"hydra.run.dir='{tmp_path / 'run'}'",
    )  # fmt: skip
    succeeded(done)
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert read_manifest(tmp_path / "raw" / "prepared")["splits"]["train"]["pairs"] == 200
    shutil.rmtree(tmp_path / "raw" / "ccmt")  # evaluation reads what is prepared
    evaluated = run(
        "evaluate.py", f"model_folder='{tmp_path / 'run' / 'model'}'", "limit=2", "policy.theta=0.5",
        f"hydra.run.dir='{tmp_path / 'evaluation'}'",
    )  # fmt: skip
    succeeded(evaluated)
