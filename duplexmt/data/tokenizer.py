"""Tokenizers: one from a Hugging Face folder, or a BPE trained on the corpus; and the tokens a stream needs."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .batch import Example

SEGMENTATIONS = ("tokens", "characters")

LARGEST_BYTE = 0xFF
ENCODED = 10_000  # texts whose encodings, of some 130 bytes a token, exist at a time
END_TOKEN = "<|endoftext|>"
SEED_TOKEN = "<|im_start|>"
WORDS_WITH_SIGNS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's split of texts where vowel signs and accents are letters, too: as Qwen3.5 has it.

Without them no merge crosses a vowel sign, and a Hindi or Thai word takes two tokens or more.
"""


def load_tokenizer(name_or_folder: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder, or by name from the hub if the user names a remote one.

    Raises:
        ValueError: if there is none to load.
    """
    try:
        if (Path(name_or_folder) / "tokenizer.json").is_file():
            # As it was saved. AutoTokenizer would take the class from a config.json beside it (model folders have one),
            # and Qwen2's, say, keeps the vocabulary but splits and decodes in its own way.
            return PreTrainedTokenizerFast.from_pretrained(name_or_folder)
        tokenizer = AutoTokenizer.from_pretrained(name_or_folder, trust_remote_code=False)
        if len(tokenizer) == len(tokenizer.all_special_tokens):  # made up from a model's config.json alone
            raise OSError("there are no tokenizer files, or they hold special tokens only")
        return tokenizer
    except (OSError, ValueError) as error:
        raise ValueError(
            f"data.tokenizer={name_or_folder!r}: no tokenizer could be loaded from there ({error}); give a folder with "
            "tokenizer files, a Hugging Face name, or null to train one on the data"
        ) from error


def check_tokens_of(backbone: str, tokenizer: Any) -> None:
    """Refuse a tokenizer that has other tokens than the one in a backbone's folder, where there is one.

    More tokens, with ids that are free there, may be added.

    Raises:
        ValueError: naming one that differs.
    """
    if not (Path(backbone) / "tokenizer.json").is_file():
        return
    own = {index: token for token, index in load_tokenizer(backbone).get_vocab().items()}
    given = {index: token for token, index in tokenizer.get_vocab().items()}
    if odd := sorted(index for index in own.keys() & given.keys() if own[index] != given[index]):
        raise ValueError(
            f"{len(odd)} tokens of data.tokenizer are others in model.backbone={backbone}, such as number {odd[0]}, "
            f"{given[odd[0]]!r} and {own[odd[0]]!r}: its weights would be of no use; give data.tokenizer={backbone}"
        )


def train_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerBase:
    """Train a BPE over characters, with bytes for rare ones, on both languages' texts.

    Deterministic; no text is out of vocabulary. At most half the vocabulary goes to single characters.

    Args:
        vocab_size: at least 300: 256 bytes, two special tokens, characters and merges.

    Raises:
        ValueError: for a smaller vocabulary.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if vocab_size < 300:
        raise ValueError(f"data.vocab_size={vocab_size}: a vocabulary with all bytes needs at least 300 entries")
    texts = list(texts)
    counts = Counter(character for text in texts for character in normalize("NFC", text))
    # The trainer's own limit_alphabet breaks ties at random, and every process trains for itself: choose here.
    by_count = sorted(counts, key=lambda character: (-counts[character], character))
    alphabet = by_count[: min(vocab_size // 2, vocab_size - 258)]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS_WITH_SIGNS), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    single_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_TOKEN, SEED_TOKEN, *single_bytes],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # The bytes were special for the trainer's sake only: as plain entries of the vocabulary they are decoded.
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [token for token in saved["added_tokens"] if token["content"] not in single_bytes]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(saved)), eos_token=END_TOKEN, bos_token=SEED_TOKEN
    )


@dataclass(frozen=True)
class StreamTokens:
    """The tokens both streams need beside the text's own (docs/reference/deviations.md).

    `end` closes either stream, `seed` is `o_0`; prefixes are options, and states inside them are not scored. The last
    `context` tokens of the source prefix stand for the previous sentence: end tokens where there is none. The module
    `copying` has what `copy_tokens` are.
    """

    end: int
    seed: int
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    context: int = 0
    copy_tokens: tuple[int, ...] = ()

    @property
    def prefixes(self) -> tuple[int, int]:
        """Tokens before the text of source and target; of the target without the seed."""
        return len(self.source_prefix), len(self.target_prefix)

    def prefix(self, context: Sequence[int] = ()) -> tuple[int, ...]:
        """The source prefix, with the end of the previous sentence in its place.

        Raises:
            ValueError: for a previous sentence where the model was trained without.
        """
        if context and not self.context:
            raise ValueError("this model was trained without the previous sentence as context (data.context_tokens=0)")
        kept = tuple(context)[-self.context :] if context else ()
        return (*self.source_prefix[: len(self.source_prefix) - len(kept)], *kept)

    def example(self, source: Sequence[int], target: Sequence[int], context: Sequence[int] = ()) -> Example:
        """Both streams of a pair of tokenised texts."""
        return Example(
            source=(*self.prefix(context), *source, self.end),
            target=(self.seed, *self.target_prefix, *target, self.end),
        )


def stream_tokens(
    tokenizer: Any,
    *,
    end_token: str | None = None,
    seed_token: str | None = None,
    source_prefix: str = "",
    target_prefix: str = "",
    context_tokens: int = 0,
    copy_tokens: int = 0,
) -> StreamTokens:
    """Choose the special tokens: `end` is the tokenizer's eos; `seed` its bos, else `<|im_start|>`, else eos.

    Special tokens spelt out in a prefix count as such: a prompt may need them. The source prefix ends in as many end
    tokens as the previous sentence may have, in whose place they stand.

    Raises:
        ValueError: for a tokenizer without an end token, or a token that is not in its vocabulary.
    """

    def known(token: str, setting: str) -> int:
        vocabulary = tokenizer.get_vocab()
        if token not in vocabulary:
            raise ValueError(f"{setting}={token!r}: not a token of this tokenizer's vocabulary of {len(vocabulary)}")
        return vocabulary[token]

    end = known(end_token, "data.end_token") if end_token else tokenizer.eos_token_id
    if end is None:
        raise ValueError(
            "the tokenizer has no end token (eos_token), and both streams must end with one: "
            "set data.end_token to a token of its vocabulary"
        )
    if seed_token:
        seed = known(seed_token, "data.seed_token")
    elif tokenizer.bos_token_id is not None:
        seed = tokenizer.bos_token_id
    else:
        seed = tokenizer.get_vocab().get(SEED_TOKEN, end)
    source, target = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (source_prefix, target_prefix))
    copied = copy_token_ids(tokenizer, copy_tokens)
    return StreamTokens(end, seed, (*source, *[end] * context_tokens), tuple(target), context_tokens, copied)


def copy_token_ids(tokenizer: Any, count: int) -> tuple[int, ...]:
    """Ids of so many copy tokens (`data.copying`): bytes that no text in UTF-8 has, from the largest one on.

    Raises:
        ValueError: for a tokenizer that is not one of bytes.
    """
    if not count:
        return ()
    known, like_gpt2 = tokenizer.get_vocab(), decoders_of(tokenizer) == ["ByteLevel"]
    numbers = range(LARGEST_BYTE, LARGEST_BYTE - count, -1)
    names = [chr(byte) if like_gpt2 else f"<0x{byte:02X}>" for byte in numbers]
    if not joins(tokenizer) or not known.keys() >= {*names}:
        raise ValueError(
            f"data.copy_tokens={count}: they are bytes that no text has, and this tokenizer lacks bytes, or its "
            "decoder does more than put them together; give 0, or data.tokenizer=null for one trained on the data"
        )
    return tuple(known[name] for name in names)


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens: one spelt out in a text is tokenised like any other text."""
    if not texts:
        return []
    if not tokenizer.is_fast:
        return tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True)["input_ids"]
    backend = tokenizer.backend_tokenizer  # called by itself, it takes a third of the time: only ids are asked for
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    ids: list[list[int]] = []
    one: dict[int, int] = {}  # object for each id, instead of 28 bytes for each token
    for begin in range(0, len(texts), ENCODED):
        some = list(texts[begin : begin + ENCODED])
        encodings = backend.encode_batch_fast(some, add_special_tokens=False)
        ids += [[one.setdefault(token, token) for token in encoding.ids] for encoding in encodings]
    return ids


def decode(tokenizer: Any, tokens: list[int]) -> str:
    """Text of tokens, special tokens left out."""
    if not tokenizer.is_fast:
        return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return tokenizer.backend_tokenizer.decode(tokens, skip_special_tokens=True)  # by itself, a fifth of the time


@lru_cache(maxsize=8)
def joins(tokenizer: Any) -> bool:
    """Whether the text of tokens is that of the first ones and of the rest, where the first end in no half character.

    So it is where bytes are all that a decoder puts together.
    """
    return decoders_of(tokenizer) in (["ByteLevel"], ["ByteFallback", "Fuse"])


def decoders_of(tokenizer: Any) -> list[str]:
    """The kinds of its decoders, in order."""
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.decoder is None:
        return []
    description = json.loads(tokenizer.backend_tokenizer.decoder.__getstate__())
    return [decoder["type"] for decoder in description.get("decoders", [description])]


def token_spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Character span `[start, end)` of each token that `token_ids` gives a text (fast tokenizers only)."""
    how = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
    return tokenizer(text, **how)["offset_mapping"]


def source_ids(tokenizer: Any, texts: Sequence[str], segmentation: str = "tokens") -> list[list[int]]:
    """Token ids of source texts.

    Args:
        texts: cleaned source texts.
        segmentation: `tokens`, the tokenizer's own (the paper's), or `characters`: every character tokenised by itself,
            so that a text that grows keeps the tokens it has.
    """
    if segmentation == "tokens":
        return token_ids(tokenizer, texts)
    if segmentation != "characters":
        raise ValueError(f"data.segmentation={segmentation!r}: must be one of {', '.join(SEGMENTATIONS)}")
    characters = sorted({character for text in texts for character in text})
    of = dict(zip(characters, token_ids(tokenizer, characters), strict=True))
    return [[token for character in text for token in of[character]] for text in texts]


@dataclass(frozen=True)
class SourceTokens:
    """How source texts become tokens, in training and decoding alike.

    Args:
        segmentation: see `source_ids`.
    """

    tokenizer: Any
    segmentation: str = "tokens"

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of sources, or of the sentences before them: none for an empty one."""
        return source_ids(self.tokenizer, texts, self.segmentation)


def source_spans(tokenizer: Any, text: str, segmentation: str = "tokens") -> list[tuple[int, int]]:
    """Character span `[start, end)` of each token that `source_ids` gives a text."""
    if segmentation == "tokens":
        return token_spans(tokenizer, text)
    lengths = [len(source_ids(tokenizer, [character], segmentation)[0]) for character in text]
    return [(position, position + 1) for position, length in enumerate(lengths) for _ in range(length)]


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the tokenizer's files into a folder: the same ones, wherever the tokenizer came from."""
    for where in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(where, None)
    tokenizer.save_pretrained(str(folder))
