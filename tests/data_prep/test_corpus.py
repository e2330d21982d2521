"""From files to splits: exact sizes, disjoint texts, and the same splits whatever the order of lines."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from data_prep import Report, filter_by_length, finish_splits, read_and_clean
from data_prep.reading import Pair
from data_prep.splitting import rank, text_key

LANGUAGES: dict[str, Any] = {"source_language": "zh", "target_language": "en"}
SIZES: dict[str, Any] = {"validation_size": 20, "test_size": 30}


@dataclass(frozen=True)
class Corpus:
    splits: dict[str, list[tuple[str, ...]]]
    report: Report


def load_corpus(train: Any, validation: Any = None, test: Any = None, **settings: Any) -> Corpus:
    """Both steps at once, each with those of the settings it takes."""
    report = Report()

    def call(step: Callable[..., Any], *arguments: Any) -> Any:
        taken = signature(step).parameters.keys() & settings.keys()
        return step(*arguments, **{name: settings[name] for name in taken}, report=report)

    splits = call(finish_splits, call(read_and_clean, train, validation, test))
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


def uneven(texts: list[str]) -> list[int]:
    """1 to 9 tokens, the same for the same text, so that a limit of 6 drops a third."""
    return [1 + rank(text, 99) % 9 for text in texts]


def characters(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


def keys(pairs: list[tuple[str, ...]], side: int) -> set[str]:
    return {text_key(pair[side]) for pair in pairs}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.tsv", made_up(1000))


def test_held_out_sizes_are_exact_and_the_rest_trains(path: Path) -> None:
    corpus = load_corpus(path, **LANGUAGES, **SIZES)
    assert list(corpus.splits) == ["train", "validation", "test"]
    assert (len(corpus.splits["test"]), len(corpus.splits["validation"])) == (30, 20)
    dropped = corpus.report.counts["split"]["train_shares_held_out"]
    assert len(corpus.splits["train"]) == corpus.report.counts["train.clean"]["kept"] - 50 - dropped


def test_held_out_sizes_are_exact_after_the_length_filter(path: Path) -> None:
    limit: dict[str, Any] = {"max_tokens": 6, "count_source": uneven, "count_target": words}
    corpus = load_corpus(path, **LANGUAGES, **SIZES, **limit)
    assert (len(corpus.splits["test"]), len(corpus.splits["validation"])) == (30, 20)
    assert all(max(uneven([source])) <= 6 for pairs in corpus.splits.values() for source, _ in pairs)
    assert 250 < sum(corpus.report.counts[f"{part}.length"]["over_6_tokens"] for part in ("pool", "train")) < 420


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_splits_share_neither_source_nor_target(path: Path, seed: int) -> None:
    splits = load_corpus(path, **LANGUAGES, **SIZES, seed=seed).splits
    for side in (0, 1):
        assert not keys(splits["train"], side) & keys(splits["test"] + splits["validation"], side)
        assert len(keys(splits["test"] + splits["validation"], side)) == 50


def test_a_source_behind_another_sentence_is_the_same_source(tmp_path: Path) -> None:
    """With the sentence before in the source column: "sentence before|||source"."""
    draw = random.Random(3)
    behind = [
        (f"前面第{draw.randrange(99)}句。|||{source}", f"{target} {i}")
        for i, (source, target) in enumerate(made_up(900))
    ]
    path = write(tmp_path / "contexts.tsv", behind)
    bare = {source.partition("|||")[2] for source, _ in behind}
    assert len(bare) < 700, "many sources stand there several times"
    for separator in ("|||", None):
        splits = load_corpus(path, **LANGUAGES, **SIZES, context_separator=separator).splits
        held, trained = (
            {text_key(pair[0].rpartition("|||")[2]) for pair in pairs}
            for pairs in (splits["test"] + splits["validation"], splits["train"])
        )
        assert {len(pair) for pairs in splits.values() for pair in pairs} == {3 if separator else 2}
        assert bool(held & trained) == (separator is None)
        assert separator is None or len(held) == 50


def test_a_pair_is_judged_by_its_source_alone_not_by_the_sentence_before(tmp_path: Path) -> None:
    kept = [(f" 前面的句子。|||再见{i}。", f"Bye {i}.") for i in range(3)]
    bad = [("前面的句子。|||10-26", "10-26."), ("前面的句子。|||。", "A full stop."), ("前面的句子。||| ", "Nothing.")]
    corpus = load_corpus(write(tmp_path / "train.tsv", [*kept, *bad]), **LANGUAGES, context_separator="|||")
    assert sorted(corpus.splits["train"]) == [(f"再见{i}。", f"Bye {i}.", "前面的句子。") for i in range(3)]
    assert corpus.report.counts["train.read"] == {"pairs": 5, "one_sided": 1}
    assert corpus.report.counts["train.clean"] == {"only_numerals": 1, "wordless": 1, "kept": 3}


def test_case_spaces_and_punctuation_do_not_make_a_text_new(tmp_path: Path) -> None:
    test = write(tmp_path / "test.tsv", [("你好！", "Hello, Tom!")])
    train = write(tmp_path / "train.tsv", [("你好", "Hi."), ("喂", "hello tom"), ("再见", "Bye.")])
    corpus = load_corpus(train, test=test, **LANGUAGES)
    assert corpus.splits == {"train": [("再见", "Bye.")], "validation": [], "test": [("你好！", "Hello, Tom!")]}
    assert corpus.report.counts["split"] == {"train_shares_held_out": 2}


def test_splits_do_not_depend_on_the_order_of_lines(path: Path, tmp_path: Path) -> None:
    shuffled = made_up(1000)
    random.Random(5).shuffle(shuffled)
    limit: dict[str, Any] = {"max_tokens": 6, "count_source": uneven, "count_target": words, "train_size": 200}
    first = load_corpus(path, **LANGUAGES, **SIZES, **limit)
    second = load_corpus(write(tmp_path / "shuffled.tsv", shuffled), **LANGUAGES, **SIZES, **limit)
    assert first.splits == second.splits
    assert first.report.counts == second.report.counts


def test_another_seed_holds_out_other_pairs(path: Path) -> None:
    first, second = (load_corpus(path, **LANGUAGES, **SIZES, seed=seed).splits["test"] for seed in (0, 1))
    assert len(set(first) & set(second)) < 10


def test_the_validation_size_leaves_the_test_split_alone(path: Path) -> None:
    tests = [
        load_corpus(path, **LANGUAGES, test_size=30, validation_size=size).splits["test"] for size in (None, 1, 99)
    ]
    assert tests[0] == tests[1] == tests[2]


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


def test_a_training_sample_is_exact_and_grows_by_adding(path: Path) -> None:
    small, large, other = (
        load_corpus(path, **LANGUAGES, **SIZES, train_size=size, seed=seed)
        for size, seed in ((100, 0), (300, 0), (100, 1))
    )
    assert len(small.splits["train"]) == 100
    assert small.splits["train"] == large.splits["train"][:100]
    assert set(small.splits["train"]) != set(other.splits["train"])
    numbers = [int(text_key(source)[1:-2]) for source, _ in large.splits["train"]]
    assert 350 < sum(numbers) / len(numbers) < 650  # from all over the file, not from its head


def test_what_the_tokenizer_sees_shares_no_text_with_what_may_be_held_out(path: Path) -> None:
    report = Report()
    parts = read_and_clean(path, **LANGUAGES, **SIZES, report=report)
    splits = finish_splits(parts, **SIZES, report=report)
    for side in (0, 1):
        assert not keys(parts["train"], side) & keys(splits["test"] + splits["validation"], side)
    assert not keys(parts["train"], 0) & keys(parts["pool"][: 4 * 50], 0)
    assert "beyond_pool" not in report.counts["split"]
    assert len(parts["train"]) > 300


def test_a_pool_too_short_is_topped_up_and_reported(path: Path) -> None:
    report = Report()
    parts = read_and_clean(path, **LANGUAGES, test_size=5, report=report)
    in_pool = set(parts["pool"])

    def count(texts: list[str]) -> list[int]:
        return [99 if any(text == pair.source for pair in in_pool) else 1 for text in texts]

    splits = finish_splits(parts, max_tokens=9, count_source=count, count_target=words, test_size=5, report=report)
    assert len(splits["test"]) == 5
    assert report.counts["split"]["beyond_pool"] == 5


def test_exact_duplicates_are_dropped_once_clean_and_counted(tmp_path: Path) -> None:
    pairs = [("你 好", "Hi ."), ("你好", "Hi."), ("你好", "Hello."), ("再见", "Bye."), ("3", "3")]
    corpus = load_corpus(write(tmp_path / "a.tsv", pairs), **LANGUAGES)
    assert sorted(corpus.splits["train"]) == [("你好", "Hello."), ("你好", "Hi."), ("再见", "Bye.")]
    assert corpus.report.counts == {
        "train.read": {"pairs": 5},
        "train.clean": {"duplicate": 1, "only_numerals": 1, "kept": 3},
    }
    assert corpus.report.examples["train.clean"]["only_numerals"] == ["a.tsv:5: '3\\t3'"]


def test_given_files_keep_their_order_and_training_gives_way(tmp_path: Path) -> None:
    pairs = made_up(60)
    test = write(tmp_path / "test.tsv", pairs[:10])
    validation = write(tmp_path / "validation.tsv", pairs[5:30])
    corpus = load_corpus(write(tmp_path / "train.tsv", pairs), validation, test, **LANGUAGES)
    assert corpus.splits["test"] == pairs[:10]
    held = corpus.splits["test"] + corpus.splits["validation"]
    for side in (0, 1):
        assert not keys(corpus.splits["test"], side) & keys(corpus.splits["validation"], side)
        assert not keys(corpus.splits["train"], side) & keys(held, side)
    assert corpus.report.counts["split"]["validation_shares_held_out"] >= 5


def test_a_given_test_file_goes_with_a_validation_split_cut_from_training(path: Path, tmp_path: Path) -> None:
    test = write(tmp_path / "test.tsv", [("题", "A question."), ("答", "An answer.")])
    splits = load_corpus(path, test=test, **LANGUAGES, validation_size=20, test_size=1).splits
    assert (len(splits["validation"]), len(splits["test"])) == (20, 1)


def test_several_training_files_are_one_corpus(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.tsv", [("题", "A question."), made_up(1)[0]])
    corpus = load_corpus([path, other], **LANGUAGES)
    assert ("题", "A question.") in corpus.splits["train"]
    assert corpus.report.counts["train.read"]["pairs"] == 1002


def test_the_length_filter_counts_both_sides_in_every_part() -> None:
    train, test = [Pair("aa", "b"), Pair("a", "b b b"), Pair("a", "b b")], [Pair("aaa", "b"), Pair("a", "b")]
    parts = {"train": train, "test": test}
    report = Report()
    kept = filter_by_length(parts, 2, characters, words, report)
    assert kept == {"train": [Pair("aa", "b"), Pair("a", "b b")], "test": [Pair("a", "b")]}
    assert report.counts == {
        "train.length": {"over_2_tokens": 1, "kept": 2},
        "test.length": {"over_2_tokens": 1, "kept": 1},
    }
    assert filter_by_length(parts, None, None, None, report) == parts


def test_a_counter_gets_batches_and_must_answer_for_each_text() -> None:
    sizes: list[int] = []

    def count(texts: list[str]) -> list[int]:
        sizes.append(len(texts))
        return [1] * len(texts)

    parts = {"train": [Pair("a", str(i)) for i in range(2500)]}
    assert filter_by_length(parts, 1, count, count, Report()) == parts
    assert max(sizes) <= 1000
    assert sum(sizes) == 5000
    with pytest.raises(ValueError, match="returned 3 counts for 1000 texts"):
        filter_by_length(parts, 1, lambda texts: [1, 2, 3], count, Report())


def test_an_empty_corpus_is_an_error_that_says_where_the_pairs_went(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)no train pair is left.*over_1_tokens .*max_tokens"):
        load_corpus(path, **LANGUAGES, max_tokens=1, count_source=characters, count_target=words)
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"zh": "你好", "en": "Hi"}) + "\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"(?s)left of .*bad.jsonl \(source_field=cn, .*missing_field +1 .*source_field"
    ):
        load_corpus(bad, **LANGUAGES, source_field="cn", target_field="en")
    with pytest.raises(ValueError, match=r"(?s)no test pair is left.*one_sided"):
        load_corpus(path, test=write(tmp_path / "test.tsv", [("", "No source")]), **LANGUAGES)


def test_swapped_columns_and_other_languages_are_refused_where_scripts_tell(tmp_path: Path) -> None:
    swapped = write(tmp_path / "swapped.tsv", [(target, source) for source, target in made_up(100)])
    with pytest.raises(
        ValueError, match=r"train: the columns are swapped: 100 of the first 100 pairs have en for a source"
    ):
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


def test_a_size_beyond_what_is_there_is_an_error_that_says_how_many_are(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot hold out 5,000 pairs .* of the 1,000 pairs that fit"):
        load_corpus(path, **LANGUAGES, test_size=4000, validation_size=1000)
    with pytest.raises(ValueError, match=r"train_size is 2,000, but there are only 1,000 pairs"):
        load_corpus(path, **LANGUAGES, train_size=2000)
    test = write(tmp_path / "test.tsv", [("题", "A question.")])
    with pytest.raises(ValueError, match="test_size is 2, but there are only 1 pairs"):
        load_corpus(path, test=test, **LANGUAGES, test_size=2)
    with pytest.raises(ValueError, match="cannot hold out 1 pairs"):
        load_corpus(test, **LANGUAGES, test_size=1)


@pytest.mark.parametrize("name", ["train_size", "validation_size", "test_size"])
def test_a_negative_size_is_an_error(path: Path, name: str) -> None:
    size: dict[str, Any] = {name: -1}
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        load_corpus(path, **LANGUAGES, **size)


@pytest.mark.parametrize("limit", [{"max_tokens": 0, "count_source": words, "count_target": words}, {"max_tokens": 5}])
def test_a_length_limit_needs_a_positive_number_and_two_counters(path: Path, limit: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1 and come with two token counters"):
        load_corpus(path, **LANGUAGES, **limit)


def test_an_unknown_language_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'cn' is not an ISO 639-1 code"):
        load_corpus(tmp_path / "nowhere.tsv", source_language="cn", target_language="en")


def test_the_report_of_a_whole_run_is_fit_for_json(path: Path) -> None:
    corpus = load_corpus(path, **LANGUAGES, **SIZES, train_size=100)
    assert isinstance(corpus, Corpus)
    assert json.loads(json.dumps(corpus.report.as_dict()))["counts"]["train.read"] == {"pairs": 1000}
    assert "train_not_sampled" in corpus.report.summary()
