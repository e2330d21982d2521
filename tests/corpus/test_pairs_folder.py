"""`data=pairs_folder`: splits that depend on texts alone, and test files that no pair is ever taken from."""

import gzip
import random
import shutil

import pytest

from data_prep.relatives import RELATED
from data_prep.report import Report
from duplexmt.common.pair import Pair
from duplexmt.common.text import text_key
from duplexmt.corpus import pairs_folder
from duplexmt.corpus.corpus_settings import CorpusSettings
from duplexmt.corpus.pairs_folder import folder_pairs
from duplexmt.corpus.prepared import prepare_corpus
from tests.data_prep.brute_force import likeness
from tests.helpers import CORPUS, tiny_tokenizer

WORDS = "猫狗书茶人山水火天地日月风雨花鸟鱼虫木石"
ENGLISH = (
    "cat dog book tea man hill water fire sky earth sun moon wind rain flower bird fish worm wood stone".split()  # noqa: SIM905
)
OPTIONS = {
    "corpus": "pairs_folder", "cleaning": "strict", "sources": None, "exclude": ["test-*"], "held_out": ["one", "two"],
    "validation_size": 5, "test_size": 6, "source_field": 0, "target_field": 1, "source_language": "zh",
    "target_language": "en", "seed": 1,
}  # fmt: skip
TIES = ("。", "Now"), ("！", "Late"), ("？", "Early")  # sources of one rank, with targets in another order
CONTEXT = {"context_tokens": 4, "context_separator": "|||"}


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(pairs_folder, "usable_cores", lambda: 1)


def sentences(seed, count):
    """Different sentences of four words, with their translations word by word."""
    draw = random.Random(seed)
    chosen = draw.sample(range(20**4), count)
    words = [[number // 20**place % 20 for place in range(4)] for number in chosen]
    return [("".join(WORDS[w] for w in each) + "。", " ".join(ENGLISH[w] for w in each) + ".") for each in words]


def write(folder, name, pairs, suffix=".zh-en.tsv.gz"):
    folder.mkdir(exist_ok=True)
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    data = text.encode()
    (folder / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)


@pytest.fixture
def corpus(tmp_path):
    """Three corpora and a test set; "two" and "three" share some texts with "one", "three" one with the test set."""
    one, two, three, test = (sentences(seed, count) for seed, count in ((1, 300), (2, 120), (3, 80), (4, 20)))
    folder = tmp_path / "corpora"
    write(folder, "one", one)
    write(folder, "two", [*two, *one[:60]])
    write(folder, "three", [*three, *one[100:180], (test[0][0], "something else"), ("别的", test[1][1].upper())])
    write(folder, "test-set", test, ".tsv")
    (folder / "README.md").write_text("no corpus", encoding="utf-8")
    return folder


def asked(folder, prepared, **options):
    return CorpusSettings(**CORPUS | OPTIONS | {"path": str(folder), "prepared": str(prepared)} | options)


def splits_of(folder, tmp_path, **options):
    report = Report()
    prepared = tmp_path / f"prepared-{len(list(tmp_path.iterdir()))}"
    return folder_pairs(asked(folder, prepared, **options), report)[0], report


def keys(pairs):
    return {text_key(text) for pair in pairs for text in pair[:2]}


def test_each_file_that_is_held_out_from_gives_as_many_pairs_as_asked_for(corpus, tmp_path):
    splits, report = splits_of(corpus, tmp_path)
    assert {name: len(pairs) for name, pairs in splits.items() if name != "train"} == {"test": 12, "validation": 10}
    with gzip.open(corpus / "one.zh-en.tsv.gz", "rt", encoding="utf-8") as file:
        one = {tuple(line.rstrip("\n").split("\t")) for line in file}
    assert sum(pair[:2] in one for pair in splits["test"]) >= 6
    assert report.counts["test"]["held_out"] == 12
    assert sum(report.counts[name]["kept"] for name in ("one", "two", "three")) == len(splits["train"])


def test_no_text_of_either_side_is_in_two_splits_nor_in_a_test_file(corpus, tmp_path):
    splits, report = splits_of(corpus, tmp_path)
    train, validation, test = (keys(splits[name]) for name in ("train", "validation", "test"))
    assert not train & validation
    assert not train & test
    assert not validation & test
    public = keys(sentences(4, 20))
    assert not public & (train | validation | test)
    assert report.counts["three"]["shares_test_file"] == 2
    assert report.counts["one"]["shares_held_out"] >= 11
    assert len(set(splits["train"])) == len(splits["train"])
    for pairs in (splits["test"], splits["validation"]):
        for side in (0, 1):
            assert len({text_key(pair[side]) for pair in pairs}) == len(pairs)


def test_a_test_sentence_is_known_in_traditional_characters_too_where_cleaning_simplifies(corpus, tmp_path):
    test = [("紅書", "A red book."), ("藍書", "A blue book.")]
    write(corpus, "test-traditional", test, ".tsv")
    write(corpus, "four", [*sentences(5, 90), ("紅書", "One."), ("蓝书", "Two."), ("綠書", "A red book.")])
    splits, report = splits_of(corpus, tmp_path)
    assert report.counts["four"]["shares_test_file"] == 3
    assert not {"红书", "蓝书", "绿书"} & {pair.source for pair in splits["train"]}


def alike(pairs):
    """The same with another word each, or another end."""
    return [(f"{source[:-2]}人。", f"{target[:-1]} all.") for source, target in pairs]


def test_no_training_pair_is_a_relative_of_a_held_out_one_or_of_a_test_files_but_where_that_is_asked_for(
    corpus, tmp_path
):
    write(corpus, "near", [*alike(sentences(1, 300)), *alike(sentences(4, 20))])
    splits, report = splits_of(corpus, tmp_path)
    known = [*splits["test"], *splits["validation"], *(Pair(*pair) for pair in sentences(4, 20))]
    assert max(likeness(one, other, ("zh", "en")) for one in splits["train"] for other in known) < RELATED
    assert report.counts["near"]["relative_of_held_out"] > 20
    old, _ = splits_of(corpus, tmp_path, train_on_relatives=True)
    assert {name: old[name] for name in ("test", "validation")} == {n: splits[n] for n in ("test", "validation")}
    assert set(splits["train"]) < set(old["train"])


def test_both_directions_hold_out_the_same_pairs(corpus, tmp_path):
    one = sentences(1, 300)
    marked = [(source.replace("。", mark), f"{word} {target}") for source, target in one[:60] for mark, word in TIES]
    write(corpus, "one", [*one[60:], *marked])
    splits, _ = splits_of(corpus, tmp_path)
    swapped = {"source_field": 1, "target_field": 0, "source_language": "en", "target_language": "zh"}
    back, _ = splits_of(corpus, tmp_path, **swapped)
    for name in ("test", "validation"):
        assert [(pair.target, pair.source) for pair in back[name]] == [pair[:2] for pair in splits[name]]
    assert {(pair.target, pair.source) for pair in back["train"]} == {pair[:2] for pair in splits["train"]}


def test_what_is_held_out_elsewhere_is_not_trained_on_nor_are_its_relatives_of_one_side(corpus, tmp_path):
    elsewhere = [("ein Satz", sentences(3, 80)[n][1]) for n in range(10)]
    write(corpus, "held-out-german", elsewhere)
    splits, report = splits_of(corpus, tmp_path, exclude=["held-out-*"])
    assert max(likeness(one, Pair(*other), ("zh", "en")) for one in splits["train"] for other in elsewhere) < RELATED
    assert report.counts["three"]["shares_test_file"] >= 10


def test_a_source_behind_another_sentence_is_the_same_source(tmp_path):
    """A test file's sources, and held-out ones, are not trained on behind another sentence either."""
    folder, (one, other, test) = tmp_path / "corpora", (sentences(seed, 120) for seed in (1, 2, 4))
    own = [(f"{before}|||{source}", target) for (before, _), (source, target) in zip(other, one, strict=True)]
    again = [
        (f"{before}|||{source}", f"{target} too")
        for (source, target), (before, _) in zip(one, other[::-1], strict=True)
    ]
    known = [(f"{other[0][0]}|||{source}", f"{target} too") for source, target in test[:20]]
    write(folder, "one", [*own, *again, *known])
    write(folder, "test-set", test, ".tsv")
    options = {"held_out": ["one"]} | CONTEXT
    splits, report = splits_of(folder, tmp_path, **options)
    bare = {name: {pair.source for pair in pairs} for name, pairs in splits.items()}
    assert all(pair.before for pairs in splits.values() for pair in pairs)
    assert not bare["train"] & (bare["test"] | bare["validation"])
    assert not set().union(*bare.values()) & {source for source, _ in test}
    assert report.counts["one"]["shares_test_file"] == 20
    write(folder, "copy", [(f"{other[1][0]}|||{source}", f"{target} too") for source, target in test])
    with pytest.raises(ValueError, match="copy holds 120 of the 120 sources of the test file test-set"):
        splits_of(folder, tmp_path, **options)


def test_a_pair_is_judged_by_its_source_alone_whatever_the_sentence_before(tmp_path):
    folder, before = tmp_path / "corpora", "這 是一個很長的句子，" * 12
    write(folder, "one", sentences(1, 120))
    rare = [
        (f"{before}|||好的。", "Sure thing."),  # a short reply behind a long sentence
        (f"{'很' * 990}|||没有问题。", "No problem at all."),
        ("Hello there, how are you today|||谢谢你。", "Thanks a lot."),
        ("坏\ufffd了|||不客气。", "You are welcome."),
        ("在 前面 |||   Python 3 ", "python 3."),
        ("在前面|||是的", "No one has ever said so much about so little in so many words as he did."),
    ]
    write(folder, "two", rare)
    options = {"held_out": ["one"], "exclude": []}
    splits, _ = splits_of(folder, tmp_path, **options | CONTEXT)
    replies = {pair for pair in splits["train"] if not set(pair[1]) <= set(" ".join(ENGLISH) + ".")}
    assert replies == {
        ("好的。", "Sure thing.", "这是一个很长的句子，" * 12),
        ("没有问题。", "No problem at all.", "很" * 990),
        ("谢谢你。", "Thanks a lot.", "Hello there, how are you today"),
        ("不客气。", "You are welcome.", ""),
    }
    with pytest.raises(ValueError, match="made with other layout"):  # which knows of no sentence before
        folder_pairs(asked(folder, tmp_path / "prepared-1", **options), Report())


def test_names_with_brackets_are_no_patterns(corpus, tmp_path):
    write(corpus, "news[2020]", sentences(6, 40))
    splits, _ = splits_of(corpus, tmp_path, held_out=["news[2020]"], validation_size=2, test_size=3)
    assert {len(splits["test"]), len(splits["validation"])} == {2, 3}


def test_splits_know_nothing_of_the_order_of_lines_and_files_or_of_further_files(corpus, tmp_path):
    before, _ = splits_of(corpus, tmp_path)
    shuffled = tmp_path / "shuffled"
    shuffled.mkdir()
    for file in corpus.glob("*.gz"):
        lines = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
        random.Random(5).shuffle(lines)
        (shuffled / file.name).write_bytes(gzip.compress("".join(lines * 2).encode()))
    shutil.copy(corpus / "test-set.tsv", shuffled)
    write(shuffled, "a-first-one", sentences(6, 50))
    after, _ = splits_of(shuffled, tmp_path)
    assert after["test"] == before["test"]
    assert after["validation"] == before["validation"]
    assert set(before["train"]) < set(after["train"])


def test_a_pair_that_may_be_tested_on_is_never_validated_on_whatever_the_sizes(corpus, tmp_path):
    small, _ = splits_of(corpus, tmp_path)
    large, _ = splits_of(corpus, tmp_path, test_size=15, validation_size=16)
    assert keys(small["test"]) <= keys(large["test"])
    assert keys(small["validation"]) <= keys(large["validation"])


def test_a_second_run_reads_what_the_first_one_cleaned_whatever_its_seed(corpus, tmp_path, monkeypatch):
    before = folder_pairs(asked(corpus, tmp_path / "made"), Report())
    monkeypatch.setattr("data_prep.clean_corpus.clean_columns", lambda *_: pytest.fail("cleaned again"))
    assert folder_pairs(asked(corpus, tmp_path / "made"), Report()) == before
    assert folder_pairs(asked(corpus, tmp_path / "made", seed=2), Report())[0]["test"] != before[0]["test"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ["one", "test-set"]}, r"data\.sources=.*test-set is a test file .*never trained on"),
        ({"sources": ["one", "onee"]}, r"there is no onee; the folder has one, test-set, three, two"),
        ({"exclude": ["tests-*"]}, r"data\.exclude=\['tests-\*'\]: 'tests-\*' fits no file .*data\.exclude=\[\]"),
        ({"exclude": ["TEST-*"], "sources": ["one", "test-set"]}, r"test-set is a test file"),
        ({"exclude": ["*"]}, r"no file is left to train on; data\.exclude=\['\*'\] fits all"),
        ({"sources": []}, r"data\.sources=\[\]: .* one, three, two"),
        ({"held_out": ["one", "test-set"]}, r"data\.held_out=.*there is no test-set among one, three, two"),
        ({"held_out": []}, r"data\.held_out=\[\]: name the files"),
        ({"source_field": "zh"}, r"data\.source_field=zh, data\.target_field=1: .* must be 0 and 1"),
        ({"test_size": 200}, r"pairs of two \(test\).* are lacking, as held-out pairs need texts of their own"),
        ({"cleaning": "lax"}, r"cleaning=lax: must be one of paper, strict"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_way_out(corpus, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        splits_of(corpus, tmp_path, **options)


def test_a_copy_of_a_test_file_under_another_name_is_refused(corpus, tmp_path):
    write(corpus, "more", [*sentences(7, 40), *[(source.replace("。", "！"), "x") for source, _ in sentences(4, 15)]])
    with pytest.raises(ValueError, match=r"more holds 15 of the 20 sources of the test file test-set.*data\.exclude="):
        splits_of(corpus, tmp_path)
    splits, _ = splits_of(corpus, tmp_path, exclude=["test-*", "more"])
    assert not keys(splits["train"]) & keys(sentences(4, 20))


@pytest.mark.parametrize("line", ["{0}", "{0}\t", "id{2}\t{0}\t{1}", "{1}\t{0}"])
def test_a_test_file_that_is_read_wrongly_and_would_protect_nothing_is_refused(corpus, tmp_path, line):
    lines = [line.format(*pair, number) for number, pair in enumerate(sentences(1, 100))]
    (corpus / "test-odd.tsv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=r"test-odd\.tsv: no side of this test file .* is in its language \(zh, en\)"):
        splits_of(corpus, tmp_path)


def test_a_folder_that_is_none_or_empty_or_has_a_name_twice_is_refused(corpus, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        splits_of(tmp_path / "none", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"holds no file NAME\.tsv"):
        splits_of(tmp_path / "empty", tmp_path)
    write(corpus, "one", sentences(1, 3), ".TSV")
    with pytest.raises(ValueError, match="would both be called 'one'"):
        splits_of(corpus, tmp_path)


def test_a_corpus_for_training_comes_with_a_tokenizer_of_its_training_pairs(corpus, tmp_path):
    settings = CORPUS | OPTIONS | {"path": str(corpus), "prepared": str(tmp_path / "made")}
    prepared = prepare_corpus(**settings | {"train_size": 50})
    again = prepare_corpus(**settings | {"train_size": 100})
    assert {name: len(pairs) for name, pairs in prepared.splits.items()} == {"train": 50, "validation": 10, "test": 12}
    assert prepared.splits["test"] == again.splits["test"]
    assert prepared.splits["train"] == again.splits["train"][:50]
    assert len(prepared.tokenizer) > 256
    characters = prepare_corpus(**settings | {"train_size": 50, "segmentation": "characters"})
    assert characters.splits["test"] == prepared.splits["test"], "whatever the tokens"
    assert "50 train" in prepared.summary()


def test_held_out_pairs_are_the_same_without_the_others_whose_files_are_not_read(corpus, tmp_path):
    settings = CORPUS | OPTIONS | {"path": str(corpus), "prepared": str(tmp_path / "made")}
    settings |= {"tokenizer": tiny_tokenizer(), "max_tokens": 21}
    whole = prepare_corpus(**settings)
    settings |= {"prepared": str(tmp_path / "made-anew")}
    write(corpus, "three", [("one side", "")])
    alone = prepare_corpus(train=False, **settings)
    assert alone.splits == {name: whole.splits[name] for name in ("test", "validation")}
    assert len(alone.splits["validation"]) < 10, "they are filtered by their length"
    with pytest.raises(ValueError, match="cannot hold out"):
        prepare_corpus(train=False, **settings | {"test_size": 200})
    write(corpus, "one", [*sentences(1, 300), *sentences(4, 15)])
    settings |= {"prepared": str(tmp_path / "made-again")}
    with pytest.raises(ValueError, match="one holds 15 of the 20 sources of the test file"):
        prepare_corpus(train=False, **settings)


def test_joined_pairs_are_trained_on_beside_the_others_and_change_no_other_split(corpus, tmp_path):
    settings = CORPUS | OPTIONS | {"path": str(corpus), "prepared": str(tmp_path / "made"), "train_size": 50}
    alone, prepared = prepare_corpus(**settings), prepare_corpus(**settings, joined_tokens=100)
    assert prepared.splits["train"][:50] == alone.splits["train"]
    more = prepared.splits["train"][50:]
    assert len(more) >= 40
    assert all(len(prepared.sources.ids([pair.source])[0]) <= 102 for pair in more)
    assert prepared.splits["test"] == alone.splits["test"]
    assert prepared.splits["validation"] == alone.splits["validation"]
    assert prepared.report.counts["train"]["joined"] == len(more)
    write(corpus, "test-made", [pair[:2] for pair in more[:5]])
    for near in (False, True):
        again = prepare_corpus(**settings, joined_tokens=100, train_on_relatives=near).splits["train"]
        assert not keys(again) & keys(more[:5]), "made pairs are no test sentences either"


def test_the_report_says_why_pairs_of_a_file_were_dropped_and_a_file_that_gives_none_is_an_error(corpus, tmp_path):
    write(corpus, "odd", [*sentences(7, 50), ("\u4f60\u597d", "\u4f60\u597d\u3002"), ("a\tb", "c")])
    _, report = splits_of(corpus, tmp_path)
    assert report.counts["odd"]["wrong_column_count"] == 1
    assert sum(report.counts["odd"].values()) == 52
    write(corpus, "attributed", [(source, f"{target}\tCC BY") for source, target in sentences(8, 50)])
    with pytest.raises(ValueError, match=r"(?s)no clean pair is left of .*attributed.*wrong_column_count +50"):
        splits_of(corpus, tmp_path)


def test_a_link_that_leads_to_nothing_is_no_missing_corpus(corpus, tmp_path):
    (corpus / "big.tsv").symlink_to(tmp_path / "gone.tsv")
    with pytest.raises(FileNotFoundError, match=r"big\.tsv leads to nothing"):
        splits_of(corpus, tmp_path)


def test_a_damaged_block_is_told_with_the_way_out(corpus, tmp_path):
    prepared = tmp_path / "prepared"
    folder_pairs(asked(corpus, prepared), Report())
    block = prepared / "clean" / "one" / "00000.arrow"
    block.write_bytes(block.read_bytes()[:-100])
    for _ in ("cut short", "gone"):
        with pytest.raises(ValueError, match=r"00000\.arrow is damaged .*: remove .*one, and it is made again"):
            folder_pairs(asked(corpus, prepared), Report())
        block.unlink(missing_ok=True)
