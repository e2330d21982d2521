"""`python -m data_prep`: what its configuration holds and refuses, and token counters."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from data_prep.__main__ import Command, main
from data_prep.cleaning import Cleaning
from data_prep.preparation import CONF, Sampling, preparation
from data_prep.tokens import token_counter
from duplexmt.data.tokenizer import load_tokenizer, token_ids
from tests.commands import run as run_command
from tests.helpers import SENTENCES, byte_level_tokenizer, tiny_tokenizer
from tests.test_config import checked

TEXTS = [text for pair in SENTENCES for text in pair] + ["", " ", "don't 2021年", "<|im_start|>a</s>", "e\u0301"]


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("cleanin=strict", "cleanin: there is no such setting; did you mean cleaning?"),
        ("sample.train_size=many", "sample.train_size=many: must be a whole number, or null"),
        ("root=no such (1)", "no file no such (1)/en-zh-v1.txt.gz"),
        ("experiment=paper", "experiment: there is no such setting"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(argument, told):
    done = run_command("data_prep", argument)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def composed(*overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("prepare", overrides=["root=/r", "output=/o", *overrides])


def plan(*overrides):
    return OmegaConf.to_object(composed(*overrides))


def test_the_defaults_are_the_papers():
    made = plan()
    assert (made.sample.train_size, made.sample.validation_size, made.sample.max_tokens) == (100_000, 1_000, 32)
    assert list(made.chosen) == ["paracrawl", "news_commentary", "wiki_titles", "un", "wikimatrix", "ccmt"]
    assert made.cleaning == Cleaning("zh", "en"), "the paper's rules and no other"
    assert composed().tokenizer == "Qwen/Qwen2.5-0.5B"


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "cleaning").glob("*.yaml")))
def test_presets_are_the_same_with_and_without_a_command_line(name):
    made = preparation(
        corpus="wmt21_zhen", cleaning=name, sources=["un"], root=Path("/r"), output=Path("/o"), seed=1,
        sample=Sampling(100_000, 1_000, 0, 32),
    )  # fmt: skip
    assert Command(**vars(made), clean_only=False, tokenizer="Qwen/Qwen2.5-0.5B", processes=None) == plan(
        f"cleaning={name}", "sources=[un]"
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("+corpus.sources.un.colour=red", r"corpus\.sources\.un: .* unexpected keyword argument 'colour'"),
        ("+corpus.sources.mine={kind: tsv}", r"corpus\.sources\.mine: missing .* 'files', 'source', and 'target'"),
        ("sources=[europarl]", "there is no europarl; the corpus has paracrawl"),
        ("sources=[]", r"sources=\[\]: names none; give some of"),
        ("sample.train_size=0", r"sample\.train_size=0"),
        ("sample.validation_size=-1", r"sample\.validation_size=-1"),
        ("sample.max_tokens=0", r"sample\.max_tokens=0"),
        ("block_bytes=0", "block_bytes=0"),
        ("cleaning.duplicates=all", "duplicates='all'"),
        ("cleaning.length_ratio=nan", r"cleaning\.length_ratio=nan: must be at least 1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(argument, message):
    with pytest.raises(ValueError, match=message):
        plan(argument)


def test_a_corpus_of_ones_own_needs_no_code():
    made = plan(
        "+corpus.sources.mine={kind: tsv, files: [a.tsv.zst], source: 0, target: 1, columns: 2}", "sources=[mine]"
    )
    assert list(made.chosen) == ["mine"]


def test_what_is_missing_is_said_before_a_tokenizer_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr("data_prep.__main__.token_counter", lambda name: pytest.fail(f"{name} was looked for"))
    for first in ("false", "true"):
        with pytest.raises(FileNotFoundError, match="no file"):
            main(composed(f"root={tmp_path / 'nowhere'}", f"output={tmp_path}", f"clean_only={first}"))
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("ctrl_c_taken")
def test_ctrl_c_is_told_in_a_word(monkeypatch, capsys):
    monkeypatch.setattr("data_prep.__main__.find_files", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as stop:
        main(composed())
    assert (stop.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_what_the_documents_prepare_beforehand_is_what_their_training_asks_for():
    lines = (CONF.parents[1] / "docs" / "reference" / "data.md").read_text(encoding="utf-8").splitlines()
    prepare, train = (line.split() for line in lines if "wmt21/tested" in line)
    data = checked("train", *train[2:]).data
    assert plan(*prepare[3:]).sample == Sampling(
        data.train_size, data.validation_size, data.test_size, data.max_tokens, data.train_on_relatives
    )


# --- token counters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tiny_tokenizer, byte_level_tokenizer])
def test_tokens_are_counted_as_training_counts_them(make, tmp_path):
    make().save_pretrained(str(tmp_path))
    loaded = load_tokenizer(str(tmp_path))
    counter = token_counter(str(tmp_path))
    assert counter.count(TEXTS) == [len(ids) for ids in token_ids(loaded, TEXTS)]
    assert counter.count([]) == []


@pytest.mark.parametrize("kind", ["Qwen2Tokenizer", "GPT2Tokenizer"])
def test_a_folder_in_an_older_layout_is_counted_as_transformers_does(kind, tmp_path):
    byte_level_tokenizer().backend_tokenizer.model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    loaded = load_tokenizer(str(tmp_path))
    texts = [text for text in TEXTS if "<" not in text]
    assert token_counter(str(tmp_path)).count(texts) == [len(ids) for ids in token_ids(loaded, texts)]


def test_a_tokenizer_that_is_nowhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.rmtree(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer=.*no tokenizer could be loaded from there"):
        token_counter(str(tmp_path))
