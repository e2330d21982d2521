"""From files to splits: exact sizes, disjoint texts, and the same splits whatever the order of lines."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from data_prep.relatives import RELATED
from data_prep.report import Report
from data_prep.splitting import rank
from duplexmt.common.pair import Pair
from duplexmt.common.text import text_key
from duplexmt.corpus.corpus_settings import CorpusSettings
from duplexmt.corpus.pairs_file import file_pairs
from duplexmt.corpus.prepared import fitting
from tests.data_prep.brute_force import likeness

DEFAULTS: dict[str, Any] = {
    "corpus": "pairs", "source_field": 0, "target_field": 1, "tokenizer": None, "vocab_size": 400, "max_tokens": None,
    "train_size": None, "validation_size": 0, "test_size": 0, "seed": 0,
}  # fmt: skip
LANGUAGES: dict[str, Any] = {"source_language": "zh", "target_language": "en"}
SIZES: dict[str, Any] = {"validation_size": 20, "test_size": 30}


@dataclass(frozen=True)
class Corpus:
    splits: dict[str, list[tuple[str, ...]]]
    report: Report


def load_corpus(train: Any, validation: Any = None, test: Any = None, **settings: Any) -> Corpus:
    """Pairs as plain texts."""
    report = Report()
    paths = {"train_path": train, "validation_path": validation, "test_path": test}
    splits = file_pairs(CorpusSettings(**DEFAULTS | paths | settings), report)
    return Corpus({name: [texts_of(pair) for pair in pairs] for name, pairs in splits.items()}, report)


def texts_of(pair: Any) -> tuple[str, ...]:
    """Source and target, and the sentence before where there is one."""
    return tuple(pair) if pair.before else (pair.source, pair.target)


def made_up(count: int) -> list[tuple[str, ...]]:
    """Clean pairs in which some sources and some targets come back, as in Tatoeba."""
    return [(f"第{i // 3 if i % 10 < 3 else i}句话。", f"Sentence {'abcde'[i % 5]} {i // 7}.") for i in range(count)]


def write(path: Path, pairs: list[tuple[str, ...]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def characters(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


def keys(pairs: list[tuple[str, ...]], side: int) -> set[str]:
    return {text_key(pair[side]) for pair in pairs}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.tsv", made_up(1000))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_sizes_are_exact_and_splits_share_neither_source_nor_target(path: Path, seed: int) -> None:
    corpus = load_corpus(path, **LANGUAGES, **SIZES, seed=seed)
    splits, counts = corpus.splits, corpus.report.counts
    assert {name: len(pairs) for name, pairs in splits.items() if name != "train"} == {"test": 30, "validation": 20}
    assert sum(counts["train"].values()) == counts["train.clean"]["kept"]
    assert len(splits["train"]) == counts["train"]["kept"]
    for side in (0, 1):
        assert not keys(splits["train"], side) & keys(splits["test"] + splits["validation"], side)
        assert len(keys(splits["test"] + splits["validation"], side)) == 50


def test_a_pair_is_judged_by_its_source_alone_not_by_the_sentence_before(tmp_path: Path) -> None:
    kept = [(f" 前面的句子。|||再见{i}。", f"Bye {i}.") for i in range(3)]
    bad = [("前面的句子。|||10-26", "10-26."), ("前面的句子。|||。", "A full stop."), ("前面的句子。||| ", "Nothing.")]
    corpus = load_corpus(
        write(tmp_path / "train.tsv", [*kept, *bad]), **LANGUAGES, context_tokens=4, context_separator="|||"
    )
    assert sorted(corpus.splits["train"]) == [(f"再见{i}。", f"Bye {i}.", "前面的句子。") for i in range(3)]
    assert corpus.report.counts["train.read"] == {"pairs": 5, "one_sided": 1}
    assert corpus.report.counts["train.clean"] == {"only_numerals": 1, "wordless": 1, "kept": 3}


def test_case_spaces_and_punctuation_do_not_make_a_text_new(tmp_path: Path) -> None:
    test = write(tmp_path / "test.tsv", [("你好！", "Hello, Tom!")])
    train = write(tmp_path / "train.tsv", [("你好", "Hi."), ("喂", "hello tom"), ("再见", "Bye.")])
    corpus = load_corpus(train, test=test, **LANGUAGES)
    assert corpus.splits == {"train": [("再见", "Bye.")], "validation": [], "test": [("你好！", "Hello, Tom!")]}
    assert corpus.report.counts["train"] == {"shares_held_out": 2, "kept": 1}


def test_more_lines_move_no_source_from_test_to_train_unless_a_lower_rank_comes(path: Path, tmp_path: Path) -> None:
    small = load_corpus(path, **LANGUAGES, test_size=30).splits
    large = load_corpus(write(tmp_path / "more.tsv", made_up(1100)), **LANGUAGES, test_size=30).splits
    assert len(keys(small["test"], 0) & keys(large["test"], 0)) >= 20


def test_the_rank_is_pinned_on_every_machine() -> None:
    assert [rank("你好", 0), rank("你好", 1), rank("hello", 0)] == [
        5719934789979458751,
        8545552126978182103,
        2755243946317442940,
    ]


def test_training_pairs_come_in_a_random_order_that_the_seed_decides(path: Path) -> None:
    one, other = (load_corpus(path, **LANGUAGES, **SIZES, seed=seed).splits["train"] for seed in (0, 1))
    assert one[:100] != other[:100]
    numbers = [int(text_key(source)[1:-2]) for source, _ in one[:300]]
    assert 350 < sum(numbers) / len(numbers) < 650  # from all over the file, not from its head


def test_the_draw_is_the_first_pairs_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duplexmt.corpus.prepared._BATCH", 3)
    monkeypatch.setattr("duplexmt.corpus.prepared.counters", lambda *_: (characters, words))
    pairs = [Pair("字" * n, "w " * (n % 4)) for n in (1, 9, 2, 3, 12, 4, 2, 8)]

    def drawn(size: int | None, report: Report, max_tokens: int | None = 4, name: str = "train") -> list[Pair]:
        asked = CorpusSettings(corpus="pairs", max_tokens=max_tokens)
        return fitting(asked, {name: pairs}, None, report, size)[name]

    report = Report()
    assert drawn(3, report) == [pairs[0], pairs[2], pairs[3]]
    assert report.counts["train.length"] == {"over_4_tokens": 2, "not_sampled": 3}
    assert drawn(None, Report()) == [pair for pair in pairs if len(pair[0]) <= 4]
    assert drawn(5, Report(), max_tokens=None) == pairs[:5]
    with pytest.raises(ValueError, match=r"data\.train_size=6: only 5 pairs have at most 4 tokens"):
        drawn(6, Report())
    with pytest.raises(ValueError, match=r"(?s)no validation pair is left.*over_0_tokens .*max_tokens"):
        drawn(None, Report(), max_tokens=0, name="validation")


def test_exact_duplicates_are_dropped_once_clean_and_counted(tmp_path: Path) -> None:
    pairs = [("你 好", "Hi ."), ("你好", "Hi."), ("你好", "Hello."), ("再见", "Bye."), ("3", "3")]
    corpus = load_corpus(write(tmp_path / "a.tsv", pairs), **LANGUAGES)
    assert sorted(corpus.splits["train"]) == [("你好", "Hello."), ("你好", "Hi."), ("再见", "Bye.")]
    assert corpus.report.counts == {
        "train.read": {"pairs": 5},
        "train.clean": {"duplicate": 1, "only_numerals": 1, "kept": 3},
        "train": {"kept": 3},
    }
    assert corpus.report.examples["train.clean"]["only_numerals"] == [(1, "a.tsv:5", "3\t3", "")]


def test_given_files_are_taken_whole_and_in_order_and_training_gives_way(tmp_path: Path) -> None:
    pairs = made_up(60)
    test = write(tmp_path / "test.tsv", pairs[:10])
    validation = write(tmp_path / "validation.tsv", pairs[5:30])
    train, how = write(tmp_path / "train.tsv", pairs), LANGUAGES | {"train_on_relatives": True}
    corpus = load_corpus(train, validation, test, **how, test_size=1)
    assert corpus.splits["test"] == pairs[:10]
    held = corpus.splits["test"] + corpus.splits["validation"]
    for side in (0, 1):
        assert not keys(corpus.splits["test"], side) & keys(corpus.splits["validation"], side)
        assert not keys(corpus.splits["train"], side) & keys(held, side)
    assert corpus.report.counts["validation"]["shares_held_out"] >= 5
    cut = load_corpus(train, test=test, **how, validation_size=9)
    assert (len(cut.splits["validation"]), cut.splits["test"]) == (9, pairs[:10])


def test_one_file_for_validation_and_test_is_an_error_that_names_it(path: Path, tmp_path: Path) -> None:
    dev = write(tmp_path / "dev.tsv", [("题", "A question."), ("书", "A book.")])
    with pytest.raises(
        ValueError, match=r"no validation pair of \S*dev\.tsv is left, .* data\.validation_path another"
    ):
        load_corpus(path, dev, dev, **LANGUAGES)


def test_an_empty_corpus_is_an_error_that_says_where_the_pairs_went(path: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"zh": "你好", "cn": "", "en": "Hi"}) + "\n", encoding="utf-8")
    message = r"(?s)left of .*bad.jsonl \(source_field=cn, .*one_sided +1 .*source_field"
    with pytest.raises(ValueError, match=message):
        load_corpus(bad, **LANGUAGES, source_field="cn", target_field="en")
    with pytest.raises(ValueError, match=r"(?s)no test pair is left.*one_sided"):
        load_corpus(path, test=write(tmp_path / "test.tsv", [("", "No source")]), **LANGUAGES)


def test_swapped_columns_and_other_languages_are_refused_where_scripts_tell(tmp_path: Path) -> None:
    swapped = write(tmp_path / "swapped.tsv", [(target, source) for source, target in made_up(100)])
    with pytest.raises(ValueError, match=r"train: 100 of .* source texts are not in .*if the columns are swapped"):
        load_corpus(swapped, **LANGUAGES)
    right_way: list[dict[str, Any]] = [
        LANGUAGES | {"source_field": 1, "target_field": 0},
        {"source_language": "en", "target_language": "zh"},
        {"source_language": "en", "target_language": "th"},  # a script that is not known
    ]
    for settings in right_way:
        assert load_corpus(swapped, **settings).splits["train"]
    for side, source, target in (("target", "en", "de"), ("source", "zh", "th")):
        wrong = target if side == "target" else source
        message = rf"train: 100 of .* {side} texts are not in .*{side}_language={wrong}.*give"
        with pytest.raises(ValueError, match=message):
            load_corpus(swapped, source_language=source, target_language=target)


def test_a_size_beyond_what_is_there_is_an_error_that_says_how_many_are_lacking(path: Path, tmp_path: Path) -> None:
    message = r"cannot hold out test_size=4,000 and validation_size=1,000: 3,[0-9]+ pairs \(test\), [0-9]+ pairs"
    with pytest.raises(ValueError, match=message):
        load_corpus(path, **LANGUAGES, test_size=4000, validation_size=1000)
    single = write(tmp_path / "one.tsv", [("题", "A question.")])
    with pytest.raises(ValueError, match=r"(?s)no train pair is left.*shares_held_out|1 pairs \(test\) are lacking"):
        load_corpus(single, **LANGUAGES, test_size=1)


def test_a_negative_size_and_an_unknown_language_are_errors_before_anything_is_read(tmp_path: Path) -> None:
    for name in ("validation_size", "test_size"):
        size: dict[str, Any] = {name: -1}
        with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
            load_corpus(tmp_path / "nowhere.tsv", "nowhere.tsv" if name == "test_size" else None, **LANGUAGES, **size)
    with pytest.raises(ValueError, match="'cn' is not an ISO 639-1 code"):
        load_corpus(tmp_path / "nowhere.tsv", source_language="cn", target_language="en")


def test_words_that_differ_in_vowel_signs_alone_are_different_texts():
    words = ["की", "का", "कि", "के", "दिन", "दान", "देना", "दीना", "ที่", "ทา", "កា", "កិ"]
    assert len({text_key(word) for word in words}) == len(words)
    assert text_key("Hello, \u26a0\ufe0f_Tom!") == "hellotom"


def families(path: Path) -> Path:
    """Families of three, and sentences that are nobody's relatives."""
    draw = random.Random(3)
    lines = []
    for number in range(200):
        one, other = ("".join(draw.choices("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏", k=8)) for _ in "ab")
        words = " ".join(f"{draw.choice('bcdfgh')}{draw.choice('aeiou')}{draw.randrange(40)}" for _ in range(6))
        lines += [f"{one}人。\t{words} one.", f"{one}马。\t{words} two.", f"{other}\tNothing of that, {number} times"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("given", [False, True])
def test_no_training_pair_is_a_relative_of_a_held_out_one_but_where_that_is_asked_for(
    tmp_path: Path, given: bool
) -> None:
    path, languages = families(tmp_path / "pairs.tsv"), ("zh", "en")
    how: dict[str, Any] = LANGUAGES | {"test_size": 15, "validation_size": 15}
    if given:
        test = tmp_path / "test.tsv"
        test.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:9]), encoding="utf-8")
        how["test"] = test
    found = load_corpus(path, **how)
    splits, old = found.splits, load_corpus(path, **how, train_on_relatives=True).splits
    held = [Pair(*pair) for pair in splits["test"] + splits["validation"]]
    assert all(likeness(Pair(*one), other, languages) < RELATED for one in splits["train"] for other in held)
    assert {name: old[name] for name in ("test", "validation")} == {n: splits[n] for n in ("test", "validation")}
    dropped = set(old["train"]) - set(splits["train"])
    assert len(dropped) == found.report.counts["train"]["relative_of_held_out"] > 5
    assert all(any(likeness(Pair(*one), other, languages) >= RELATED for other in held) for one in dropped)
    assert [pair for pair in old["train"] if pair not in dropped] == splits["train"]
