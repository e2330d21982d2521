"""Copy tokens: what they stand for, and where training has them."""

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from duplexmt.data.copying import copied_runs, target_ids
from duplexmt.data.tokenizer import decode, stream_tokens, token_ids

from ..helpers import byte_level_tokenizer, tiny_tokenizer

TEXT = "请写信给 foo.bar@x.com，或者看https://x.org/a?b=1。foo.bar@x.com的3G和A"


def test_runs_are_told_in_order_each_once_without_the_marks_behind_them_and_single_letters():
    assert copied_runs(TEXT) == ["foo.bar@x.com", "https://x.org/a?b=1", "3G"]
    assert copied_runs("见www.x.com. 好") == ["www.x.com"]
    assert copied_runs("没有") == []


@pytest.mark.parametrize(
    ("text", "runs"), [("用foo", []), ("用foo.", []), ("用foo，", ["foo"]), ("foo和foobar", ["foo"])]
)
def test_a_run_at_the_end_of_a_text_that_goes_on_is_not_told(text, runs):
    assert copied_runs(text, whole=False) == runs


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), byte_level_tokenizer()])
def test_copy_tokens_are_bytes_that_no_text_has_in_the_place_of_what_both_sides_have(tokenizer):
    copies = stream_tokens(tokenizer, copy_tokens=3).copies
    assert len({*copies}) == 3
    with pytest.raises(UnicodeDecodeError):
        bytes([0xFD]).decode()
    assert all(decode(tokenizer, [token]) == "\N{REPLACEMENT CHARACTER}" for token in copies)

    target = "Use 3G, or foo.bar@x.com: foo.bar@x.com's 4G"
    (ids,) = target_ids(tokenizer, [target], [TEXT], copies)
    parts = token_ids(tokenizer, ["Use ", ", or ", ": ", "'s 4G"])
    assert ids == [*parts[0], copies[2], *parts[1], copies[0], *parts[2], copies[0], *parts[3]]
    assert target_ids(tokenizer, [target, "", "3G"], ["没有", TEXT, TEXT], copies) == [
        *token_ids(tokenizer, [target, ""]),
        [copies[2]],
    ]
    assert target_ids(tokenizer, ["3G"], [TEXT], copies[:2]) == token_ids(tokenizer, ["3G"])  # it has no third
    assert target_ids(tokenizer, [target], [TEXT]) == token_ids(tokenizer, [target])


def test_a_tokenizer_without_such_bytes_has_no_copy_tokens():
    words = Tokenizer(models.WordLevel({"</s>": 0, "a": 1}, unk_token="</s>"))
    with pytest.raises(ValueError, match=r"data\.copy_tokens=2: they take the place of bytes"):
        stream_tokens(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>"), copy_tokens=2)
