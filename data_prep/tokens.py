"""Token counters of pretrained tokenizers, by the tokenizers library alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

CountTokens = Callable[[list[str]], list[int]]
PRETOKEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's split of text into words, runs of marks and single digits; BPE merges stay within a piece."""


@dataclass(frozen=True)
class TokenCounter:
    """How many tokens texts have, and which tokenizer says so."""

    count: CountTokens
    name: str
    sha256: str  # of the tokenizer as JSON


def fits(
    pairs: Sequence[Any], max_tokens: int | None, count_source: CountTokens | None, count_target: CountTokens | None
) -> list[bool]:
    """Which pairs have at most `max_tokens` tokens on either side: all where that is None."""
    if max_tokens is None or count_source is None or count_target is None:
        return [True] * len(pairs)
    sizes = count_source([pair.source for pair in pairs]), count_target([pair.target for pair in pairs])
    return [max(both) <= max_tokens for both in zip(*sizes, strict=True)]


def token_counter(name_or_folder: str) -> TokenCounter:
    """The counter of a folder with tokenizer.json, or with Qwen2's vocab.json and merges.txt; or of a hub's tokenizer.

    Special tokens are not added, and one spelt out in a text counts as what its characters come to.

    Raises:
        ValueError: there is no such tokenizer, or it cannot be had offline.
    """
    tokenizer = _load(name_or_folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    def count(texts: list[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    return TokenCounter(count, name_or_folder, sha256(tokenizer.to_str().encode()).hexdigest())


def _load(name_or_folder: str) -> Tokenizer:
    folder = Path(name_or_folder)
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises no kind of its own
            raise ValueError(f"{folder / 'tokenizer.json'} is damaged ({error}): copy or save it again") from error
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if vocabulary.is_file() and merges.is_file():
        config = folder / "tokenizer_config.json"
        kind = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class") if config.is_file() else None
        if kind not in ("Qwen2Tokenizer", "Qwen2TokenizerFast"):
            raise ValueError(
                f"tokenizer={name_or_folder}: vocab.json and merges.txt say how to count for Qwen2 only, and this is "
                f"{kind!r}; save it with a tokenizer.json: AutoTokenizer.from_pretrained(…).save_pretrained(…)"
            )
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        return tokenizer
    try:
        return Tokenizer.from_pretrained(name_or_folder)
    except Exception as error:  # the hub's client raises its own kinds
        raise ValueError(
            f"tokenizer={name_or_folder}: no tokenizer could be loaded from there ({error}); give a folder with its "
            "tokenizer.json, or null for no length limit"
        ) from error
