"""Copy tokens: what they stand for, and where training has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from duplexmt.data.copying import copied_runs, target_ids
from duplexmt.data.tokenizer import stream_tokens, token_ids

from ..helpers import byte_level_tokenizer, tiny_tokenizer

TEXT = "请写信给 foo.bar@x.com，或者看https://x.org/a?b=1。foo.bar@x.com的3G和A"


def test_runs_are_told_in_order_and_how_often_without_the_marks_behind_them_and_single_letters():
    runs = copied_runs(TEXT)
    assert [*runs] == ["foo.bar@x.com", "https://x.org/a?b=1", "3G"]
    assert [*runs.values()] == [2, 1, 1]
    assert copied_runs("x1和x10") == {"x1": 1, "x10": 1}
    assert copied_runs("见www.x.com. 好") == {"www.x.com": 1}
    assert copied_runs("没有") == {}
    assert copied_runs("Ingrid Larsen和Tom, 15 km, Windows 10。") == dict.fromkeys(
        ["Ingrid Larsen", "Tom", "15", "km", "Windows 10"], 1
    )
    assert [*copied_runs("A B C D E F看foo.com。看 foo.com。")] == ["A B C D", "E F", "foo.com"]
    assert copied_runs("见(https://x.org)。") == copied_runs('"https://x.org!"') == {"https://x.org": 1}
    assert copied_runs("我叫José García，Müller先生，3×4×15") == dict.fromkeys(["José García", "Müller", "15"], 1)
    assert copied_runs("сло\u0301во\u0301 Google Maps，й\u0306\u0306") == {"Google Maps": 1}, "accents begin no word"
    assert copied_runs("Adé Ọlọ́run") == {"Adé Ọlọ́run": 1}, "a letter with an accent of its own"


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("用foo", []),
        ("用foo.", []),
        ("用foo，", ["foo"]),
        ("foo和foobar", ["foo"]),
        ("用foo ", []),  # a name may come of it
        ("用foo Bar", []),
        ("用foo bar.com", ["foo"]),
        ("用foo Bar ", []),
    ],
)
def test_a_run_at_the_end_of_a_text_that_goes_on_is_not_told(text, runs):
    assert [*copied_runs(text, whole=False)] == runs


@given(st.text("Abé1. ,:/好@-_", max_size=14))
def test_a_run_that_was_complete_stays_what_it_is_however_the_text_goes_on(text):
    told = []
    for end in range(len(text) + 1):
        runs = [*copied_runs(text[:end], whole=False)]
        assert runs[: len(told)] == told
        told = runs
    assert [*copied_runs(text)][: len(told)] == told


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [
        ("Ingrid Larsen来了", "Ingrid Larsen's here", ["Ingrid Larsen"]),
        ("Ingrid Larsen来了", "Ingrid is here", []),
        ("Jos来了", "José came", []),
        ("Tom和Tommy", "Tommy, Tom.", ["Tommy", "Tom"]),
        ("x1", "x1.5 x10 ax1 a.x1 (x1).", ["x1"]),
        ("用--help", "Use --help", ["help"]),
    ],
)
def test_a_run_is_found_in_the_target_where_it_is_no_part_of_another_one(source, target, copied):
    tokenizer = tiny_tokenizer()
    copies = stream_tokens(tokenizer, copy_tokens=3).copy_tokens
    tokens = dict(zip(copies, copied_runs(source), strict=False))
    (ids,) = target_ids(tokenizer, [target], [source], copies)
    assert [tokens[token] for token in ids if token in copies] == copied


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), byte_level_tokenizer()])
def test_copy_tokens_are_bytes_that_no_text_has_in_the_place_of_what_both_sides_have(tokenizer):
    copies = stream_tokens(tokenizer, copy_tokens=3).copy_tokens
    assert len({*copies}) == 3
    texts = [
        "".join(map(chr, range(begin, begin + 64))) for begin in (0x20, 0x80, 0x7C0, 0x800, 0xFFC0, 0x10000, 0x10FFC0)
    ]
    assert not {*copies} & {token for ids in token_ids(tokenizer, texts) for token in ids}, "bytes of no text"
    assert len({*stream_tokens(tokenizer, copy_tokens=11).copy_tokens}) == 11

    target = "Use 3G (https://x.org/a?b=1), or foo.bar@x.com: foo.bar@x.com's 4G"
    (ids,) = target_ids(tokenizer, [target], [TEXT], copies)
    parts = token_ids(tokenizer, ["Use ", " (", "), or ", ": ", "'s 4G"])
    assert ids == [
        *parts[0], copies[2], *parts[1], copies[1], *parts[2], copies[0], *parts[3], copies[0], *parts[4],
    ]  # fmt: skip
    assert target_ids(tokenizer, [target, "", "3G"], ["没有", TEXT, TEXT], copies) == [
        *token_ids(tokenizer, [target, ""]),
        [copies[2]],
    ]
    assert target_ids(tokenizer, ["3G"], [TEXT], copies[:2]) == token_ids(tokenizer, ["3G"])  # it has no third
    assert target_ids(tokenizer, [target], [TEXT]) == token_ids(tokenizer, [target])


def with_decoder(decoder):
    """A tokenizer of bytes with a decoder that does more."""
    backend = Tokenizer.from_str(tiny_tokenizer().backend_tokenizer.to_str())
    backend.decoder = decoder
    return backend


@pytest.mark.parametrize(
    "words",
    [
        Tokenizer(models.WordLevel({"</s>": 0, "a": 1}, unk_token="</s>")),
        with_decoder(decoders.Sequence([decoders.Replace("_", " "), decoders.ByteFallback(), decoders.Fuse()])),
    ],
)
def test_a_tokenizer_that_is_not_of_bytes_has_no_copy_tokens(words):
    with pytest.raises(ValueError, match=r"data\.copy_tokens=2: they are bytes that no text has"):
        stream_tokens(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>"), copy_tokens=2)
