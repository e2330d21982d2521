"""Text that grows token by token."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from duplexmt.data.tokenizer import token_ids
from duplexmt.streaming.growing_text import GrowingText, decode, joins

from ..helpers import byte_level_tokenizer, tiny_tokenizer

TOKENIZERS = {
    "bytes of rare characters": tiny_tokenizer,
    "merges": lambda: tiny_tokenizer(420),
    "byte level": byte_level_tokenizer,
}
TEXTS = [
    "站在那边的男人曾是棒球手。",
    "emoji 😀👩‍👩‍👧 and 𠮷, two",
    "The man standing there.",
    "é¼ﷺ",
    " leading",
    "trailing ",
]


def pieces(tokenizer, tokens):
    growing = GrowingText(tokenizer)
    shown = [growing.add(token) for token in tokens]
    return [*shown, growing.finish()], growing


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_put_together_are_the_full_text_and_never_half_a_character(tokenizer, text):
    tokens = token_ids(tokenizer, [text])[0]
    shown, growing = pieces(tokenizer, tokens)
    assert "".join(shown) == growing.text == decode(tokenizer, tokens) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in shown)
    assert shown[-1] == "", "nothing is held back once a text is complete"


def test_a_character_is_shown_with_its_last_byte():
    # 你 and 😀 are three and four byte tokens of either vocabulary.
    for tokenizer in (tiny_tokenizer(), byte_level_tokenizer()):
        shown, _ = pieces(tokenizer, token_ids(tokenizer, ["a你😀b"])[0])
        assert shown == ["a", "", "", "你", "", "", "", "😀", "b", ""]


def test_a_character_cut_off_by_the_end_is_shown_broken_at_the_end_only(tokenizer):
    tokens = token_ids(tokenizer, ["a😀"])[0]
    shown, growing = pieces(tokenizer, tokens[:-1])
    assert shown[:-1] == ["a", *[""] * (len(tokens) - 2)]
    assert set(shown[-1]) == {"\N{REPLACEMENT CHARACTER}"}
    assert growing.text == decode(tokenizer, tokens[:-1])


def test_a_broken_character_after_a_whole_one_leaves_the_whole_one_as_it_was_shown(tokenizer):
    emoji, rest = (token_ids(tokenizer, [text])[0] for text in ("😀", "abc"))
    shown, growing = pieces(tokenizer, [*emoji, emoji[0], *rest, *emoji])
    assert growing.text == "".join(shown) == "😀\N{REPLACEMENT CHARACTER}abc😀"
    assert shown[len(emoji) - 1] == "😀"


def test_text_once_shown_never_changes_whatever_tokens_follow(tokenizer):
    draw = random.Random(1)
    for _ in range(100):
        growing = GrowingText(tokenizer)
        for token in draw.choices(range(len(tokenizer)), k=30):
            before = growing.text
            piece = growing.add(token)
            assert growing.text == before + piece
            assert not growing.text.endswith("\N{REPLACEMENT CHARACTER}")


def test_joined_text_is_the_text_decoded_anew_with_each_token(tokenizer):
    assert joins(tokenizer)
    draw = random.Random(2)
    whole = [token_ids(tokenizer, [text])[0] for text in TEXTS]
    for _ in range(300):
        tokens = [token for some in draw.choices(whole, k=2) for token in some[: draw.randint(1, 9)]]
        tokens += draw.choices(range(len(tokenizer)), k=draw.randint(0, 6))
        draw.shuffle(tokens) if draw.random() < 0.5 else None
        fast, slow = GrowingText(tokenizer), GrowingText(tokenizer)
        slow._joins = False
        assert [fast.add(token) for token in tokens] == [slow.add(token) for token in tokens]
        assert fast.finish() == slow.finish()


def test_a_broken_byte_takes_no_space_from_the_tokens_after_it():
    """Decoders like those of Llama 2 and Mistral remove the first token's space."""
    words = ["▁hello", "▁world", "▁foo", "bar", "你"]
    entries = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    llama = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    assert not joins(llama)
    broken = ["<0xE4>", "<0xBD>", "<0xA0>", "<0xE4>"]
    spoken = ["▁hello", *broken, "▁foo", "bar", "▁world", "<0xE4>", "▁foo", "<0x61>", "你", "▁hello"]
    shown, growing = pieces(llama, [vocabulary[entry] for entry in spoken])
    assert growing.text == "hello你\N{REPLACEMENT CHARACTER} foobar world\N{REPLACEMENT CHARACTER} fooa你 hello"
    assert "".join(shown) == growing.text


def test_special_tokens_have_no_text(tokenizer):
    a = token_ids(tokenizer, ["a"])[0][0]
    shown, growing = pieces(tokenizer, [tokenizer.eos_token_id, a, tokenizer.eos_token_id])
    assert shown == ["", "a", "", ""]
    assert growing.tokens == [tokenizer.eos_token_id, a, tokenizer.eos_token_id]
