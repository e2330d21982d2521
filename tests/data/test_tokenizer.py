"""Tokenizers: the trained BPE, the choice of stream tokens, and character spans."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_WORDS

from duplexmt.data.batch import Example
from duplexmt.data.tokenizer import (
    SourceTokens,
    StreamTokens,
    load_tokenizer,
    save_tokenizer,
    stream_tokens,
    token_ids,
    token_spans,
    train_bpe,
)
from duplexmt.streaming.growing_text import decode

from ..helpers import SENTENCES, byte_level_tokenizer, tiny_backbone, tiny_tokenizer

TEXTS = [text for pair in SENTENCES for text in pair]


def word_tokenizer(words, **special):
    """A tokenizer with a vocabulary of given words and whatever special tokens are named."""
    vocabulary = {word: number for number, word in enumerate(words)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="?")), **special)


@pytest.mark.slow
def test_training_a_bpe_in_another_process_gives_the_same_tokenizer():
    # Every device trains for itself. At 320 entries the characters met once are too many to be all kept.
    code = (
        "from tests.helpers import tiny_tokenizer; import sys; "
        "sys.stdout.buffer.write(tiny_tokenizer().backend_tokenizer.to_str().encode())"
    )
    root = Path(__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True).stdout.decode()
    assert told == tiny_tokenizer().backend_tokenizer.to_str()


@pytest.mark.parametrize("vocab_size", [300, 320, 400])
def test_the_vocabulary_has_the_size_asked_for(vocab_size):
    assert len(train_bpe(iter(TEXTS), vocab_size)) == vocab_size


SIGNED = {  # sentences with vowel signs, viramas, tone marks or points
    "hi": "वह किताब खरीदता है। मैंने कल नई किताब खरीदी। हिन्दी सीखना मुश्किल नहीं है। बच्चे स्कूल जाते हैं।",
    "ta": "அவன் புத்தகம் வாங்கினான். குழந்தைகள் பள்ளிக்குச் செல்கிறார்கள். எனக்குத் தமிழ் பிடிக்கும்.",
    "bn": "সে একটি বই কিনেছে। শিশুরা স্কুলে যায়। আমি বাংলা ভালোবাসি।",
    "ar": "كَتَبَ الوَلَدُ الدَّرْسَ. ذَهَبَ الرَّجُلُ إِلَى السُّوقِ.",
}


@pytest.mark.parametrize("language", SIGNED)
def test_merges_of_an_own_bpe_cross_vowel_signs(monkeypatch, language):
    texts = [SIGNED[language]] * 3
    words = [word.strip("।.") for word in SIGNED[language].split()]

    def tokens_a_word():
        ids = token_ids(train_bpe(texts, 1500), [f" {word}" for word in words])
        return sum(map(len, ids)) / len(words)

    assert tokens_a_word() < 1.3
    monkeypatch.setattr("duplexmt.data.tokenizer.WORDS_WITH_SIGNS", QWEN2_WORDS)
    assert tokens_a_word() > 2, "as it was"


def test_an_own_bpe_of_chinese_and_english_cuts_words_as_qwen2_does(monkeypatch):
    ours = train_bpe(TEXTS * 3, 500)
    monkeypatch.setattr("duplexmt.data.tokenizer.WORDS_WITH_SIGNS", QWEN2_WORDS)
    assert ours.get_vocab() == train_bpe(TEXTS * 3, 500).get_vocab()
    assert token_ids(ours, TEXTS) == token_ids(train_bpe(TEXTS * 3, 500), TEXTS)


def test_a_character_seen_often_is_a_token_and_a_new_one_is_its_bytes_whether_composed_or_not():
    tokenizer = tiny_tokenizer()
    assert tokenizer.convert_ids_to_tokens(token_ids(tokenizer, ["人é"])[0]) == ["人", "<0xC3>", "<0xA9>"]
    assert token_ids(tokenizer, ["cafe\u0301"]) == token_ids(tokenizer, ["café"])


@pytest.mark.parametrize(
    "text",
    ["站在那边的男人曾是棒球手。", "emoji 😀👩‍👩‍👧 and 𠮷", "tabs\tand  two spaces, newline\nend ",
     "Ünïcode ½ € \x00 ﷽ العربية", "<0x41> is no byte", ""],
)  # fmt: skip
@pytest.mark.parametrize("build", [tiny_tokenizer, lambda: tiny_tokenizer(420), byte_level_tokenizer])
def test_any_text_survives_a_round_trip(build, text):
    tokenizer = build()
    ids = token_ids(tokenizer, [text])[0]
    assert decode(tokenizer, ids) == text
    assert not set(ids) & {tokenizer.eos_token_id, tokenizer.bos_token_id}


def test_special_tokens_spelt_out_in_a_text_are_plain_text():
    tokenizer = tiny_tokenizer()
    text = "a<|endoftext|>b <|im_start|>"
    ids = token_ids(tokenizer, [text])[0]
    assert not set(ids) & {tokenizer.eos_token_id, tokenizer.bos_token_id}
    assert decode(tokenizer, ids) == text
    assert len(token_spans(tokenizer, text)) == len(ids)


@pytest.mark.parametrize("build", [tiny_tokenizer, byte_level_tokenizer])
def test_ids_are_those_of_a_call_of_the_tokenizer_whatever_it_was_used_for_before(build):
    tokenizer = build()
    texts = [*TEXTS, "", "a<|endoftext|>b", "😀 你好"]
    plain = {"add_special_tokens": False, "split_special_tokens": True}
    expected = [tokenizer(text, **plain)["input_ids"] for text in texts]
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer(texts, truncation=True, max_length=2, padding="max_length")
    assert token_ids(tokenizer, texts) == expected
    assert tokenizer(texts[0], truncation=True, max_length=2)["input_ids"] == expected[0][:2]


def test_a_saved_tokenizer_loads_as_the_same_tokenizer(tmp_path):
    tokenizer = tiny_tokenizer()
    save_tokenizer(tokenizer, tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    texts = [*TEXTS, "😀 <|endoftext|>"]
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert token_ids(loaded, texts) == token_ids(tokenizer, texts)
    assert [token_spans(loaded, text) for text in texts] == [token_spans(tokenizer, text) for text in texts]
    assert stream_tokens(loaded) == stream_tokens(tokenizer)
    assert decode(loaded, token_ids(loaded, ["你好, café"])[0]) == "你好, café"


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "mistral", "qwen3"])
@pytest.mark.parametrize("build", [tiny_tokenizer, byte_level_tokenizer])
def test_a_model_configuration_beside_a_tokenizer_changes_nothing_about_it(tmp_path, build, model_type):
    # In a model folder there is one, and AutoTokenizer would build that model's own kind of tokenizer.
    save_tokenizer(build(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    loaded = load_tokenizer(str(tmp_path))
    texts = [*TEXTS, "😀 你好"]
    assert token_ids(loaded, texts) == token_ids(build(), texts)
    assert [decode(loaded, ids) for ids in token_ids(loaded, texts)] == texts


def test_what_gives_no_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"data\.vocab_size=299: .*at least 300"):
        train_bpe(TEXTS, 299)
    for folder in (tmp_path / "nothing here", tmp_path):
        with pytest.raises(ValueError, match=rf"data\.tokenizer='{folder}'"):
            load_tokenizer(str(folder))
    tiny_backbone().config.save_pretrained(tmp_path)  # of which transformers makes a tokenizer of one entry
    with pytest.raises(ValueError, match=r"data\.tokenizer=.*there are no tokenizer files.*null to train one"):
        load_tokenizer(str(tmp_path))


def test_end_is_eos_and_seed_is_bos_or_else_im_start_or_else_eos():
    assert stream_tokens(tiny_tokenizer()) == StreamTokens(end=0, seed=1)
    words = ["?", "<s>", "<|im_start|>", "</s>"]
    assert stream_tokens(word_tokenizer(words, bos_token="<s>", eos_token="</s>")) == StreamTokens(end=3, seed=1)
    assert stream_tokens(word_tokenizer(words, eos_token="</s>")) == StreamTokens(end=3, seed=2)
    assert stream_tokens(word_tokenizer(["?", "</s>"], eos_token="</s>")) == StreamTokens(end=1, seed=1)


def test_end_and_seed_can_be_chosen_from_the_vocabulary():
    tokenizer = word_tokenizer(["?", "</s>", "<a>", "<b>"], eos_token="</s>")
    assert stream_tokens(tokenizer, end_token="<a>", seed_token="<b>") == StreamTokens(end=2, seed=3)


def test_a_token_that_is_not_in_the_vocabulary_is_refused_by_name():
    with pytest.raises(ValueError, match=r"data\.end_token='<x>': not a token .* vocabulary of 320"):
        stream_tokens(tiny_tokenizer(), end_token="<x>")
    with pytest.raises(ValueError, match=r"data\.seed_token='<y>': not a token"):
        stream_tokens(tiny_tokenizer(), seed_token="<y>")


def test_a_tokenizer_without_eos_is_refused_until_an_end_token_is_chosen():
    tokenizer = word_tokenizer(["?", "<s>", "。"], bos_token="<s>")
    with pytest.raises(ValueError, match=r"no end token \(eos_token\).*set data\.end_token"):
        stream_tokens(tokenizer)
    assert stream_tokens(tokenizer, end_token="。") == StreamTokens(end=2, seed=1)


def test_prefixes_are_tokenised_with_their_special_tokens():
    tokenizer = tiny_tokenizer()
    tokens = stream_tokens(tokenizer, source_prefix="<|im_start|>zh:", target_prefix="en:")
    assert tokens.source_prefix == (1, *token_ids(tokenizer, ["zh:"])[0])
    assert decode(tokenizer, list(tokens.target_prefix)) == "en:"


def test_an_example_is_prefix_text_and_end_on_either_side():
    plain, prefixed = StreamTokens(end=0, seed=1), StreamTokens(0, 1, source_prefix=(5, 6), target_prefix=(7,))
    assert plain.example([10, 11], [20]) == Example(source=(10, 11, 0), target=(1, 20, 0))
    assert prefixed.example([10, 11], [20]) == Example(source=(5, 6, 10, 11, 0), target=(1, 7, 20, 0))


@pytest.mark.parametrize("build", [tiny_tokenizer, byte_level_tokenizer])
def test_spans_of_byte_tokens_cover_the_character_they_belong_to(build):
    # Neither vocabulary knows 你, 好 or 😀: three, three and four byte tokens.
    assert token_spans(build(), "你好😀!") == [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 3)] * 4 + [(3, 4)]


# --- sources ---------------------------------------------------------------------------------------------------------


def test_no_text_and_an_empty_sentence_before_have_no_tokens():
    assert token_ids(tiny_tokenizer(), []) == token_spans(tiny_tokenizer(), "") == []
    for segmentation in ("tokens", "characters"):
        sources = SourceTokens(tiny_tokenizer(), segmentation)
        assert sources.ids(["", "我们走。"]) == [[], sources.ids(["我们走。"])[0]]


def test_a_context_takes_the_place_of_the_end_tokens_kept_for_it():
    tokens = stream_tokens(tiny_tokenizer(), source_prefix="zh", context_tokens=3)
    prefix = tuple(token_ids(tiny_tokenizer(), ["zh"])[0])
    assert tokens.source_prefix == (*prefix, 0, 0, 0)
    assert tokens.example([10], [20]).source == (*prefix, 0, 0, 0, 10, 0)
    assert tokens.example([10], [20], [7, 8]).source == (*prefix, 0, 7, 8, 10, 0)
    assert tokens.example([10], [20], [5, 6, 7, 8]).source == (*prefix, 6, 7, 8, 10, 0)
    with pytest.raises(ValueError, match=r"trained without the previous sentence .*data\.context_tokens=0"):
        stream_tokens(tiny_tokenizer()).prefix([7])
