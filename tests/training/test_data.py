"""From files to splits and tokenizers, and evaluation files taken whole."""

from types import SimpleNamespace

import pytest
import torch

from duplexmt.common.pair import Pair
from duplexmt.corpus.evaluation_files import read_evaluation_file, simplifies_sources
from duplexmt.corpus.prepared import prepare_corpus
from duplexmt.data.batch import Example
from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.training.data import GridDataModule
from tests.helpers import CORPUS, SENTENCES, as_pairs, tsv

from .small_run import built_trainer

FIELDS = {"source_field": 0, "target_field": 1, "source_language": "zh", "target_language": "en"}


def test_one_file_is_split_by_seed_and_a_tokenizer_trained_on_the_training_pairs(tmp_path):
    path = tsv(tmp_path / "all.tsv", SENTENCES)
    one, two = prepare_corpus(**CORPUS | {"path": path}), prepare_corpus(**CORPUS | {"path": path})
    assert {name: len(pairs) for name, pairs in one.splits.items()} == {"train": 8, "validation": 2, "test": 2}
    assert one.splits == two.splits
    assert one.tokenizer.get_vocab() == two.tokenizer.get_vocab()
    assert prepare_corpus(**CORPUS | {"path": path, "seed": 2}).splits != one.splits


def test_splits_with_files_of_their_own_are_taken_whole(tmp_path):
    train = tsv(tmp_path / "train.tsv", SENTENCES[:8])
    held_out = tsv(tmp_path / "held-out.tsv", SENTENCES[8:])
    prepared = prepare_corpus(**CORPUS | {"train_path": train, "validation_path": held_out, "test_size": 1})
    assert sorted(prepared.splits["validation"]) == sorted(as_pairs(SENTENCES[8:]))  # 4, though validation_size says 2
    assert len(prepared.splits["test"]) == 1


def test_an_evaluation_file_is_read_whole_in_order_and_its_references_left_as_they_are(tmp_path):
    pairs = [
        ("我 们 走 &quot;吧&quot;", "Let 's go , &quot;now&quot; ."),
        *SENTENCES,
        SENTENCES[0],
        ("长" * 99, "Long."),
    ]
    path = tmp_path / "test.tsv"
    tsv(path, pairs)
    path.write_bytes(path.read_bytes() + "只有一边\t\n".encode() + b"\xff\xfe\t bad\n")
    got, report = read_evaluation_file(str(path), FIELDS)
    assert got == as_pairs([('我们走"吧"', "Let 's go , &quot;now&quot; ."), *pairs[1:]])
    counts = report.counts["evaluation.read"]
    assert (counts["one_sided"], counts["invalid_utf8"], counts["pairs"]) == (1, 1, len(got))


def test_a_test_file_without_pairs_is_refused_with_the_reasons(tmp_path):
    path = tmp_path / "empty.tsv"
    path.write_text("只有一边\t\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"(?s)has no sentence pairs \(source_field=0, target_field=1\).*one_sided +1"):
        read_evaluation_file(str(path), FIELDS)


def test_a_test_file_with_swapped_columns_is_refused(tmp_path):
    path = tsv(tmp_path / "swapped.tsv", [(target, source) for source, target in SENTENCES])
    with pytest.raises(ValueError, match=r"swapped\.tsv: .* if the columns are swapped, exchange source_field and"):
        read_evaluation_file(path, FIELDS)
    assert read_evaluation_file(path, FIELDS | {"source_field": 1, "target_field": 0})[0] == as_pairs(SENTENCES)


def test_pairs_in_another_language_than_said_are_refused(tmp_path):
    path = tsv(tmp_path / "pairs.tsv", SENTENCES)
    for setting, shown in (("source_language", SENTENCES[0][0]), ("target_language", SENTENCES[0][1])):
        other = {"source_language": "de", "target_language": "ru"}[setting]
        with pytest.raises(ValueError, match=rf"texts are not in .*{setting}={other}.*{shown[:9]}"):
            read_evaluation_file(path, FIELDS | {setting: other})
    cyrillic = tsv(tmp_path / "serbian.tsv", [(source, "Ја сам овде.") for source, _ in SENTENCES])
    assert read_evaluation_file(cyrillic, FIELDS | {"target_language": "sr"})[0]


def test_the_built_in_corpus_keeps_to_the_length_asked_for():
    sizes = {"train_size": 200, "validation_size": 20, "test_size": 20}
    whole, short = (prepare_corpus(**CORPUS | sizes | {"corpus": "builtin", "max_tokens": most}) for most in (None, 50))
    for name, pairs in short.splits.items():
        fitting = [pair for pair in whole.splits[name] if max(map(len, token_ids(whole.tokenizer, list(pair)))) <= 50]
        assert pairs == fitting
        assert 0 < len(pairs) < sizes[f"{name}_size"]
    assert short.report.counts["test.length"]["over_50_tokens"] == 20 - len(short.splits["test"])


def test_training_without_training_pairs_is_refused(tmp_path):
    path = tsv(tmp_path / "test.tsv", SENTENCES)
    with pytest.raises(ValueError, match=r"data\.path=FILE, or data\.train_path=FILE"):
        prepare_corpus(**CORPUS | {"test_path": path})


def test_the_generated_corpus_needs_a_size():
    with pytest.raises(ValueError, match=r"data\.train_size=null"):
        prepare_corpus(**CORPUS | {"corpus": "builtin"})


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU here")
def test_a_device_this_machine_lacks_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"trainer\.accelerator=gpu: this machine has cpu; give one"):
        built_trainer(tmp_path, accelerator="gpu")


def module_of(prepared):
    return GridDataModule(prepared, stream_tokens(prepared.tokenizer), batch_size=4, seed=1)


def test_a_resumed_run_keeps_its_tokenizer_and_refuses_another_corpus(tmp_path):
    path = tsv(tmp_path / "all.tsv", SENTENCES)
    prepared = prepare_corpus(**CORPUS | {"path": path})
    run = tmp_path / "run"
    module_of(prepared).write_report(run)
    again = prepare_corpus(**CORPUS | {"path": path, "tokenizer": str(run / "tokenizer")})
    assert again.tokenizer.get_vocab() == prepared.tokenizer.get_vocab()
    module_of(again).write_report(run, resumed=True)
    other = prepare_corpus(**CORPUS | {"path": tsv(tmp_path / "all.tsv", SENTENCES[:9])})
    with pytest.raises(ValueError, match=r"the corpus or the tokenizer is not the one .* was started with"):
        module_of(other).write_report(run, resumed=True)


def test_segmentation_and_context_decide_the_examples_and_the_length_limit(tmp_path):
    pairs = [(f"{SENTENCES[number - 1][0]}|||{source}", target) for number, (source, target) in enumerate(SENTENCES)]
    longest = max(len(source) for source, _ in SENTENCES)
    settings = {"path": tsv(tmp_path / "all.tsv", pairs), "segmentation": "characters", "max_tokens": 3 * longest}
    prepared = prepare_corpus(**CORPUS | settings, context_tokens=4, context_separator="|||")
    assert sum(map(len, prepared.splits.values())) == len(SENTENCES), "the context does not count"
    tokens = stream_tokens(prepared.tokenizer, context_tokens=4)
    datamodule = GridDataModule(prepared, tokens, batch_size=4, seed=1)
    for (source, _, before), example in zip(prepared.splits["train"], datamodule.examples("train"), strict=True):
        context, sentence = (
            [token for character in text for token in token_ids(prepared.tokenizer, [character])[0]]
            for text in (before, source)
        )
        assert list(example.source) == [*context[-4:], *sentence, tokens.end]
    lengths = [len(example.source) for example in datamodule.examples("train")]
    assert datamodule.typical_source_length == round(sum(lengths) / len(lengths))


def test_sources_of_a_test_file_are_simplified_as_those_of_training_were_and_references_stay(tmp_path):
    path = tsv(tmp_path / "test.tsv", [("乾隆看書，於是他們走了。", "他們 left."), ("坏主意。", "A bad idea.")])
    read, _ = read_evaluation_file(path, FIELDS, simplified=True)
    assert read == as_pairs([("乾隆看书，于是他们走了。", "他們 left."), ("坏主意。", "A bad idea.")])
    assert read_evaluation_file(path, FIELDS)[0][0][0] == "乾隆看書，於是他們走了。"
    data = {"corpus": "pairs_folder", "cleaning": "strict", "source_language": "zh", "target_language": "en"}
    assert simplifies_sources(data)
    assert simplifies_sources(data | {"corpus": "wmt21_zhen"})
    for other in ({"cleaning": "paper"}, {"corpus": "pairs"}, {"source_language": "en", "target_language": "zh"}):
        assert not simplifies_sources(data | other)


def test_the_sentence_before_and_the_source_are_cleaned_each_for_itself(tmp_path):
    """In English a space would stay behind the separator, and the source start with another token than live."""
    pairs = [(f"Before {number} . ||| {target}", source) for number, (source, target) in enumerate(SENTENCES)]
    clean = {Pair(target, source, f"Before {number}.") for number, (source, target) in enumerate(SENTENCES)}
    fields = {"source_language": "en", "target_language": "zh"}
    path = tsv(tmp_path / "all.tsv", pairs)
    read, _ = read_evaluation_file(path, FIELDS | fields, "|||")
    assert set(read) == clean
    settings = {"path": path, "max_tokens": None, "context_tokens": 4, "context_separator": "|||"}
    splits = prepare_corpus(**CORPUS | fields | settings).splits
    assert {pair for pairs in splits.values() for pair in pairs} == clean


def test_validation_batches_of_long_pairs_are_small_and_those_of_short_ones_full(tmp_path):
    lengths = [3, 3, 3, 3, 3, 300, 300, 200]
    data = GridDataModule(None, None, batch_size=4, seed=1)
    data.trainer = SimpleNamespace(global_rank=0, world_size=1)
    data._examples["validation"] = [Example((1,) * n, (1,) * (n + 1)) for n in lengths]
    shapes = [batch.shapes for batch in data.val_dataloader()]
    assert shapes == [((3, 3),) * 4, ((3, 3),), ((200, 200),), ((300, 300),), ((300, 300),)]


@pytest.mark.parametrize("pairs", [3, 4, 5, 9, 10, 11])
def test_all_devices_have_as_many_validation_batches_and_each_pair_once(pairs):
    """The layers of a sharded model are gathered by all devices at a time: one with a batch more waits for ever."""
    for devices in (1, 2, 3):
        data, seen = GridDataModule(None, None, batch_size=2, seed=1), []
        data._examples["validation"] = [Example((n,) * (3 if n % 4 else 250), (n,) * 251) for n in range(pairs)]
        for rank in range(devices):
            data.trainer = SimpleNamespace(global_rank=rank, world_size=devices)
            seen.append([batch.source[:, 0].tolist() for batch in data.val_dataloader()])
        assert len(set(map(len, seen))) == 1
        assert max(len(batch) for batches in seen for batch in batches) <= 2
        assert sorted(n for batches in seen for batch in batches for n in batch) == list(range(pairs))
