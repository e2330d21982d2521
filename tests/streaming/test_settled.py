"""Tokens committed while a text arrives are those of the whole text, however it goes on."""

import json
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from data_prep.live import composed
from data_prep.tokens import PRETOKEN_PATTERN
from duplexmt.data.tokenizer import source_ids, source_spans, token_ids
from duplexmt.streaming.settled import SettledTokens

from ..helpers import SENTENCES, byte_level_tokenizer, tiny_tokenizer


@cache
def qwen2_like_tokenizer(added=False):
    """Byte-level BPE over Qwen2's word pattern, merges across spaces, digits, contractions and Chinese alike."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for pair in SENTENCES for text in pair] + ["it's they're I'll  \n\n ..., ?! they'd"] * 9
    tokenizer.train_from_iterator(texts * 2, trainer)
    if added:
        tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


TOKENIZERS = {
    "characters and bytes": tiny_tokenizer,
    "merges": lambda: tiny_tokenizer(460),
    "byte level": byte_level_tokenizer,
    "like Qwen2": qwen2_like_tokenizer,
    "with an added token": lambda: qwen2_like_tokenizer(True),
}
RULES = {}
WORDS = [
    *"站在那边的男人曾是棒球手我昨天买了一本书。，？！ \n\t'.,?!12’—é😀…<>", *"therdlmsaT", "  ", "'re", "'S", "n't",
    " the", "tea", "</s>", "<tool>", "<to", "<0x41>", "\r\n", "\u00a0", "e\u0301", "ſ",
]  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=14).map("".join),
    st.lists(st.sampled_from([text for pair in SENTENCES for text in pair]), max_size=2).map("".join),
    st.text(max_size=14),
)


def rule(name):
    if name not in RULES:
        RULES[name] = SettledTokens(TOKENIZERS[name]())
    return RULES[name]


def settled_of(rule, text):
    """Settled tokens of a text that is looked at for the first time."""
    return rule.after(text, 0)[0]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
@example("they'r")
@example("a  \n  \n b")
@example("..'s ''re 're")
@example("x <to <tool>y")
def test_settled_tokens_begin_the_tokens_of_the_whole_text(name, text):
    settled = rule(name)
    assert not settled.holds_everything
    text, before = composed(text), []
    whole = token_ids(settled.tokenizer, [text])[0]
    for end in range(len(text) + 1):
        tokens = settled_of(settled, composed(text[:end]))
        assert tokens == whole[: len(tokens)], text[:end]
        assert tokens[: len(before)] == before, "what is settled stays so"
        before = tokens
    assert settled.complete(text) == whole


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=200, deadline=None)
@given(text=TEXTS, draw=st.randoms(use_true_random=False))
@example("they're'relax 'rely", None)
@example("-.'s'-a .-b 'tis", None)
@example("x <to <tool>y", None)
def test_a_text_that_grows_has_from_its_last_cut_on_the_tokens_it_has_as_a_whole(name, text, draw):
    settled, text = rule(name), composed(text)
    cut, before = 0, []
    for end in range(len(text) + 1):
        if draw is None or end == len(text) or draw.random() < 0.8:
            arrived = composed(text[:end])
            tokens, count, next_cut = settled.after(arrived, cut)
            assert before + tokens == settled_of(settled, arrived), arrived
            assert cut <= next_cut <= len(arrived)
            cut, before = next_cut, before + tokens[:count]


def test_little_is_tokenised_again():
    for name in ("merges", "byte level", "like Qwen2"):
        text, cut = "".join(text for text, _ in SENTENCES), 0
        for end in range(1, len(text) + 1):
            _, _, cut = rule(name).after(text[:end], cut)
            assert end - cut <= 12, text[:end]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_little_is_held_back(name):
    settled = rule(name)
    for text, _ in SENTENCES:
        for end in range(1, len(text) + 1):
            arrived = len(token_ids(settled.tokenizer, [text[:end]])[0])
            assert arrived - len(settled_of(settled, text[:end])) <= 6  # tokens; a Chinese character is up to three
        assert settled_of(settled, text + "A ") == settled.complete(text + "A")


def test_a_word_that_begins_no_longer_entry_of_the_vocabulary_is_settled_at_once():
    settled = rule("characters and bytes")
    whole = token_ids(settled.tokenizer, ["人"])[0]
    assert settled_of(settled, "人") == whole  # no merges at all in this vocabulary


def test_another_kind_of_tokenizer_holds_everything_back_to_the_end():
    vocabulary = {"?": 0, "a": 1, "b": 2}
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="?")))
    settled = SettledTokens(words)
    assert settled.holds_everything
    assert settled_of(settled, "a") == []
    assert settled.complete("a") == [1]
    byte_level = json.loads(byte_level_tokenizer().backend_tokenizer.to_str())
    for part, option, value in (
        ("model", "ignore_merges", True),
        ("model", "dropout", 0.1),
        ("pre_tokenizer", "add_prefix_space", True),
    ):
        changed = json.loads(json.dumps(byte_level))
        changed[part][option] = value
        other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(changed)))
        assert SettledTokens(other).holds_everything, option


# --- characters ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_with_characters_every_token_is_settled_as_soon_as_it_arrives(text):
    settled = SettledTokens(tiny_tokenizer(460), "characters")
    whole = source_ids(settled.tokenizer, [text], "characters")[0]
    for end in range(len(text) + 1):
        tokens = settled_of(settled, text[:end])
        assert tokens == source_ids(settled.tokenizer, [text[:end]], "characters")[0] == whole[: len(tokens)]


def test_a_character_is_tokenised_by_itself():
    tokenizer = tiny_tokenizer(460)
    (word,), (characters,) = source_ids(tokenizer, ["the man"]), source_ids(tokenizer, ["the man"], "characters")
    assert len(characters) == len("the man") > len(word)
    assert tokenizer.decode(characters) == "the man"
    assert source_spans(tokenizer, "人é", "characters") == [(0, 1), (1, 2), (1, 2)]
    assert source_spans(tokenizer, "人é") == [(0, 1), (1, 2), (1, 2)]


def test_an_unknown_segmentation_is_refused():
    with pytest.raises(ValueError, match=r"data\.segmentation='words': must be one of tokens, characters"):
        SettledTokens(tiny_tokenizer(), "words")
