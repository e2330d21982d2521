"""The pairs in the box: `data/` as its README says, and `data=permissive`, `data=tatoeba`, `data=captions`."""

import gzip
import re
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from data_prep.relatives import RELATED, Relatives
from data_prep.report import Report
from duplexmt.common.pair import Pair
from duplexmt.common.text import text_key
from duplexmt.corpus import pairs_folder
from duplexmt.corpus.corpus_settings import CorpusSettings
from duplexmt.corpus.pairs_folder import folder_pairs
from duplexmt.corpus.prepared import corpus_settings
from duplexmt.corpus.repository import ROOT, located
from tests.test_config import checked

DATA = ROOT / "data"
FILES = {path.name.split(".")[0]: path for path in sorted(DATA.glob("*.tsv.gz"))}
GERMAN = DATA / "de-en" / "tatoeba.de-en.tsv.gz"
DAILY_LIFE = ("daily-life", "daily-life-2", "daily-life-3")
CHINESE_HELD_OUT = DATA / "de-en" / "held-out.zh-en.tsv.gz"


def settings_of(name):
    return checked("train", f"data={name}").data


def splits_of(name, prepared, **options):
    data = corpus_settings(asdict(settings_of(name))) | {"prepared": str(prepared)} | options
    return folder_pairs(CorpusSettings(**data), Report())[0]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture(scope="module")
def splits(prepared):
    before = pairs_folder.usable_cores
    pairs_folder.usable_cores = lambda: 1
    found = {name: splits_of(name, prepared) for name in ("permissive", "tatoeba", "captions")}
    yield found | {"tatoeba_de": splits_of("tatoeba_de", prepared / "de")}
    pairs_folder.usable_cores = before


def keys(pairs):
    return {text_key(pair.source) for pair in pairs}, {text_key(pair.target) for pair in pairs}


def test_the_box_is_small_and_has_no_other_file():
    assert sum(path.stat().st_size for path in DATA.rglob("*.*")) <= 26e6
    others = {"README.md", "LICENSES.md", "everyday.zh.txt", "everyday50.zh.txt", "everyday50b.zh.txt", "de-en"}
    assert {path.name for path in DATA.iterdir()} == others | {path.name for path in FILES.values()}
    assert {path.name for path in GERMAN.parent.iterdir()} == {"README.md", GERMAN.name, CHINESE_HELD_OUT.name}


@pytest.mark.parametrize("file", [*FILES.values(), GERMAN], ids=lambda file: file.name)
def test_the_readme_says_of_each_file_how_many_pairs_it_has_and_whose_they_are(file):
    name, readme = file.name.split(".")[0], (file.parent / "README.md").read_text(encoding="utf-8")
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as opened:
        lines = opened.readlines()
    assert all(line.count("\t") == 1 for line in lines)
    (row,) = re.findall(rf"^\| \[{re.escape(file.name)}\].*$", readme, flags=re.MULTILINE)
    assert f"| {len(lines):,} | {file.stat().st_size / 1e6:.2f} |" in row
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", readme, flags=re.MULTILINE | re.DOTALL)[1]
    assert re.search(r"- Origin: (.*@[0-9a-f]{7}|CC-CEDICT, release 20|written for this)", section, flags=re.DOTALL)
    assert "- Attribution: " in section
    licence = re.search(r"- Licence: \[(CC0|CC BY|CC BY-SA|MIT|Apache|BSD).*?\]\((.*?)\)", section)[2]
    anchors = re.findall(r"^## (.*)$", (DATA / "LICENSES.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    known = {f"LICENSES.md#{heading.lower().replace(' ', '-').replace('.', '')}" for heading in anchors}
    assert licence in known or re.match(r"https://creativecommons.org/(licenses|publicdomain)/", licence)


def test_the_german_pairs_have_beside_them_what_the_chinese_ones_hold_out(splits):
    with gzip.open(CHINESE_HELD_OUT, "rt", encoding="utf-8", newline="\n") as opened:
        pairs = [tuple(line.rstrip("\n").split("\t")) for line in opened]
    assert pairs == [pair[:2] for split in ("test", "validation") for pair in splits["permissive"][split]]


def test_permissive_holds_out_4000_pairs_each_and_trains_on_the_rest(splits):
    found = splits["permissive"]
    assert {name: len(pairs) for name, pairs in found.items() if name != "train"} == {"test": 8000, "validation": 2000}
    assert 140_000 < len(found["train"]) < 162_141


@pytest.mark.parametrize("name", ["permissive", "tatoeba", "captions", "tatoeba_de"])
def test_no_text_is_in_two_splits(splits, name):
    texts = {split: keys(pairs) for split, pairs in splits[name].items()}
    for one, other in (("train", "test"), ("train", "validation"), ("test", "validation")):
        for side in (0, 1):
            assert not texts[one][side] & texts[other][side]


@pytest.mark.parametrize("split", ["test", "validation"])
def test_tatoeba_and_captions_hold_out_the_pairs_that_permissive_holds_out(splits, split):
    apart = [pair for name in ("tatoeba", "captions") for pair in splits[name][split]]
    assert sorted(apart) == sorted(splits["permissive"][split])


def jaccards(held, trained):
    """For each text the largest Jaccard index with one trained on: of bigrams, by counting all that are shared."""
    numbers, sizes = {bigram: [] for bigrams in held for bigram in bigrams}, np.array([len(each) for each in trained])
    for number, bigrams in enumerate(trained):
        for bigram in numbers.keys() & bigrams:
            numbers[bigram].append(number)
    for bigrams in held:
        found = [np.array(numbers[bigram], int) for bigram in bigrams]
        shared = np.bincount(np.concatenate([*found, np.empty(0, int)]), minlength=len(trained))
        yield (shared / np.maximum(len(bigrams) + sizes - shared, 1)).max()


def of_signs(text):
    return set(pairwise(text))


def of_words(text):
    return set(pairwise(re.findall(r"\w+", text.lower())))


def of_tokens(text):
    return set(pairwise(text.lower().split()))


@pytest.mark.parametrize("name", ["permissive", "tatoeba", "captions", "tatoeba_de"])
def test_no_held_out_sentence_has_a_relative_in_training(splits, name):
    found = splits[name]
    held = [pair for split in ("test", "validation") for pair in found[split] if crc32(pair[0].encode()) % 20 == 0]
    # What permissive trains on, too, is compared above with what it holds out, which is what these two do.
    compared = {*splits["permissive"]["train"]} if name in ("tatoeba", "captions") else set()
    trained = [pair for pair in found["train"] if pair not in compared]
    assert held
    if not trained:
        assert compared >= {*found["train"]}
        return
    sides = [(0, of_words), (0, of_tokens)] if name == "tatoeba_de" else [(0, of_signs)]
    for side, bigrams in [*sides, (1, of_words), (1, of_tokens)]:
        likest = list(jaccards(*([bigrams(pair[side]) for pair in pairs] for pairs in (held, trained))))
        assert max(likest) < RELATED, held[likest.index(max(likest))]


def test_german_holds_out_5000_pairs_and_trains_on_the_rest(splits):
    found = splits["tatoeba_de"]
    assert {name: len(pairs) for name, pairs in found.items() if name != "train"} == {"test": 4000, "validation": 1000}
    assert len(found["train"]) > 138_000


@pytest.mark.parametrize("split", ["train", "test", "validation"])
def test_the_everyday_sentences_are_in_no_pair(splits, split):
    everyday = {text_key(line) for line in everyday_sentences()}
    assert len(everyday) == 120
    assert not everyday & keys(splits["permissive"][split])[0]
    for name in (*DAILY_LIFE, "tatoeba-back"):
        assert not everyday & {text_key(source) for source, _ in read(name)}


def everyday_sentences():
    names = ("everyday.zh.txt", "everyday50.zh.txt", "everyday50b.zh.txt")
    return [line for name in names for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def read(name):
    with gzip.open(FILES[name], "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines]


def test_the_dictionary_has_short_glosses_of_words_and_no_preset_trains_on_it(splits):
    entries = read("cc-cedict")
    assert len({tuple(entry) for entry in entries}) == len(entries)
    assert all(2 <= len(word) <= 8 and 1 <= len(gloss.split()) <= 5 for word, gloss in entries)
    assert not [gloss for _, gloss in entries if re.search(r"[][(){}/;|0-9]|^to |\b(sb|sth|etc)\b", gloss)]
    assert {("饺子", "dumpling"), ("堵车", "traffic jam"), ("便宜", "cheap")} <= {tuple(entry) for entry in entries}
    assert ["饺子", "dumpling"] not in [[pair.source, pair.target] for pair in splits["permissive"]["train"]]


def test_greetings_are_short_and_those_trained_on_say_what_they_mean(splits):
    greetings = {source: target for source, target in read("greetings")}
    assert len(greetings) == len(read("greetings")) > 150
    assert max(map(len, greetings)) <= 12
    assert greetings["你好。"] == "Hello."
    trained = {pair.source for pair in splits["permissive"]["train"]}
    assert len(greetings.keys() & trained) > len(greetings) / 2, "the others share a text with held-out pairs"


def test_sentences_of_daily_life_are_whole_and_no_relatives_of_the_everyday_ones_and_no_preset_trains_on_them(splits):
    pairs = [Pair(*pair) for name in DAILY_LIFE for pair in read(name)]
    for side in (0, 1):
        assert len({text_key(pair[side]) for pair in pairs}) == len(pairs) > 140_000
    assert not [pair for pair in pairs if not re.search(r"[。？！”…]$", pair.source) or pair.source.isascii()]
    assert not [pair for pair in pairs if not re.search(r"[.?!\"”…']$", pair.target)]
    everyday = [Pair(line, "") for line in everyday_sentences()]
    assert Relatives(everyday, ("zh", "en")).others(pairs) == pairs
    trained = {pair[:2] for pair in splits["permissive"]["train"]}
    assert len(trained & {pair[:2] for pair in pairs}) < 100, "but for what another corpus says in the same words"


def test_a_path_of_the_repository_is_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert located("repository:data") == DATA
    assert located("pairs/mine") == Path("pairs/mine")


def test_without_the_repository_the_error_says_where_the_files_are(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"repository:data: .* the folder data of duplexmt's repository.*clone"):
        located("repository:data", root=tmp_path)
