"""Tokens committed while a text arrives are those of the whole text, however it goes on."""

import json
import re
import struct
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_WORDS

from data_prep.incremental import composed
from duplexmt.data.settled import SettledTokens
from duplexmt.data.tokenizer import source_ids, source_spans, token_ids

from ..helpers import SENTENCES, byte_level_tokenizer, tiny_tokenizer

# As these models' tokenizer.json have them.
CONTRACTED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA_3 = CONTRACTED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTED + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTED}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTED}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
CORPUS = [text for pair in SENTENCES for text in pair] + [
    "it's they're I'll  \n\n ..., ?! they'd", "12 345 2024 1234567", "NASA WiFi iPhone NEW York", "किताब खरीदता हिन्दी",
    "สวัสดีครับ",
] * 9  # fmt: skip


def split_by(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@cache
def of_bytes(pre_tokenizer, size=700, words=(), normalizer=None, added=()):
    """Byte-level BPE. `words`: entries that no merges lead to, for `ignore_merges`."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 2, trainer)
    if words:
        described = json.loads(tokenizer.to_str())
        described["model"]["ignore_merges"] = True
        vocabulary = described["model"]["vocab"]
        vocabulary |= {word: len(vocabulary) + place for place, word in enumerate(words) if word not in vocabulary}
        tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_tokens([AddedToken(one, normalized=False) for one in added])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def qwen2_like_tokenizer(added=()):
    """Over Qwen2's word pattern: merges across spaces, digits, contractions and Chinese alike."""
    return of_bytes(split_by(QWEN2_WORDS), normalizer=normalizers.NFC(), added=added)


def precompiled(mapping):
    """SentencePiece's normalizer with a map of its own: a double array over bytes, then the texts."""
    trie, texts = {}, b""
    for key, value in mapping.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None], texts = len(texts), texts + value.encode() + b"\0"
    units, todo, base = [0] * 65536, [(0, trie)], 0
    while todo:
        index, node = todo.pop()
        base += 256  # a block for each node
        units[index] |= (index ^ base) << 10 | (None in node) << 8
        for byte, child in node.items():
            if byte is None:
                units[base] = child | 1 << 31
            else:
                units[base ^ byte] = byte
                todo.append((base ^ byte, child))
    return normalizers.Precompiled(struct.pack("<65537I", 4 * len(units), *units) + texts)


@cache
def sentence_piece(kind, space, fallback=True, size=900):
    """SentencePiece's BPE or Unigram, with bytes for what is rare, or one token for all of that."""
    single_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "</s>", *(single_bytes if fallback else [])]
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE(byte_fallback=fallback, unk_token="<unk>", fuse_unk=True))
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=60, show_progress=False)
    else:
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    if kind == "BPE":  # Google's trainer lets no entry cross words
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁")
        tokenizer.train_from_iterator(CORPUS * 2, trainer)
        tokenizer.pre_tokenizer = None
    if space == "prepended":  # as Llama 2
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
    else:
        scheme = space.split()[0].replace("words", "always")
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split="split" in space)
    if kind == "Unigram":
        tokenizer.train_from_iterator(CORPUS, trainer)
    described = json.loads(tokenizer.to_str())
    described["model"]["byte_fallback"] = fallback
    if space.endswith("clusters"):  # as XLM-R and T5 have them
        mapping = precompiled({"ﬁ": "fi", "Ａ": "A", "e\u0301": "é", "…": "...", "\u00a0": " ", "か": "か", "ｶ": "カ"})
        spaces = normalizers.Replace(Regex(" {2,}"), " ")
        described["normalizer"] = json.loads(normalizers.Sequence([mapping, spaces]).__getstate__())
    if space.startswith("words"):
        steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁")]
        described["pre_tokenizer"] = json.loads(pre_tokenizers.Sequence(steps).__getstate__())
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] not in single_bytes]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(described)), unk_token="<unk>", eos_token="</s>"
    )


TOKENIZERS = {
    "characters and bytes": tiny_tokenizer,
    "merges": lambda: tiny_tokenizer(460),
    "byte level": byte_level_tokenizer,
    "like Qwen2": qwen2_like_tokenizer,
    "with an added token": lambda: qwen2_like_tokenizer(("<tool>",)),
    "like Llama 3": lambda: of_bytes(split_by(LLAMA_3), words=("Ġtheater", "teach", "'re", "345", "ĠNEW", "Ġthez")),
    "like GPT-4": lambda: of_bytes(split_by(CL100K)),
    "like GPT-4o": lambda: of_bytes(split_by(O200K)),
    "Tekken": lambda: of_bytes(split_by(TEKKEN)),
    "like DeepSeek": lambda: of_bytes(split_by(*DEEPSEEK)),
    "like SmolLM": lambda: of_bytes(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "like Llama 2": lambda: sentence_piece("BPE", "prepended"),
    "SentencePiece BPE": lambda: sentence_piece("BPE", "first"),
    "SentencePiece BPE of words": lambda: sentence_piece("BPE", "always split", False),
    "like XLM-R": lambda: sentence_piece("Unigram", "words split clusters", False),
    "like NLLB": lambda: sentence_piece("BPE", "always split clusters"),
    "Unigram": lambda: sentence_piece("Unigram", "always split"),
    "Unigram of whole texts": lambda: sentence_piece("Unigram", "never"),
    "Unigram without bytes": lambda: sentence_piece("Unigram", "first split", False),
}
RULES = {}
WORDS = [
    *"站在那边的男人曾是棒球手我昨天买了一本书。，？！ \n\t'.,?!12’—é😀…<>", *"therdlmsaT", "  ", "'re", "'S", "n't",
    " the", "tea", "</s>", "<tool>", "<to", "<0x41>", "\r\n", "\u00a0", "e\u0301", "ſ", "▁", " ", " ", "ि", "ता",
    "खर", "ที่", "123", "45", "A", "N", "ǅ", "ʰ", "/", "thea", "٣", "👩\u200d🚀", "☃☃", "ﬁ", "Ａ", "\u0301", "か",
    "ﾞ", "…", "🇩", "\U00018e00", "'", "한",
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
@settings(max_examples=20)  # for each of 19 tokenizers
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


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=15)
@given(text=TEXTS, others=st.lists(TEXTS, min_size=8, max_size=8))
@example("they'r", [])
@example("a  \n  \n b", [])
@example("..'s ''re 're", [])
@example("x <to <tool>y", [])
@example("it'", ["s", "sx", "re", "r", "ll see", "x", " ", ""])
@example("HELLO", ["w", "W", "World", "'s", "'sx", " ", "ि", "1"])
@example("人a人A", ["b", "B", "'d", "人", " b", "1", ".", ""])
@example("  ", ["1", "a", " ", "\n", " \n a", ".", "ि", "人"])
@example("1", ["2", "23", "234", "2345", " 2", "a", ".", "人"])
@example(" the", ["a", "ate", "ater", "aters", "z", "zy", " ", "rapist"])
def test_what_is_settled_begins_the_tokens_of_every_continuation(name, text, others):
    settled, text, before = rule(name), composed(text), []
    assert settled.warning is None
    assert settled.complete(text) == token_ids(settled.tokenizer, [text])[0]
    for end in range(len(text) + 1):
        tokens = settled_of(settled, composed(text[:end]))
        assert tokens[: len(before)] == before, "what is settled stays so"
        before = tokens
        for other in (*others, text[end:]):
            whole = token_ids(settled.tokenizer, [composed(text[:end] + other)])[0]
            if composed(text[:end] + other).startswith(composed(text[:end])):
                assert tokens == whole[: len(tokens)], (text[:end], other)


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
        space = "  " if settled.by_clusters else " "  # the last cluster waits
        assert settled_of(settled, text + "A" + space) == settled.complete(text + "A")


def changed(tokenizer, **parts):
    """A tokenizer with other values in its description."""
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    for part, values in parts.items():
        described[part] = described[part] | values if part == "model" else values
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(described)))


def of_words(model):
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: of_words(models.WordLevel({"?": 0}, unk_token="?")), "WordLevel"),
        (lambda: of_words(models.WordPiece({"?": 0}, unk_token="?")), "WordPiece"),
        (lambda: changed(byte_level_tokenizer(), pre_tokenizer=BYTE_LEVEL), "pre-tokenizer ByteLevel"),
        (lambda: changed(byte_level_tokenizer(), pre_tokenizer={"type": "BertPreTokenizer"}), "BertPreTokenizer"),
        (lambda: changed(byte_level_tokenizer(), model={"dropout": 0.1}), "dropout=0.1"),
        (lambda: changed(byte_level_tokenizer(), model={"end_of_word_suffix": "</w>"}), "end_of_word_suffix=</w>"),
        (lambda: changed(tiny_tokenizer(), normalizer={"type": "Lowercase"}), "normalizer Lowercase"),
        (lambda: changed(tiny_tokenizer(), pre_tokenizer=split(r"\w+(?=ing)|.")), "looks around"),
        (lambda: changed(tiny_tokenizer(), pre_tokenizer=split(r"\w+$|.")), "looks around"),
        (lambda: changed(tiny_tokenizer(), pre_tokenizer=split(r"(?<=a)b|.")), "looks around"),
        (lambda: changed(tiny_tokenizer(), pre_tokenizer=split(r"(a)\1|.")), "looks around"),
        (lambda: changed(tiny_tokenizer(), model={"byte_fallback": False}), "leaves out characters"),
    ],
)
def test_another_kind_of_tokenizer_holds_everything_back_to_the_end_and_says_why(make, why):
    settled = SettledTokens(make())
    assert re.search(rf"settled at sentence ends and pauses only, as its .*{re.escape(why)}", settled.warning)
    assert "data.segmentation=characters" in settled.warning
    assert settled_of(settled, "? ? ") == []
    assert settled.after("? ? ", 0) == ([], 0, 0)
    assert settled.complete("?") == token_ids(settled.tokenizer, ["?"])[0]
    assert SettledTokens(tiny_tokenizer(), "characters").warning is None


# --- characters ------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
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
